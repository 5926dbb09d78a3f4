"""One pool of worker processes. `look` compares the processes that it wants with those that it has, and starts or
retires the difference."""

import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from time import monotonic

from snapapp.jobs import events
from snapapp.jobs.events import Events
from snapapp.jobs.fleet.errors import NotStarted
from snapapp.jobs.fleet.launcher import WorkerProcess
from snapapp.jobs.fleet.plan import Pool as Planned
from snapapp.jobs.os import memory
from snapapp.jobs.os.state_file import Reason

_LONGEST_PAUSE = 60.0  # seconds between two tries of a pool whose workers die at once
_KILL_LATE = 5.0  # seconds that a worker may take beyond its own grace
_GOOD_AGE = 60.0  # seconds; a worker that lived so long started well, even if it had no job to do


class State(StrEnum):
    """The state that a person gave a pool."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"  # its workers live and claim nothing
    DRAINED = "DRAINED"  # its workers finish their jobs and leave, and no new ones are started


@dataclass(slots=True)
class Leaving:
    child: WorkerProcess
    since: float
    kill_at: float = inf  # set by a stop, and after each attempt to kill it

    def is_overdue(self, now: float, patience: float) -> bool:
        """Whether it must be killed: all its jobs are past their time limits, and its main thread has not shown a sign
        of life since."""
        state = self.child.state
        return now >= min(self.kill_at, max(self.since, state.busy_until, state.seen_at) + patience)


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A snapshot of a pool, for the database thread."""

    planned: Planned
    state: State
    state_reason: str | None
    fixed_at: int | None
    wanted: int
    present: int
    leaving: int
    note: str | None
    memory_mb: tuple[int, ...] = field(default=(), compare=False)  # of each worker


class Pool:
    """Used by the supervisor's main thread only."""

    def __init__(
        self,
        planned: Planned,
        start_worker: Callable[[Planned, bool], WorkerProcess],
        events: Events,
        *,
        grace: float,  # seconds that a worker gets at a stop
    ) -> None:
        self.planned = planned
        self.state = State.ACTIVE
        self.state_reason: str | None = None
        self.fixed_at: int | None = None
        self._wanted = planned.starts_with
        self._start_worker = start_worker
        self._events = events
        self._grace = grace
        self._present: list[WorkerProcess] = []
        self._leaving: list[Leaving] = []
        self._outdated: list[WorkerProcess] = []  # present workers that a restart has yet to replace, one by one
        self._done = 0  # attempts that had ended in this pool at the last look
        self._early = 0  # workers in a row that died early, while no worker of the pool finished a job
        self._again_at = 0.0  # no worker is started before this time
        self._trouble: str | None = None
        self._is_stopping = False

    # --- commands ---------------------------------------------------------------------------------------------

    def scale(self, processes: int) -> None:
        self._wanted = processes

    def pause(self, reason: str | None = None) -> None:
        self.state, self.state_reason = State.PAUSED, reason
        for child in self._present:
            child.state.is_paused = True
            child.signal(signal.SIGUSR1)

    def resume(self) -> None:
        self.state, self.state_reason = State.ACTIVE, None
        for child in self._present:
            child.state.is_paused = False
            child.signal(signal.SIGCONT)

    def drain(self, reason: str | None = None) -> None:
        self.state, self.state_reason = State.DRAINED, reason

    def restart(self) -> None:
        """Replaces each worker: it leaves when the new one in its place is ready."""
        self._outdated = list(self._present)
        self._again_at = 0.0

    def stop(self) -> None:
        """Stops all workers within the grace. A second call shortens the grace to a second."""
        kill_at = monotonic() + (1.0 if self._is_stopping else self._grace + _KILL_LATE)
        self._is_stopping = True
        for child in self._present:
            self._leaving.append(Leaving(child, monotonic()))
        self._present, self._outdated = [], []
        for leaving in self._leaving:
            leaving.kill_at = min(kill_at, leaving.kill_at)
            leaving.child.signal(signal.SIGTERM)

    # --- state ------------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> int:
        return 0 if self.state is State.DRAINED or self._is_stopping else self._wanted

    @property
    def is_empty(self) -> bool:
        return not (self._present or self._leaving)

    @property
    def is_rolling(self) -> bool:
        return bool(self._outdated)

    @property
    def status(self) -> PoolStatus:
        return PoolStatus(
            planned=self.planned,
            state=self.state,
            state_reason=self.state_reason,
            fixed_at=self.fixed_at,
            wanted=self.wanted,
            present=len(self._present),
            leaving=len(self._leaving),
            note=self._note(),
            memory_mb=tuple(memory.resident_mb(child.pid) for child in self._present),
        )

    # --- one look ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Brings the workers in line with what is wanted. Called when something may have changed, and regularly."""
        self._kill_overdue()
        self._notice_work()
        self._notice_leavers()
        if not self.wanted:
            self._outdated = []
        while self._outdated and self._replace_one():
            pass
        self._start_missing()
        self._retire_excess()
        if self._events.hears(events.POOL_LOOPED):
            present, leaving = len(self._present), len(self._leaving)
            self._events.emit(
                events.POOL_LOOPED, pool=self.planned.name, wanted=self.wanted, present=present, leaving=leaving
            )

    def lost(self, child: WorkerProcess) -> bool:
        """Notes that a worker has ended. True: nobody had asked it to leave."""
        self._leaving = [leaving for leaving in self._leaving if leaving.child is not child]
        self._outdated = [outdated for outdated in self._outdated if outdated is not child]
        if child not in self._present:
            return False
        self._present.remove(child)
        self._notice_work()
        is_failure = bool(child.code) and child.state.done == 0 and monotonic() - child.started_at < _GOOD_AGE
        if is_failure:
            self._hold_back(f"the last one {child.end} before it finished a job")
        return True

    # --- parts ------------------------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        while len(self._present) < self.wanted and self._may_start():
            if self._start() is None or self._early:  # after a failure one worker at a time, as it may fail again
                return

    def _may_start(self) -> bool:
        return monotonic() >= self._again_at and not (self._early and self._is_starting)

    @property
    def _is_starting(self) -> bool:
        return any(not child.is_ready for child in self._present)

    def _start(self) -> WorkerProcess | None:
        try:
            child = self._start_worker(self.planned, self.state is State.PAUSED)
        except (NotStarted, OSError) as error:
            self._hold_back(str(error))
            return None
        child.state.is_paused = self.state is State.PAUSED
        self._present.append(child)
        self._events.emit(events.PROCESS_STARTED, logging.DEBUG, pool=self.planned.name, pid=child.pid)
        return child

    def _retire_excess(self) -> None:
        """Retires the oldest workers first: they are the nearest to their own limits."""
        while len(self._present) > self.wanted + bool(self._outdated):
            drained = self.state is State.DRAINED
            self._retire(self._present[0], Reason.DRAINED if drained else Reason.FEWER)

    def _retire(self, child: WorkerProcess, reason: Reason) -> None:
        child.state.reason = reason
        child.signal(signal.SIGUSR2)
        self._let_go(child)

    def _notice_leavers(self) -> None:
        """Counts workers that have reached a limit as leaving, so that new ones take their places while they finish
        their last jobs."""
        for child in [child for child in self._present if child.state.is_leaving]:
            self._let_go(child)

    def _let_go(self, child: WorkerProcess) -> None:
        self._present.remove(child)
        self._outdated = [outdated for outdated in self._outdated if outdated is not child]
        self._leaving.append(Leaving(child, monotonic()))

    def _replace_one(self) -> bool:
        """Replaces one outdated worker. The old one goes when a new one is ready, so the pool never has too few."""
        fresh = [child for child in self._present if child not in self._outdated]
        if len(self._present) <= self.wanted:
            if self._may_start():
                self._start()
            return False
        if not fresh or not all(child.is_ready for child in fresh):
            return False
        self._retire(self._outdated[0], Reason.RESTARTED)
        return True

    def _kill_overdue(self) -> None:
        now = monotonic()
        for leaving in self._leaving:
            if leaving.is_overdue(now, self._grace + _KILL_LATE) and not leaving.child.has_ended:
                pool, pid, why = self.planned.name, leaving.child.pid, "it did not leave: killed"
                self._events.emit(events.PROCESS_ENDED, logging.WARNING, pool=pool, pid=pid, why=why)
                leaving.child.kill()
                leaving.kill_at = now + _KILL_LATE

    def _notice_work(self) -> None:
        """Forgets early deaths as soon as a worker has finished a job, or has lived long enough."""
        done = sum(child.state.done for child in self._present)
        newest = self._present[-1].started_at if self._present else monotonic()
        if done > self._done or monotonic() - newest > _GOOD_AGE:
            self._early, self._trouble = 0, None
        self._done = done

    def _hold_back(self, why: str) -> None:
        """Delays the next start after an early death: the second try comes at once, each later one after a longer
        pause."""
        self._early += 1
        self._trouble = why
        if self._early > 1:
            self._again_at = monotonic() + min(_LONGEST_PAUSE, 2.0 ** (self._early - 2))

    def _note(self) -> str | None:
        if self._early < 2 or len(self._present) >= self.wanted:
            return None
        again = max(0.0, self._again_at - monotonic())
        return f"{self._early} workers in a row did not come to work, {self._trouble}; the next try is in {again:.0f} s"

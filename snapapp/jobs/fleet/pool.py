"""One pool of worker processes: what it should have against what it has. `look` starts and retires the difference."""

import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from time import monotonic
from typing import Any

from snapapp.jobs import events
from snapapp.jobs.events import Events
from snapapp.jobs.fleet.errors import NotStarted
from snapapp.jobs.fleet.launcher import WorkerProcess
from snapapp.jobs.fleet.plan import Pool as Planned
from snapapp.jobs.os import memory
from snapapp.jobs.os.state_file import Reason

_LONGEST_PAUSE = 60.0  # seconds between two tries of a pool whose workers die at once
_KILL_LATE = 5.0  # seconds that a worker may take beyond its own grace
_GOOD_AGE = 60.0  # a worker that lived so long was no failure to start, even if it had nothing to do


class State(StrEnum):
    """What a person made of a pool."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"  # its workers live and claim nothing
    DRAINED = "DRAINED"  # they finish what they run, and none takes their place


@dataclass(slots=True)
class Leaving:
    child: WorkerProcess
    since: float
    kill_at: float = inf  # of a stop, or of the last try

    def is_overdue(self, now: float, patience: float) -> bool:
        """Nothing that it runs is within its time limit, and its main thread does not move: else it ends by itself."""
        state = self.child.state
        return now >= min(self.kill_at, max(self.since, state.busy_until, state.seen_at) + patience)


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A pool as others see it."""

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
        self._outdated: list[WorkerProcess] = []  # of those present: to be replaced, one by one
        self._done = 0  # attempts that ended here, as of the last look
        self._early = 0  # workers in a row that died before any of the pool had finished a job
        self._again_at = 0.0  # no start before this
        self._trouble: str | None = None
        self._is_stopping = False

    # --- what it is told --------------------------------------------------------------------------------------

    def scale(self, processes: int) -> None:
        self._wanted = processes

    def pause(self, reason: str | None = None) -> None:
        self.state, self.state_reason = State.PAUSED, reason
        for child in self._present:
            child.signal(signal.SIGUSR1)

    def resume(self) -> None:
        self.state, self.state_reason = State.ACTIVE, None
        for child in self._present:
            child.signal(signal.SIGCONT)

    def drain(self, reason: str | None = None) -> None:
        self.state, self.state_reason = State.DRAINED, reason

    def restart(self) -> None:
        """Each worker is replaced; it leaves when the one in its place is ready."""
        self._outdated = list(self._present)
        self._again_at = 0.0

    def stop(self) -> None:
        """All of them, within the grace. Called again, they are to hurry."""
        kill_at = monotonic() + (1.0 if self._is_stopping else self._grace + _KILL_LATE)
        self._is_stopping = True
        for child in self._present:
            self._leaving.append(Leaving(child, monotonic()))
        self._present, self._outdated = [], []
        for leaving in self._leaving:
            leaving.kill_at = min(kill_at, leaving.kill_at)
            leaving.child.signal(signal.SIGTERM)

    # --- how it stands ----------------------------------------------------------------------------------------

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
        """Called when something may have changed, and every now and then."""
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
        """It has ended. True: nobody had asked it to."""
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

    # --- its parts --------------------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        while len(self._present) < self.wanted and self._may_start():
            if self._start() is None or self._early:  # after a failure one at a time: it may fail again
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
        self._present.append(child)
        self._events.emit(events.PROCESS_STARTED, logging.DEBUG, pool=self.planned.name, pid=child.pid)
        return child

    def _retire_excess(self) -> None:
        """From the front: the oldest has the most to lose by living on."""
        while len(self._present) > self.wanted + bool(self._outdated):
            drained = self.state is State.DRAINED
            self._retire(self._present[0], Reason.DRAINED if drained else Reason.FEWER)

    def _retire(self, child: WorkerProcess, reason: Reason) -> None:
        child.state.reason = reason
        child.signal(signal.SIGUSR2)
        self._let_go(child)

    def _notice_leavers(self) -> None:
        """Whoever has reached a limit may run its last jobs for long: its place need not be empty meanwhile."""
        for child in [child for child in self._present if child.state.is_leaving]:
            self._let_go(child)

    def _let_go(self, child: WorkerProcess) -> None:
        self._present.remove(child)
        self._outdated = [outdated for outdated in self._outdated if outdated is not child]
        self._leaving.append(Leaving(child, monotonic()))

    def _replace_one(self) -> bool:
        """There is never one fewer than there should be: a new one is ready before an old one goes."""
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
                self._tell(events.PROCESS_ENDED, logging.WARNING, pid=leaving.child.pid, why="it did not leave: killed")
                leaving.child.kill()
                leaving.kill_at = now + _KILL_LATE

    def _notice_work(self) -> None:
        """As soon as any job is finished, whatever made workers die at once is over."""
        done = sum(child.state.done for child in self._present)
        newest = self._present[-1].started_at if self._present else monotonic()
        if done > self._done or monotonic() - newest > _GOOD_AGE:
            self._early, self._trouble = 0, None
        self._done = done

    def _hold_back(self, why: str) -> None:
        """Nothing is lost by one quick second try; from then on longer each time."""
        self._early += 1
        self._trouble = why
        if self._early > 1:
            self._again_at = monotonic() + min(_LONGEST_PAUSE, 2.0 ** (self._early - 2))

    def _note(self) -> str | None:
        if self._early < 2 or len(self._present) >= self.wanted:
            return None
        again = max(0.0, self._again_at - monotonic())
        return f"{self._early} workers in a row did not come to work, {self._trouble}; the next try is in {again:.0f} s"

    def _tell(self, name: str, level: int = logging.INFO, **facts: Any) -> None:
        self._events.emit(name, level, pool=self.planned.name, **facts)

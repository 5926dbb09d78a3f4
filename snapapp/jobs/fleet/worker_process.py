"""What runs in a worker process of a pool. Its supervisor steers it by signals:

TERM INT HUP   finish the jobs within the grace, hand back the rest, and leave; a second signal: leave at once
USR1 CONT      claim nothing; claim again
USR2           finish the jobs, however long they take, and leave
"""

import importlib
import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from functools import partial
from math import inf
from time import monotonic, sleep
from typing import Any

from snapapp.jobs import events, tracing
from snapapp.jobs.fleet import plan
from snapapp.jobs.os import memory, processes
from snapapp.jobs.os.signals import ENDING, Signals
from snapapp.jobs.os.state_file import Reason
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Processor, Registry
from snapapp.jobs.settings import JobsSettings, Membership
from snapapp.jobs.worker.worker import Worker

Adapt = Callable[[JobsSettings], JobsSettings]
Entry = Callable[[str, Adapt], Runtime]  # the application's: makes a runtime for a URL, its settings adapted

STEERING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
PARENT_DIED = 13  # the exit code of a worker whose supervisor is gone
_LOOK_EVERY = 0.5  # seconds
_MOMENT = 0.2
_LONGEST_END = 90.0  # seconds after an attempt for its hooks and its settling, which have time limits of their own
_LAST_MOMENTS = 2.0  # seconds of the grace that are kept for handing jobs back and leaving
_REASONS = {
    Reason.NONE: "it was asked to finish and leave",
    Reason.FEWER: "scaled down",
    Reason.RESTARTED: "restarted",
    Reason.DRAINED: "drained",
}


def live(request: Mapping[str, Any], supervisor: int) -> int:
    """Runs a worker process from its start to its end, and returns its exit code."""
    with Signals(*STEERING) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*ENDING, *STEERING))
        if request["nice"]:
            os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + request["nice"]))
        pool = plan.pool_of(request["pool"], request["table"])
        name = f"{pool.name}-{os.getpid()}"
        adapt = partial(pool.adapt, name=name, master=request["master"], state_file=request["state_file"])
        runtime = _entry(request["entry"])(request["url"], adapt)
        try:
            registry = PoolRegistry(runtime.registry, pool.leaves_out)
            worker = PoolWorker(runtime, registry, signals)
            if request["is_paused"]:
                worker.pause()
            worker.start()
            return MainThread(worker, signals, supervisor).work()
        finally:
            runtime.close()
            tracing.stop()
            signals.ignore()


def _entry(path: str) -> Entry:
    module, _, name = path.partition(":")
    entry: Entry = getattr(importlib.import_module(module), name)
    return entry


class PoolRegistry(Registry):
    """The kinds that a pool's workers run. The schedules are those of the whole registry: a worker declares a schedule
    even if another pool runs its jobs."""

    def __init__(self, whole: Registry, leaves_out: Collection[str]) -> None:
        super().__init__()
        self.__dict__ |= whole.__dict__
        self._left_out = {processor.kind for processor in whole if processor.executor in leaves_out}

    def __iter__(self) -> Iterator[Processor]:
        return (processor for processor in super().__iter__() if processor.kind not in self._left_out)

    def __contains__(self, kind: str) -> bool:
        return super().__contains__(kind) and kind not in self._left_out

    def __len__(self) -> int:
        return super().__len__() - len(self._left_out)

    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind in super().kinds() if kind not in self._left_out)


class PoolWorker(Worker):
    """A worker that watches the limits of its pool, and writes its progress into its state file."""

    def __init__(self, runtime: Runtime, registry: Registry, signals: Signals) -> None:
        assert runtime.settings.membership
        self._its: Membership = runtime.settings.membership
        self._signals = signals
        self._is_paused = False
        self._leaving_since = inf  # written by the main thread
        self._started_at = monotonic()
        super().__init__(runtime.parts(registry))

    def tick(self) -> float | None:
        again_in = super().tick()
        self._executors.state_file.ready()
        return again_in

    def pause(self) -> None:
        """Stops claiming; running jobs go on."""
        self._is_paused = True
        self._claimer.is_paused = True

    def resume(self) -> None:
        if self._is_paused and not self._stopping.is_set():
            self._is_paused = False
            self._claimer.is_paused = False
            self.wake()

    def follow(self) -> None:
        """Pauses or resumes as the supervisor wants by now."""
        self.pause() if self._executors.state_file.is_paused else self.resume()
        self.tell()

    def tell(self) -> None:
        """Makes the next beat due at once. The beat stays on its own thread, because the database may not answer."""
        self._beaten_at -= self.settings.beat_every.total_seconds()

    def note(self) -> None:
        self._executors.state_file.note(self.done, monotonic())

    @property
    def is_overdue(self) -> bool:
        """Whether all jobs are long past their time limits although the database answers."""
        ended_at = max(self._leaving_since, self._executors.state_file.busy_until)
        return monotonic() > ended_at + _LONGEST_END and self.vitals().beats

    def leave_soon(self) -> None:
        self._leaving_since = monotonic()
        self._executors.state_file.leave()

    @property
    def done(self) -> int:
        """How many attempts have ended in this worker."""
        counts = self.counts
        return counts.completed + counts.failed + counts.cancelled + counts.retried + counts.snoozed

    @property
    def limit(self) -> str | None:
        """The limit of its pool that this worker has reached, in words; None: it has reached none."""
        its, age = self._its, timedelta(seconds=monotonic() - self._started_at)
        if its.max_jobs is not None and self.done >= its.max_jobs:
            return f"max_jobs reached: {self.done} of {its.max_jobs}"
        if its.max_time is not None and age >= its.max_time:
            return f"max_time reached: {age.total_seconds():.0f} s of {its.max_time.total_seconds():.0f}"
        if its.max_memory_mb is not None and (used := memory.resident_mb(os.getpid())) >= its.max_memory_mb:
            return f"memory limit reached: {used} MB of {its.max_memory_mb}"
        return None

    @property
    def request(self) -> str:
        """Why the supervisor wants this worker to leave."""
        return _REASONS[self._executors.state_file.reason]

    def _on_settled(self) -> None:
        super()._on_settled()
        most = self._its.max_jobs
        if most is not None and self.done >= most and not self._claimer.is_paused:
            self._claimer.is_paused = True  # at once: until the main thread looks, thousands of small jobs could run
            self._signals.wake()

    def _note(self) -> str | None:
        return (
            "; ".join(filter(None, ["paused by its supervisor" if self._is_paused else None, super()._note()])) or None
        )


class MainThread:
    """The main thread of a worker process: it handles signals, watches the limits, and stops the worker."""

    def __init__(self, worker: PoolWorker, signals: Signals, supervisor: int) -> None:
        self._worker = worker
        self._signals = signals
        self._supervisor = supervisor
        self._supervisor_started = processes.started(supervisor)

    def work(self) -> int:
        """Waits for a signal, a reached limit, or the end of the supervisor; returns the exit code."""
        while True:
            self._signals.wait(_LOOK_EVERY)
            while number := self._signals.take_first():  # one by one: `_stop` and `_retire` heed those that follow
                if number in ENDING:
                    return self._stop(number.name)
                if number is signal.SIGUSR2:
                    return self._retire(self._worker.request)
                self._worker.follow()
            self._worker.note()
            if self._is_alone:
                return self._stop("its supervisor died")
            if why := self._worker.limit or self._worker.wants_restart:
                return self._retire(why)

    @property
    def _is_alone(self) -> bool:
        """Whether the supervisor is gone. The start time is compared too, because another process may have its pid."""
        return os.getppid() != self._supervisor or processes.started(self._supervisor) != self._supervisor_started

    def _turns_out_alone(self) -> bool:
        """Whether a SIGTERM came because the supervisor died: the kernel sends it a moment before the parent
        changes."""
        deadline = monotonic() + _MOMENT
        while not self._is_alone and monotonic() < deadline:
            sleep(0.01)
        return self._is_alone

    def _retire(self, why: str) -> int:
        """Leaves when all running jobs have ended: a limit or a smaller pool never cuts a job off. The supervisor may
        start another worker meanwhile."""
        self._worker.leave_soon()
        self._worker.stop_claiming()
        while not (self._worker.is_idle or self._worker.is_overdue):
            self._signals.wait(0.1)
            self._worker.note()
            if any(number in ENDING for number in self._signals.take()) or self._is_alone:
                return self._stop(why)
        return self._leave(timedelta(seconds=_LAST_MOMENTS), why)

    def _stop(self, why: str) -> int:
        grace = self._worker.settings.shutdown_grace.total_seconds()
        last = min(_LAST_MOMENTS, grace / 4)
        ends_at = monotonic() + grace - last
        self._worker.stop_claiming()
        while not self._worker.is_idle and monotonic() < ends_at:
            self._signals.wait(0.1)
            if any(number in ENDING for number in self._signals.take()):
                last = 0.0
                break
        return self._leave(timedelta(seconds=last), why)

    def _leave(self, grace: timedelta, why: str) -> int:
        died = self._turns_out_alone() if why == signal.SIGTERM.name else self._is_alone
        self._worker.note()
        if died:
            self._worker.events.emit(events.PARENT_DIED, worker_id=self._worker.id, supervisor=self._supervisor)
        self._worker.stop(grace, reason="its supervisor died" if died else why)
        self._worker.note()
        return PARENT_DIED if died else 0

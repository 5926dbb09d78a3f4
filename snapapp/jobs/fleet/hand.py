"""The other side of a pool: a worker process that its supervisor may pause, wake, empty and stop.

TERM INT HUP   finish within the grace, hand back the rest, leave; a second one: at once
USR1 CONT      claim nothing; go on
USR2           finish what runs, however long it takes, and leave
"""

import importlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from resource import getpagesize
from threading import Lock
from time import monotonic, sleep
from typing import Any

from snapapp.jobs import crumbs, events, roster
from snapapp.jobs.fleet import plan
from snapapp.jobs.fleet.tally import Reason, Tally
from snapapp.jobs.model import Job
from snapapp.jobs.registry import Processor, Registry
from snapapp.jobs.runtime import Runtime
from snapapp.jobs.settings import JobsSettings, Membership
from snapapp.jobs.signals import ENDING, Signals
from snapapp.jobs.worker import Worker

Adapt = Callable[[JobsSettings], JobsSettings]
Entry = Callable[[str, Adapt], Runtime]  # of the application: a runtime on this database, its settings adapted

STEERING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
PARENT_DIED = 13  # the exit code of a worker whose supervisor is gone
_LOOK_EVERY = 0.5  # seconds
_MOMENT = 0.2
_LAST_MOMENTS = 2.0  # seconds of the grace that the worker itself takes to hand back and leave
_MB = 1024 * 1024
_MOST_PAIRS = 500  # of tenants, between two beats
_SAID = {
    Reason.NONE: "it was asked to finish and leave",
    Reason.FEWER: "scaled down",
    Reason.RESTARTED: "restarted",
    Reason.DRAINED: "drained",
}


def live(request: Mapping[str, Any], supervisor: int) -> int:
    """The whole life of a worker process; its exit code."""
    with Signals(*STEERING) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*ENDING, *STEERING))
        if request["nice"]:
            os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + request["nice"]))
        pool = plan.pool_of(request["pool"], request["table"])
        name = f"{pool.name}-{os.getpid()}"
        runtime = _entry(request["entry"])(request["url"], lambda its: pool.adapt(its, name, request["master"]))
        try:
            registry = Chosen(runtime.registry, pool.leaves_out)
            hand = Hand(runtime, registry, Tally.join(request["tally"]), signals)
            if request["is_paused"]:
                hand.pause()
            hand.start()
            return Foreman(hand, signals, supervisor).work()
        finally:
            runtime.close()
            signals.ignore()


def _entry(path: str) -> Entry:
    module, _, name = path.partition(":")
    entry: Entry = getattr(importlib.import_module(module), name)
    return entry


class Chosen(Registry):
    """What a pool's workers run. Schedules are declared by all of them, whoever runs their jobs."""

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


class Hand(Worker):
    """A worker that knows its limits, and tells its supervisor how it is getting on."""

    def __init__(self, runtime: Runtime, registry: Registry, tally: Tally, signals: Signals) -> None:
        assert runtime.settings.membership
        self._its: Membership = runtime.settings.membership
        self._tally = tally
        self._signals = signals
        self._tenants = Tenants()
        self._is_paused = False
        self._born_at = monotonic()
        super().__init__(
            runtime.settings,
            registry,
            connect=runtime.connect,
            transaction=runtime.transaction,
            events=runtime.events,
            courtesy=runtime.courtesy,
            lent=runtime.lent,
            context=runtime.context,
        )

    def tick(self) -> None:
        super().tick()
        self._tally.ready()

    def beat(self) -> None:
        super().beat()
        if switches := self._tenants.take():
            with self._scribe_line.connection() as db:
                roster.switched(db, self.id, switches)

    def pause(self) -> None:
        """What runs goes on; nothing is claimed."""
        self._is_paused = True
        self._claimer.paused.set()

    def resume(self) -> None:
        if self._is_paused and not self._stopping.is_set():
            self._is_paused = False
            self._claimer.paused.clear()
            self.ask()

    def tell(self) -> None:
        """Has the next beat come at once; on its own thread, because the database may be silent."""
        self._beaten_at -= self.settings.beat_every.total_seconds()

    def note(self) -> None:
        self._tally.note(self.done, memory_mb())

    def leave_soon(self) -> None:
        self._tally.leave()

    @property
    def done(self) -> int:
        """Attempts that came to an end here."""
        counts = self.counts
        return counts.completed + counts.failed + counts.cancelled + counts.retried + counts.snoozed

    @property
    def limit(self) -> str | None:
        """Which of its limits is reached: the reason to make room for a new process, between two jobs."""
        its, age = self._its, timedelta(seconds=monotonic() - self._born_at)
        if its.max_jobs is not None and self.done >= its.max_jobs:
            return f"max_jobs reached: {self.done} of {its.max_jobs}"
        if its.max_time is not None and age >= its.max_time:
            return f"max_time reached: {age.total_seconds():.0f} s of {its.max_time.total_seconds():.0f}"
        if its.max_memory_mb is not None and (used := memory_mb()) >= its.max_memory_mb:
            return f"memory limit reached: {used} MB of {its.max_memory_mb}"
        return None

    @property
    def request(self) -> str:
        """Why the supervisor wants us to leave."""
        return _SAID[self._tally.reason]

    def _on_claimed(self, jobs: list[Job]) -> None:
        super()._on_claimed(jobs)
        self._tenants.follow(jobs)
        if self.events.hears(events.TENANT_CONTEXT):
            self.events.emit(events.TENANT_CONTEXT, worker_id=self.id, tenant=self._tenants.now)

    def _on_settled(self) -> None:
        super()._on_settled()
        most = self._its.max_jobs
        if most is not None and self.done >= most and not self._claimer.paused.is_set():
            self._claimer.paused.set()  # here, because a second of small jobs would be thousands too many
            self._signals.ring()

    def _note(self) -> str | None:
        return (
            "; ".join(filter(None, ["paused by its supervisor" if self._is_paused else None, super()._note()])) or None
        )


class Tenants:
    """How often the claims go from one tenant to another: counted here, written down with the beats."""

    def __init__(self) -> None:
        self.now: str | None = None  # written by the claimer's thread
        self._switches: Counter[tuple[str, str]] = Counter()  # added to by the claimer's, taken by the beat's
        self._turn = Lock()

    def follow(self, jobs: Sequence[Job]) -> None:
        tenant = self.now
        for job in jobs:
            if job.tenant != tenant:
                if tenant is not None:
                    self._add(tenant, job.tenant)
                tenant = job.tenant
        self.now = tenant

    def take(self) -> Counter[tuple[str, str]]:
        with self._turn:
            taken, self._switches = self._switches, Counter()
        return taken

    def _add(self, since: str, to: str) -> None:
        with self._turn:
            known = (since, to) in self._switches or len(self._switches) < _MOST_PAIRS
            self._switches[(since, to) if known else ("*", "*")] += 1


class Foreman:
    """The main thread of a worker process: hears signals, looks at limits, and sees the worker out."""

    def __init__(self, hand: Hand, signals: Signals, supervisor: int) -> None:
        self._hand = hand
        self._signals = signals
        self._supervisor = supervisor
        self._supervisor_started = crumbs.started(supervisor)

    def work(self) -> int:
        """Until a signal, a limit, or the end of the supervisor."""
        while True:
            self._signals.wait(_LOOK_EVERY)
            for number in self._signals.take():
                if number in ENDING:
                    return self._stop(number.name)
                if number is signal.SIGUSR2:
                    return self._retire(self._hand.request)
                self._hand.pause() if number is signal.SIGUSR1 else self._hand.resume()
                self._hand.tell()
            self._hand.note()
            if self._is_alone:
                return self._stop("its supervisor died")
            if why := self._hand.limit or self._hand.wants_restart:
                return self._retire(why)

    @property
    def _is_alone(self) -> bool:
        """A pid may be somebody else's by now; when its process started is not."""
        return os.getppid() != self._supervisor or crumbs.started(self._supervisor) != self._supervisor_started

    def _turns_out_alone(self) -> bool:
        """The kernel sends its SIGTERM a moment before the supervisor is gone."""
        deadline = monotonic() + _MOMENT
        while not self._is_alone and monotonic() < deadline:
            sleep(0.01)
        return self._is_alone

    def _retire(self, why: str) -> int:
        """No hurry: what runs is never cut off by a limit or a smaller pool. Another worker may come meanwhile."""
        self._hand.leave_soon()
        self._hand.stop_claiming()
        while not self._hand.is_idle:
            self._signals.wait(0.1)
            self._hand.note()
            if any(number in ENDING for number in self._signals.take()) or self._is_alone:
                return self._stop(why)
        return self._leave(timedelta(seconds=_LAST_MOMENTS), why)

    def _stop(self, why: str) -> int:
        grace = self._hand.settings.shutdown_grace.total_seconds()
        last = min(_LAST_MOMENTS, grace / 4)
        ends_at = monotonic() + grace - last
        self._hand.stop_claiming()
        while not self._hand.is_idle and monotonic() < ends_at:
            self._signals.wait(0.1)
            if any(number in ENDING for number in self._signals.take()):
                last = 0.0
                break
        return self._leave(timedelta(seconds=last), why)

    def _leave(self, grace: timedelta, why: str) -> int:
        died = self._turns_out_alone() if why == signal.SIGTERM.name else self._is_alone
        self._hand.note()
        if died:
            self._hand.events.emit(events.PARENT_DIED, worker_id=self._hand.id, supervisor=self._supervisor)
        self._hand.stop(grace, reason="its supervisor died" if died else why)
        self._hand.note()
        return PARENT_DIED if died else 0


def memory_mb() -> int:
    """Resident, now; 0 where that cannot be seen."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * getpagesize() // _MB

"""Watches the clock over attempts that nobody can kill: says what they are doing when most of their time has passed,
takes the job from whoever ignores its deadline, and reports what only a new process helps against."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from snapapp.jobs.errors import JobTimeout
from snapapp.jobs.executors import late_report
from snapapp.jobs.executors.event_loop import AsyncExecutor
from snapapp.jobs.executors.threads import ThreadExecutor
from snapapp.jobs.model import Job
from snapapp.jobs.rows.database import Line
from snapapp.jobs.worker.parts import WorkerParts

_PATIENCE = 1.0  # seconds in which a job in a thread may still notice that its time is over
_PATIENCE_WITH_COROUTINES = 5.0  # likewise: they may have to clean up, and others may hold up their loop
_PATIENCE_WITH_SLOTS = 90.0  # that do what has limits of its own: hooks 30 s, programs the job's, their start 30 s
_LOOK_EVERY = 0.25  # seconds


class Watchdog:
    """Whoever takes a job out of `running` or `awaiting` concludes it: its own thread or task, or we."""

    def __init__(self, parts: WorkerParts, line: Line, conclude: Callable[[Job, JobTimeout], None]) -> None:
        self._parts = parts
        self._max_stuck = parts.settings.max_stuck or parts.settings.concurrency
        self._line = line  # to look at the statements of jobs that take too long
        self._conclude = conclude
        self.threads: ThreadExecutor  # set before the start, where there are such jobs
        self.coroutines: AsyncExecutor  # likewise
        self.running: dict[Job, int] = {}  # jobs in threads -> slot; written there
        self.awaiting: dict[Job, asyncio.Task[Any]] = {}  # jobs on the loop; written there
        self._boxed: set[Job] = set()  # of both, those whose black box was written; by us
        self._stuck: dict[Job, bool] = {}  # jobs that were given up and still hang -> has their slot another thread?
        self._expected: dict[Job, float] = {}  # in a hook or in a process of its own -> when its slot is to be back
        self._overdue: set[Job] = set()  # of those; written by us, and by the slot that is back
        self._holds_the_loop: Job | None = None  # the last one that was given up while it did; written by us
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1)

    @property
    def stuck(self) -> list[Job]:
        """Jobs that were given up, and whose threads or coroutines are still at it; and those whose slots do not come
        back from a hook, or from computing what to run."""
        return [*self._stuck, *self._overdue.copy()]

    @property
    def is_worn_out(self) -> bool:
        """So many hang, or one that lets no other coroutine run, that only a new process helps."""
        return len(self.stuck) >= self._max_stuck or self._holds_the_loop in self._stuck

    @contextmanager
    def expecting(self, job: Job, deadline: float) -> Iterator[None]:
        """Around what has limits of its own, so that what outlives even those is seen."""
        self._expected[job] = deadline + _PATIENCE_WITH_SLOTS
        try:
            yield
        finally:
            del self._expected[job]
            self._overdue.discard(job)

    def takes_its_slot_back(self, job: Job) -> bool:
        """It is back after all. What it brings is dropped; is the slot still its own?"""
        after = monotonic() - (job.deadline or 0.0)
        back = JobTimeout(f"{job.kind} job {job.id} ended {after:.0f} s after its deadline; its result was dropped")
        self._parts.complain("run", back)
        return not self._stuck.pop(job)

    # --- looks ------------------------------------------------------------------------------------------------

    def look_for_late(self) -> None:
        """Says of jobs on threads and on the loop, once, what they are doing when most of their time has passed."""
        late = [*self._late()]
        for job, told in late:
            late_report.put_down(job, "its stack", told)
        for job, _ in late:
            if job.backends:
                with self._line.connection() as db:
                    late_report.put_down(job, "its SQL", late_report.of_backends(db, job.backends))

    def _late(self) -> Iterator[tuple[Job, str]]:
        now, running, awaiting = monotonic(), dict(self.running), dict(self.awaiting)
        self._boxed &= running.keys() | awaiting.keys()
        late = {job for job in (*running, *awaiting) if now >= late_report.opens_at(job)} - self._boxed
        self._boxed |= late
        for job in late:
            if job in awaiting:
                yield job, late_report.of_task(awaiting[job], self.coroutines.ident)
                continue
            told = late_report.of_thread(self.threads.ident(running[job]))
            if job in self.running:  # else its thread is with another one by now
                yield job, told

    def look_for_overdue(self) -> None:
        now = monotonic()
        for job, slot in list(self.running.items()):
            if job.deadline is None or now <= job.deadline:
                continue
            if job in self._parts.connections.loans:
                self._parts.connections.revoke(job, _late(job))
            if now > job.deadline + _PATIENCE:
                self._give_up(job, slot)
        for job, task in list(self.awaiting.items()):
            if job.deadline is not None and now > job.deadline + _PATIENCE_WITH_COROUTINES:
                self._give_up_coroutine(job, task)

    def look_for_slots(self) -> None:
        """Nobody can take such a slot from its thread: what it does must not be done twice. A person is told."""
        now = monotonic()
        for job, expected_at in list(self._expected.items()):
            if now > expected_at and job not in self._overdue:
                self._overdue.add(job)
                if job not in self._expected:  # it has just come back
                    self._overdue.discard(job)
                    continue
                what = f"the slot of {job.kind} job {job.id} hangs in a hook, or where it is computed what to run"
                self._parts.complain("run", JobTimeout(what))

    def _loop(self) -> None:
        while not self._closed.wait(_LOOK_EVERY):
            for look in (self.look_for_late, self.look_for_overdue, self.look_for_slots):
                try:
                    look()
                except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                    self._parts.complain("look for jobs that take too long", error)

    def _give_up(self, job: Job, slot: int) -> None:
        """A thread cannot be killed. Its job is settled without it, and its slot gets another thread, unless too many
        hang already: then the slot waits for its own."""
        gets_another = len(self._stuck) < self._max_stuck
        self._stuck[job] = gets_another  # before the job is taken away: its thread looks here when it finds it gone
        if self.running.pop(job, None) is None:
            del self._stuck[job]  # it has just come back by itself
            return
        late = JobTimeout(f"{_late(job)} and did not stop; its thread was given up")
        self._parts.complain("run", late)
        if gets_another:
            self.threads.replace(slot, lambda: self._conclude(job, late))
        else:
            self._conclude_beside(job, late)

    def _give_up_coroutine(self, job: Job, task: asyncio.Task[Any]) -> None:
        """It has swallowed its cancel, or somebody holds up the loop: then no other coroutine gets on either."""
        self._stuck[job] = True
        if self.awaiting.pop(job, None) is None:
            del self._stuck[job]
            return
        if getattr(task.get_coro(), "cr_running", False):
            self._holds_the_loop = job
        late = JobTimeout(f"{_late(job)} and did not stop; its coroutine was given up")
        self._parts.complain("run", late)
        self._conclude_beside(job, late)

    def _conclude_beside(self, job: Job, late: JobTimeout) -> None:
        """A hook may take long, and we have others to look at."""
        threading.Thread(target=self._conclude, args=(job, late), name="conclude", daemon=True).start()


def _late(job: Job) -> JobTimeout:
    allowed = (job.deadline or 0.0) - (job.started_at or 0.0)
    return JobTimeout(f"{job.kind} job {job.id} ran longer than its {allowed:g} s")

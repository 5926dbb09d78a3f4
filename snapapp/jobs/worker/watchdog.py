"""Watches the deadlines of attempts on threads and coroutines, which cannot be killed: records what an attempt is doing
when most of its time has passed, gives up a job that ignores its deadline, and asks for a new process when too many
hang."""

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
from snapapp.jobs.rows import backends
from snapapp.jobs.rows.database import Database
from snapapp.jobs.worker.parts import WorkerParts

_PATIENCE = 1.0  # seconds after its deadline in which a job on a thread may still end by itself
_PATIENCE_WITH_COROUTINES = 5.0  # likewise for a coroutine: it may clean up, and other coroutines may hold up its loop
_PATIENCE_WITH_SLOTS = 90.0  # seconds for hooks (limit 30 s), programs (limit: the job's) and their start (30 s)
_LOOK_EVERY = 0.25  # seconds


class Watchdog:
    """A job is settled by the one that removes it from `running` or `awaiting`: its own thread or task, or the
    watchdog."""

    def __init__(self, parts: WorkerParts, database: Database, settle: Callable[[Job, JobTimeout], None]) -> None:
        self._parts = parts
        self._max_stuck = parts.settings.max_stuck or parts.settings.concurrency
        self._database = database  # for the server's view of the statements of late jobs
        self._settle = settle
        self.threads: ThreadExecutor  # set before the start, where some kind runs on threads
        self.coroutines: AsyncExecutor  # likewise, on the event loop
        self.running: dict[Job, int] = {}  # job on a thread -> its slot; written by that thread
        self.awaiting: dict[Job, asyncio.Task[Any]] = {}  # job on the loop -> its task; written by that task
        self._reported: set[Job] = set()  # those of both whose late report was written; used by the watchdog's thread
        self._stuck: dict[Job, bool] = {}  # job given up and still hanging -> did its slot get another thread?
        self._expected: dict[Job, float] = {}  # job in a hook or a process -> when its slot should be free
        self._held_too_long: set[Job] = set()  # jobs of _expected past that time; their slot removes them
        self._holds_the_loop: Job | None = None  # the last job given up while it blocked the event loop
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
        """Jobs that were given up while their thread or coroutine goes on, and jobs whose slot does not return from a
        hook or from a function that computes a command."""
        return [*self._stuck, *self._held_too_long.copy()]

    @property
    def is_worn_out(self) -> bool:
        """True when only a new process helps: too many jobs hang, or one of them blocks the event loop."""
        return len(self.stuck) >= self._max_stuck or self._holds_the_loop in self._stuck

    @contextmanager
    def expecting(self, job: Job, deadline: float) -> Iterator[None]:
        """Wraps work that enforces its own time limits (hooks, processes), to notice when it outlasts even those."""
        self._expected[job] = deadline + _PATIENCE_WITH_SLOTS
        try:
            yield
        finally:
            del self._expected[job]
            self._held_too_long.discard(job)

    def takes_its_slot_back(self, job: Job) -> bool:
        """Called by the thread or task of a job that was given up, when it ends at last: its result is dropped. Returns
        whether the slot is still its own."""
        after = monotonic() - (job.deadline or 0.0)
        back = JobTimeout(f"{job.kind} job {job.id} ended {after:.0f} s after its deadline; its result was dropped")
        self._parts.complain("run", back)
        return not self._stuck.pop(job)

    # --- looks ------------------------------------------------------------------------------------------------

    def look_for_late(self) -> None:
        """Writes one report for each job that has used most of its time: what its thread or coroutine is doing."""
        late = [*self._newly_late()]
        for job, report in late:
            late_report.put_down(job, "its stack", report)
        for job, _ in late:
            if job.backends:
                with self._database.connection() as db:
                    late_report.put_down(job, "its SQL", backends.report(db, job.backends))

    def _newly_late(self) -> Iterator[tuple[Job, str]]:
        now, running, awaiting = monotonic(), dict(self.running), dict(self.awaiting)
        self._reported &= running.keys() | awaiting.keys()
        late = {job for job in (*running, *awaiting) if now >= late_report.opens_at(job)} - self._reported
        self._reported |= late
        for job in late:
            if job in awaiting:
                yield job, late_report.of_task(awaiting[job], self.coroutines.ident)
                continue
            report = late_report.of_thread(self.threads.ident(running[job]))
            if job in self.running:  # otherwise its thread has moved on, and the stack is another job's
                yield job, report

    def look_for_overdue(self) -> None:
        now = monotonic()
        for job, slot in list(self.running.items()):
            if job.deadline is None or now <= job.deadline:
                continue
            if job in self._parts.connections.loans:
                self._parts.connections.revoke(job, _ran_too_long(job))
            if now > job.deadline + _PATIENCE:
                self._give_up(job, slot)
        for job, task in list(self.awaiting.items()):
            if job.deadline is not None and now > job.deadline + _PATIENCE_WITH_COROUTINES:
                self._give_up_coroutine(job, task)

    def look_for_slots(self) -> None:
        """Reports slots that a hook or a process holds too long. They are not replaced: a hook must not run twice."""
        now = monotonic()
        for job, expected_at in list(self._expected.items()):
            if now > expected_at and job not in self._held_too_long:
                self._held_too_long.add(job)
                if job not in self._expected:  # its slot has returned in this moment
                    self._held_too_long.discard(job)
                    continue
                what = f"the slot of {job.kind} job {job.id} hangs in a hook, or where its command is computed"
                self._parts.complain("run", JobTimeout(what))

    def _loop(self) -> None:
        while not self._closed.wait(_LOOK_EVERY):
            for look in (self.look_for_late, self.look_for_overdue, self.look_for_slots):
                try:
                    look()
                except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                    self._parts.complain("look for jobs that take too long", error)

    def _give_up(self, job: Job, slot: int) -> None:
        """Settles a job whose thread ignores the deadline. The slot gets another thread, unless too many hang
        already: then it waits for its own."""
        gets_another = len(self._stuck) < self._max_stuck
        self._stuck[job] = gets_another  # before `pop`: the thread reads it when its job is no longer in `running`
        if self.running.pop(job, None) is None:
            del self._stuck[job]  # the thread has ended in this moment, and settles the job itself
            return
        late = JobTimeout(f"{_ran_too_long(job)} and did not stop; its thread was given up")
        self._parts.complain("run", late)
        if gets_another:
            self.threads.replace(slot, lambda: self._settle(job, late))
        else:
            self._settle_beside(job, late)

    def _give_up_coroutine(self, job: Job, task: asyncio.Task[Any]) -> None:
        """Settles a coroutine job that swallowed its cancellation, or whose event loop is blocked."""
        self._stuck[job] = True
        if self.awaiting.pop(job, None) is None:
            del self._stuck[job]
            return
        if getattr(task.get_coro(), "cr_running", False):
            self._holds_the_loop = job
        late = JobTimeout(f"{_ran_too_long(job)} and did not stop; its coroutine was given up")
        self._parts.complain("run", late)
        self._settle_beside(job, late)

    def _settle_beside(self, job: Job, late: JobTimeout) -> None:
        """On a thread of its own: the `failed` hook may take long, and the watchdog must go on."""
        threading.Thread(target=self._settle, args=(job, late), name="settle", daemon=True).start()


def _ran_too_long(job: Job) -> JobTimeout:
    allowed = (job.deadline or 0.0) - (job.started_at or 0.0)
    return JobTimeout(f"{job.kind} ran longer than its {allowed:g} s")

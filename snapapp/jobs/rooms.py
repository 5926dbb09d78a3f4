"""What a slot does with a job: begin it if it may, run it, conclude it. Opens the rooms that the kinds need."""

import asyncio
import logging
import threading
from collections.abc import Callable
from time import monotonic

from tenacity.wait import wait_base

from snapapp.jobs import attempt, events, queue
from snapapp.jobs.attempt import Transaction
from snapapp.jobs.courtesy import Courtesy
from snapapp.jobs.crumbs import Crumbs
from snapapp.jobs.errors import JobCancelled, JobInterrupted, JobsError
from snapapp.jobs.events import Events
from snapapp.jobs.executors import Room, Work
from snapapp.jobs.executors.aio import AsyncRoom
from snapapp.jobs.executors.children import Child, ChildRoom
from snapapp.jobs.executors.threads import ThreadRoom
from snapapp.jobs.holdings import Holdings
from snapapp.jobs.model import Dropped, Failure, Finished, Interrupted, Job, Outcome, Stopped
from snapapp.jobs.notes import Notes
from snapapp.jobs.registry import Processor, Registry
from snapapp.jobs.retry import pause_after, wait_spread
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.settler import Settler

Run = Callable[[int, Job, Processor], Outcome]  # (slot, job, its processor)


class Rooms:
    """All the rooms of a worker. `by_name` and `room_of` are what the claimer sees of them."""

    def __init__(
        self,
        worker: str,
        settings: JobsSettings,
        registry: Registry,
        *,
        transaction: Transaction,
        settler: Settler,
        holdings: Holdings,
        notes: Notes,
        events: Events,
        courtesy: Courtesy,
    ) -> None:
        self._worker = worker
        self._courtesy = courtesy
        self._transaction = transaction
        self._settler = settler
        self._holdings = holdings
        self._notes = notes
        self._events = events
        self._closed = threading.Event()
        self._wait: wait_base = wait_spread(settings.retry)
        self._processors = {one.kind: one for one in registry}
        self._timeouts = {one.kind: (one.timeout or settings.timeout).total_seconds() for one in registry}
        self.room_of: dict[str, str] = {one.kind: one.executor for one in registry}
        self.by_name = self._open(settings)

    def _open(self, settings: JobsSettings) -> dict[str, Room]:
        """Only the rooms that some kind needs: a thread costs memory, a child costs much."""
        wanted = set(self.room_of.values())
        threads = settings.concurrency if "thread" in wanted else 0
        children = max(1, settings.children) if "process" in wanted else 0
        coroutines = settings.async_concurrency if "async" in wanted else 0
        self.crumbs = Crumbs(max(1, threads + children + coroutines))
        self._free_marks = list(range(threads + children, threads + children + coroutines))
        rooms: dict[str, Room] = {}
        if threads:
            rooms["thread"] = ThreadRoom(threads, [self._work(slot, slot, self._run_here) for slot in range(threads)])
        if children:
            rooms["process"] = self._child_room(children, first_mark=threads)
        if coroutines:
            rooms["async"] = AsyncRoom(coroutines, self._work_async)
        return rooms

    def start(self) -> None:
        for room in self.by_name.values():
            room.start()

    def take_back(self) -> list[Job]:
        return [job for room in self.by_name.values() for job in room.take_back()]

    def interrupt(self, job: Job, reason: JobsError) -> None:
        """Asks a job to stop, and makes it stop where its room can."""
        job.stop = reason
        self.by_name[self.room_of[job.kind]].interrupt(job, reason)

    def stop(self) -> None:
        self._closed.set()
        for room in self.by_name.values():
            room.stop()
        self.crumbs.close()

    # --- one job ----------------------------------------------------------------------------------------------

    def _work(self, slot: int, mark_at: int, run: Run) -> Work:
        """The hot path: whatever can be looked up before, is."""
        mark, processors, hears = self.crumbs.marker(mark_at), self._processors, self._events.hears
        give_way = self._courtesy.give_way

        def work(job: Job) -> None:
            give_way()
            try:
                if not self._may_begin(job):
                    return
                processor = processors[job.kind]
                mark(job.id)
                if hears(events.JOB_ACTIVE):
                    self._tell_active(job)
                self._conclude(job, processor, run(slot, job, processor))
            except BaseException as error:  # noqa: BLE001 - a slot's outermost edge: the job ends by its lease
                self._let_go(job, error)
            mark(0)

        return work

    async def _work_async(self, job: Job) -> None:
        mark_at = self._free_marks.pop()
        concluding = False  # a thread does that, and goes on when this task is cancelled
        try:
            needs_the_database = job.suspect or job.payload_json is None  # and must not hold up the loop for it
            if not (await asyncio.to_thread(self._may_begin, job) if needs_the_database else self._may_begin(job)):
                return
            processor = self._processors[job.kind]
            self.crumbs.mark(mark_at, job.id)
            if self._events.hears(events.JOB_ACTIVE):
                self._tell_active(job)
            timeout = (job.deadline or 0.0) - (job.started_at or 0.0)
            outcome = await attempt.run_async(job, processor, self._wait, timeout)
            concluding = True
            if attempt.needs_a_hook(processor, outcome):
                await asyncio.shield(asyncio.to_thread(self._conclude, job, processor, outcome))
            else:
                self._conclude(job, processor, outcome)
        except BaseException as error:  # noqa: BLE001 - the task's outermost edge
            self._events.complain(self._worker, "work", error) if concluding else self._let_go(job, error)
        finally:
            self.crumbs.mark(mark_at, 0)
            self._free_marks.append(mark_at)

    def _let_go(self, job: Job, error: BaseException) -> None:
        """Or the beat would keep its lease alive for ever, and a suspect's worker would wait for it for ever."""
        self._events.complain(self._worker, "work", error)
        self._settler.put(Finished(job, Dropped(), None))

    def _run_here(self, _slot: int, job: Job, processor: Processor) -> Outcome:
        return attempt.run(job, processor, self._wait)

    def _child_room(self, count: int, first_mark: int) -> ChildRoom:
        modules = sorted({one.function.__module__ for one in self._processors.values() if one.executor == "process"})
        children = [Child(tuple(modules)) for _ in range(count)]

        def run_there(slot: int, job: Job, processor: Processor) -> Outcome:
            room.running(slot, job)
            try:
                return children[slot].run(job, processor, self._wait)
            finally:
                room.running(slot, None)

        room = ChildRoom(children, [self._work(slot, first_mark + slot, run_there) for slot in range(count)])
        return room

    def _may_begin(self, job: Job) -> bool:
        """A job whose lease is not certainly ours, or that somebody stopped while it waited, is not begun."""
        if job.stop is None and self._holdings.is_sure(job, monotonic()):
            if (job.suspect or job.payload_json is None) and not job.exhausted and not self._prepare(job):
                return False
            job.started_at = monotonic()
            timeout = job.timeout_ms / 1000 if job.timeout_ms else self._timeouts[job.kind]
            job.deadline = job.started_at + timeout
            return True
        self._settler.put(Finished(job, _unbegun(job), None))
        return False

    def _prepare(self, job: Job) -> bool:
        """What only some jobs need before they start."""
        with self._transaction(job) as db:
            if job.suspect and not queue.start(db, job.lease):
                self._settler.put(Finished(job, Dropped(), None))
                return False
            if job.payload_json is None:
                job.payload_json = queue.payload(db, job.lease)
        return True

    def _conclude(self, job: Job, processor: Processor, outcome: Outcome) -> None:
        finished = Finished(job, outcome, monotonic() - (job.started_at or 0.0))
        if (processor.commit or processor.failed) and attempt.needs_a_hook(processor, outcome):
            self._settle_with_hook(finished, processor)
        else:
            self._settler.put(finished)

    def _settle_with_hook(self, finished: Finished, processor: Processor) -> None:
        """On the job's own slot, so that a slow hook costs this slot only. Waits for a database that is away."""
        failures = 0
        while not self._closed.is_set():
            try:
                settled, status = attempt.settle_with_hook(
                    finished, processor, self._transaction, self._notes, self._wait, was_unsure=failures > 0
                )
                self._settler.settled_elsewhere(settled, status)
                return
            except Exception as error:  # noqa: BLE001 - the hook's edge
                failures += 1
                self._events.complain(self._worker, "settle with hook", error)
                if failures >= 3 and not attempt.queue_is_away(error):
                    self._drop_hook(finished, error)
                    return
                self._closed.wait(pause_after(failures))

    def _drop_hook(self, finished: Finished, error: Exception) -> None:
        """A `failed` hook that keeps raising is dropped: the job must reach the dead letters."""
        job = finished.job
        why = f"{type(error).__name__}: {error}"
        self._events.emit(
            events.HOOK_DROPPED, logging.ERROR, worker_id=self._worker, job_id=job.id, kind=job.kind, error=why
        )
        self._settler.put(finished)

    def _tell_active(self, job: Job) -> None:
        self._events.emit(
            events.JOB_ACTIVE,
            worker_id=self._worker,
            job_id=job.id,
            kind=job.kind,
            attempt=job.attempt,
            status="RUNNING",
            request_id=job.request_id,
        )


def _unbegun(job: Job) -> Outcome:
    match job.stop:
        case JobCancelled() as cancelled:
            return Stopped(Failure.of(cancelled))
        case JobInterrupted():
            return Interrupted()
    return Dropped()

"""What a slot does with a job: begin it if it may, run it, conclude it. Opens the rooms that the kinds need."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic, thread_time
from typing import TypeVar

from tenacity.wait import wait_base

from snapapp.jobs import attempt, events, queue
from snapapp.jobs.attempt import Transaction
from snapapp.jobs.context import Within
from snapapp.jobs.courtesy import Courtesy
from snapapp.jobs.crumbs import Crumbs
from snapapp.jobs.database import Line
from snapapp.jobs.errors import JobCancelled, JobInterrupted, JobsError, JobTimeout, LeaseLost
from snapapp.jobs.events import Events
from snapapp.jobs.executors import Room, Work, command
from snapapp.jobs.executors.aio import AsyncRoom
from snapapp.jobs.executors.children import Child
from snapapp.jobs.executors.command import Command
from snapapp.jobs.executors.guard import Guard
from snapapp.jobs.executors.runners import Runner, RunnerRoom
from snapapp.jobs.executors.threads import ThreadRoom
from snapapp.jobs.holdings import Holdings
from snapapp.jobs.lender import Lender
from snapapp.jobs.model import Dropped, Failure, Finished, Interrupted, Job, Outcome, Stopped
from snapapp.jobs.notes import Notes
from snapapp.jobs.registry import Processor, Registry
from snapapp.jobs.retry import pause_after, wait_spread
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.settler import Settler
from snapapp.jobs.warden import Warden

T = TypeVar("T")
Run = Callable[[Job, Processor], Outcome | None]  # None: it took so long that somebody else has concluded the job

_BESIDE_THE_LOOP = 4  # threads for hooks of coroutines and for what they need before they begin
_AGAIN_IN = 1.0  # seconds before a job is handed back that could not begin, or it would be here again at once
_QUICK = 0.001  # seconds: a kind for which two looks at the thread's clock, 1 µs, are much
_REST = 0.01  # seconds in which a slot then measures no other of that kind


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
        lender: Lender,
        within: Within,
        line: Line,
    ) -> None:
        self._worker = worker
        self._courtesy = courtesy
        self._transaction = transaction
        self._settler = settler
        self._holdings = holdings
        self._notes = notes
        self._events = events
        self._lender = lender
        self._within = within
        self._closed = threading.Event()
        self._wait: wait_base = wait_spread(settings.retry)
        self._processors = {one.kind: one for one in registry}
        self._timeouts = {one.kind: (one.timeout or settings.timeout).total_seconds() for one in registry}
        self.room_of: dict[str, str] = {one.kind: one.executor for one in registry}
        self._guard = Guard()
        self._warden = Warden(
            worker,
            max_stuck=settings.max_stuck or settings.concurrency,
            line=line,
            lender=lender,
            events=events,
            conclude=self._conclude_without,
        )
        # for the loop, which must not wait; not its own threads, which jobs may fill with what hangs
        self._beside_the_loop = ThreadPoolExecutor(_BESIDE_THE_LOOP, "beside-the-loop")
        self.by_name = self._open(settings)

    def _open(self, settings: JobsSettings) -> dict[str, Room]:
        """Only the rooms that some kind needs: a thread costs memory, a child costs much."""
        wanted = set(self.room_of.values())
        threads = settings.concurrency if "thread" in wanted else 0
        children = settings.children if "process" in wanted else 0
        commands = settings.commands if "command" in wanted else 0
        coroutines = settings.async_concurrency if "async" in wanted else 0
        slots = threads + children + commands
        self.crumbs = Crumbs(max(1, slots + coroutines))
        self._free_marks = list(range(slots, slots + coroutines))
        rooms: dict[str, Room] = {}
        if threads:
            works = [self._work(slot, self._in_thread(slot)) for slot in range(threads)]
            self._warden.threads = rooms["thread"] = ThreadRoom(threads, works)
        if children:
            in_children = [one.function for one in self._processors.values() if one.executor == "process"]
            wanted_there = [*in_children, self._within.hook] if self._within.hook else in_children
            modules = sorted({function.__module__ for function in wanted_there})
            started = [Child(tuple(modules), settings, self._guard, self._within) for _ in range(children)]
            rooms["process"] = self._runner_room(started, "child", first_mark=threads)
        if commands:
            command.sweep()
            programs = [Command(settings, self._guard, self._within) for _ in range(commands)]
            rooms["command"] = self._runner_room(programs, "command", first_mark=threads + children)
        if coroutines:
            self._warden.coroutines = rooms["async"] = AsyncRoom(coroutines, self._work_async)
        return rooms

    def start(self) -> None:
        for room in self.by_name.values():
            room.start()
        self._warden.start()

    def kinds_of(self, name: str) -> list[str]:
        return sorted(kind for kind, room in self.room_of.items() if room == name)

    def take_back(self) -> list[Job]:
        return [job for room in self.by_name.values() for job in room.take_back()]

    def interrupt(self, job: Job, reason: JobsError) -> None:
        """Asks a job to stop, and makes it stop where its room can."""
        job.stop = reason
        self._lender.revoke(job, reason)
        self.by_name[self.room_of[job.kind]].interrupt(job, reason)

    def stop(self) -> None:
        self._closed.set()
        self._warden.stop()
        for room in self.by_name.values():
            room.stop()
        self._beside_the_loop.shutdown(wait=False)
        self._guard.stop()
        self.crumbs.close()

    @property
    def stuck(self) -> list[Job]:
        """Jobs that take too long, and that nobody can end."""
        return self._warden.stuck

    @property
    def is_worn_out(self) -> bool:
        return self._warden.is_worn_out

    # --- one job ----------------------------------------------------------------------------------------------

    def _work(self, mark_at: int, run: Run) -> Work:
        """The hot path: whatever can be looked up before, is."""
        mark, processors, hears = self.crumbs.marker(mark_at), self._processors, self._events.hears
        give_way = self._courtesy.give_way

        def work(job: Job) -> bool:
            give_way()
            try:
                if not self._may_begin(job):
                    return True
                processor = processors[job.kind]
                mark(job.id)
                if hears(events.JOB_ACTIVE):
                    self._tell_active(job)
                outcome = run(job, processor)
                if outcome is not None:
                    self._conclude(job, processor, outcome)
                elif not self._warden.takes_its_slot_back(job):
                    return False
            except BaseException as error:  # noqa: BLE001 - a slot's outermost edge: the job ends by its lease
                self._let_go(job, error)
            mark(0)
            return True

        return work

    async def _work_async(self, job: Job) -> None:
        mark_at, task = self._free_marks.pop(), asyncio.current_task()
        assert task
        concluding = False  # a thread does that, and goes on when this task is cancelled
        try:
            if (job.suspect or job.payload_json is None) and not await self._beside(self._prepare, job):
                return
            if not self._begins(job):
                return
            processor = self._processors[job.kind]
            self.crumbs.mark(mark_at, job.id)
            if self._events.hears(events.JOB_ACTIVE):
                self._tell_active(job)
            timeout = (job.deadline or 0.0) - (job.started_at or 0.0)
            self._warden.awaiting[job] = task
            outcome = await attempt.run_async(job, processor, self._wait, timeout, self._within or None)
            self._end_what_is_left(job)
            if self._warden.awaiting.pop(job, None) is None:
                self._warden.takes_its_slot_back(job)
                return
            concluding = True
            if attempt.needs_a_hook(processor, outcome):
                await self._beside(self._conclude, job, processor, outcome)
            else:
                self._conclude(job, processor, outcome)
        except BaseException as error:  # noqa: BLE001 - the task's outermost edge
            self._events.complain(self._worker, "work", error) if concluding else self._let_go(job, error)
        finally:
            self._warden.awaiting.pop(job, None)
            self.crumbs.mark(mark_at, 0)
            self._free_marks.append(mark_at)

    async def _beside(self, call: Callable[..., T], *given: object) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._beside_the_loop, call, *given)
        return await asyncio.shield(future)

    def _let_go(self, job: Job, error: BaseException) -> None:
        """Or the beat would keep its lease alive for ever, and a suspect's worker would wait for it for ever."""
        self._events.complain(self._worker, "work", error)
        self._settler.put(Finished(job, Dropped(), None))

    def _end_what_is_left(self, job: Job) -> None:
        """An attempt that is over may have left a thread behind, in the middle of a statement."""
        if job in self._lender.loans:
            self._lender.revoke(job, job.stop or LeaseLost(f"the attempt at job {job.id} is over"))

    def _in_thread(self, slot: int) -> Run:
        running, wait, loans = self._warden.running, self._wait, self._lender.loans
        within = self._within or None
        unmeasured_until: dict[str, float] = {}  # by kind

        def run(job: Job, processor: Processor) -> Outcome | None:
            running[job] = slot
            try:
                if (job.started_at or 0.0) < unmeasured_until.get(job.kind, 0.0):
                    job.is_measured = False
                    outcome = attempt.run(job, processor, wait, within)
                else:
                    began = thread_time()
                    outcome = attempt.run(job, processor, wait, within)
                    job.cpu = thread_time() - began
                    now = monotonic()
                    is_quick = now - (job.started_at or 0.0) < _QUICK
                    unmeasured_until[job.kind] = now + _REST if is_quick else 0.0
                if loans:
                    self._end_what_is_left(job)
            finally:
                is_still_ours = running.pop(job, None) is not None
            return outcome if is_still_ours else None

        return run

    def _in_group(self, runner: Runner) -> Run:
        def run(job: Job, processor: Processor) -> Outcome:
            with self._warden.expecting(job, job.deadline or monotonic()):
                return runner.run(job, processor, self._wait)

        return run

    def _runner_room(self, runners: Sequence[Runner], name: str, first_mark: int) -> RunnerRoom:
        works = [self._work(first_mark + slot, self._in_group(runner)) for slot, runner in enumerate(runners)]
        return RunnerRoom(runners, works, name, partial(self._events.complain, self._worker))

    def _may_begin(self, job: Job) -> bool:
        if (job.suspect or job.payload_json is None) and not self._prepare(job):
            return False
        return self._begins(job)

    def _begins(self, job: Job) -> bool:
        """A job whose lease is not certainly ours, or that somebody stopped while it waited, is not begun."""
        if job.stop is None and self._holdings.is_sure(job, monotonic()):
            job.started_at = monotonic()
            timeout = job.timeout_ms / 1000 if job.timeout_ms else self._timeouts[job.kind]
            job.deadline = job.started_at + timeout
            return True
        self._settler.put(Finished(job, _unbegun(job), None))
        return False

    def _prepare(self, job: Job) -> bool:
        """What only some jobs need before they start. False: the job is off our hands."""
        if job.exhausted or job.stop or not self._holdings.is_sure(job, monotonic()):
            return True  # nothing that runs needs it
        try:
            if self._fetch(job):
                return True
            outcome: Outcome = Dropped()
        except Exception as error:  # noqa: BLE001 - the attempt has not begun, and is not to be counted
            self._events.complain(self._worker, "begin", error)
            self._closed.wait(_AGAIN_IN)
            outcome = _unbegun(job) if job.stop else Interrupted()
        self._settler.put(Finished(job, outcome, None))
        return False

    def _fetch(self, job: Job) -> bool:
        """False: the lease is lost."""
        with self._transaction(job) as db:
            if job.suspect and not queue.start(db, job.lease):
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
                with self._warden.expecting(finished.job, monotonic()):
                    settled, status = attempt.settle_with_hook(
                        finished,
                        processor,
                        self._transaction,
                        self._notes,
                        self._wait,
                        self._within,
                        was_unsure=failures > 0,
                    )
                self._settler.settled_elsewhere(settled, status)
                return
            except attempt.CommitFailed as refused:
                finished = refused.finished  # for good: if its `failed` hook has to be dropped, it is still no success
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

    def _conclude_without(self, job: Job, late: JobTimeout) -> None:
        processor = self._processors[job.kind]
        try:
            self._conclude(job, processor, attempt.judge(job, job.stop or late, processor.wait or self._wait))
        except BaseException as error:  # noqa: BLE001 - as in `work`
            self._let_go(job, error)

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

"""What a slot does with a job: begin it if it may, run it, conclude it. Opens the executors that the kinds need."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import monotonic, thread_time
from typing import Any, TypeVar

from tenacity.wait import wait_base

from snapapp.jobs import events, payloads, tracing
from snapapp.jobs.errors import JobCancelled, JobInterrupted, JobsError, JobTimeout, LeaseLost, NoPlace
from snapapp.jobs.executors import Executor, Work, attempt, command
from snapapp.jobs.executors.children import Child
from snapapp.jobs.executors.command import Command
from snapapp.jobs.executors.event_loop import AsyncExecutor
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.executors.runners import Runner, RunnerExecutor
from snapapp.jobs.executors.threads import ThreadExecutor
from snapapp.jobs.model import (
    Buried,
    Dropped,
    Failure,
    Finished,
    Interrupted,
    Job,
    Outcome,
    Retried,
    Snoozed,
    Stopped,
    Succeeded,
)
from snapapp.jobs.os.state_file import StateFile
from snapapp.jobs.registry import Processor
from snapapp.jobs.retry import pause_after, wait_spread
from snapapp.jobs.rows import claim
from snapapp.jobs.rows.database import Line
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker import finish
from snapapp.jobs.worker.parts import WorkerParts
from snapapp.jobs.worker.settler import Settler
from snapapp.jobs.worker.watchdog import Watchdog

T = TypeVar("T")
Reserve = Callable[[Job, Processor], None]  # waits for a place where the job may run, or raises
Run = Callable[[Job, Processor], Outcome | None]  # None: it took so long that somebody else has concluded the job

_BESIDE_THE_LOOP = 4  # threads for hooks of coroutines and for what they need before they begin
_AGAIN_IN = 1.0  # seconds before a job is handed back that could not begin, or it would be here again at once
_PLACES_IN = timedelta(seconds=30)  # before a job comes again that found no place to run
_HOOK_TRIES = 3  # of a hook, or of a row, that fails each time
_QUICK = 0.001  # seconds: a kind for which two looks at the thread's clock, 1 µs, are much
_REST = 0.01  # seconds in which a slot then measures no other of that kind


class Executors:
    """All the executors of a worker. `by_name` and `executor_of` are what the claimer sees of them."""

    def __init__(self, parts: WorkerParts, settler: Settler, line: Line, on_free: Callable[[], None]) -> None:
        settings, registry = parts.settings, parts.registry
        self._parts = parts
        self._settler = settler
        self._events = parts.events
        self._on_free = on_free
        self._closed = threading.Event()
        self._wait: wait_base = wait_spread(settings.retry)
        self._processors = {one.kind: one for one in registry}
        self._timeouts = {one.kind: (one.timeout or settings.timeout).total_seconds() for one in registry}
        self.executor_of: dict[str, str] = {one.kind: one.executor for one in registry}
        self._guard = Guard()
        self._watchdog = Watchdog(parts, line, self._conclude_without)
        # for the loop, which must not wait; not its own threads, which jobs may fill with what hangs
        self._beside_the_loop = ThreadPoolExecutor(_BESIDE_THE_LOOP, "beside-the-loop")
        self.by_name = self._open(settings)

    def _open(self, settings: JobsSettings) -> dict[str, Executor]:
        """Only the executors that some kind needs: a thread costs memory, a child costs much."""
        wanted = set(self.executor_of.values())
        threads = settings.concurrency if "thread" in wanted else 0
        children = settings.children if "process" in wanted else 0
        commands = settings.commands if "command" in wanted else 0
        coroutines = settings.async_concurrency if "async" in wanted else 0
        slots = threads + children + commands
        given = settings.membership.state_file if settings.membership else None
        self.state_file = StateFile.open(given) if given else StateFile.make()
        self.state_file.use(slots + coroutines)
        self._free_marks = [self.state_file.marker(slots + one) for one in range(coroutines)]
        executors: dict[str, Executor] = {}
        if threads:
            works = [self._work(slot, self._in_thread(slot)) for slot in range(threads)]
            self._watchdog.threads = executors["thread"] = ThreadExecutor(threads, works, self._on_free)
        if children:
            in_children = [one.function for one in self._processors.values() if one.executor == "process"]
            wanted_there = [*in_children, self._parts.within.hook] if self._parts.within.hook else in_children
            modules = sorted({function.__module__ for function in wanted_there})
            executors["process"] = self._children(settings, tuple(modules), first_mark=threads)
        if commands:
            command.sweep()
            programs = [Command(settings, self._guard, self._parts.within) for _ in range(commands)]
            executors["command"] = self._runner_executor(programs, "command", first_mark=threads + children)
        if coroutines:
            self._watchdog.coroutines = executors["async"] = AsyncExecutor(coroutines, self._work_async, self._on_free)
        return executors

    def start(self) -> None:
        for executor in self.by_name.values():
            executor.start()
        self._watchdog.start()

    def kinds_of(self, name: str) -> list[str]:
        return sorted(kind for kind, executor in self.executor_of.items() if executor == name)

    def hand_back(self, name: str) -> None:
        """What waits in an executor for a slot goes back to the queue, as if nobody had claimed it."""
        for job in self.by_name[name].take_back():
            self._settler.put(Finished(job, Interrupted(), None))

    def interrupt(self, job: Job, reason: JobsError) -> None:
        """Asks a job to stop, and makes it stop where its executor can."""
        job.stop = reason
        self._parts.connections.revoke(job, reason)
        self.by_name[self.executor_of[job.kind]].interrupt(job, reason)

    def stop(self) -> None:
        self._closed.set()
        self._watchdog.stop()
        for executor in self.by_name.values():
            executor.stop()
        self._beside_the_loop.shutdown(wait=False)
        self._guard.stop()
        self.state_file.forget()

    @property
    def stuck(self) -> list[Job]:
        """Jobs that take too long, and that nobody can end."""
        return self._watchdog.stuck

    @property
    def is_worn_out(self) -> bool:
        return self._watchdog.is_worn_out

    # --- one job ----------------------------------------------------------------------------------------------

    def _work(self, mark_at: int, run: Run, reserve: Reserve | None = None) -> Work:
        """The hot path: whatever can be looked up before, is."""
        mark, processors, hears = self.state_file.marker(mark_at), self._processors, self._events.hears
        give_way = self._parts.web_priority.give_way

        def work(job: Job) -> bool:
            give_way()
            try:
                if not self._may_begin(job, reserve):
                    return True
                processor = processors[job.kind]
                mark(job.id, job.deadline or 0.0)
                if tracing.tracer is not None:
                    tracing.tracer.begins(job, self._parts.id)
                if hears(events.JOB_ACTIVE):
                    self._tell_active(job)
                outcome = run(job, processor)
                if outcome is not None:
                    self._conclude(job, processor, outcome)
                elif not self._watchdog.takes_its_slot_back(job):
                    return False
            except BaseException as error:  # noqa: BLE001 - a slot's outermost edge: the job ends by its lease
                self._let_go(job, error)
            if tracing.tracer is not None:
                tracing.tracer.rests()
            mark(0, 0.0)
            return True

        return work

    async def _work_async(self, job: Job) -> None:
        mark, task = self._free_marks.pop(), asyncio.current_task()
        assert task
        concluding = False  # a thread does that, and goes on when this task is cancelled
        try:
            if job.payload_json is None and not await self._beside(self._prepare, job):
                return
            if not self._begins(job):
                return
            processor = self._processors[job.kind]
            mark(job.id, job.deadline or 0.0)
            if tracing.tracer is not None:
                tracing.tracer.begins(job, self._parts.id)
            if self._events.hears(events.JOB_ACTIVE):
                self._tell_active(job)
            timeout = (job.deadline or 0.0) - (job.started_at or 0.0)
            self._watchdog.awaiting[job] = task
            outcome = await attempt.run_async(job, processor, self._wait, timeout, self._parts.within or None)
            self._end_what_is_left(job)
            if self._watchdog.awaiting.pop(job, None) is None:
                self._watchdog.takes_its_slot_back(job)
                return
            concluding = True
            if finish.needs_a_hook(processor, outcome):
                await self._beside(self._conclude, job, processor, outcome)
            else:
                self._conclude(job, processor, outcome)
        except BaseException as error:  # noqa: BLE001 - the task's outermost edge
            self._parts.complain("work", error) if concluding else self._let_go(job, error)
        finally:
            self._watchdog.awaiting.pop(job, None)
            mark(0, 0.0)
            self._free_marks.append(mark)

    async def _beside(self, call: Callable[..., T], *given: object) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._beside_the_loop, call, *given)
        return await asyncio.shield(future)

    def _let_go(self, job: Job, error: BaseException) -> None:
        """Or the beat would keep its lease alive for ever."""
        self._parts.complain("work", error)
        self._settler.put(Finished(job, Dropped(), None))

    def _end_what_is_left(self, job: Job) -> None:
        """An attempt that is over may have left a thread behind, in the middle of a statement."""
        if job in self._parts.connections.loans:
            self._parts.connections.revoke(job, job.stop or LeaseLost(f"the attempt at job {job.id} is over"))

    def _in_thread(self, slot: int) -> Run:
        running, wait, loans = self._watchdog.running, self._wait, self._parts.connections.loans
        within = self._parts.within or None
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
            try:
                payloads.fit(job, processor.function)  # for its hooks, which run here
            except Exception as error:  # noqa: BLE001 - a type whose name is not known, too
                return (
                    attempt.over(job, processor)
                    if job.exhausted
                    else attempt.judge(job, error, processor.wait or self._wait)
                )
            with self._watchdog.expecting(job, job.deadline or monotonic()):
                return runner.run(job, processor, self._wait)

        return run

    def _children(self, settings: JobsSettings, modules: tuple[str, ...], first_mark: int) -> RunnerExecutor:
        if settings.compute is None:
            started = [Child(modules, settings, self._guard, self._parts.within) for _ in range(settings.children)]
            return self._runner_executor(started, "child", first_mark)
        from snapapp.jobs.compute import executor  # Dask takes 20 MB, and is an extra

        return executor.opened(
            settings,
            modules,
            self._parts.within,
            works=lambda runners: self._works(runners, first_mark),
            on_free=self._on_free,
            complain=self._parts.complain,
        )

    def _runner_executor(self, runners: Sequence[Runner], name: str, first_mark: int) -> RunnerExecutor:
        works = self._works(runners, first_mark)
        return RunnerExecutor(runners, works, self._on_free, name, self._parts.complain)

    def _works(self, runners: Sequence[Runner], first_mark: int) -> list[Work]:
        return [self._work(first_mark + n, self._in_group(one), one.reserve) for n, one in enumerate(runners)]

    def _may_begin(self, job: Job, reserve: Reserve | None) -> bool:
        if reserve and not self._reserves(job, reserve):
            return False
        if job.payload_json is None and not self._prepare(job):
            return False
        return self._begins(job)

    def _begins(self, job: Job) -> bool:
        """A job whose lease is not certainly ours, or that somebody stopped while it waited, is not begun."""
        if job.stop is None and self._parts.held_jobs.is_sure(job, monotonic()):
            job.started_at = monotonic()
            timeout = job.timeout_ms / 1000 if job.timeout_ms else self._timeouts[job.kind]
            job.deadline = job.started_at + timeout
            return True
        self._settler.put(Finished(job, _unbegun(job), None))
        return False

    def _reserves(self, job: Job, reserve: Reserve) -> bool:
        """False: the job is off our hands."""
        if job.exhausted or job.stop or not self._parts.held_jobs.is_sure(job, monotonic()):
            return True  # nothing that runs needs it
        try:
            reserve(job, self._processors[job.kind])
            return True
        except Exception as error:  # noqa: BLE001 - the attempt has not begun, and is not to be counted
            self._hand_back_unbegun(job, error)
            return False

    def _prepare(self, job: Job) -> bool:
        """What only some jobs need before they start. False: the job is off our hands."""
        if job.exhausted or job.stop or not self._parts.held_jobs.is_sure(job, monotonic()):
            return True  # nothing that runs needs it
        try:
            if self._fetch(job):
                return True
        except Exception as error:  # noqa: BLE001 - the attempt has not begun, and is not to be counted
            self._hand_back_unbegun(job, error)
            return False
        self._settler.put(Finished(job, Dropped(), None))
        return False

    def _hand_back_unbegun(self, job: Job, error: Exception) -> None:
        self._parts.complain("begin", error)
        if job.stop:
            outcome = _unbegun(job)
        elif isinstance(error, NoPlace):
            outcome = Snoozed(_PLACES_IN)  # or, as the oldest that is due, it would keep the others from the slots
        else:
            self._closed.wait(_AGAIN_IN)
            outcome = Interrupted()
        self._settler.put(Finished(job, outcome, None))

    def _fetch(self, job: Job) -> bool:
        """False: the lease is lost."""
        with self._parts.transaction(job) as db:
            job.payload_json = claim.payload(db, job.lease)
            job.parents_json = claim.parents(db, job.id)
        return job.payload_json is not None

    def _conclude(self, job: Job, processor: Processor, outcome: Outcome) -> None:
        finished = Finished(job, outcome, monotonic() - (job.started_at or 0.0))
        if self._events.hears(events.JOB_PROCESSED) or self._events.hears(events.JOB_ERRORED):
            self._tell_over(finished)
        if (processor.commit or processor.failed) and finish.needs_a_hook(processor, outcome):
            self._settle_with_hook(finished, processor)
        else:
            self._settler.put(finished)

    def _settle_with_hook(self, finished: Finished, processor: Processor) -> None:
        """On the job's own slot, so that a slow hook costs this slot only. Waits for a database that is away."""
        failures = hooks_failed = 0
        while not self._closed.is_set():
            try:
                with self._watchdog.expecting(finished.job, monotonic()):
                    settled, status = finish.settle_with_hook(
                        finished,
                        processor,
                        self._parts.transaction,
                        self._wait,
                        self._parts.within,
                        was_unsure=failures > 0,
                        hook_may_come_again=hooks_failed + 1 < _HOOK_TRIES,
                    )
                self._settler.settled_elsewhere(settled, status)
                return
            except finish.CommitFailed as refused:
                finished = refused.finished  # for good: if its `failed` hook has to be dropped, it is still no success
                hooks_failed = 0  # that one has its own tries
            except BaseException as error:  # noqa: BLE001 - the hook's edge; it may call sys.exit()
                failures += 1
                hooks_failed += isinstance(error, finish.HookFailed)
                self._parts.complain("settle with hook", error)
                if hooks_failed >= _HOOK_TRIES or (failures >= _HOOK_TRIES and not finish.queue_is_away(error)):
                    self._drop_hook(finished, error)
                    return
                self._closed.wait(pause_after(failures))

    def _drop_hook(self, finished: Finished, error: BaseException) -> None:
        """A `failed` hook that keeps raising is dropped: the job must reach the dead letters. A `commit` never is: it
        has come back as CommitFailed."""
        assert not isinstance(finished.outcome, Succeeded)
        job = finished.job
        why = f"{type(error).__name__}: {error}"
        self._events.emit(
            events.HOOK_DROPPED, logging.ERROR, worker_id=self._parts.id, job_id=job.id, kind=job.kind, error=why
        )
        self._settler.put(finished)

    def _conclude_without(self, job: Job, late: JobTimeout) -> None:
        processor = self._processors[job.kind]
        try:
            self._conclude(job, processor, attempt.judge(job, job.stop or late, processor.wait or self._wait))
        except BaseException as error:  # noqa: BLE001 - as in `work`
            self._let_go(job, error)

    def _tell_active(self, job: Job) -> None:
        self._events.emit(events.JOB_ACTIVE, **self._facts(job))

    def _tell_over(self, finished: Finished) -> None:
        """How the processor ended; not what becomes of the job, which the settle tells."""
        facts = self._facts(finished.job) | {"duration_ms": round((finished.ran_for or 0.0) * 1000, 3)}
        match finished.outcome:
            case Succeeded():
                self._events.emit(events.JOB_PROCESSED, **facts)
            case Retried(failure) | Buried(failure, ran=True):
                self._events.emit(events.JOB_ERRORED, **facts, error=failure.error)

    def _facts(self, job: Job) -> dict[str, Any]:
        return {
            "worker_id": self._parts.id,
            "job_id": job.id,
            "kind": job.kind,
            "attempt": job.attempt,
            "status": "RUNNING",
            "request_id": job.request_id,
        }


def _unbegun(job: Job) -> Outcome:
    match job.stop:
        case JobCancelled() as cancelled:
            return Stopped(Failure.of(cancelled))
        case JobInterrupted():
            return Interrupted()
    return Dropped()

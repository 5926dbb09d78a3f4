"""What a slot does with a job: starts it if it still may, runs it, settles it. Opens the executors that the kinds
need."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, thread_time
from typing import TypeVar

from tenacity.wait import wait_base

from snapapp.jobs import events, payloads, tracing
from snapapp.jobs.errors import JobsError, JobTimeout, LeaseLost
from snapapp.jobs.executors import Executor, Work, attempt, command
from snapapp.jobs.executors.children import Child
from snapapp.jobs.executors.command import Command
from snapapp.jobs.executors.event_loop import AsyncExecutor
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.executors.runners import Runner, RunnerExecutor
from snapapp.jobs.executors.threads import ThreadExecutor
from snapapp.jobs.model import Finished, Interrupted, Job, Outcome
from snapapp.jobs.os.state_file import StateFile
from snapapp.jobs.registry import Processor
from snapapp.jobs.retry import wait_spread
from snapapp.jobs.rows.database import Database
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker import hooks
from snapapp.jobs.worker.begin import Begin, Reserve
from snapapp.jobs.worker.finish import Finish
from snapapp.jobs.worker.parts import WorkerParts
from snapapp.jobs.worker.settler import Settler
from snapapp.jobs.worker.watchdog import Watchdog

T = TypeVar("T")
Run = Callable[[Job, Processor], Outcome | None]  # None: the job ran too long, and the watchdog has settled it

_BESIDE_THE_LOOP = 4  # threads: for the hooks of coroutine jobs, and to prepare such jobs
_QUICK = 0.001  # seconds: for jobs shorter than this, reading the thread's CPU clock twice (1 µs) costs noticeably
_REST = 0.01  # seconds for which a slot then measures no other job of that kind


class Executors:
    """All the executors of a worker: what the claimer needs of them, and what their slots do with a job."""

    def __init__(self, parts: WorkerParts, settler: Settler, database: Database, on_free: Callable[[], None]) -> None:
        settings, registry = parts.settings, parts.registry
        self._parts = parts
        self._settler = settler
        self._events = parts.events
        self._on_free = on_free
        self._closed = threading.Event()
        self._wait: wait_base = wait_spread(settings.retry)
        self._processors = {one.kind: one for one in registry}
        self.executor_of: dict[str, str] = {one.kind: one.executor for one in registry}
        self._guard = Guard()
        self._watchdog = Watchdog(parts, database, self._settle_given_up)
        self._begin = Begin(parts, settler, self._closed)
        self._finish = Finish(parts, settler, self._watchdog, self._wait, self._closed)
        # The event loop must not block. Its own thread pool may be full of jobs' hanging asyncio.to_thread calls.
        self._beside_the_loop = ThreadPoolExecutor(_BESIDE_THE_LOOP, "beside-the-loop")
        self.by_name = self._open(settings)

    def _open(self, settings: JobsSettings) -> dict[str, Executor]:
        """The executors that the registered kinds need, and no others: each thread and child costs memory."""
        executors_needed = set(self.executor_of.values())
        threads = settings.concurrency if "thread" in executors_needed else 0
        children = settings.children if "process" in executors_needed else 0
        commands = settings.commands if "command" in executors_needed else 0
        coroutines = settings.async_concurrency if "async" in executors_needed else 0
        slots = threads + children + commands
        self.state_file = _state_file(settings, slots + coroutines)
        # those of coroutines that run none; each other slot has a mark of its own
        self._free_marks = [self.state_file.marker(slots + one) for one in range(coroutines)]
        executors: dict[str, Executor] = {}
        if threads:
            works = [self._work(slot, self._in_thread(slot)) for slot in range(threads)]
            self._watchdog.threads = executors["thread"] = ThreadExecutor(threads, works, self._on_free)
        if children:
            processors = [one.function for one in self._processors.values() if one.executor == "process"]
            called_there = [*processors, self._parts.within.hook] if self._parts.within.hook else processors
            modules = sorted({function.__module__ for function in called_there})
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
        """Gives jobs that wait in an executor for a slot back to the queue, as if they had never been claimed."""
        for job in self.by_name[name].take_back():
            self._settler.end(Finished(job, Interrupted(), None))

    def interrupt(self, job: Job, reason: JobsError) -> None:
        """Asks a job to stop, and forces it where its executor can (a child process is killed, a thread cannot be)."""
        job.stop = reason
        self._parts.connections.revoke(job, reason)
        self.by_name[self.executor_of[job.kind]].interrupt(job, reason)

    def end_waits(self) -> None:
        """Hands back jobs whose slot waits until it may try something again: a start, or a hook."""
        self._closed.set()

    def stop(self) -> None:
        self.end_waits()
        self._watchdog.stop()
        for executor in self.by_name.values():
            executor.stop()
        self._beside_the_loop.shutdown(wait=False)
        self._guard.stop()
        self.state_file.forget()

    @property
    def stuck(self) -> list[Job]:
        """Jobs that ran past their deadline and cannot be ended."""
        return self._watchdog.stuck

    @property
    def is_worn_out(self) -> bool:
        return self._watchdog.is_worn_out

    # --- one job ----------------------------------------------------------------------------------------------

    def _work(self, mark_at: int, run: Run, reserve: Reserve | None = None) -> Work:
        """Returns the function that runs jobs on one slot. It is the hot path, so lookups are done here, once. That
        function returns False when its slot has been given to another thread."""
        mark, processors = self.state_file.marker(mark_at), self._processors
        hears, emit = self._events.hears, self._events.emit
        begin, give_way = self._begin, self._parts.web_priority.give_way

        def work(job: Job) -> bool:
            give_way()
            try:
                if not (begin.prepare(job, reserve) and begin.start(job)):
                    return True
                processor = processors[job.kind]
                mark(job.id, job.deadline or 0.0)
                if tracing.tracer is not None:
                    tracing.tracer.begins(job, self._parts.id)
                if hears(events.JOB_ACTIVE):
                    emit(events.JOB_ACTIVE, **self._parts.facts(job))
                outcome = run(job, processor)
                if outcome is not None:
                    self._finish.settle(job, processor, outcome)
                elif not self._watchdog.takes_its_slot_back(job):
                    return False
            except BaseException as error:  # noqa: BLE001 - a slot's outermost edge: the job's lease runs out
                self._finish.drop(job, error)
            if tracing.tracer is not None:
                tracing.tracer.rests()
            mark(0, 0.0)
            return True

        return work

    async def _work_async(self, job: Job, task: asyncio.Task[None]) -> None:
        mark = self._free_marks.pop()
        is_settling = False  # a thread settles the job, and goes on when this task is cancelled
        try:
            if job.payload_json is None and not await self._beside(self._begin.prepare, job):
                return
            if not self._begin.start(job):
                return
            processor = self._processors[job.kind]
            mark(job.id, job.deadline or 0.0)
            if tracing.tracer is not None:
                tracing.tracer.begins(job, self._parts.id)
            if self._events.hears(events.JOB_ACTIVE):
                self._events.emit(events.JOB_ACTIVE, **self._parts.facts(job))
            timeout = (job.deadline or 0.0) - (job.started_at or 0.0)
            self._watchdog.awaiting[job] = task
            outcome = await attempt.run_async(job, processor, self._wait, timeout, self._parts.within or None)
            self._revoke_connections_left(job)
            if self._watchdog.awaiting.pop(job, None) is None:  # the watchdog has given the job up and settled it
                self._watchdog.takes_its_slot_back(job)
                return
            is_settling = True
            if hooks.needs_a_hook(processor, outcome):
                await self._beside(self._finish.settle, job, processor, outcome)
            else:
                self._finish.settle(job, processor, outcome)
        except BaseException as error:  # noqa: BLE001 - the task's outermost edge
            self._parts.complain("work", error) if is_settling else self._finish.drop(job, error)
        finally:
            self._watchdog.awaiting.pop(job, None)
            mark(0, 0.0)
            self._free_marks.append(mark)

    async def _beside(self, call: Callable[..., T], *arguments: object) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._beside_the_loop, call, *arguments)
        return await asyncio.shield(future)

    def _revoke_connections_left(self, job: Job) -> None:
        """The attempt is over, but a thread it started may still be in the middle of a statement."""
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
                    self._revoke_connections_left(job)
            finally:
                settles_itself = running.pop(job, None) is not None
            return outcome if settles_itself else None

        return run

    def _in_runner(self, runner: Runner) -> Run:
        def run(job: Job, processor: Processor) -> Outcome:
            try:
                payloads.fit(job, processor.function)  # the kind's hooks run in this process and read the typed payload
            except Exception as error:  # noqa: BLE001 - resolving the payload's type may raise anything
                if not job.exhausted:  # else it does not run, and the runner says so
                    return attempt.judge(job, error, processor.wait or self._wait)
            with self._watchdog.expecting(job, job.deadline or monotonic()):
                return runner.run(job, processor, self._wait)

        return run

    def _children(self, settings: JobsSettings, modules: tuple[str, ...], first_mark: int) -> RunnerExecutor:
        if settings.compute is None:
            started = [Child(modules, settings, self._guard, self._parts.within) for _ in range(settings.children)]
            return self._runner_executor(started, "child", first_mark)
        from snapapp.jobs.compute.executor import ClusterExecutor  # only here: Dask is an extra and takes 20 MB

        return ClusterExecutor(
            settings.compute,
            modules,
            settings,
            self._parts.within,
            works=lambda runners: self._works(runners, first_mark),
            on_free=self._on_free,
            complain=self._parts.complain,
        )

    def _runner_executor(self, runners: Sequence[Runner], name: str, first_mark: int) -> RunnerExecutor:
        works = self._works(runners, first_mark)
        return RunnerExecutor(runners, works, self._on_free, name, self._parts.complain)

    def _works(self, runners: Sequence[Runner], first_mark: int) -> list[Work]:
        return [self._work(first_mark + n, self._in_runner(one), one.reserve) for n, one in enumerate(runners)]

    def _settle_given_up(self, job: Job, late: JobTimeout) -> None:
        """Called by the watchdog in place of the thread or coroutine that ignores its deadline."""
        processor = self._processors[job.kind]
        try:
            self._finish.settle(job, processor, attempt.judge(job, job.stop or late, processor.wait or self._wait))
        except BaseException as error:  # noqa: BLE001 - as in `work`
            self._finish.drop(job, error)


def _state_file(settings: JobsSettings, slots: int) -> StateFile:
    path = settings.membership.state_file if settings.membership else None  # the supervisor made one
    state_file = StateFile.open(path) if path else StateFile.make()
    state_file.use(slots)
    return state_file

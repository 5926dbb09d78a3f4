"""Slots whose jobs run outside of this process, where a kill ends them, whatever they do."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from tenacity.wait import wait_base

from snapapp.jobs.errors import ChildDied, JobsError
from snapapp.jobs.executors import Work, attempt
from snapapp.jobs.executors.process_group import MB, Group
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.executors.threads import ThreadExecutor
from snapapp.jobs.model import Buried, Job, Outcome, Retried
from snapapp.jobs.registry import Processor
from snapapp.jobs.settings import JobsSettings

_CLOSE = 0.8  # of the limit: what was allocated in one go and refused does not show in what was used
_RAISED = 2


class Runner(ABC):
    """A slot of which each job runs somewhere else. Ties each job to where it runs, so that a kill meant for one job
    never hits the next."""

    def __init__(self, settings: JobsSettings) -> None:
        self._settings = settings
        self._lock = Lock()  # whose turn it is and what it runs in change together
        self._job: Job | None = None

    def run(self, job: Job, processor: Processor, wait: wait_base) -> Outcome:
        """One attempt. Whatever happens where it runs happens to this attempt only."""
        if job.exhausted:
            return attempt.run(job, processor, wait)
        wait = processor.wait or wait
        limit = self._memory_limit(job, processor)
        with self._holding(job):
            try:
                outcome = self._attempt(job, processor, wait, limit)
            except Exception as error:  # noqa: BLE001 - whatever it says and however it ends is this attempt's end
                self.close()
                outcome = attempt.judge(job, job.stop or error, wait)
        return _with_more_memory(job, outcome, wait, limit, self.most_mb)

    @abstractmethod
    def _attempt(self, job: Job, processor: Processor, wait: wait_base, limit_mb: int) -> Outcome: ...

    def reserve(self, job: Job, processor: Processor) -> None:  # noqa: B027 - most have their place
        """Before the attempt begins, whose time limit is for the job: waits for a place to run it, and raises if there
        is none. Returns early where the job is to stop."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Called by the slot's thread when its first job has come, before that begins, and after each."""

    @abstractmethod
    def close(self) -> None:
        """Ends what is left and lets go of it."""

    @property
    def most_mb(self) -> int | None:
        """What no job may have more of; None: nobody knows."""
        return None

    @property
    def ends_in(self) -> float:
        """Seconds that its thread may take for `close`; 0: there is nothing to be gentle with."""
        return 0.0

    @abstractmethod
    def interrupt(self, job: Job) -> None:
        """Ends this job, if it is the one that runs."""

    @abstractmethod
    def shut(self) -> None:
        """Ends what runs, for good."""

    def _memory_limit(self, job: Job, processor: Processor) -> int:
        """In MB; 0: none."""
        its_own = processor.memory_mb if job.memory_mb is None else job.memory_mb
        return self._settings.job_memory_mb if its_own is None else its_own

    @contextmanager
    def _holding(self, job: Job) -> Iterator[None]:
        with self._lock:
            self._job = job
        try:
            yield
        finally:
            with self._lock:
                self._job = None


class GroupRunner(Runner):
    """In a process group on this machine."""

    def __init__(self, guard: Guard, settings: JobsSettings) -> None:
        super().__init__(settings)
        self._guard = guard
        self._group: Group | None = None
        self._is_shut = False

    def close(self) -> None:
        self._end_group()

    def interrupt(self, job: Job) -> None:
        with self._lock:
            if self._job is job and self._group:
                self._group.kill()

    def shut(self) -> None:
        """What is idle and has hooks to run is ended by `close`."""
        with self._lock:
            self._is_shut = True
            if self._group and (self._job or not self.ends_in):
                self._group.kill()

    def _launch(self, argv: list[str], **how: Any) -> Group:
        with self._lock:
            if self._is_shut:
                raise ChildDied("the worker is stopping, nothing is started any more")
            self._group = Group(argv, self._guard, nice=self._settings.child_nice, **how)
            return self._group

    def _end_group(self) -> int | None:
        with self._lock:
            group, self._group = self._group, None
        return group.end() if group else None


def _with_more_memory(job: Job, outcome: Outcome, wait: wait_base, limit_mb: int, most_mb: int | None) -> Outcome:
    """Once, with twice the limit and nothing beside it, where memory was what it lacked. A decoder that is refused
    memory takes its video for a damaged one, so no last word is believed that was said close to the limit."""
    raised_mb = min(_RAISED * limit_mb, most_mb or _RAISED * limit_mb)
    if raised_mb <= limit_mb or job.memory_mb is not None or job.attempt >= job.max_attempts:
        return outcome
    match outcome:
        case Retried(failure, delay) if failure.lacked_memory:
            return Retried(failure, delay, memory_mb=raised_mb)
        case Buried(failure) if failure.lacked_memory or (job.peak or 0) >= _CLOSE * limit_mb * MB:
            return Retried(failure, attempt.delay(job, failure, wait), memory_mb=raised_mb)
    return outcome


class RunnerExecutor(ThreadExecutor):
    """A thread for each runner: it hands the job over and waits, so it costs little here."""

    prefetches = False

    def __init__(
        self,
        runners: Sequence[Runner],
        works: list[Work],
        on_free: Callable[[], None],
        name: str,
        complain: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(len(runners), works, on_free, name)
        self._runners = runners
        self._complain = complain

    def interrupt(self, job: Job, reason: JobsError) -> None:
        job.stop = reason
        for runner in self._runners:
            runner.interrupt(job)

    def _slot(self, number: int, _first: Callable[[], None] | None = None) -> None:
        runner, work = self._runners[number], self._works[number]
        is_prepared = False  # a child takes 35 MB and half a second of a core, and many workers never need one
        while job := self._next():
            self._at_work[number] = job
            if not is_prepared:
                self._prepare(runner)  # before the attempt begins: its time limit is for the job
                is_prepared = True
            work(job)
            self._at_work[number] = None
            self._left[number] += 1
            self._prepare(runner)
        runner.close()  # on this thread: a child dies with the thread that has started it

    def _prepare(self, runner: Runner) -> None:
        try:
            runner.prepare()
        except Exception as error:  # noqa: BLE001 - a slot that ends would keep its jobs for ever
            self._complain("prepare a slot", error)

    def stop(self, patience: float = 1) -> None:
        for runner in self._runners:
            runner.shut()
        super().stop(patience + max(runner.ends_in for runner in self._runners))
        for runner in self._runners:
            runner.close()

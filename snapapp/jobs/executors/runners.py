"""Slots whose jobs run outside of this process, so that a kill always ends them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from tenacity.wait import wait_base

from snapapp.jobs.errors import ChildDied, JobsError, NoPlace
from snapapp.jobs.executors import Work, attempt
from snapapp.jobs.executors.process_group import MB, Group
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.executors.threads import ThreadExecutor
from snapapp.jobs.model import Buried, Job, Outcome, Retried
from snapapp.jobs.os.shortage import is_shortage
from snapapp.jobs.registry import Processor
from snapapp.jobs.settings import JobsSettings

_NEAR = 0.8  # of the limit: a peak above counts as lack of memory, for a large refused allocation is not in it
_MORE = 2  # times the limit, for one more attempt after a lack of memory


class Runner(ABC):
    """One slot whose jobs run in another process. It keeps job and process together, so that a kill meant for one job
    never hits the next."""

    def __init__(self, settings: JobsSettings) -> None:
        self._settings = settings
        self._lock = Lock()  # the job and its process change together
        self._job: Job | None = None

    def run(self, job: Job, processor: Processor, wait: wait_base) -> Outcome:
        """Runs one attempt. An error or the death of its process ends this attempt only."""
        if job.exhausted:
            return attempt.exhausted(job, processor)
        wait = processor.wait or wait
        limit = self._memory_limit(job, processor)
        with self._holding(job):
            try:
                outcome = self._attempt(job, processor, wait, limit)
            except Exception as error:  # noqa: BLE001 - every error, also in the messages of a child, ends this attempt
                self.close()
                outcome = attempt.judge(job, job.stop or error, wait)
        return _with_more_memory(job, outcome, wait, limit, self.most_mb)

    @abstractmethod
    def _attempt(self, job: Job, processor: Processor, wait: wait_base, limit_mb: int) -> Outcome: ...

    def reserve(self, job: Job, processor: Processor) -> None:  # noqa: B027 - most runners need no place
        """Called before the attempt starts, so that its time limit does not run yet: waits for a place to run the job.
        Raises if there is none; returns early if the job should stop."""

    def prepare(self) -> None:  # noqa: B027 - some runners prepare nothing
        """Called on the slot's thread before its first job starts, and after each job."""

    @abstractmethod
    def close(self) -> None:
        """Ends the process, if there is one, and frees what belongs to it."""

    @property
    def most_mb(self) -> int | None:
        """MB that no job can get more of; None: unknown."""
        return None

    @property
    def ends_in(self) -> float:
        """Seconds that `close` may take for an idle process that runs hooks before its end; 0: it has none."""
        return 0.0

    @abstractmethod
    def interrupt(self, job: Job) -> None:
        """Kills the process, if it runs this job."""

    @abstractmethod
    def shut(self) -> None:
        """Kills what runs, and allows no further start."""

    def _memory_limit(self, job: Job, processor: Processor) -> int:
        """The job's own limit, else its kind's, else the setting, in MB; 0: none."""
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
    """A runner whose jobs run in a process group on this machine."""

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
        """Allows no further start and kills what runs. An idle process with hooks to run is left to `close`."""
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


@contextmanager
def starting() -> Iterator[None]:
    """Around the start of a process: if the machine allows no more of them, the attempt has not begun."""
    try:
        yield
    except OSError as error:
        if is_shortage(error):
            raise NoPlace(f"this machine starts no more processes: {error}") from error
        raise


def _with_more_memory(job: Job, outcome: Outcome, wait: wait_base, limit_mb: int, most_mb: int | None) -> Outcome:
    """Turns an outcome for lack of memory into one more attempt, alone on a worker and with twice the limit; once for
    each job. A permanent failure close to the limit counts, too: a decoder that is refused memory takes its video for
    a damaged one."""
    raised_mb = min(_MORE * limit_mb, most_mb or _MORE * limit_mb)
    if raised_mb <= limit_mb or job.memory_mb is not None or job.attempt >= job.max_attempts:
        return outcome
    match outcome:
        case Retried(failure, delay) if failure.lacked_memory:
            return Retried(failure, delay, memory_mb=raised_mb)
        case Buried(failure) if failure.lacked_memory or (job.peak or 0) >= _NEAR * limit_mb * MB:
            return Retried(failure, attempt.delay(job, failure, wait), memory_mb=raised_mb)
    return outcome


class RunnerExecutor(ThreadExecutor):
    """A thread for each runner. The thread mostly waits for the other process, so it costs this process little."""

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
        is_prepared = False  # only when the first job comes: a child takes 20 MB and a third of a second
        while job := self._next():
            self._at_work[number] = job
            if not is_prepared:
                self._prepare(runner)  # before the attempt starts, so that its time limit does not run yet
                is_prepared = True
            work(job)
            self._at_work[number] = None
            self._left[number] += 1
            self._prepare(runner)
        runner.close()  # on this thread, because a child is killed when the thread that started it ends

    def _prepare(self, runner: Runner) -> None:
        try:
            runner.prepare()
        except Exception as error:  # noqa: BLE001 - if this thread ended, jobs would wait for its slot for ever
            self._complain("prepare a slot", error)

    def stop(self, patience: float = 1) -> None:
        for runner in self._runners:
            runner.shut()
        super().stop(patience + max(runner.ends_in for runner in self._runners))
        for runner in self._runners:
            runner.close()

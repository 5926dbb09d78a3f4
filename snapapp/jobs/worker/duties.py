"""What a worker does periodically: each duty is an APScheduler job, which never runs twice at the same time."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from time import monotonic
from typing import Any

from apscheduler.events import (
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobExecutionEvent,
    JobSubmissionEvent,
)
from apscheduler.executors.base import BaseExecutor, MaxInstancesReachedError, run_job
from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler

from snapapp.jobs.os.threads import let_it_begin

_SLEWED = timedelta(seconds=0.1)  # by so much the clock may drift before the plans follow it
_LOOKS_EVERY = 1.0  # seconds between two looks at the clock, at most; the heartbeat runs as often


class _SteadyScheduler(BackgroundScheduler):  # type: ignore[misc]  # APScheduler has no types
    """APScheduler plans by the host's clock. When that is set, the plans move along with it. Without that, beats would
    stop for an hour when it is set back by one; set forward, as by a suspend, it would list every run of that time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._clock_ahead = _clock_ahead()

    def bring_forward(self, name: str, seconds: float) -> None:
        """Makes a job run within so many seconds. The caller holds no lock that a listener takes, because APScheduler
        may call listeners under its own."""
        with self._jobstores_lock:  # else two threads could compare with the same time, and the later run be what stays
            job = self.get_job(name)
            if job is None or not getattr(job, "next_run_time", None):
                return  # the worker was never started, or has stopped
            at = datetime.now(UTC) + timedelta(seconds=seconds)
            if seconds > 0 and at < job.next_run_time:
                job.modify(next_run_time=at)
        if seconds <= 0:  # not by way of APScheduler's thread, which took 0.13 ms of each pickup; the plan stays
            with suppress(MaxInstancesReachedError):
                self._lookup_executor(job.executor).submit_job(job, [at])

    def _process_jobs(self) -> float:
        """What APScheduler's thread does whenever it wakes. Returns how many seconds it sleeps then."""
        moved = _clock_ahead() - self._clock_ahead
        if abs(moved) > _SLEWED:
            self._clock_ahead += moved
            for job in self.get_jobs():
                job.modify(next_run_time=job.next_run_time + moved)
        sleeps_for = super()._process_jobs()  # None: there is no job
        return _LOOKS_EVERY if sleeps_for is None else min(sleeps_for, _LOOKS_EVERY)


class _DutyThread(BaseExecutor):  # type: ignore[misc]  # APScheduler has no types
    """The thread of one duty. With APScheduler's pool, a run would begin 0.04 ms later."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: SimpleQueue[tuple[Job, list[datetime]] | None] = SimpleQueue()

    def start(self, scheduler: BackgroundScheduler, alias: str) -> None:
        super().start(scheduler, alias)
        threading.Thread(target=self._work, name=f"duty {alias}", daemon=True).start()

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002 - nobody waits for a duty, which may hang
        self._runs.put(None)

    def _do_submit_job(self, job: Job, run_times: list[datetime]) -> None:
        self._runs.put((job, run_times))
        let_it_begin()

    def _work(self) -> None:
        while run := self._runs.get():
            job, run_times = run
            self._run_job_success(job.id, run_job(job, job._jobstore_alias, run_times, self._logger.name))


def _clock_ahead() -> timedelta:
    """How far the host's clock is ahead of one that nobody sets, whose zero is arbitrary."""
    return datetime.now(UTC) - datetime.fromtimestamp(monotonic(), UTC)


class Duties:
    """An APScheduler with a thread for each duty, so that a slow duty never delays the heartbeat.

    APScheduler ignores a new run time for a job that is running. So `bring_forward` remembers the time, and the end of
    the run applies it.
    """

    def __init__(self, on_error: Callable[[str, Exception], None]) -> None:
        logging.getLogger("apscheduler.executors").setLevel(logging.ERROR)  # below ERROR it logs every run
        logger = logging.getLogger("snapapp.scheduler")
        logger.setLevel(logging.ERROR)  # below ERROR it logs skipped runs, which are intended
        self._scheduler = _SteadyScheduler(timezone=UTC, logger=logger)
        self._on_error = on_error
        self._threads: list[_DutyThread] = []
        self._on_skip: dict[str, Callable[[], None]] = {}
        self._running: set[str] = set()  # written by the duties
        self._forward_to: dict[str, float] = {}  # duty -> when it should run next, monotonic; under the lock
        self._turn = threading.Lock()
        self._ended = threading.Condition(self._turn)
        self._scheduler.add_listener(self._skipped, EVENT_JOB_MAX_INSTANCES | EVENT_JOB_MISSED)
        self._scheduler.add_listener(self._executed, EVENT_JOB_EXECUTED)

    def add(
        self,
        name: str,
        duty: Callable[[], object],
        every: timedelta,
        *,
        at_once: bool = False,
        on_skip: Callable[[], None] | None = None,
    ) -> None:
        """`on_skip` is called for each run that was skipped because the run before it had not ended."""
        if on_skip:
            self._on_skip[name] = on_skip
        self._threads.append(_DutyThread())
        self._scheduler.add_executor(self._threads[-1], name)
        self._scheduler.add_job(
            self._guarded(name, duty),
            "interval",
            seconds=every.total_seconds(),
            executor=name,
            id=name,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
            **({"next_run_time": datetime.now(UTC)} if at_once else {}),
        )

    def bring_forward(self, name: str, seconds: float = 0.0) -> None:
        """Makes the next run start within so many seconds."""
        at = monotonic() + seconds
        with self._turn:
            if self._forward_to.get(name, float("inf")) <= at:
                return
            self._forward_to[name] = at
            if name in self._running:
                return  # `_executed` applies it when this run ends
        self._scheduler.bring_forward(name, seconds)

    def wait_for(self, name: str, timeout: float) -> None:
        """Returns when the duty is not running, or after `timeout` seconds."""
        with self._ended:
            self._ended.wait_for(lambda: name not in self._running, timeout)

    @property
    def is_running(self) -> bool:
        return bool(self._scheduler.running)

    def start(self) -> None:
        try:
            self._scheduler.start()
        except RuntimeError:  # a thread cannot be started: APScheduler would leave those before it behind
            for thread in self._threads:
                thread.shutdown()
            raise

    def stop(self) -> None:
        if self._scheduler.running:
            with suppress(RuntimeError):  # it runs without a thread where none could be started, and joins that last
                self._scheduler.shutdown(wait=False)  # a duty may hang on a database that is away

    def _executed(self, event: JobExecutionEvent) -> None:
        """Applies what `bring_forward` remembered during the run: only from now on APScheduler accepts a new time."""
        with self._turn:
            at = self._forward_to.get(event.job_id)
        if at is not None:
            self._scheduler.bring_forward(event.job_id, at - monotonic())

    def _skipped(self, event: JobSubmissionEvent | JobExecutionEvent) -> None:
        on_skip = self._on_skip.get(event.job_id)
        if on_skip:
            on_skip()

    def _guarded(self, name: str, duty: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            with self._turn:
                self._running.add(name)
                self._forward_to.pop(name, None)
            try:
                duty()
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                if self.is_running:  # after a stop, the duty failed because its connection was closed
                    self._on_error(name, error)
            finally:
                with self._ended:
                    self._running.discard(name)
                    self._ended.notify_all()

        return run

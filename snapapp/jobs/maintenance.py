"""A worker's periodic duties: beat, recover, prune. A test can call each once; APScheduler calls them on time."""

import logging
import resource
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, timedelta
from time import monotonic

import psycopg
from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobExecutionEvent, JobSubmissionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from snapapp.jobs import crumbs, events, queue, roster, schedule_ledger
from snapapp.jobs.admission import Admission
from snapapp.jobs.database import Line, Row
from snapapp.jobs.errors import JobCancelled, JobsError, LeaseLost
from snapapp.jobs.events import Events
from snapapp.jobs.holdings import Holdings
from snapapp.jobs.model import Job, Lease
from snapapp.jobs.roster import Counts, Member, Report
from snapapp.jobs.settings import JobsSettings

_PRUNE_SLOTS_EVERY = 3600.0  # seconds: they are few

Interrupt = Callable[[Job, JobsError], None]


class Heart:
    """Keeps our leases and our place on the roster. It has a connection of its own, so that no job can delay it."""

    def __init__(
        self,
        settings: JobsSettings,
        member: Member,
        line: Line,
        holdings: Holdings,
        counts: Counts,
        *,
        interrupt: Interrupt,
        note: Callable[[], str | None],
        admission: Admission,
    ) -> None:
        self._settings = settings
        self._member = member
        self._line = line
        self._holdings = holdings
        self._counts = counts
        self._interrupt = interrupt
        self._note = note
        self._admission = admission
        self.status = "ACTIVE"  # DRAINING while the worker stops
        self._turn = threading.Lock()  # one beat at a time, and none after we left the roster
        self._has_left = False

    def beat(self) -> roster.Pulse:
        """Leases first: the roster is for people, the leases are what others act upon."""
        with self._turn:
            return roster.NO_PULSE if self._has_left else self._beat()

    def _beat(self) -> roster.Pulse:
        sent_at = monotonic()
        jobs = self._holdings.all()
        with self._line.connection() as db:
            for page in _pages(jobs, 1000):
                self._extend(queue.beat(db, *_leases(page, sent_at), self._settings.lease_for), page)
            self._holdings.confirm(sent_at)
            return roster.beat(db, self._member, self._report(jobs), lives_for=self._settings.lease_for)

    def check_cancelled(self) -> None:
        """Somebody asked one of our jobs to stop: find out which at once, a beat would take too long."""
        jobs = self._holdings.all()
        if jobs:
            sent_at = monotonic()
            with self._line.connection() as db:
                self._extend(queue.beat(db, *_leases(jobs, sent_at), self._settings.lease_for), jobs)

    def expire(self) -> None:
        """Without a confirmed beat for a whole lease others may be running our jobs: stop what can be stopped."""
        now = monotonic()
        for job in self._holdings.all():
            if job.stop is None and self._holdings.is_over(job, now):
                self._interrupt(job, LeaseLost(f"the lease of job {job.id} ended while the database was away"))

    def leave(self, reason: str) -> None:
        """The last beat carries the final counts."""
        with self._turn:
            self._has_left = True
            self._beat()
            with self._line.connection() as db:
                roster.leave(db, self._member.id, reason)

    def close(self) -> None:
        self._line.close()

    def _extend(self, beat: queue.Beat, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.id in beat.lost:
                self._interrupt(job, LeaseLost(f"job {job.id} was taken from us"))
            elif job.id in beat.cancelled and job.stop is None:
                self._interrupt(job, JobCancelled(f"job {job.id} was cancelled by a person"))

    def _report(self, jobs: list[Job]) -> Report:
        return Report(
            counts=self._counts,
            current_jobs=[job.id for job in jobs if job.started_at is not None][:1000],
            memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            status=self.status,
            note=self._note(),
            free_mb=self._admission.free_mb(),
            held_kinds=self._admission.held,
        )


class Keeper:
    """Keeps the queue in order, for everybody: takes back what dead workers held, forgets what is old."""

    def __init__(self, settings: JobsSettings, member: Member, line: Line, counts: Counts, events: Events) -> None:
        self._settings = settings
        self._member = member
        self._line = line
        self._counts = counts
        self._events = events
        self._here_since = monotonic()
        self._prune_after = 0
        self._prune_slots_at = monotonic()

    def recover_neighbours(self) -> int:
        """Jobs of workers on this machine whose process is gone: no need to wait for their leases."""
        overdue = 10 * self._settings.lease_for
        with self._line.connection() as db:
            others = roster.others(db, self._member.machine, besides=self._member.id, overdue=overdue)
            return sum(self._bury(db, other) for other in others)

    def recover(self) -> int:
        """Jobs whose lease ended. Not before we ourselves have been back for a beat: then nobody has."""
        recovered = self.recover_neighbours()
        if monotonic() - self._here_since < self._settings.beat_every.total_seconds():
            return recovered
        settled_for = self._settings.beat_every + timedelta(seconds=1)
        with self._line.connection() as db:
            taken = queue.recover(db, settled_for=settled_for)
        self._told(taken, "lease ended")
        return recovered + len(taken)

    def away(self) -> None:
        """The database was away: everybody's lease looks old now. Wait a beat before taking anything back."""
        self._here_since = monotonic()

    def prune(self) -> int:
        """One page at a time, so that nobody waits for it; goes on where it stopped."""
        deleted = 0
        with self._line.connection() as db:
            for _ in range(100):
                count, last = queue.prune(db, keep=self._settings.keep_finished, after=self._prune_after)
                deleted += count
                self._prune_after = last or 0
                if last is None:
                    break
            if monotonic() >= self._prune_slots_at:
                schedule_ledger.prune(db)
                self._prune_slots_at = monotonic() + _PRUNE_SLOTS_EVERY
        if deleted:
            self._events.emit(events.JOBS_PRUNED, worker_id=self._member.id, deleted=deleted)
        return deleted

    def close(self) -> None:
        self._line.close()

    def _bury(self, db: psycopg.Connection[Row], other: roster.Other) -> int:
        if other.is_here and crumbs.is_gone(other.pid, other.pid_started):
            taken = queue.release(db, other.id, crumbs.read(other.traces))
            roster.leave(db, other.id, "lost: its process is gone")
            crumbs.forget(other.traces)
            self._told(taken, f"worker {other.id} is dead")
            return len(taken)
        if other.is_overdue:
            roster.leave(db, other.id, "lost: its heartbeat stopped")  # its jobs come back by their own leases
        return 0

    def _told(self, taken: list[int], why: str) -> None:
        if taken:
            self._counts.recovered += len(taken)
            self._events.emit(
                events.WORKER_RECOVERED,
                logging.WARNING,
                worker_id=self._member.id,
                recovered=len(taken),
                job_ids=taken[:20],
                why=why,
            )


class Duties:
    """APScheduler, with an executor for each duty, so that a slow one never delays a heartbeat."""

    def __init__(self, on_error: Callable[[str, Exception], None]) -> None:
        logger = logging.getLogger("snapapp.scheduler")
        logger.setLevel(logging.ERROR)  # a call that meets the one before it is skipped: that is meant, and no news
        self._scheduler = BackgroundScheduler(timezone=UTC, logger=logger)
        self._on_error = on_error
        self._on_skip: dict[str, Callable[[], None]] = {}
        self._scheduler.add_listener(self._skipped, EVENT_JOB_MAX_INSTANCES | EVENT_JOB_MISSED)

    def add(
        self, name: str, duty: Callable[[], object], every: timedelta, *, on_skip: Callable[[], None] | None = None
    ) -> None:
        """`on_skip` is called for every call that met the one before it still at work, and was left out."""
        if on_skip:
            self._on_skip[name] = on_skip
        self._scheduler.add_executor(ThreadPoolExecutor(1), name)
        self._scheduler.add_job(
            self._guarded(name, duty),
            "interval",
            seconds=every.total_seconds(),
            executor=name,
            id=name,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
        )

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)  # a duty may hang on a database that is away

    def _skipped(self, event: JobSubmissionEvent | JobExecutionEvent) -> None:
        on_skip = self._on_skip.get(event.job_id)
        if on_skip:
            on_skip()

    def _guarded(self, name: str, duty: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                duty()
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                self._on_error(name, error)

        return run


def _leases(jobs: Iterable[Job], now: float) -> tuple[list[Lease], list[float | None]]:
    leases, ran_for = [], []
    for job in jobs:
        leases.append(job.lease)
        ran_for.append(None if job.started_at is None else now - job.started_at)
    return leases, ran_for


def _pages(jobs: list[Job], size: int) -> Iterable[list[Job]]:
    return (jobs[start : start + size] for start in range(0, len(jobs), size))

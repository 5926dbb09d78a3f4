"""What every worker does for all: jobs of dead workers come back, and what is old is forgotten."""

import logging
import threading
from collections import Counter
from datetime import timedelta
from time import monotonic

import psycopg

from snapapp.jobs import events
from snapapp.jobs.events import Events
from snapapp.jobs.os import processes, state_file
from snapapp.jobs.rows import leases as leases_rows
from snapapp.jobs.rows import limits, retention, roster
from snapapp.jobs.rows.database import Line, Row, is_away, waited_in_vain
from snapapp.jobs.rows.people import history
from snapapp.jobs.rows.roster import Counts, Member
from snapapp.jobs.schedules import ledger
from snapapp.jobs.settings import JobsSettings

_PRUNE_HISTORY_EVERY = 3600.0  # seconds: of schedules, workers and supervisors there is little
_PRUNE_SURPLUS_EVERY = 3600.0  # seconds: it looks through all jobs
_HIGHEST = 2**63 - 1
_PRUNE_IDLE_PAGES = 100  # looked through in a run: what is kept for ever is not read again every minute


class Recovery:
    """Keeps the queue in order, for everybody: takes back what dead workers held, forgets what is old."""

    def __init__(self, settings: JobsSettings, member: Member, line: Line, counts: Counts, events: Events) -> None:
        self._settings = settings
        self._member = member
        self._line = line
        self._counts = counts
        self._events = events
        self._here_since = monotonic()
        self._prune_after = 0
        self._prune_history_at = monotonic()
        self._prune_surplus_at = monotonic()
        self._is_closed = threading.Event()

    def recover_neighbours(self) -> int:
        """Jobs of workers on this machine whose process is gone: no need to wait for their leases."""
        overdue = 10 * self._settings.lease_for
        with self._line.connection() as db:
            others = roster.others(db, self._member.machine, besides=self._member.id, overdue=overdue)
            return sum(self._take_from(db, other) for other in others)

    def recover(self) -> int:
        """Jobs whose lease ended. After an absence of the database every lease looks old, so for the time of one beat
        nobody's jobs are taken: whoever lives will beat."""
        recovered = self.recover_neighbours()
        if monotonic() - self._here_since < self._settings.beat_every.total_seconds():
            return recovered
        settled_for = self._settings.beat_every + timedelta(seconds=1)
        with self._line.connection() as db:
            taken = leases_rows.recover(db, settled_for=settled_for, refused=self._refused)
        self._told(taken, "lease ended")
        return recovered + len(taken)

    def away(self) -> None:
        """The database was away: everybody's lease looks old now. Wait a beat before taking anything back."""
        self._here_since = monotonic()

    def prune(self) -> int:
        """A page at a time with rests as long, so that nobody waits for it. Until nothing is old any more, or the next
        run is due: that goes on where this one stopped."""
        with self._line.connection() as db:
            if monotonic() >= self._prune_history_at:
                self._prune_history(db)
            deleted = self._prune_jobs(db, monotonic() + self._settings.prune_every.total_seconds())
            if not self._is_closed.is_set() and monotonic() >= self._prune_surplus_at and retention.has_counts(db):
                deleted += self._prune_surplus(db)
        if deleted:
            self._events.emit(events.JOBS_PRUNED, worker_id=self._member.id, deleted=deleted)
        return deleted

    def close(self) -> None:
        self._is_closed.set()
        self._line.close()

    def _prune_jobs(self, db: psycopg.Connection[Row], until: float) -> int:
        deleted = idle_pages = 0
        while idle_pages < _PRUNE_IDLE_PAGES and monotonic() < until:
            began = monotonic()
            count, last = self._prune_page(db)
            deleted += count
            idle_pages += count == 0
            self._prune_after = last or 0
            if last is None or self._is_closed.wait(monotonic() - began):
                break
        return deleted

    def _prune_surplus(self, db: psycopg.Connection[Row]) -> int:
        """What rules call too many is found by counting from the newest job down; with rests as long, like the rest."""
        self._prune_surplus_at = monotonic() + _PRUNE_SURPLUS_EVERY
        seen: Counter[tuple[str, str]] = Counter()
        before: int | None = _HIGHEST
        deleted = 0
        while before is not None:
            began = monotonic()
            count, before = retention.prune_page_of_surplus(db, seen, before=before, refused=self._kept)
            deleted += count
            if self._is_closed.wait(monotonic() - began):
                break
        return deleted

    def _prune_page(self, db: psycopg.Connection[Row], limit: int = 1000) -> tuple[int, int | None]:
        """A row that PostgreSQL lets nobody delete stays, and costs nothing but itself."""
        keep, after = self._settings.keep_finished, self._prune_after
        try:
            return retention.prune_by_rules(db, keep=keep, after=after, limit=limit)
        except psycopg.Error as error:
            if is_away(error) or waited_in_vain(error):
                raise
            if limit > 1:
                return self._prune_page(db, limit // 2)
            last = retention.first_after(db, after)
            self._kept(last, error)
            return 0, last

    def _kept(self, job_id: int | None, error: Exception) -> None:
        self._events.complain(self._member.id, f"prune job {job_id}", error)

    def _prune_history(self, db: psycopg.Connection[Row]) -> None:
        ledger.prune(db)
        retention.prune_fleet(db, keep=self._settings.keep_finished)
        limits.forget(db)
        history.merge(db)
        self._prune_history_at = monotonic() + _PRUNE_HISTORY_EVERY

    def _take_from(self, db: psycopg.Connection[Row], other: roster.Other) -> int:
        if other.is_here and processes.is_gone(other.pid, other.pid_started):
            ran = state_file.running(other.traces)
            taken = leases_rows.release(db, other.id, ran, refused=self._refused)
            roster.leave(db, other.id, "lost: its process is gone")
            state_file.forget(other.traces)
            self._told(taken, f"worker {other.id} is dead")
            return len(taken)
        if other.is_overdue:
            roster.leave(db, other.id, "lost: its heartbeat stopped")  # its jobs come back by their own leases
        return 0

    def _refused(self, job_id: int, error: Exception) -> None:
        self._events.complain(self._member.id, f"take back job {job_id}", error)

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
        if self._events.hears(events.JOB_STALLED):
            for job_id in taken:
                self._events.emit(events.JOB_STALLED, worker_id=self._member.id, job_id=job_id, why=why)

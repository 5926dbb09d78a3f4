"""What every worker does for the whole queue: takes back the jobs of dead workers, and deletes old rows."""

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
from snapapp.jobs.rows.database import Database, Row, is_away, waited_in_vain
from snapapp.jobs.rows.people import history
from snapapp.jobs.rows.roster import Counts, Member
from snapapp.jobs.schedules import ledger
from snapapp.jobs.settings import JobsSettings

_PRUNE_HISTORY_EVERY = 3600.0  # seconds: few rows of schedules, workers and supervisors grow old in an hour
_PRUNE_SURPLUS_EVERY = 3600.0  # seconds: this kind of pruning reads all jobs
_HIGHEST = 2**63 - 1
_PRUNE_IDLE_PAGES = 100  # pages without an old job in one run: jobs kept for ever are not all read every minute


class Recovery:
    """One instance for each worker; the duties "recover" and "prune" call it."""

    def __init__(
        self, settings: JobsSettings, member: Member, database: Database, counts: Counts, events: Events
    ) -> None:
        self._settings = settings
        self._member = member
        self._database = database
        self._counts = counts
        self._events = events
        self._database_back_at = monotonic()
        self._prune_after = 0
        self._prune_history_at = monotonic()
        self._prune_surplus_at = monotonic()
        self._is_closed = threading.Event()

    def recover_neighbours(self, *, silence: timedelta | None = None, judges_silence: bool) -> int:
        """Takes back the jobs of workers on this machine whose process is gone, without waiting for their leases. If it
        `judges_silence`, it takes those off the roster that were silent for ten leases."""
        overdue = 10 * self._settings.lease_for
        with self._database.connection() as db:
            others = roster.others(db, self._member.machine, besides=self._member.id, overdue=overdue, silence=silence)
            return sum(self._take_from(db, other, judges_silence) for other in others)

    def recover(self, silence: timedelta | None = None) -> int:
        """Takes back jobs whose lease has ended. After the database was away, or its clock was set, all leases look
        old, so we first wait for one beat, in which living workers extend theirs. `silence`: since our last beat; None:
        there was none."""
        if monotonic() - self._database_back_at < self._settings.beat_every.total_seconds():
            return self.recover_neighbours(judges_silence=False)
        settled_for = self._settings.beat_every + timedelta(seconds=1)
        longest = None if silence is None else silence + self._settings.beat_every
        recovered = self.recover_neighbours(silence=longest, judges_silence=True)
        with self._database.connection() as db:
            job_ids = leases_rows.recover(
                db, settled_for=settled_for, refused=self._report_refused, by=self._member.id, silence=longest
            )
        self._report_recovered(job_ids, "lease ended")
        return recovered + len(job_ids)

    def away(self) -> None:
        """Called when the database did not answer, or its clock was set: restarts the wait for one beat in
        `recover`."""
        self._database_back_at = monotonic()

    def prune(self) -> int:
        """Deletes old jobs page by page and rests after each page for as long as it took, so that the load stays small.
        Stops when no old job is left or the next run is due, which then continues here."""
        with self._database.connection() as db:
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
        self._database.close()

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
        """Deletes jobs beyond the number that a rule keeps, counting from the newest job down, with the same rests."""
        self._prune_surplus_at = monotonic() + _PRUNE_SURPLUS_EVERY
        seen: Counter[tuple[str, str]] = Counter()
        before: int | None = _HIGHEST
        deleted = 0
        while before is not None:
            began = monotonic()
            count, before = retention.prune_page_of_surplus(db, seen, before=before, refused=self._report_kept)
            deleted += count
            if self._is_closed.wait(monotonic() - began):
                break
        return deleted

    def _prune_page(self, db: psycopg.Connection[Row], limit: int = 1000) -> tuple[int, int | None]:
        """A row that PostgreSQL refuses to delete is found by halving the page, and stays; all others are deleted."""
        keep, after = self._settings.keep_finished, self._prune_after
        try:
            return retention.prune_by_rules(db, keep=keep, after=after, limit=limit)
        except psycopg.Error as error:
            if is_away(error) or waited_in_vain(error):
                raise
            if limit > 1:
                return self._prune_page(db, limit // 2)
            last = retention.first_after(db, after)
            self._report_kept(last, error)
            return 0, last

    def _report_kept(self, job_id: int | None, error: Exception) -> None:
        self._events.complain(self._member.id, f"prune job {job_id}", error)

    def _prune_history(self, db: psycopg.Connection[Row]) -> None:
        ledger.prune(db)
        retention.prune_fleet(db, keep=self._settings.keep_finished)
        limits.forget(db)
        history.merge(db)
        self._prune_history_at = monotonic() + _PRUNE_HISTORY_EVERY

    def _take_from(self, db: psycopg.Connection[Row], other: roster.Other, judges_silence: bool) -> int:
        if other.is_here and processes.is_gone(other.pid, other.pid_started):
            running = state_file.running(other.state_file)
            job_ids = leases_rows.release(db, other.id, running, refused=self._report_refused)
            roster.leave(db, other.id, roster.LOST)
            state_file.forget(other.state_file)
            self._report_recovered(job_ids, f"worker {other.id} is dead")
            return len(job_ids)
        if other.is_overdue and judges_silence:
            roster.leave(db, other.id, "lost: its heartbeat stopped")  # its jobs are recovered when their leases end
        return 0

    def _report_refused(self, job_id: int, error: Exception) -> None:
        self._events.complain(self._member.id, f"take back job {job_id}", error)

    def _report_recovered(self, taken: list[int], why: str) -> None:
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

"""The beat: extends the leases of this worker's jobs, renews its row on the roster, and interrupts jobs that lost their
lease or were cancelled."""

import resource
import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from snapapp.jobs import events
from snapapp.jobs.errors import JobCancelled, JobsError, LeaseLost
from snapapp.jobs.model import Job
from snapapp.jobs.rows import leases as leases_rows
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.database import Db, row_by_row
from snapapp.jobs.rows.roster import Member, Report
from snapapp.jobs.worker.capacity.admission import Admission
from snapapp.jobs.worker.parts import WorkerParts

Interrupt = Callable[[Job, JobsError], None]

_PAGE = 1000  # jobs whose leases one statement extends


class Heartbeat:
    """It has a connection of its own, so that no job can delay a beat."""

    def __init__(
        self,
        parts: WorkerParts,
        member: Member,
        admission: Admission,
        *,
        interrupt: Interrupt,
        note: Callable[[], str | None],
    ) -> None:
        self._parts = parts
        self._member = member
        self._admission = admission
        self._interrupt = interrupt
        self._note = note
        self._database = parts.database("beat")
        self._held_jobs = parts.held_jobs
        self.status = "ACTIVE"  # DRAINING while the worker stops
        self._turn = threading.Lock()  # one beat at a time, and none after `leave`
        self._has_left = False
        self._has_declared = False

    def beat(self) -> roster.BeatAnswer:
        """Extends the leases before the roster: other workers take jobs by their leases, the roster only informs."""
        with self._turn:
            return roster.NO_ANSWER if self._has_left else self._beat()

    def _beat(self) -> roster.BeatAnswer:
        sent_at = monotonic()
        jobs = self._held_jobs.all()
        with self._database.connection() as db:
            for start in range(0, len(jobs), _PAGE):
                self._extend(db, jobs[start : start + _PAGE], sent_at)
            is_first = not self._has_declared
            if is_first:
                roster.declare(db, self._member.declared)
                self._has_declared = True
            answer = roster.beat(db, self._member, self._report(jobs), lives_for=self._parts.settings.lease_for)
            if answer.silent_for is None and not is_first:  # a failover lost our row, and perhaps those of our kinds
                roster.declare(db, self._member.declared, only_missing=True)
            return answer

    def check_cancelled(self) -> None:
        """Called when a job of this worker was cancelled: finds out which at once, without waiting for a beat."""
        jobs = self._held_jobs.all()
        if jobs:
            sent_at = monotonic()
            with self._database.connection() as db:
                self._extend(db, jobs, sent_at)

    def expire(self) -> None:
        """Interrupts jobs whose lease has run out without a confirmed beat: other workers may be running them. Called
        so often that they are stopped within a second, also after the process was frozen."""
        now = monotonic()
        for job in self._held_jobs.all():
            if job.stop is None and self._held_jobs.is_over(job, now):
                self._interrupt(job, LeaseLost(f"no beat for job {job.id} reached the database within its lease"))

    def leave(self, reason: str) -> None:
        """Beats once more, for the final counts, and marks the roster row as left."""
        with self._turn:
            self._has_left = True
            self._beat()
            with self._database.connection() as db:
                roster.leave(db, self._member.id, reason)

    def close(self) -> None:
        self._database.close()

    def _extend(self, db: Db, jobs: list[Job], sent_at: float) -> None:
        def beaten(some: Sequence[Job]) -> list[leases_rows.Beat]:
            ran_for = [None if job.started_at is None else sent_at - job.started_at for job in some]
            beat = leases_rows.beat(db, [job.lease for job in some], ran_for, self._parts.settings.lease_for)
            # not those that PostgreSQL refuses, nor any that were claimed meanwhile
            self._held_jobs.confirm(some, sent_at)
            return [beat]

        for beat in row_by_row(beaten, jobs, self._refused):
            self._interrupt_lost(beat, jobs)
        if jobs and self._parts.events.hears(events.LEASES_EXTENDED):
            ids = [job.id for job in jobs]
            self._parts.events.emit(events.LEASES_EXTENDED, worker_id=self._member.id, job_ids=ids)

    def _refused(self, job: Job, error: Exception) -> None:
        self._parts.complain(f"beat for job {job.id}", error)

    def _interrupt_lost(self, beat: leases_rows.Beat, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.id in beat.lost:
                self._interrupt(job, LeaseLost(f"job {job.id} was taken from us"))
            elif job.id in beat.cancelled and job.stop is None:
                self._interrupt(job, JobCancelled(f"job {job.id} was cancelled by a person"))

    def _report(self, jobs: list[Job]) -> Report:
        return Report(
            counts=self._parts.counts,
            current_jobs=[job.id for job in jobs if job.started_at is not None][:1000],
            memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            status=self.status,
            note=self._note(),
            free_mb=self._admission.free_mb(),
            held_kinds=self._admission.held,
        )

"""The jobs that this worker has claimed and not settled, and whether their leases are still certain."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from snapapp.jobs.errors import JobTimeout, LeaseLost
from snapapp.jobs.model import Job
from snapapp.jobs.worker.connections import JobConnections
from snapapp.jobs.worker.notes import Notes

if TYPE_CHECKING:
    from sqlalchemy import Connection


class HeldJobs:
    """Jobs by id. The claimer adds, settling threads remove, the beat copies: each by one dict operation, so without
    a lock."""

    def __init__(self, lease_for: timedelta, beat_every: timedelta) -> None:
        self._jobs: dict[int, Job] = {}
        self._sure_for = (lease_for - beat_every).total_seconds()
        self._kill_after = lease_for.total_seconds()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, jobs: Iterable[Job], claimed_at: float) -> list[Job]:
        """`claimed_at` is when the claim was sent: the lease is counted from there, not from the answer. Returns
        earlier attempts at the same jobs that this worker still runs: they lost their leases while it was frozen."""
        displaced = []
        for job in jobs:
            job.claimed_at = job.leased_at = claimed_at
            if earlier := self._jobs.get(job.id):
                displaced.append(earlier)
            self._jobs[job.id] = job
        return displaced

    def remove(self, job: Job) -> None:
        if self._jobs.get(job.id) is job:
            del self._jobs[job.id]

    def holds(self, job: Job) -> bool:
        return self._jobs.get(job.id) is job

    def get(self, job_id: int) -> Job | None:
        return self._jobs.get(job_id)

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    def confirm(self, jobs: Iterable[Job], sent_at: float) -> None:
        """A beat for these jobs, which was sent then, has reached the database."""
        for job in jobs:
            job.leased_at = sent_at

    def is_sure(self, job: Job, now: float) -> bool:
        """Is the lease certainly still ours? False from one beat before its end: then the job must not start."""
        return now < job.leased_at + self._sure_for

    def is_over(self, job: Job, now: float) -> bool:
        """Has the lease run out by our clock? Then another worker may be running the job."""
        return now >= job.leased_at + self._kill_after


class JobChannel:
    """Connects jobs that run in this process with the worker; children have their own over a pipe."""

    def __init__(self, notes: Notes, held_jobs: HeldJobs, connections: JobConnections) -> None:
        self.progress = notes.progress
        self.log = notes.log
        self._held_jobs = held_jobs
        self._connections = connections

    def check(self, job: Job) -> None:
        now = monotonic()
        if job.stop:
            raise job.stop
        if job.deadline is not None and now > job.deadline:
            raise JobTimeout(f"{job.kind} ran longer than its {job.deadline - (job.started_at or now):g} s")
        if not self._held_jobs.is_sure(job, now):
            raise LeaseLost(f"the lease of job {job.id} has not been confirmed for too long")

    def connection(self, job: Job) -> "AbstractContextManager[Connection]":
        return self._connections.connection(job, self._check_held)

    def _check_held(self, job: Job) -> None:
        """Refuses a thread that goes on after its attempt has ended."""
        self.check(job)
        if not self._held_jobs.holds(job):
            raise LeaseLost(f"the attempt at job {job.id} is over")

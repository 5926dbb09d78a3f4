"""Whether a job that a slot has taken may still begin, and what it needs for that."""

import threading
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from snapapp.jobs.errors import JobCancelled, JobInterrupted, NoPlace
from snapapp.jobs.model import Dropped, Failure, Finished, Interrupted, Job, Outcome, Snoozed, Stopped
from snapapp.jobs.registry import Processor
from snapapp.jobs.rows import claim
from snapapp.jobs.worker.parts import WorkerParts
from snapapp.jobs.worker.settler import Settler

Reserve = Callable[[Job, Processor], None]  # waits for a place where the job may run, or raises

_AGAIN_IN = 1.0  # seconds before a job is handed back that could not begin, or it would be here again at once
_PLACES_IN = timedelta(seconds=30)  # before a job comes again that found no place to run


class Begin:
    """Each method says whether the job goes on; if not, it is off our hands."""

    def __init__(self, parts: WorkerParts, settler: Settler, closed: threading.Event) -> None:
        self._parts = parts
        self._settler = settler
        self._closed = closed
        self._processors = {one.kind: one for one in parts.registry}
        self._timeouts = {one.kind: (one.timeout or parts.settings.timeout).total_seconds() for one in parts.registry}

    def may(self, job: Job, reserve: Reserve | None) -> bool:
        return self.is_prepared(job, reserve) and self.begins(job)

    def is_prepared(self, job: Job, reserve: Reserve | None = None) -> bool:
        """With what only some jobs need before they start: a place, a payload that the claim left behind."""
        if reserve is None and job.payload_json is not None:
            return True
        if job.exhausted or job.stop or not self._parts.held_jobs.is_sure(job, monotonic()):
            return True  # nothing that runs needs it
        try:
            if reserve:
                reserve(job, self._processors[job.kind])
            if job.payload_json is not None or self._fetch(job):
                return True
        except Exception as error:  # noqa: BLE001 - the attempt has not begun, and is not to be counted
            self._hand_back(job, error)
            return False
        self._settler.put(Finished(job, Dropped(), None))
        return False

    def begins(self, job: Job) -> bool:
        """A job whose lease is not certainly ours, or that somebody stopped while it waited, is not begun."""
        if job.stop is None and self._parts.held_jobs.is_sure(job, monotonic()):
            job.started_at = monotonic()
            timeout = job.timeout_ms / 1000 if job.timeout_ms else self._timeouts[job.kind]
            job.deadline = job.started_at + timeout
            return True
        self._settler.put(Finished(job, _unbegun(job), None))
        return False

    def _fetch(self, job: Job) -> bool:
        """False: the lease is lost."""
        with self._parts.transaction(job) as db:
            job.payload_json = claim.payload(db, job.lease)
            job.parents_json = claim.parents(db, job.id)
        return job.payload_json is not None

    def _hand_back(self, job: Job, error: Exception) -> None:
        self._parts.complain("begin", error)
        if job.stop:
            outcome = _unbegun(job)
        elif isinstance(error, NoPlace):
            # not at once: as the oldest that is due it would keep the others from the slots
            outcome = Snoozed(_PLACES_IN, ran=False)
        else:
            self._closed.wait(_AGAIN_IN)
            outcome = Interrupted()
        self._settler.put(Finished(job, outcome, None))


def _unbegun(job: Job) -> Outcome:
    match job.stop:
        case JobCancelled() as cancelled:
            return Stopped(Failure.of(cancelled))
        case JobInterrupted():
            return Interrupted()
    return Dropped()

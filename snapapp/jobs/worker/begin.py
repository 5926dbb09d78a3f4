"""Decides whether a job that a slot has taken may still start, and fetches what it needs for that."""

import threading
from collections.abc import Callable
from time import monotonic

from snapapp.jobs.errors import JobCancelled, JobInterrupted, NoPlace
from snapapp.jobs.executors.attempt import WITHOUT_PLACE
from snapapp.jobs.model import Dropped, Failure, Finished, Interrupted, Job, Outcome, Stopped
from snapapp.jobs.registry import Processor
from snapapp.jobs.rows import claim
from snapapp.jobs.worker.parts import WorkerParts
from snapapp.jobs.worker.settler import Settler

Reserve = Callable[[Job, Processor], None]  # waits for a place where the job can run; raises where there is none

_HAND_BACK_AFTER = 1.0  # seconds: a job that failed to start and goes back at once would be claimed again at once


class Begin:
    """Each method returns True when the attempt goes on. On False the job has already been passed to the settler."""

    def __init__(self, parts: WorkerParts, settler: Settler, closed: threading.Event) -> None:
        self._parts = parts
        self._settler = settler
        self._closed = closed
        self._processors = {one.kind: one for one in parts.registry}
        self._timeouts = {one.kind: (one.timeout or parts.settings.timeout).total_seconds() for one in parts.registry}

    def prepare(self, job: Job, reserve: Reserve | None = None) -> bool:
        """Gets what only some jobs need before they start: a place to run, and a payload too large for the claim."""
        if reserve is None and job.payload_json is not None:
            return True
        if job.exhausted or job.stop or not self._parts.held_jobs.is_sure(job, monotonic()):
            return True  # the job will not run: `start` or the attempt itself ends it
        try:
            if reserve:
                reserve(job, self._processors[job.kind])
            if job.payload_json is not None or self._fetch(job):
                return True
        except Exception as error:  # noqa: BLE001 - the attempt has not started, so it must not count
            self._hand_back(job, error)
            return False
        self._settler.end(Finished(job, Dropped(), None))
        return False

    def start(self, job: Job) -> bool:
        """Sets the job's deadline. Refuses a job that was stopped while it waited, or whose lease may have ended."""
        if job.stop is None and self._parts.held_jobs.is_sure(job, monotonic()):
            job.started_at = monotonic()
            timeout = job.timeout_ms / 1000 if job.timeout_ms else self._timeouts[job.kind]
            job.deadline = job.started_at + timeout
            return True
        self._settler.end(Finished(job, _outcome_without_start(job), None))
        return False

    def _fetch(self, job: Job) -> bool:
        """Reads the payload and the parents' results. False: the job's lease is lost."""
        with self._parts.transaction(job) as db:
            job.payload_json = claim.payload(db, job.lease)
            job.parents_json = claim.parents(db, job.id)
        return job.payload_json is not None

    def _hand_back(self, job: Job, error: Exception) -> None:
        self._parts.complain("begin", error)
        if job.stop:
            outcome = _outcome_without_start(job)
        elif isinstance(error, NoPlace):
            outcome = WITHOUT_PLACE
        else:
            self._closed.wait(_HAND_BACK_AFTER)
            outcome = Interrupted()
        self._settler.end(Finished(job, outcome, None))


def _outcome_without_start(job: Job) -> Outcome:
    match job.stop:
        case JobCancelled() as cancelled:
            return Stopped(Failure.of(cancelled))
        case JobInterrupted():
            return Interrupted()
    return Dropped()

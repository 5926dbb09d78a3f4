"""POST /internal/jobs/{id}/…: changes to one job."""

from typing import Any

from fastapi import Response
from pydantic import Field

from snapapp.api.http.deps import Who, Writing
from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Sent, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.internal.jobs.many import discarded
from snapapp.api.internal.jobs.shown import NO_JOB, PREFIX, JobId, JobLine, line, place
from snapapp.jobs.model import Status
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.people import audit

router = InternalRouter(prefix=PREFIX, tags=["jobs"], route_class=StrictRoute)


@router.post("/{job_id}/retry", responses=NO_JOB | may_be(_409="It is not FAILED or CANCELLED, or its key is held."))
def retry_job(db: Writing, job_id: JobId, who: Who) -> JobLine:
    """Runs a FAILED or CANCELLED job again, counting attempts from zero."""
    lifecycle.retry_by_person(db, job_id)
    audit.write(db, who, "job.retry", f"job {job_id}", jobs=1)
    return line(db, job_id)


@router.post("/{job_id}/now", responses=NO_JOB | may_be(_409="It does not wait, or it waits for its parents."))
def run_job_now(db: Writing, job_id: JobId, who: Who) -> JobLine:
    """Makes a waiting job due now: a delayed one, or one that waits for its next attempt. Limits, fair queues and
    pauses hold. A job that is due already stays as it is."""
    lifecycle.run_now(db, job_id)
    audit.write(db, who, "job.now", f"job {job_id}", jobs=1)
    return line(db, job_id)


@router.post("/{job_id}/replay", status_code=201, responses=NO_JOB)
def replay_job(db: Writing, job_id: JobId, who: Who, response: Response) -> JobLine:
    """Adds a copy of a job, whatever state the job is in."""
    copy = lifecycle.replay(db, job_id)
    audit.write(db, who, "job.replay", f"job {job_id}", jobs=1, detail={"copy": copy})
    response.headers["Location"] = place(copy)
    return line(db, copy)


_ASKED: dict[int | str, dict[str, Any]] = {
    202: {"model": JobLine, "description": "It runs and was asked to stop; a completion that arrives first wins."}
}


@router.post(
    "/{job_id}/cancel",
    responses=NO_JOB | _ASKED | may_be(_409="It is over: there is nothing to cancel."),
)
def cancel_job(db: Writing, job_id: JobId, who: Who, response: Response) -> JobLine:
    """Cancels a waiting job at once; asks a running one to stop."""
    status = lifecycle.cancel(db, job_id)
    audit.write(db, who, "job.cancel", f"job {job_id}", jobs=1)
    response.status_code = 202 if status is Status.RUNNING else 200
    return line(db, job_id)


class Discarding(Sent):
    reason: Text | None = Field(None, description="It becomes the job's last error.", examples=["a test"])


@router.post("/{job_id}/discard", responses=NO_JOB | may_be(_409="It runs, or it is over and not FAILED."))
def discard_job(db: Writing, job_id: JobId, who: Who, wanted: Discarding | None = None) -> JobLine:
    """Gives up a job that nobody wants any more: it is cancelled, whether it waits or is FAILED."""
    reason = wanted.reason if wanted else None
    lifecycle.discard(db, job_id, discarded(reason))
    audit.write(db, who, "job.discard", f"job {job_id}", jobs=1, detail={"reason": reason})
    return line(db, job_id)

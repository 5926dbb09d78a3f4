"""GET /internal/jobs: lists of jobs, one job, its log."""

from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query
from pydantic import Field

from snapapp.api.http.deps import Reading
from snapapp.api.http.paging import Before, Limit
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Digits, Label, Moment, Name, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.internal.jobs.shown import (
    LONGEST_AGE,
    NO_JOB,
    PREFIX,
    AttemptCost,
    Hash,
    JobId,
    JobList,
    JobPage,
    JobWhole,
    LogLine,
    LogList,
    Parents,
    lines,
    span,
)
from snapapp.jobs.model import Status
from snapapp.jobs.rows import costs
from snapapp.jobs.rows.people import lists, relatives, views
from snapapp.jobs.rows.people.lists import Filter

router = InternalRouter(prefix=PREFIX, tags=["jobs"], route_class=StrictRoute)

_LOG_LINES = 20

SentAge = Annotated[int, Field(ge=0, le=LONGEST_AGE), Digits]


async def _filter(
    status: Annotated[Status | None, Query(description="Only jobs in this status.")] = None,
    kind: Annotated[Name | None, Query(description="Only jobs of this kind.", examples=["demo.hello"])] = None,
    queue: Annotated[Name | None, Query(description="Only jobs of this queue.", examples=["default"])] = None,
    tenant: Annotated[Label | None, Query(description="Only jobs of this tenant; empty: those of no tenant.")] = None,
    error: Annotated[Name | None, Query(description="Only jobs whose last error contains this text.")] = None,
    older_than_ms: Annotated[
        SentAge | None, Query(alias="olderThanMs", description="Only jobs enqueued at least so long ago.")
    ] = None,
    work: Annotated[
        Hash | None, Query(alias="hash", description="Only jobs whose `specHash` begins with this.")
    ] = None,
    error_line: Annotated[
        Text | None, Query(alias="errorLine", description="Only jobs whose last error has this first line, exactly.")
    ] = None,
    finished_from: Annotated[
        Moment | None, Query(alias="finishedFrom", description="Only jobs that ended then or later.")
    ] = None,
    finished_until: Annotated[
        Moment | None, Query(alias="finishedUntil", description="Only jobs that ended before.")
    ] = None,
) -> Filter:
    age = span(older_than_ms)
    return Filter(status, kind, queue, tenant, error, age, work, error_line, finished_from, finished_until)


@router.get("")
def list_jobs(
    db: Reading, which: Annotated[Filter, Depends(_filter)], before: Before = None, limit: Limit = 50
) -> JobList:
    """Jobs page by page, newest first. A page is quick however many jobs there are."""
    page = lists.jobs(db, which, before=before, limit=limit)
    return JobList(items=lines(page.jobs), next=page.before, now=page.now)


@router.get("/{job_id}", responses=NO_JOB)
def show_job(db: Reading, job_id: JobId) -> JobPage:
    """Everything that is known of a job, and an explanation of its state."""
    job = views.job(db, job_id)
    whole = JobWhole.model_validate(job)
    logs = views.logs(db, job_id, limit=_LOG_LINES)
    parents = relatives.parents(db, job_id)
    return JobPage(
        **{name: getattr(whole, name) for name in JobWhole.model_fields},
        explain=views.explain(db, job_id),
        waited_ms=_milliseconds(job.created_at, job.started_at),
        ran_ms=_milliseconds(job.started_at, job.finished_at),
        costs=[AttemptCost.model_validate(cost) for cost in costs.of_job(db, job_id)],
        parents=Parents.model_validate(parents) if parents else None,
        logs=[LogLine.model_validate(line) for line in logs],
    )


@router.get("/{job_id}/logs", responses=NO_JOB)
def list_logs(db: Reading, job_id: JobId, before: Before = None, limit: Limit = 50) -> LogList:
    """The log of a job: its last lines, or those before the line `before`."""
    lines = views.logs(db, job_id, before=before, limit=limit)
    if not lines:
        views.job(db, job_id)
    return LogList(
        items=[LogLine.model_validate(line) for line in lines], next=lines[0].id if len(lines) == limit else None
    )


def _milliseconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else round((end - start).total_seconds() * 1000, 3)

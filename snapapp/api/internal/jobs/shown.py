"""A job as it is shown: as a line of a list, with every column, with all that is known of it."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Path
from pydantic import Field

from snapapp.api.http.deps import Writing
from snapapp.api.http.errors import may_be
from snapapp.api.http.schema import (
    Id,
    Json,
    Shown,
)
from snapapp.jobs.model import Status
from snapapp.jobs.rows.people import views
from snapapp.jobs.rows.people.views import JobSummary

PREFIX = "/internal/jobs"
JobId = Annotated[Id, Path(description="The job's id.", examples=[42])]
LONGEST_AGE = 3_153_600_000_000  # ms: a hundred years
Hash = Annotated[str, Field(pattern="^[0-9a-fA-F]{6,64}$", examples=["9f86d081"])]
NO_JOB = may_be(_404="There is no such job.")


class JobLine(Shown):
    """A job as a line of a list."""

    id: int = Field(examples=[42])
    kind: str = Field(description="Which processor runs it.", examples=["demo.hello"])
    queue: str = Field(examples=["default"])
    tenant: str = Field(description="On whose behalf; empty: the house's own.", examples=[""])
    status: Status
    priority: int = Field(description="Higher first.", examples=[0])
    attempt_count: int = Field(description="Attempts begun.", examples=[1])
    max_attempts: int = Field(examples=[3])
    suspect: bool = Field(description="It begins with nothing beside it: its worker died twice, or memory ran short.")
    cancel_requested_at: datetime | None
    claimed_by: str | None = Field(description="The worker that holds it.")
    progress: Json = Field(
        description="What its processor reported last.", examples=[{"percent": 40, "note": "frames"}]
    )
    last_error: str | None = Field(examples=["ValueError: no such file"])
    next_retry_at: datetime = Field(description="When it may run, or might have.")
    created_at: datetime
    started_at: datetime | None = Field(description="When its last attempt began to run.")
    finished_at: datetime | None
    waits_for: int | None = Field(description="How many of its parents are not over; null: it has none.")


class JobWhole(JobLine):
    """Every column of a job."""

    payload: Json = Field(description="What its processor is given.", examples=[{"name": "Ana"}])
    result: Json = Field(description="What its processor returned.")
    errors: Json = Field(description="One entry for each failed attempt, the last 20.")
    snap_id: UUID | None
    gate: str = Field(
        description="How it gets in: open (any worker takes it), held (a limit or a fair queue lets it in), later (the"
        " same, not due yet), alone (a suspect) or after (its parents have to end first)."
    )
    lane: str = Field(description="Its concurrency key, else its tenant, where a limit or a fair queue covers it.")
    concurrency_key: str | None
    unique_key: str | None
    unique_scope: str | None
    spec_hash: str | None = Field(description="Of its work, where it was enqueued with `uniqueBy: spec`.")
    timeout_ms: int | None = Field(description="Its own time limit; its kind's when null.")
    memory_mb: int | None = Field(description="Its own memory limit, since an attempt ran short; its kind's when null.")
    interruptions: int = Field(description="How often a shutdown handed it back while it ran.")
    losses: int = Field(description="How often its worker died while it ran, since it last ended by itself.")
    lease_seq: int = Field(description="The fence: raised by every change of status.")
    locked_at: datetime | None = Field(description="The last heartbeat of its holder.")
    lock_expires_at: datetime | None
    replay_of: int | None = Field(description="The job that this one repeats.")
    has_children: bool = Field(description="Other jobs wait for it, or did.")
    request_id: str | None = Field(description="The request that caused it.")
    traceparent: str | None = Field(description="Where in its trace it was enqueued, as W3C Trace Context writes it.")


class Parents(Shown):
    """How far the jobs are that a job waits for, or has waited for."""

    expected: int
    succeeded: int
    failed: int = Field(description="Or cancelled.")
    open: int = Field(description="Not over.")


class LogLine(Shown):
    """A line that a job said."""

    id: int
    attempt: int
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    message: str
    at: datetime


class AttemptCost(Shown):
    """What an attempt waited, took and needed."""

    attempt: int
    lease_seq: int
    outcome: str = Field(description="The status that it led to.", examples=["COMPLETED"])
    started_at: datetime
    wait_ms: float | None = Field(description="From when it was due to when it began.")
    wall_ms: float = Field(description="How long it ran.")
    cpu_ms: float | None = Field(description="Processor time; null: not known, as for async.")
    peak_mb: float | None = Field(description="The most memory its process had; null where it had none of its own.")
    stands_for: int = Field(description="Of so many quick attempts of its kind this one was written down.")


class JobPage(JobWhole):
    """All that is known of a job."""

    explain: str = Field(
        description="Why it is where it is, and what comes next, in words.",
        examples=["It waits and is due since 3 s.\nNobody of its kind stands before it: it is next."],
    )
    waited_ms: float | None = Field(description="From when it was enqueued to the start of its last attempt.")
    ran_ms: float | None = Field(description="How long its last attempt ran, where it has ended.")
    costs: list[AttemptCost] = Field(description="What its last attempts cost, as far as they were written down.")
    parents: Parents | None = Field(description="How far its parents are; null: it has none.")
    logs: list[LogLine] = Field(description="The last 20 lines it said, in the order it said them.")


class JobList(Shown):
    """Jobs, newest first."""

    items: list[JobLine]
    next: int | None = Field(
        description="`before` of the next page; null: there is none. A page that is short, or empty, and has a `next` "
        "looked through as many jobs as one call may.",
        examples=[1234],
    )
    now: datetime = Field(description="The database's time, to which all others compare.")


class LogList(Shown):
    """Lines of a log, in the order they were said."""

    items: list[LogLine]
    next: int | None = Field(description="`before` of the lines said earlier; null: there are none.")


def lines(jobs: Iterable[JobSummary]) -> list[JobLine]:
    return [JobLine.model_validate(job) for job in jobs]


def line(db: Writing, job_id: int) -> JobLine:
    return JobLine.model_validate(views.job(db, job_id))


def place(job_id: int) -> str:
    return f"{PREFIX}/{job_id}"


def span(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)

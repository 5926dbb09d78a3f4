"""The models of a job: as a line of a list, with every column, and with everything that is known of it."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Path
from pydantic import Field

from snapapp.api.http.deps import Writing
from snapapp.api.http.errors import may_be
from snapapp.api.http.schema import Id, Json, Shown
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
    tenant: str = Field(description="The tenant it works for; empty: none.", examples=[""])
    status: Status
    priority: int = Field(description="Higher first.", examples=[0])
    attempt_count: int = Field(description="Attempts begun.", examples=[1])
    max_attempts: int = Field(examples=[3])
    suspect: bool = Field(description="It must run alone, because its worker died twice or memory ran short.")
    cancel_requested_at: datetime | None
    claimed_by: str | None = Field(description="The worker that holds it.")
    progress: Json = Field(
        description="What its processor reported last.", examples=[{"percent": 40, "note": "frames"}]
    )
    last_error: str | None = Field(examples=["ValueError: no such file"])
    next_retry_at: datetime = Field(description="From when on it may, or could, run.")
    created_at: datetime
    started_at: datetime | None = Field(description="When its last attempt began to run.")
    finished_at: datetime | None
    waits_for: int | None = Field(description="How many of its parents have not ended; null: it has none.")


class JobWhole(JobLine):
    """Every column of a job."""

    payload: Json = Field(description="What its processor is given.", examples=[{"name": "Ana"}])
    result: Json = Field(description="What its processor returned.")
    errors: Json = Field(description="One entry for each failed attempt, the last 20.")
    snap_id: UUID | None
    gate: str = Field(
        description="What decides when it is claimed: open (any worker claims it), held (a limit or a fair queue), "
        "later (the same, not due yet), alone (a suspect) or after (its parents must end first)."
    )
    lane: str = Field(description="Its concurrency key, or else its tenant, if a limit or a fair queue covers it.")
    concurrency_key: str | None
    unique_key: str | None
    unique_scope: str | None
    spec_hash: str | None = Field(description="A hash of its work, if it was enqueued with `uniqueBy: spec`.")
    timeout_ms: int | None = Field(description="Its own time limit; its kind's when null.")
    memory_mb: int | None = Field(description="Its own memory limit, since an attempt ran short; its kind's when null.")
    interruptions: int = Field(description="How often a shutdown returned it to the queue while it ran.")
    losses: int = Field(description="How often its worker died while it ran, since an attempt last ended by itself.")
    lease_seq: int = Field(description="The fence: raised by every change of status.")
    locked_at: datetime | None = Field(description="The last heartbeat of its holder.")
    lock_expires_at: datetime | None
    replay_of: int | None = Field(description="The job that this one repeats.")
    has_children: bool = Field(description="Whether other jobs wait, or waited, for it.")
    request_id: str | None = Field(description="The request that caused it.")
    traceparent: str | None = Field(description="Where in its trace it was enqueued, as W3C Trace Context writes it.")


class Parents(Shown):
    """How many of a job's parents have ended, and how."""

    expected: int
    succeeded: int
    failed: int = Field(description="Including cancelled ones.")
    open: int = Field(description="Not ended yet.")


class LogLine(Shown):
    """A log line of a job."""

    id: int
    attempt: int
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    message: str
    at: datetime


class AttemptCost(Shown):
    """How long an attempt waited and ran, and what it needed."""

    attempt: int
    lease_seq: int
    outcome: str = Field(description="The status that it led to.", examples=["COMPLETED"])
    started_at: datetime
    wait_ms: float | None = Field(description="From when it was due to when it began.")
    wall_ms: float = Field(description="How long it ran.")
    cpu_ms: float | None = Field(description="Processor time; null: not known, as for async.")
    peak_mb: float | None = Field(description="The most memory its process had; null where it had none of its own.")
    stands_for: int = Field(description="This record stands for so many quick attempts of its kind.")


class JobPage(JobWhole):
    """Everything that is known of a job."""

    explain: str = Field(
        description="An explanation of its state, and what comes next.",
        examples=["It waits and is due since 3 s.\nNobody of its kind stands before it: it is next."],
    )
    waited_ms: float | None = Field(description="From when it was enqueued to the start of its last attempt.")
    ran_ms: float | None = Field(description="How long its last attempt ran, if that has ended.")
    costs: list[AttemptCost] = Field(description="The costs of its last attempts, as far as they were recorded.")
    parents: Parents | None = Field(description="The state of its parents; null: it has none.")
    logs: list[LogLine] = Field(description="The last 20 lines of its log, oldest first.")


class JobList(Shown):
    """Jobs, newest first."""

    items: list[JobLine]
    next: int | None = Field(
        description="`before` of the next page; null: there is none. A page that is short or empty but has a `next` "
        "reached the number of jobs that one call may read.",
        examples=[1234],
    )
    now: datetime = Field(description="The database's time, with which to compare the other times.")


class LogList(Shown):
    """Lines of a log, oldest first."""

    items: list[LogLine]
    next: int | None = Field(description="`before` for the earlier lines; null: there are none.")


def lines(jobs: Iterable[JobSummary]) -> list[JobLine]:
    return [JobLine.model_validate(job) for job in jobs]


def line(db: Writing, job_id: int) -> JobLine:
    return JobLine.model_validate(views.job(db, job_id))


def place(job_id: int) -> str:
    return f"{PREFIX}/{job_id}"


def span(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)

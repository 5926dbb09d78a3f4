"""One job for people: as a line of a list, with all columns, its log, and the explanation of its state."""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, cast
from uuid import UUID

from snapapp.jobs.errors import UnknownJob
from snapapp.jobs.model import Status
from snapapp.jobs.rows.database import Db, value_of
from snapapp.jobs.rows.database import run as _run

HIGHEST = 2**63 - 1  # above all ids


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """A job as a line of a list; the fields are named as their columns."""

    id: int
    kind: str
    queue: str
    tenant: str
    status: Status
    priority: int
    attempt_count: int
    max_attempts: int
    suspect: bool
    cancel_requested_at: datetime | None
    claimed_by: str | None
    progress: Any
    last_error: str | None
    next_retry_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    waits_for: int | None  # number of parents that have not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail(JobSummary):
    """Every column of a job."""

    payload: Any
    result: Any
    errors: list[dict[str, Any]]
    snap_id: UUID | None
    gate: str
    lane: str
    concurrency_key: str | None
    unique_key: str | None
    unique_scope: str | None
    timeout_ms: int | None
    memory_mb: int | None
    interruptions: int
    losses: int
    lease_seq: int
    locked_at: datetime | None
    lock_expires_at: datetime | None
    replay_of: int | None
    has_children: bool
    request_id: str | None
    traceparent: str | None

    @property
    def spec_hash(self) -> str | None:
        """The hash of the job's work, where the job is unique by its work; None otherwise."""
        key = self.unique_key or ""
        return key.removeprefix("spec:") if key.startswith("spec:") else None


@dataclass(frozen=True, slots=True)
class LogEntry:
    id: int
    attempt: int
    level: str
    message: str
    at: datetime


class Arrival(StrEnum):
    """What an enqueue did, depending on whether another job had its unique key."""

    CREATED = "created"
    EXISTING = "existing"
    REPLACED = "replaced"
    IGNORED = "ignored"


# --- many ------------------------------------------------------------------------------------------------------


def now(db: Db) -> datetime:
    """The time by the database's clock."""
    return cast(datetime, _run(db, "SELECT clock_timestamp()", {})[0][0])


_READ = {
    "suspect": "losses >= 2 OR memory_mb IS NOT NULL",
    "next_retry_at": "greatest(least(next_retry_at, '9999-01-01Z'), '1900-01-01Z')",  # psycopg cannot read infinity
} | {name: f"{name}::text" for name in ("progress", "payload", "result", "errors")}


def columns(kind: type[JobSummary], **cut: str) -> str:
    """What a SELECT names for such values: their fields are named as the columns; some are computed or `cut`."""
    read = _READ | cut
    return ", ".join(read.get(name, name) for name in kind.__dataclass_fields__)


_LINES = f"SELECT {columns(JobSummary)} FROM snap_processing_job WHERE id = ANY (%(ids)s::bigint[]) ORDER BY id DESC"  # noqa: S608


def lines(db: Db, ids: list[int]) -> list[JobSummary]:
    """These jobs as they are now, newest first."""
    return [summary(row) for row in _run(db, _LINES, {"ids": ids})]


def summary(row: Sequence[Any]) -> JobSummary:
    """The job of a row whose columns have the order of JobSummary's fields, with the progress as text."""
    return value_of(JobSummary, row, status=Status, progress=_decoded)


_FAILURE = """
SELECT last_error FROM snap_processing_job
 WHERE status = 'FAILED' AND kind = %(kind)s AND tenant = %(tenant)s AND unique_key = %(unique_key)s
   AND finished_at > now() - %(within)s::interval
 ORDER BY id DESC LIMIT 1
"""


def failure(db: Db, kind: str, tenant: str, unique_key: str, within: timedelta) -> str | None:
    """The error of the newest FAILED job with this unique key that ended `within` this time; None: there is none."""
    values = {"kind": kind, "tenant": tenant, "unique_key": unique_key, "within": within}
    rows = _run(db, _FAILURE, values)
    return rows[0][0] if rows else None


_SNAPS = "SELECT id, snap_id FROM snap_processing_job WHERE id = ANY (%(ids)s::bigint[]) AND snap_id IS NOT NULL"


def snaps(db: Db, ids: Collection[int]) -> dict[int, UUID]:
    """Job id -> the snap that the job works for."""
    return {job_id: UUID(str(snap_id)) for job_id, snap_id in _run(db, _SNAPS, {"ids": list(ids)})}


# --- one job ----------------------------------------------------------------------------------------------------

_DETAIL = f"SELECT {columns(JobDetail)} FROM snap_processing_job WHERE id = %(id)s"  # noqa: S608


def job(db: Db, job_id: int) -> JobDetail:
    rows = _run(db, _DETAIL, {"id": job_id})
    if not rows:
        raise UnknownJob(f"there is no job {job_id}")
    json_columns = dict.fromkeys(("progress", "payload", "result", "errors"), _decoded)
    return value_of(JobDetail, rows[0], status=Status, **json_columns)


def logs(db: Db, job_id: int, *, before: int | None = None, limit: int = 20) -> list[LogEntry]:
    """The last lines of a job's log below the id `before`, in the order they were logged."""
    rows = _run(
        db,
        "SELECT id, attempt, level, message, at FROM job_log WHERE job_id = %(job_id)s AND id < %(before)s"
        " ORDER BY id DESC LIMIT %(limit)s",
        {"job_id": job_id, "before": before or HIGHEST, "limit": limit},
    )
    return [LogEntry(*row) for row in reversed(rows)]


def log_page(db: Db, job_id: int, *, attempt: int | None = None, after: int = 0, limit: int = 1000) -> list[LogEntry]:
    """A page of a job's log, of one attempt or of all, from the first line after the id `after` on."""
    rows = _run(
        db,
        "SELECT id, attempt, level, message, at FROM job_log WHERE job_id = %(job_id)s AND id > %(after)s"
        " AND (%(attempt)s::integer IS NULL OR attempt = %(attempt)s) ORDER BY id LIMIT %(limit)s",
        {"job_id": job_id, "attempt": attempt, "after": after, "limit": limit},
    )
    return [LogEntry(*row) for row in rows]


def explain(db: Db, job_id: int) -> str:
    """Why a job is in its state and what comes next, in words."""
    rows = _run(db, "SELECT explain_job(id) FROM snap_processing_job WHERE id = %(id)s", {"id": job_id})
    if not rows:
        raise UnknownJob(f"there is no job {job_id}")
    return cast(str, rows[0][0])


# xmin is this transaction's id if the enqueue wrote the row; then created_at tells an insert from a replacement.
_ARRIVAL = """
SELECT CASE WHEN xmin <> pg_current_xact_id()::xid THEN 'existing'
            WHEN created_at < now() THEN 'replaced' ELSE 'created' END
  FROM snap_processing_job WHERE id = %(id)s
"""


def arrival(db: Db, job_id: int | None) -> Arrival:
    """What an enqueue in the same transaction did; `job_id` is the id that it returned."""
    return Arrival(_run(db, _ARRIVAL, {"id": job_id})[0][0]) if job_id else Arrival.IGNORED


# --- small change -----------------------------------------------------------------------------------------------


def _decoded(text: str | None) -> Any:
    """Decodes JSON. The statements return it as text, because psycopg and SQLAlchemy would decode it differently. JSON
    that PostgreSQL can hold but Python cannot (numbers of thousands of digits, deep nesting) stays text."""
    try:
        return None if text is None else json.loads(text, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _finite(literal: str) -> float | str:
    number = float(literal)
    return number if math.isfinite(number) else literal

"""What people look at: jobs page by page, and one job whole. (`overviews` has queues, workers and numbers.)

Nothing here reads the table as a whole: a list looks through an index in windows and says where it stopped.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, cast
from uuid import UUID

from snapapp.jobs.errors import UnknownJob
from snapapp.jobs.model import Status
from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.database import run as _run

# How many rows are looked through for those that match a filter, one look after the other: the first mostly does.
# (At 10 M rows 20,000 that lie together take 6 ms; of an index of their status, each may lie on another page.)
WINDOWS: Sequence[int] = (500, 2_000, 7_500, 20_000)
SCATTERED: Sequence[int] = (500, 1_500, 3_000)
FEW = 20_000  # waiting jobs whose ids are all read from their index: 2 ms

_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs to list; None: any. An empty tenant is the house's own."""

    status: Status | None = None
    kind: str | None = None
    queue: str | None = None
    tenant: str | None = None
    error: str | None = None  # their last error has this in it, in upper or lower case
    older_than: timedelta | None = None  # since they were enqueued
    hash: str | None = None  # of their work, or how it begins: see enqueue's unique_by
    error_line: str | None = None  # exactly the first line of their last error, as job_error_line() has it
    finished_from: datetime | None = None
    finished_until: datetime | None = None  # and not at that moment

    @property
    def is_open(self) -> bool:
        return self == Filter()


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
    waits_for: int | None  # so many parents are not over


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
        """Of its work, where that is its unique key."""
        key = self.unique_key or ""
        return key.removeprefix("spec:") if key.startswith("spec:") else None


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first. `before` leads to the next page; None: there is none."""

    jobs: list[JobSummary]
    before: int | None
    now: datetime  # the database's


@dataclass(frozen=True, slots=True)
class LogEntry:
    id: int
    attempt: int
    level: str
    message: str
    at: datetime


class Matching(NamedTuple):
    """The ids of jobs that match; `more`: there are, or may be, others."""

    ids: list[int]
    more: bool


class Arrival(StrEnum):
    """What became of an enqueue: its unique key may have had a holder."""

    CREATED = "created"
    EXISTING = "existing"
    REPLACED = "replaced"
    IGNORED = "ignored"


# --- jobs, page by page -----------------------------------------------------------------------------------------

# What a filter says beside the status, which has indexes of its own.
FITS = """
       (%(kind)s::text IS NULL OR kind = %(kind)s) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
   AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
   AND (%(error)s::text IS NULL OR position(lower(%(error)s) IN lower(last_error)) > 0)
   AND (%(error_line)s::text IS NULL OR job_error_line(last_error) = %(error_line)s)
   AND (%(older_than)s::interval IS NULL OR created_at < now() - %(older_than)s::interval)
   AND (%(spec)s::text IS NULL OR starts_with(unique_key, %(spec)s))
   AND (%(finished_from)s::timestamptz IS NULL OR finished_at >= %(finished_from)s)
   AND (%(finished_until)s::timestamptz IS NULL OR finished_at < %(finished_until)s)
"""

# Each returns: the lowest id it saw, how many rows it saw, and the matching ids, highest first.
_SEEN = """
SELECT (SELECT min(id) FROM seen), (SELECT count(*) FROM seen),
       ARRAY(SELECT id FROM seen WHERE fits ORDER BY id DESC LIMIT %(limit)s)
"""

_NEWEST = f"""
WITH seen AS MATERIALIZED (
    SELECT id, (%(status)s::text IS NULL OR status = %(status)s) AND {FITS} AS fits FROM snap_processing_job
     WHERE id < %(before)s ORDER BY id DESC LIMIT %(window)s
)
{_SEEN}"""  # noqa: S608

_FAILED = f"""
WITH seen AS MATERIALIZED (
    SELECT id, {FITS} AS fits FROM snap_processing_job
     WHERE status = 'FAILED' AND id < %(before)s ORDER BY id DESC LIMIT %(window)s
)
{_SEEN}"""  # noqa: S608

_RUNNING = f"""
WITH seen AS MATERIALIZED (
    SELECT id, {FITS} AS fits FROM snap_processing_job
     WHERE status = 'RUNNING' AND id < %(before)s ORDER BY id DESC LIMIT %(window)s
)
{_SEEN}"""  # noqa: S608

_SAME_WORK = f"""
WITH seen AS MATERIALIZED (
    SELECT id, (%(status)s::text IS NULL OR status = %(status)s) AND {FITS} AS fits FROM snap_processing_job
     WHERE unique_key >= 'spec:' AND unique_key < 'spec;'  -- the index's own words
       AND unique_key >= %(spec)s AND unique_key < %(spec)s || 'g' AND id < %(before)s
     ORDER BY id DESC LIMIT %(window)s
)
{_SEEN}"""  # noqa: S608

# The index of waiting jobs is in the claim's order, but has their ids: while they are few, it names the newest. When
# they are many, the newest jobs are most likely among them and _NEWEST finds a page soon.
_WAITING = f"""
WITH waiting AS MATERIALIZED (
    (SELECT id FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open'
        AND (%(kind)s::text IS NULL OR kind = %(kind)s) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
      ORDER BY queue, kind, priority, next_retry_at, id LIMIT %(few)s)
  UNION ALL
    (SELECT id FROM job_apart
      WHERE (%(kind)s::text IS NULL OR kind = %(kind)s) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
      LIMIT %(few)s)
), seen AS MATERIALIZED (
    SELECT id, status = %(status)s AND {FITS} AS fits FROM snap_processing_job
     WHERE id = ANY (ARRAY(SELECT id FROM waiting WHERE id < %(before)s ORDER BY id DESC LIMIT %(window)s))
)
{_SEEN}"""  # noqa: S608

_HOW_MANY_WAIT = """
SELECT (SELECT count(*) FROM (
            SELECT FROM snap_processing_job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open'
               AND (%(kind)s::text IS NULL OR kind = %(kind)s) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
             ORDER BY queue, kind, priority, next_retry_at, id LIMIT %(few)s) AS plain),
       (SELECT count(*) FROM (SELECT FROM job_apart LIMIT %(few)s) AS apart)
"""


class _Seen(NamedTuple):
    lowest: int | None
    rows: int
    ids: list[int]


def jobs(db: Db, which: Filter = Filter(), *, before: int | None = None, limit: int = 50) -> Page:
    """The newest jobs that match, below the id `before`. A short page that has a `before` is not the last one: it
    looked through as many rows as one call may."""
    ids, rest = _pick(db, which, min(before or _HIGHEST, _young(db, which)), limit)
    return Page(_summaries(db, ids), rest, now(db))


# A row gets its id after its created_at, which is when its transaction began. So whatever has a higher id than a row
# from after `until` came after `until` as well, however long transactions last, and cannot have ended before: half of
# what is left is left out with each look at one row. A moment to come proves nothing: somebody has written it there, or
# a clock was wrong. Ten minutes are for a clock that was set back.
_YOUNG = """
WITH RECURSIVE halved (low, high) AS (
    SELECT 0::bigint, 1 + coalesce((SELECT max(id) FROM snap_processing_job), 0)
  UNION ALL
    SELECT CASE WHEN its.is_young THEN low ELSE its.id END, CASE WHEN its.is_young THEN (low + high) / 2 ELSE high END
      FROM halved CROSS JOIN LATERAL (
        SELECT coalesce(max(id), 0) AS id,
               coalesce(bool_and(created_at > %(until)s + interval '10 min' AND created_at <= clock_timestamp()),
                        true) AS is_young
          FROM (SELECT id, created_at FROM snap_processing_job
                 WHERE id >= (low + high) / 2 AND id < high ORDER BY id LIMIT 1) AS middle) AS its
     WHERE low + 1 < high
)
SELECT min(high) FROM halved
"""


def _young(db: Db, which: Filter) -> int:
    """From this id on all are too young to have ended in time."""
    return _HIGHEST if which.finished_until is None else int(_run(db, _YOUNG, {"until": which.finished_until})[0][0])


def now(db: Db) -> datetime:
    """By the database's clock."""
    return cast(datetime, _run(db, "SELECT clock_timestamp()", {})[0][0])


def _pick(
    db: Db, which: Filter, before: int, limit: int, windows: Sequence[int] | None = None
) -> tuple[list[int], int | None]:
    statement, usual = _way_to(db, which, limit)
    ids: list[int] = []
    for window in windows or usual:
        seen = _look(db, statement, which, before, limit - len(ids), window)
        ids += seen.ids
        if len(ids) == limit:
            return ids, ids[-1]
        if seen.lowest is None or seen.rows < window:
            return ids, None
        before = seen.lowest
    return ids, before


def _way_to(db: Db, which: Filter, limit: int) -> tuple[str, Sequence[int]]:
    """Which statement finds them, and how many rows it looks through at once."""
    if which.hash is not None:
        return _SAME_WORK, WINDOWS
    match which.status:
        case Status.FAILED | Status.RUNNING as status:
            is_narrow = which != Filter(status)
            return _BY_STATUS[status], SCATTERED if is_narrow else [limit]
        case Status.PENDING | Status.RETRY_WAIT if _are_few(db, which):
            return _WAITING, SCATTERED
    return _NEWEST, [limit] if which.is_open else WINDOWS


def _are_few(db: Db, which: Filter) -> bool:
    [(plain, apart)] = _run(db, _HOW_MANY_WAIT, conditions(which) | {"few": FEW})
    return bool(max(plain, apart) < FEW)


_BY_STATUS: Mapping[Status, str] = {Status.FAILED: _FAILED, Status.RUNNING: _RUNNING}


def _look(db: Db, statement: str, which: Filter, before: int, limit: int, window: int) -> _Seen:
    parameters = conditions(which) | {"before": before, "limit": limit, "window": window, "few": FEW}
    return _Seen(*_run(db, statement, parameters)[0])


def conditions(which: Filter) -> dict[str, Any]:
    status = which.status and which.status.value
    spec = None if which.hash is None else f"spec:{which.hash.lower()}"
    about = {"error": which.error, "error_line": which.error_line, "older_than": which.older_than, "spec": spec}
    within = {"finished_from": which.finished_from, "finished_until": which.finished_until}
    return {"status": status, "kind": which.kind, "queue": which.queue, "tenant": which.tenant} | about | within


# psycopg cannot read infinity, which people may well write into a run_at
_SUMMARIES = """
SELECT id, kind, queue, tenant, status, priority, attempt_count, max_attempts, losses >= 2 OR memory_mb IS NOT NULL,
       cancel_requested_at, claimed_by,
       progress::text, last_error, greatest(least(next_retry_at, '9999-01-01Z'), '1900-01-01Z'),
       created_at, started_at, finished_at, waits_for
  FROM snap_processing_job WHERE id = ANY (%(ids)s::bigint[]) ORDER BY id DESC
"""


def _summaries(db: Db, ids: list[int]) -> list[JobSummary]:
    return [_summary(row) for row in _run(db, _SUMMARIES, {"ids": ids})]


def _summary(row: tuple[Any, ...]) -> JobSummary:
    values = dict(zip(_SUMMARY_FIELDS, row, strict=True))
    return JobSummary(**values | {"status": Status(values["status"]), "progress": _decoded(values["progress"])})


_SUMMARY_FIELDS = tuple(JobSummary.__dataclass_fields__)


# --- all that match, for what is done to many -------------------------------------------------------------------

_IDS_FAILED = f"""
SELECT id FROM snap_processing_job WHERE status = 'FAILED' AND {FITS} ORDER BY id LIMIT %(limit)s
"""  # noqa: S608

_IDS_RUNNING = f"""
SELECT id FROM snap_processing_job WHERE status = 'RUNNING' AND {FITS} ORDER BY id LIMIT %(limit)s
"""  # noqa: S608

_IDS_WAITING = f"""
SELECT id FROM snap_processing_job
 WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open' AND (%(status)s::text IS NULL OR status = %(status)s)
   AND {FITS}
UNION ALL
SELECT id FROM job_apart WHERE (%(status)s::text IS NULL OR status = %(status)s) AND {FITS}
 ORDER BY id LIMIT %(limit)s
"""  # noqa: S608


def dead_letters(db: Db, which: Filter = Filter(), limit: int | None = None) -> list[int]:
    """The ids of the FAILED jobs that match, oldest first; the filter's status is not looked at."""
    return _ids(db, _IDS_FAILED, which, limit)


def waiting(db: Db, which: Filter = Filter(), limit: int | None = None) -> list[int]:
    """The ids of the jobs that wait and match, oldest first; without a status both of theirs."""
    return _ids(db, _IDS_WAITING, which, limit)


def matching(db: Db, which: Filter, limit: int) -> Matching:
    """Some of the jobs that match, for what is done to many. CANCELLED and COMPLETED have no index: the newest
    million of rows is looked through for them."""
    match which.status:
        case Status.FAILED:
            ids = dead_letters(db, which, limit + 1)
        case Status.RUNNING:
            ids = _ids(db, _IDS_RUNNING, which, limit + 1)
        case Status.COMPLETED | Status.CANCELLED:
            ids, rest = _pick(db, which, _young(db, which), limit, windows=[20_000] * 50)
            return Matching(ids, rest is not None)
        case _:
            ids = waiting(db, which, limit + 1)
    return Matching(ids[:limit], len(ids) > limit)


def lines(db: Db, ids: list[int]) -> list[JobSummary]:
    """These jobs as they are now, newest first."""
    return _summaries(db, ids)


_FAILURE = """
SELECT last_error FROM snap_processing_job
 WHERE status = 'FAILED' AND kind = %(kind)s AND tenant = %(tenant)s AND unique_key = %(unique_key)s
   AND finished_at > now() - %(within)s::interval
 ORDER BY id DESC LIMIT 1
"""


def failure(db: Db, kind: str, tenant: str, unique_key: str, within: timedelta) -> str | None:
    """Why the newest FAILED job with this key failed, if it ended no longer ago: for whoever would add another."""
    values = {"kind": kind, "tenant": tenant, "unique_key": unique_key, "within": within}
    rows = _run(db, _FAILURE, values)
    return rows[0][0] if rows else None


_SNAPS = "SELECT id, snap_id FROM snap_processing_job WHERE id = ANY (%(ids)s::bigint[]) AND snap_id IS NOT NULL"


def snaps(db: Db, ids: Collection[int]) -> dict[int, UUID]:
    """The snaps that these jobs work for, by job."""
    return {job_id: UUID(str(snap_id)) for job_id, snap_id in _run(db, _SNAPS, {"ids": list(ids)})}


def _ids(db: Db, statement: str, which: Filter, limit: int | None) -> list[int]:
    return [row[0] for row in _run(db, statement, conditions(which) | {"limit": limit})]


# --- one job ----------------------------------------------------------------------------------------------------

_DETAIL = """
SELECT id, kind, queue, tenant, status, priority, attempt_count, max_attempts, losses >= 2 OR memory_mb IS NOT NULL,
       cancel_requested_at, claimed_by,
       progress::text, last_error, greatest(least(next_retry_at, '9999-01-01Z'), '1900-01-01Z'),
       created_at, started_at, finished_at, waits_for,
       payload::text, result::text, errors::text, snap_id, gate, lane, concurrency_key, unique_key, unique_scope,
       timeout_ms, memory_mb, interruptions, losses, lease_seq, locked_at, lock_expires_at, replay_of,
       has_children, request_id, traceparent
  FROM snap_processing_job WHERE id = %(id)s
"""


def job(db: Db, job_id: int) -> JobDetail:
    rows = _run(db, _DETAIL, {"id": job_id})
    if not rows:
        raise UnknownJob(f"there is no job {job_id}")
    values = dict(zip(_DETAIL_FIELDS, rows[0], strict=True))
    decoded = {name: _decoded(values[name]) for name in ("progress", "payload", "result", "errors")}
    return JobDetail(**values | decoded | {"status": Status(values["status"])})


_DETAIL_FIELDS = tuple(JobDetail.__dataclass_fields__)


def logs(db: Db, job_id: int, *, before: int | None = None, limit: int = 20) -> list[LogEntry]:
    """The last lines that the job said, in the order it said them; `before` is the id of a line."""
    rows = _run(
        db,
        "SELECT id, attempt, level, message, at FROM job_log WHERE job_id = %(job_id)s AND id < %(before)s"
        " ORDER BY id DESC LIMIT %(limit)s",
        {"job_id": job_id, "before": before or _HIGHEST, "limit": limit},
    )
    return [LogEntry(*row) for row in reversed(rows)]


def said(db: Db, job_id: int, *, attempt: int | None = None, after: int = 0, limit: int = 1000) -> list[LogEntry]:
    """A page of its lines from the first on, of one attempt or of all; `after` is the id of a line."""
    rows = _run(
        db,
        "SELECT id, attempt, level, message, at FROM job_log WHERE job_id = %(job_id)s AND id > %(after)s"
        " AND (%(attempt)s::integer IS NULL OR attempt = %(attempt)s) ORDER BY id LIMIT %(limit)s",
        {"job_id": job_id, "attempt": attempt, "after": after, "limit": limit},
    )
    return [LogEntry(*row) for row in rows]


def explain(db: Db, job_id: int) -> str:
    """Why it is where it is, and what comes next, in words."""
    rows = _run(db, "SELECT explain_job(id) FROM snap_processing_job WHERE id = %(id)s", {"id": job_id})
    if not rows:
        raise UnknownJob(f"there is no job {job_id}")
    return cast(str, rows[0][0])


_ARRIVAL = """
SELECT CASE WHEN xmin <> pg_current_xact_id()::xid THEN 'existing'
            WHEN created_at < now() THEN 'replaced' ELSE 'created' END
  FROM snap_processing_job WHERE id = %(id)s
"""


def arrival(db: Db, job_id: int | None) -> Arrival:
    """What an enqueue in this very transaction did, by the id it returned."""
    return Arrival(_run(db, _ARRIVAL, {"id": job_id})[0][0]) if job_id else Arrival.IGNORED


# --- small change -----------------------------------------------------------------------------------------------


def _decoded(text: str | None) -> Any:
    """JSON travels as text, because each carrier would decode it in its own way. What Python cannot hold, but
    PostgreSQL can (numbers of thousands of digits, nesting by the thousand), stays text."""
    try:
        return None if text is None else json.loads(text, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _finite(literal: str) -> float | str:
    number = float(literal)
    return number if math.isfinite(number) else literal

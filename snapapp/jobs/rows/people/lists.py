"""Jobs that match a filter: page by page for lists, and all ids for changes to many jobs.

No list reads the whole table: it reads an index in windows of so many rows and returns where it stopped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from snapapp.jobs.model import Status
from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.database import run as _run
from snapapp.jobs.rows.people.views import HIGHEST, JobSummary, lines, now

# How many rows each further look of one call reads in search of matching ones; mostly the first look is enough. With
# 10 M rows, 20,000 neighbours take 6 ms. Rows found by the index of a status lie scattered, so fewer are read.
WINDOWS: Sequence[int] = (500, 2_000, 7_500, 20_000)
SCATTERED: Sequence[int] = (500, 1_500, 3_000)
FEW = 20_000  # up to so many waiting jobs, all their ids are read from the index, in 2 ms


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs to list. None: any. The empty tenant: jobs that belong to no tenant."""

    status: Status | None = None
    kind: str | None = None
    queue: str | None = None
    tenant: str | None = None
    error: str | None = None  # text within the last error, whatever its case
    older_than: timedelta | None = None  # time since the job was enqueued
    hash: str | None = None  # of the job's work, or the beginning of the hash: see enqueue's unique_by
    error_line: str | None = None  # first line of the last error, as job_error_line() returns it
    finished_from: datetime | None = None
    finished_until: datetime | None = None  # that moment excluded

    @property
    def is_open(self) -> bool:
        return self == Filter()


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first. Pass `before` to get the next page; None: this is the last."""

    jobs: list[JobSummary]
    before: int | None
    now: datetime  # the database's


class Matching(NamedTuple):
    """The ids of matching jobs. `more`: there may be others."""

    ids: list[int]
    more: bool


# --- jobs, page by page -----------------------------------------------------------------------------------------

# The conditions of a filter except the status, for which each statement has its own index.
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

# All list statements return the lowest id read, the number of rows read, and the matching ids, highest first.
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

# Each names its status, because its index is a partial one.
_BY_STATUS: Mapping[Status, str] = {
    status: f"""
WITH seen AS MATERIALIZED (
    SELECT id, {FITS} AS fits FROM snap_processing_job
     WHERE status = '{status}' AND id < %(before)s ORDER BY id DESC LIMIT %(window)s
)
{_SEEN}"""  # noqa: S608
    for status in (Status.FAILED, Status.RUNNING)
}

_SAME_WORK = f"""
WITH seen AS MATERIALIZED (
    SELECT id, (%(status)s::text IS NULL OR status = %(status)s) AND {FITS} AS fits FROM snap_processing_job
     WHERE unique_key >= 'spec:' AND unique_key < 'spec;'  -- as in the index, so that it is used
       -- the hash is hexadecimal, so 'g' sorts after every continuation
       AND unique_key >= %(spec)s AND unique_key < %(spec)s || 'g' AND id < %(before)s
     ORDER BY id DESC LIMIT %(window)s
)
{_SEEN}"""  # noqa: S608

# The index of waiting jobs has the claim's order, not that of ids. While few jobs wait, all their ids are read from it
# and sorted. When many wait, the newest jobs are probably waiting ones, and _NEWEST soon fills a page.
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
    """The newest jobs that match, with ids below `before`. A page may be short and still have a `before`: one call
    reads a limited number of rows."""
    ids, next_before = _pick(db, which, min(before or HIGHEST, _first_too_young(db, which)), limit)
    return Page(lines(db, ids), next_before, now(db))


# Finds by bisection an id from which on all jobs were created after `until`, and so cannot have finished before it.
# created_at is when a row's transaction began, and its id is taken later. So if a row was created after `until`, every
# higher id was taken after `until`, too. A created_at in the future proves nothing (somebody wrote it, or a clock was
# wrong), and ten minutes are allowed for a clock that was set back. coalesce: where the middle holds no row at all,
# the upper half is empty.
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


def _first_too_young(db: Db, which: Filter) -> int:
    """An id from which on no job can have finished before the filter's `finished_until`."""
    return HIGHEST if which.finished_until is None else int(_run(db, _YOUNG, {"until": which.finished_until})[0][0])


def _pick(
    db: Db, which: Filter, before: int, limit: int, windows: Sequence[int] | None = None
) -> tuple[list[int], int | None]:
    statement, default_windows = _statement_for(db, which, limit)
    ids: list[int] = []
    for window in windows or default_windows:
        look = _look(db, statement, which, before, limit - len(ids), window)
        ids += look.ids
        if len(ids) == limit:
            return ids, ids[-1]
        if look.lowest is None or look.rows < window:
            return ids, None
        before = look.lowest
    return ids, before


def _statement_for(db: Db, which: Filter, limit: int) -> tuple[str, Sequence[int]]:
    """Returns the statement for a filter, and the windows of rows it reads."""
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


def _look(db: Db, statement: str, which: Filter, before: int, limit: int, window: int) -> _Seen:
    parameters = conditions(which) | {"before": before, "limit": limit, "window": window, "few": FEW}
    return _Seen(*_run(db, statement, parameters)[0])


def conditions(which: Filter) -> dict[str, Any]:
    return asdict(which) | {"spec": None if which.hash is None else f"spec:{which.hash.lower()}"}


# --- all that match, for what is done to many -------------------------------------------------------------------

_IDS_BY_STATUS = {
    status: f"SELECT id FROM snap_processing_job WHERE status = '{status}' AND {FITS} ORDER BY id LIMIT %(limit)s"  # noqa: S608
    for status in (Status.FAILED, Status.RUNNING)
}

_IDS_WAITING = f"""
SELECT id FROM snap_processing_job
 WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open' AND (%(status)s::text IS NULL OR status = %(status)s)
   AND {FITS}
UNION ALL
SELECT id FROM job_apart WHERE (%(status)s::text IS NULL OR status = %(status)s) AND {FITS}
 ORDER BY id LIMIT %(limit)s
"""  # noqa: S608


def dead_letters(db: Db, which: Filter = Filter(), limit: int | None = None) -> list[int]:
    """The ids of all FAILED jobs that match, oldest first. The filter's status is ignored."""
    return _ids(db, _IDS_BY_STATUS[Status.FAILED], which, limit)


def waiting(db: Db, which: Filter = Filter(), limit: int | None = None) -> list[int]:
    """The ids of all waiting jobs that match, oldest first. Without a status: PENDING and RETRY_WAIT."""
    return _ids(db, _IDS_WAITING, which, limit)


def matching(db: Db, which: Filter, limit: int) -> Matching:
    """Up to `limit` matching ids, for a change to many jobs. CANCELLED and COMPLETED have no index: only the newest
    million rows are searched for them."""
    match which.status:
        case Status.FAILED | Status.RUNNING as status:
            ids = _ids(db, _IDS_BY_STATUS[status], which, limit + 1)
        case Status.COMPLETED | Status.CANCELLED:
            ids, next_before = _pick(db, which, _first_too_young(db, which), limit, windows=[20_000] * 50)
            return Matching(ids, next_before is not None)
        case _:
            ids = waiting(db, which, limit + 1)
    return Matching(ids[:limit], len(ids) > limit)


def _ids(db: Db, statement: str, which: Filter, limit: int | None) -> list[int]:
    return [row[0] for row in _run(db, statement, conditions(which) | {"limit": limit})]

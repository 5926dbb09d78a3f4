"""What is old is deleted, a page at a time: finished jobs, and what there is to tell of workers and supervisors."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import psycopg

from snapapp.jobs.model import Status
from snapapp.jobs.rows.database import Db as Db  # part of this module's signatures
from snapapp.jobs.rows.database import is_away, waited_in_vain
from snapapp.jobs.rows.database import run as _run


@dataclass(frozen=True, slots=True)
class Rule:
    """How long, and how many, finished jobs are kept."""

    kind: str  # empty: every kind that has no rule of its own
    status: Status
    keep: timedelta | None  # None: their age is no reason to delete them
    newest: int | None


# What belongs to a job goes with it. By arrays: joined with a page, PostgreSQL 15 reads the whole table where nobody
# has analysed it.
_WITH_ALL_OF_THEIRS = """
, parents AS (
    DELETE FROM job_parent WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
), logs AS (
    DELETE FROM job_log WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
), costs AS (
    DELETE FROM job_cost WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
)
"""

_PRUNE = f"""
WITH page AS MATERIALIZED (
    SELECT id, created_at, finished_at FROM snap_processing_job WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
), gone AS (
    DELETE FROM snap_processing_job
     WHERE id = ANY (ARRAY(SELECT id FROM page WHERE finished_at < now() - %(keep)s::interval))
       AND finished_at < now() - %(keep)s::interval AND unique_scope IS DISTINCT FROM 'ever'
       AND NOT (has_children AND job_is_awaited(id))
       AND (%(status)s::text IS NULL OR status = %(status)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
    RETURNING id
){_WITH_ALL_OF_THEIRS}
SELECT (SELECT count(*) FROM gone), (SELECT max(id) FROM page WHERE created_at < now() - %(keep)s::interval)
"""  # noqa: S608


def prune(
    db: Db,
    *,
    keep: timedelta,
    after: int = 0,
    limit: int = 1000,
    status: Status | None = None,
    kind: str | None = None,
) -> tuple[int, int | None]:
    """Deletes old finished jobs (with this status, of this kind) from one page of ids, whatever the rules keep; returns
    how many, and where to go on (None: done). A key that is unique for ever stays with its job."""
    parameters = {"keep": keep, "after": after, "limit": limit, "status": status, "kind": kind}
    deleted, last = _run(db, _PRUNE, parameters)[0]
    return deleted, last


# The rule of its kind, else that of every kind, else the setting; a rule without an age deletes nothing here. The age
# is asked again of the row as it is when it is deleted, which a person may have retried meanwhile.
_PRUNE_BY_RULES = f"""
WITH shortest AS MATERIALIZED (
    SELECT least(%(keep)s::interval, (SELECT min(keep) FROM job_retention)) AS keep
), page AS MATERIALIZED (
    SELECT id, kind, status, created_at, finished_at FROM snap_processing_job
     WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
), old AS (
    SELECT page.id FROM page LEFT JOIN job_retention AS its ON its.kind = page.kind AND its.status = page.status
      LEFT JOIN job_retention AS common ON common.kind = '' AND common.status = page.status
     WHERE finished_at < now() - CASE WHEN its.status IS NOT NULL THEN its.keep
                                      WHEN common.status IS NOT NULL THEN common.keep ELSE %(keep)s::interval END
), gone AS (
    DELETE FROM snap_processing_job
     WHERE id = ANY (ARRAY(SELECT id FROM old)) AND finished_at < now() - (SELECT keep FROM shortest)
       AND unique_scope IS DISTINCT FROM 'ever' AND NOT (has_children AND job_is_awaited(id))
    RETURNING id
){_WITH_ALL_OF_THEIRS}
SELECT (SELECT count(*) FROM gone), (SELECT max(id) FROM page WHERE created_at < now() - (SELECT keep FROM shortest))
"""  # noqa: S608


def prune_by_rules(db: Db, *, keep: timedelta, after: int = 0, limit: int = 1000) -> tuple[int, int | None]:
    """As `prune`, for a worker: what has a rule is kept by that, all else for so long."""
    deleted, last = _run(db, _PRUNE_BY_RULES, {"keep": keep, "after": after, "limit": limit})[0]
    return deleted, last


_FINISHED = """
WITH page AS MATERIALIZED (
    SELECT id, kind, status, finished_at FROM snap_processing_job WHERE id < %(before)s ORDER BY id DESC LIMIT %(limit)s
)
SELECT id, page.kind, page.status, coalesce(its.newest, common.newest) AS newest, NULL AS lowest
  FROM page LEFT JOIN job_retention AS its ON its.kind = page.kind AND its.status = page.status
  LEFT JOIN job_retention AS common ON common.kind = '' AND common.status = page.status AND its.status IS NULL
 WHERE page.finished_at IS NOT NULL AND (its.newest IS NOT NULL OR common.newest IS NOT NULL)
UNION ALL
SELECT NULL, NULL, NULL, NULL, min(id) FROM page
 ORDER BY id DESC NULLS LAST
"""

_DELETE_FINISHED = f"""
WITH gone AS (
    DELETE FROM snap_processing_job
     WHERE id = ANY (%(ids)s::bigint[]) AND finished_at IS NOT NULL AND unique_scope IS DISTINCT FROM 'ever'
       AND NOT (has_children AND job_is_awaited(id))
    RETURNING id
){_WITH_ALL_OF_THEIRS}
SELECT count(*) FROM gone
"""  # noqa: S608


def has_counts(db: Db) -> bool:
    """Does any rule say how many are kept?"""
    return bool(_run(db, "SELECT EXISTS (SELECT FROM job_retention WHERE newest IS NOT NULL)", {})[0][0])


def prune_page_of_surplus(
    db: Db,
    seen: Counter[tuple[str, str]],
    *,
    before: int,
    refused: Callable[[int, Exception], None],
    limit: int = 1000,
) -> tuple[int, int | None]:
    """Going down from the newest: deletes what the rules call too many, of one page of ids. `seen` counts, by kind and
    status, what the pages above had; `refused` is told of a row that PostgreSQL lets nobody delete. Returns how many
    were deleted, and where to go on (None: done)."""
    *finished, (*_, lowest) = _run(db, _FINISHED, {"before": before, "limit": limit})
    surplus = []
    for job_id, kind, status, newest, _ in finished:
        seen[kind, status] += 1
        if seen[kind, status] > newest:
            surplus.append(job_id)
    return _delete_finished(db, sorted(surplus), refused), lowest


def _delete_finished(db: Db, ids: list[int], refused: Callable[[int, Exception], None]) -> int:
    try:
        return cast(int, _run(db, _DELETE_FINISHED, {"ids": ids})[0][0]) if ids else 0
    except psycopg.Error as error:
        if is_away(error) or waited_in_vain(error):
            raise
        if len(ids) == 1:
            refused(ids[0], error)
            return 0
    half = len(ids) // 2
    return _delete_finished(db, ids[:half], refused) + _delete_finished(db, ids[half:], refused)


def rules(db: Db) -> list[Rule]:
    found = _run(db, "SELECT kind, status, keep, newest FROM job_retention ORDER BY kind, status", {})
    return [Rule(kind, Status(status), keep, newest) for kind, status, keep, newest in found]


_SET_RULE = """
INSERT INTO job_retention (kind, status, keep, newest) VALUES (%(kind)s, %(status)s, %(keep)s, %(newest)s)
ON CONFLICT (kind, status) DO UPDATE SET keep = excluded.keep, newest = excluded.newest
RETURNING kind
"""


def set_rule(db: Db, rule: Rule) -> None:
    _run(db, _SET_RULE, {"kind": rule.kind, "status": rule.status.value, "keep": rule.keep, "newest": rule.newest})


def remove_rule(db: Db, kind: str, status: Status) -> bool:
    """Was there one?"""
    statement = "DELETE FROM job_retention WHERE kind = %(kind)s AND status = %(status)s RETURNING kind"
    return bool(_run(db, statement, {"kind": kind, "status": status.value}))


_PRUNABLE = """
SELECT count(*) FROM snap_processing_job
 WHERE finished_at < now() - %(keep)s::interval AND unique_scope IS DISTINCT FROM 'ever'
   AND NOT (has_children AND job_is_awaited(id))
   AND (%(status)s::text IS NULL OR status = %(status)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
"""


def prunable(db: Db, *, keep: timedelta, status: Status | None = None, kind: str | None = None) -> int:
    """How many jobs `prune` would delete in all. It reads the whole table: for a person who asks first."""
    return cast(int, _run(db, _PRUNABLE, {"keep": keep, "status": status, "kind": kind})[0][0])


def first_after(db: Db, after: int) -> int | None:
    rows = _run(db, "SELECT min(id) FROM snap_processing_job WHERE id > %(after)s", {"after": after})
    return rows[0][0] if rows else None


# In all of them the oldest stand at the beginning of the key: no index on their time is needed.
_PRUNE_FLEET = """
WITH exits AS (
    DELETE FROM job_worker_exit WHERE exited_at < now() - %(keep)s::interval
       AND id = ANY (ARRAY(SELECT id FROM job_worker_exit ORDER BY id LIMIT %(limit)s))
), scalings AS (
    DELETE FROM job_scaling WHERE at < now() - %(keep)s::interval
       AND id = ANY (ARRAY(SELECT id FROM job_scaling ORDER BY id LIMIT %(limit)s))
), commands AS (
    DELETE FROM job_command WHERE coalesce(finished_at, expires_at) < now() - %(keep)s::interval
       AND id = ANY (ARRAY(SELECT id FROM job_command ORDER BY id LIMIT %(limit)s))
), audited AS (
    DELETE FROM job_audit WHERE at < now() - greatest(%(keep)s::interval, interval '90 days')
       AND id = ANY (ARRAY(SELECT id FROM job_audit ORDER BY id LIMIT %(limit)s))
)
SELECT 1
"""


def prune_fleet(db: Db, *, keep: timedelta, limit: int = 10_000) -> None:
    """How workers ended, what the autoscaler decided, and what supervisors were told: kept for a day in any case,
    because somebody waits for what comes of a command. What people did is kept for 90 days in any case."""
    _run(db, _PRUNE_FLEET, {"keep": max(keep, timedelta(days=1)), "limit": limit})

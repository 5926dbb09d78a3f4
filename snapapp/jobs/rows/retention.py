"""What is old is deleted, a page at a time: finished jobs, and what there is to tell of workers and supervisors."""

from datetime import timedelta
from typing import cast

from snapapp.jobs.model import Status
from snapapp.jobs.rows.database import Db as Db  # part of this module's signatures
from snapapp.jobs.rows.database import run as _run

_PRUNE = """
WITH page AS MATERIALIZED (
    SELECT id, created_at, finished_at FROM snap_processing_job WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
), gone AS (  -- by arrays: joined with a page, PostgreSQL 15 reads the whole table where nobody has analysed it
    DELETE FROM snap_processing_job
     WHERE id = ANY (ARRAY(SELECT id FROM page WHERE finished_at < now() - %(keep)s::interval))
       AND finished_at < now() - %(keep)s::interval AND unique_scope IS DISTINCT FROM 'ever'
       AND NOT (has_children AND job_is_awaited(id))
       AND (%(status)s::text IS NULL OR status = %(status)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
    RETURNING id
), parents AS (
    DELETE FROM job_parent WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
), logs AS (
    DELETE FROM job_log WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
), costs AS (
    DELETE FROM job_cost WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
)
SELECT (SELECT count(*) FROM gone), (SELECT max(id) FROM page WHERE created_at < now() - %(keep)s::interval)
"""


def prune(
    db: Db,
    *,
    keep: timedelta,
    after: int = 0,
    limit: int = 1000,
    status: Status | None = None,
    kind: str | None = None,
) -> tuple[int, int | None]:
    """Deletes old finished jobs (with this status, of this kind) from one page of ids; returns how many, and where to
    go on (None: done). A key that is unique for ever stays with its job."""
    parameters = {"keep": keep, "after": after, "limit": limit, "status": status, "kind": kind}
    deleted, last = _run(db, _PRUNE, parameters)[0]
    return deleted, last


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


# In all three the oldest stand at the beginning of the key: no index on their time is needed.
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
)
SELECT 1
"""


def prune_fleet(db: Db, *, keep: timedelta, limit: int = 10_000) -> None:
    """How workers ended, what the autoscaler decided, and what supervisors were told: kept for a day in any case,
    because somebody waits for what comes of a command."""
    _run(db, _PRUNE_FLEET, {"keep": max(keep, timedelta(days=1)), "limit": limit})

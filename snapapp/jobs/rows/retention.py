"""Deletes old rows page by page: finished jobs, exits of workers, scalings, commands, lost supervisors, audit rows."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from snapapp.jobs.model import Status
from snapapp.jobs.rows.database import Db as Db  # part of this module's signatures
from snapapp.jobs.rows.database import row_by_row, value_of
from snapapp.jobs.rows.database import run as _run


@dataclass(frozen=True, slots=True)
class Rule:
    """How long finished jobs of a kind and status are kept, and how many of them."""

    kind: str  # empty: the rule for all kinds without one of their own
    status: Status
    keep: timedelta | None  # None: never deleted for their age
    newest: int | None  # None: never deleted for their number


# The rows that belong to a job are deleted with it. They are found by arrays of ids: a join would make PostgreSQL 15
# read the whole table before it is first analysed.
_AND_DEPENDENT_ROWS = """
, parents AS (
    DELETE FROM job_parent WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
), logs AS (
    DELETE FROM job_log WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
), costs AS (
    DELETE FROM job_cost WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
)
"""

# A job stays while its key is unique for ever, or another job waits for it. `unique_scope` may be NULL, hence IS
# DISTINCT FROM.
_MAY_GO = "unique_scope IS DISTINCT FROM 'ever' AND NOT (has_children AND job_is_awaited(id))"
_IS_MEANT = "(%(status)s::text IS NULL OR status = %(status)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s)"

# `finished_at` is compared twice: the second one, in the DELETE itself, sees a retry by a person that was committed
# after the page was read. A row that another transaction has locked stays until the next time: to wait for it would
# keep all rows behind it. `_MAY_GO` is asked twice, too: first so that no row is locked, and so written, that stays.
_PRUNE = f"""
WITH page AS MATERIALIZED (
    SELECT id, created_at, finished_at FROM snap_processing_job WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
), gone AS (
    DELETE FROM snap_processing_job
     WHERE id = ANY (ARRAY(
               SELECT id FROM snap_processing_job
                WHERE id = ANY (ARRAY(SELECT id FROM page WHERE finished_at < now() - %(keep)s::interval)) AND {_MAY_GO}
                ORDER BY id FOR UPDATE SKIP LOCKED))
       AND finished_at < now() - %(keep)s::interval AND {_MAY_GO} AND {_IS_MEANT}
    RETURNING id
){_AND_DEPENDENT_ROWS}
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
    """Deletes jobs of one page of ids that finished longer than `keep` ago, whatever the rules say. Returns how many,
    and the id to go on after (None: no older job is left). Jobs with a key that is unique for ever stay."""
    parameters = {"keep": keep, "after": after, "limit": limit, "status": status, "kind": kind}
    deleted, last = _run(db, _PRUNE, parameters)[0]
    return deleted, last


# CASE: the rule of the job's kind decides, else the rule for all kinds, else the setting. A rule without an age makes
# it NULL, so the comparison is not true and the job stays. The DELETE compares finished_at again, because a person may
# have retried the job since the page was read.
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
     WHERE id = ANY (ARRAY(
               SELECT id FROM snap_processing_job WHERE id = ANY (ARRAY(SELECT id FROM old)) AND {_MAY_GO}
                ORDER BY id FOR UPDATE SKIP LOCKED))
       AND finished_at < now() - (SELECT keep FROM shortest) AND {_MAY_GO}
    RETURNING id
){_AND_DEPENDENT_ROWS}
SELECT (SELECT count(*) FROM gone), (SELECT max(id) FROM page WHERE created_at < now() - (SELECT keep FROM shortest))
"""  # noqa: S608


def prune_by_rules(db: Db, *, keep: timedelta, after: int = 0, limit: int = 1000) -> tuple[int, int | None]:
    """Like `prune`, but by the rules; `keep` is for jobs without a rule."""
    deleted, last = _run(db, _PRUNE_BY_RULES, {"keep": keep, "after": after, "limit": limit})[0]
    return deleted, last


# coalesce: a kind's own rule wins over the rule for all kinds. The last row has only the lowest id of the page.
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
     WHERE id = ANY (%(ids)s::bigint[]) AND finished_at IS NOT NULL AND {_MAY_GO}
    RETURNING id
){_AND_DEPENDENT_ROWS}
SELECT count(*) FROM gone
"""  # noqa: S608


def has_counts(db: Db) -> bool:
    """Does any rule limit the number of jobs kept?"""
    return bool(_run(db, "SELECT EXISTS (SELECT FROM job_retention WHERE newest IS NOT NULL)", {})[0][0])


def prune_page_of_surplus(
    db: Db,
    seen: Counter[tuple[str, str]],
    *,
    before: int,
    refused: Callable[[int, Exception], None],
    limit: int = 1000,
) -> tuple[int, int | None]:
    """Deletes the jobs beyond the number that a rule keeps, in one page of ids, going down from the newest job. `seen`
    counts by kind and status over all pages so far. `refused` is called for each row that PostgreSQL refuses to delete.
    Returns how many were deleted, and the id to go on before (None: done)."""
    *finished, (*_, lowest) = _run(db, _FINISHED, {"before": before, "limit": limit})
    surplus = []
    for job_id, kind, status, newest, _ in finished:
        seen[kind, status] += 1
        if seen[kind, status] > newest:
            surplus.append(job_id)
    gone = row_by_row(lambda ids: _run(db, _DELETE_FINISHED, {"ids": ids}), sorted(surplus), refused, can_wait=True)
    return sum(count for (count,) in gone), lowest


def rules(db: Db) -> list[Rule]:
    rows = _run(db, "SELECT kind, status, keep, newest FROM job_retention ORDER BY kind, status", {})
    return [value_of(Rule, row, status=Status) for row in rows]


_SET_RULE = """
INSERT INTO job_retention (kind, status, keep, newest) VALUES (%(kind)s, %(status)s, %(keep)s, %(newest)s)
ON CONFLICT (kind, status) DO UPDATE SET keep = excluded.keep, newest = excluded.newest
RETURNING kind
"""


def set_rule(db: Db, rule: Rule) -> None:
    _run(db, _SET_RULE, {"kind": rule.kind, "status": rule.status.value, "keep": rule.keep, "newest": rule.newest})


def remove_rule(db: Db, kind: str, status: Status) -> bool:
    """True: there was such a rule."""
    statement = "DELETE FROM job_retention WHERE kind = %(kind)s AND status = %(status)s RETURNING kind"
    return bool(_run(db, statement, {"kind": kind, "status": status.value}))


_PRUNABLE = f"""
SELECT count(*) FROM snap_processing_job
 WHERE finished_at < now() - %(keep)s::interval AND {_MAY_GO} AND {_IS_MEANT}
"""  # noqa: S608


def prunable(db: Db, *, keep: timedelta, status: Status | None = None, kind: str | None = None) -> int:
    """How many jobs `prune` would delete in all. It reads the whole table, so it is only for a person who asks."""
    return cast(int, _run(db, _PRUNABLE, {"keep": keep, "status": status, "kind": kind})[0][0])


def first_after(db: Db, after: int) -> int | None:
    rows = _run(db, "SELECT min(id) FROM snap_processing_job WHERE id > %(after)s", {"after": after})
    return rows[0][0] if rows else None


# In all these tables the lowest ids are the oldest rows, so no index on their time is needed. coalesce: a command that
# never finished counts from its expiry.
_PRUNE_FLEET = """
WITH exits AS (
    DELETE FROM job_worker_exit WHERE exited_at < now() - %(keep)s::interval
       AND id = ANY (ARRAY(SELECT id FROM job_worker_exit ORDER BY id LIMIT 10000))
), scalings AS (
    DELETE FROM job_scaling WHERE at < now() - %(keep)s::interval
       AND id = ANY (ARRAY(SELECT id FROM job_scaling ORDER BY id LIMIT 10000))
), commands AS (
    DELETE FROM job_command WHERE coalesce(finished_at, expires_at) < now() - %(keep)s::interval
       AND id = ANY (ARRAY(SELECT id FROM job_command ORDER BY id LIMIT 10000))
), masters AS (  -- not their pools: what a person made of them holds when such a host comes back
    DELETE FROM job_master WHERE expires_at < now() - %(keep)s::interval
), audited AS (
    DELETE FROM job_audit WHERE at < now() - greatest(%(keep)s::interval, interval '90 days')
       AND id = ANY (ARRAY(SELECT id FROM job_audit ORDER BY id LIMIT 10000))
)
SELECT 1
"""


def prune_fleet(db: Db, *, keep: timedelta) -> None:
    """Deletes exits of workers, decisions of the autoscaler, commands to supervisors, and supervisors that are lost.
    These are kept for a day at least, because the sender of a command waits for its result; audit rows for 90 days at
    least."""
    _run(db, _PRUNE_FLEET, {"keep": max(keep, timedelta(days=1))})

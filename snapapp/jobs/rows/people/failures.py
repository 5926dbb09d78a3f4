"""Dead letters by error: the newest of them grouped, and a walk through those of one group step by step."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.database import run as _run
from snapapp.jobs.rows.people.lists import FITS, Filter, conditions

NEWEST = 5_000  # dead letters to group; reading each may touch another page of the table
GROUPS = 50
WINDOW = 5_000  # dead letters that one step reads
STEP = 500  # jobs that one step changes, in one transaction of a fraction of a second


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters of one kind whose errors begin with the same line."""

    kind: str
    line: str
    jobs: int
    queues: list[str]
    last_ten_minutes: int
    last_hour: int
    first_at: datetime
    last_at: datetime
    newest: int  # a job's id


class Groups(NamedTuple):
    groups: list[Group]
    seen: int  # dead letters that were read
    more: bool  # there may be older ones


class Step(NamedTuple):
    """One step of a walk through the dead letters, by ascending id."""

    ids: list[int]  # of the dead letters that match
    seen: int  # dead letters that were read
    last: int | None  # the id after which the next step begins; None: the walk is over


_GROUPS = """
WITH seen AS MATERIALIZED (
    SELECT id, kind, queue, job_error_line(last_error) AS line, finished_at FROM snap_processing_job
     WHERE status = 'FAILED' ORDER BY id DESC LIMIT %(newest)s
)
SELECT kind, line, count(*), array_agg(DISTINCT queue), count(*) FILTER (WHERE finished_at > now() - interval '10 min'),
       count(*) FILTER (WHERE finished_at > now() - interval '1 hour'), min(finished_at), max(finished_at), max(id),
       (SELECT count(*) FROM seen)
  FROM seen GROUP BY kind, line ORDER BY count(*) DESC, max(id) DESC LIMIT %(groups)s
"""


def groups(db: Db, newest: int = NEWEST) -> Groups:
    """Groups the `newest` dead letters by kind and first line of the error, the largest group first."""
    rows = _run(db, _GROUPS, {"newest": newest, "groups": GROUPS})
    seen = rows[0][-1] if rows else 0
    return Groups([Group(*row[:-1]) for row in rows], seen, seen == newest)


_STEP = f"""
WITH seen AS MATERIALIZED (
    SELECT id, {FITS} AS fits FROM snap_processing_job
     WHERE status = 'FAILED' AND id > %(after)s AND id <= %(up_to)s ORDER BY id LIMIT %(window)s
)
SELECT (SELECT max(id) FROM seen), (SELECT count(*) FROM seen),
       ARRAY(SELECT id FROM seen WHERE fits ORDER BY id LIMIT %(limit)s)
"""  # noqa: S608


def step(db: Db, which: Filter, *, after: int, up_to: int, limit: int) -> Step:
    """The matching ones among the next dead letters after the id `after`. The walk goes up by id, so a job that is
    retried and fails again is not met twice."""
    bounds = {"after": after, "up_to": up_to, "limit": limit, "window": WINDOW}
    [(last, seen, ids)] = _run(db, _STEP, conditions(which) | bounds)
    if len(ids) == limit:
        return Step(ids, seen, ids[-1])
    return Step(ids, seen, last if seen == WINDOW else None)


def newest(db: Db) -> int:
    """The highest id of a dead letter; 0: there is none."""
    return int(_run(db, "SELECT coalesce(max(id), 0) FROM snap_processing_job WHERE status = 'FAILED'", {})[0][0])

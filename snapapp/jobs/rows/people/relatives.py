"""The jobs that a job waits for and those that wait for it: counted, listed, and drawn."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.database import run as _run

NODES = 60  # jobs of a drawing
_OF_ONE = 30  # parents, and children, that a job may bring into it: a batch of thousands would leave no room for others
_STEPS = 12  # from job to job


@dataclass(frozen=True, slots=True)
class Parents:
    """How far the jobs are that a job waits for, or has waited for. Those that were pruned are only expected."""

    expected: int
    succeeded: int
    failed: int  # or cancelled
    open: int


class Relative(NamedTuple):
    """A job that another waits for, or that waits for it."""

    is_parent: bool
    id: int
    kind: str | None  # None: it was pruned
    status: str | None
    must_complete: bool


@dataclass(frozen=True, slots=True)
class Workflow(Parents):
    """A job that waits, or has waited, for others."""

    job_id: int
    kind: str
    state: str  # RUNNING, WAITING_CALLBACK, SUCCESSFUL or FAILED
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None


def parents(db: Db, job_id: int) -> Parents | None:
    """None: it has none."""
    [counted] = _run(db, "SELECT expected, succeeded, failed, open FROM job_parent_counts(%(id)s)", {"id": job_id})
    return Parents(*counted) if counted[0] else None


_FAMILY = """
SELECT true, its.parent_id, job.kind, job.status, its.must_complete
  FROM (SELECT parent_id, must_complete FROM job_parent WHERE job_id = %(id)s ORDER BY parent_id LIMIT %(limit)s) AS its
  LEFT JOIN snap_processing_job AS job ON job.id = its.parent_id
UNION ALL
SELECT false, its.job_id, job.kind, job.status, its.must_complete
  FROM (SELECT job_id, must_complete FROM job_parent WHERE parent_id = %(id)s ORDER BY job_id LIMIT %(limit)s) AS its
  LEFT JOIN snap_processing_job AS job ON job.id = its.job_id
 ORDER BY 1 DESC, 2
"""


def family(db: Db, job_id: int, *, limit: int = 100) -> list[Relative]:
    """The jobs it waits for, and those that wait for it: of each so many, the oldest first."""
    return [Relative(*row) for row in _run(db, _FAMILY, {"id": job_id, "limit": limit})]


def workflows(db: Db) -> list[Workflow]:
    """The newest jobs that have parents."""
    columns = "expected, succeeded, failed, open, job_id, kind, state, last_error, created_at, finished_at"
    return [Workflow(*row) for row in _run(db, f"SELECT {columns} FROM workflow_overview", {})]  # noqa: S608


# --- drawn ------------------------------------------------------------------------------------------------------


class Edge(NamedTuple):
    parent: int
    child: int
    must_complete: bool


class Node(NamedTuple):
    id: int
    kind: str | None  # None: it was pruned
    status: str | None


@dataclass(frozen=True, slots=True)
class Graph:
    """The jobs around one, and how they wait for each other. Parents have lower ids, so there are no circles."""

    nodes: list[Node]  # by id
    edges: list[Edge]
    more: bool  # there are others, which it leaves out


_AROUND = """
SELECT its.parent_id, its.job_id, its.must_complete FROM unnest(%(ids)s::bigint[]) AS it (id)
 CROSS JOIN LATERAL (
    (SELECT * FROM job_parent WHERE job_id = it.id ORDER BY parent_id LIMIT %(limit)s)
  UNION ALL
    (SELECT * FROM job_parent WHERE parent_id = it.id ORDER BY job_id LIMIT %(limit)s)) AS its
 ORDER BY 2, 1
"""

_NODES = """
SELECT it.id, job.kind, job.status FROM unnest(%(ids)s::bigint[]) AS it (id)
  LEFT JOIN snap_processing_job AS job ON job.id = it.id ORDER BY it.id
"""


def graph(db: Db, job_id: int) -> Graph:
    """Step by step outwards from the job, the nearest first, up to so many."""
    seen, edges, frontier, more = {job_id}, dict[tuple[int, int], Edge](), [job_id], False
    for _ in range(_STEPS):
        if not frontier:
            break
        found = [Edge(*row) for row in _run(db, _AROUND, {"ids": frontier, "limit": _OF_ONE + 1})]
        more |= _is_cut(found)
        fresh = sorted({end for edge in found for end in edge[:2]} - seen)
        frontier = fresh[: NODES - len(seen)]
        more |= len(frontier) < len(fresh)
        seen |= set(frontier)
        edges |= {edge[:2]: edge for edge in found}
    else:
        more |= bool(frontier)
    within = [edge for edge in edges.values() if {edge.parent, edge.child} <= seen]
    return Graph([Node(*row) for row in _run(db, _NODES, {"ids": list(seen)})], within, more)


def _is_cut(found: Iterable[Edge]) -> bool:
    """Whether one of them has more parents, or children, than may come in."""
    counted = Counter(end for edge in found for end in (("parent of", edge.parent), ("child of", edge.child)))
    return max(counted.values(), default=0) > _OF_ONE

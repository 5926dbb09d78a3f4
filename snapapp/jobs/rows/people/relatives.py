"""Parents (the jobs that a job waits for) and children (the jobs that wait for it): counted, listed, and as a graph."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.database import run as _run

NODES = 60  # jobs in a graph at most
_OF_ONE = 30  # parents or children of one job in a graph: a batch of thousands would leave no place for others
_STEPS = 12  # generations from the job outwards


@dataclass(frozen=True, slots=True)
class Parents:
    """How many parents a job has and how they stand. Pruned parents are counted in `expected` only."""

    expected: int
    succeeded: int
    failed: int  # or cancelled
    open: int


class Relative(NamedTuple):
    """A parent or a child of a job."""

    is_parent: bool
    id: int
    kind: str | None  # None: it was pruned
    status: str | None
    must_complete: bool


@dataclass(frozen=True, slots=True)
class Workflow(Parents):
    """A job that has parents."""

    job_id: int
    kind: str
    state: str  # RUNNING, WAITING_CALLBACK, SUCCESSFUL or FAILED
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None


def parents(db: Db, job_id: int) -> Parents | None:
    """None: the job has no parents."""
    [counted] = _run(db, "SELECT expected, succeeded, failed, open FROM job_parent_counts(%(id)s)", {"id": job_id})
    return Parents(*counted) if counted[0] else None


_FAMILY = """
SELECT true, its.parent_id, job.kind, job.status, its.must_complete
  FROM (SELECT parent_id, must_complete FROM job_parent WHERE job_id = %(id)s ORDER BY parent_id LIMIT 100) AS its
  LEFT JOIN snap_processing_job AS job ON job.id = its.parent_id
UNION ALL
SELECT false, its.job_id, job.kind, job.status, its.must_complete
  FROM (SELECT job_id, must_complete FROM job_parent WHERE parent_id = %(id)s ORDER BY job_id LIMIT 100) AS its
  LEFT JOIN snap_processing_job AS job ON job.id = its.job_id
 ORDER BY 1 DESC, 2
"""


def family(db: Db, job_id: int) -> list[Relative]:
    """The parents and the children of a job, at most 100 of each, the oldest first."""
    return [Relative(*row) for row in _run(db, _FAMILY, {"id": job_id})]


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
    """The jobs around one, and which waits for which. Parents have lower ids than children, so there are no cycles."""

    nodes: list[Node]  # by id
    edges: list[Edge]
    more: bool  # some jobs were left out


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
    """Collects jobs outwards from the given one, the nearest first, up to NODES."""
    known_ids, edges, frontier, more = {job_id}, dict[tuple[int, int], Edge](), [job_id], False
    for _ in range(_STEPS):
        if not frontier:
            break
        new_edges = [Edge(*row) for row in _run(db, _AROUND, {"ids": frontier, "limit": _OF_ONE + 1})]
        more |= _is_cut(new_edges)
        new_ids = sorted({end for edge in new_edges for end in edge[:2]} - known_ids)
        frontier = new_ids[: NODES - len(known_ids)]
        more |= len(frontier) < len(new_ids)
        known_ids |= set(frontier)
        edges |= {edge[:2]: edge for edge in new_edges}
    else:
        more |= bool(frontier)
    within = [edge for edge in edges.values() if {edge.parent, edge.child} <= known_ids]
    return Graph([Node(*row) for row in _run(db, _NODES, {"ids": list(known_ids)})], within, more)


def _is_cut(edges: Iterable[Edge]) -> bool:
    """Has one of the jobs more parents or children than a graph shows?"""
    counted = Counter(end for edge in edges for end in (("parent of", edge.parent), ("child of", edge.child)))
    return max(counted.values(), default=0) > _OF_ONE

"""/internal/jobs/{id}/family and /graph: the jobs that a job waits for, and those that wait for it."""

from pydantic import Field

from snapapp.api.http.deps import Reading
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Shown
from snapapp.api.internal.jobs.shown import JobId
from snapapp.jobs.model import Status
from snapapp.jobs.rows.people import relatives

router = InternalRouter(prefix="/internal/jobs", tags=["jobs"])


class Relative(Shown):
    """A job that this one waits for, or that waits for it."""

    id: int
    kind: str | None = Field(description="Null: it was pruned.")
    status: Status | None
    must_complete: bool = Field(
        description="Whether the child is cancelled if this parent fails; otherwise it runs anyway."
    )


class Family(Shown):
    """The relatives of a job: the 100 oldest parents and the 100 oldest children."""

    parents: list[Relative]
    children: list[Relative]


@router.get("/{job_id}/family")
def show_family(db: Reading, job_id: JobId) -> Family:
    """The jobs that a job waits for, and those that wait for it."""
    relations = relatives.family(db, job_id)
    return Family(
        parents=[Relative.model_validate(each) for each in relations if each.is_parent],
        children=[Relative.model_validate(each) for each in relations if not each.is_parent],
    )


class NodeLine(Shown):
    id: int
    kind: str | None = Field(description="Null: it was pruned.")
    status: Status | None


class EdgeLine(Shown):
    """`child` waits for `parent`."""

    parent: int
    child: int
    must_complete: bool


class Graph(Shown):
    """The jobs around one, up to twelve steps away."""

    nodes: list[NodeLine] = Field(description=f"By id; {relatives.NODES} at most, the nearest.")
    edges: list[EdgeLine]
    more: bool = Field(description="Whether there are further jobs, which are left out.")


@router.get("/{job_id}/graph")
def show_graph(db: Reading, job_id: JobId) -> Graph:
    """The workflow that a job is part of, as far as it can be drawn."""
    return Graph.model_validate(relatives.graph(db, job_id))

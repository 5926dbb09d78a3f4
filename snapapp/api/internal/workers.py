"""/internal/workers: the processes that work the queue, and how former ones ended."""

from datetime import datetime

from pydantic import Field

from snapapp.api.http.deps import Reading
from snapapp.api.http.paging import Before, Limit
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Seconds, Shown
from snapapp.jobs.rows.people import overviews

router = InternalRouter(prefix="/internal/workers", tags=["workers"])


class WorkerLine(Shown):
    """A process on the roster, as of its last heartbeat."""

    id: str = Field(description="New at every start.", examples=["0f8fad5bd9cb469fa16570867728950e"])
    name: str = Field(description="A label for people.", examples=["box-1"])
    host: str
    pid: int
    status: str = Field(description="ACTIVE, DRAINING, or LOST: its heartbeat stopped.", examples=["ACTIVE"])
    note: str | None = Field(description="What holds it back, if anything does.")
    queues: list[str] = Field(description="The queues it works; none named: all of them.")
    kinds: list[str] = Field(description="The kinds it knows.", examples=[["demo.hello"]])
    slots: int = Field(description="Jobs it can run at once, over all its executors.")
    current_jobs: list[int] = Field(description="The jobs it runs.")
    memory_mb: int
    jobs_claimed: int
    jobs_completed: int
    jobs_failed: int
    jobs_retried: int
    jobs_recovered: int
    mean_ms: float | None = Field(description="The mean duration of its jobs.")
    up_for_seconds: Seconds = Field(validation_alias="up_for")
    last_beat_seconds: Seconds = Field(validation_alias="last_beat", description="How long ago its last heartbeat was.")
    pool: str | None = Field(
        description="Its pool; null: it was not started by a supervisor.", examples=["mail-supervisor"]
    )
    max_jobs: int | None = Field(description="After so many jobs it is replaced, between two jobs.")
    max_seconds: int | None = Field(description="After so many seconds it is replaced, between two jobs.")
    max_memory_mb: int | None = Field(
        description="When it uses more memory than this it is replaced, between two jobs."
    )


class WorkerList(Shown):
    items: list[WorkerLine]


class ExitLine(Shown):
    """How a worker ended."""

    id: int
    worker_id: str
    name: str
    host: str
    pid: int
    pool: str | None
    queues: list[str]
    reason: str = Field(examples=["the process is stopping"])
    jobs_completed: int
    jobs_failed: int
    started_at: datetime
    exited_at: datetime


class ExitList(Shown):
    """Exits, newest first."""

    items: list[ExitLine]
    next: int | None = Field(description="`before` of the next page; null: there is none.")


@router.get("")
def list_workers(db: Reading) -> WorkerList:
    """The processes that work the queue."""
    return WorkerList(items=[WorkerLine.model_validate(each) for each in overviews.workers(db)])


@router.get("/exits")
def list_exits(db: Reading, before: Before = None, limit: Limit = 50) -> ExitList:
    """How workers ended, newest first."""
    items = [ExitLine.model_validate(each) for each in overviews.exits(db, before=before, limit=limit)]
    return ExitList(items=items, next=items[-1].id if len(items) == limit else None)

"""/internal/queues: how full and how fast the queues are, and pausing them."""

from datetime import datetime
from typing import Annotated

from fastapi import Path
from pydantic import Field

from snapapp.api.http.deps import Reading, Who, Writing
from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Seconds, Sent, Shown, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.jobs.rows.people import audit, overviews

router = InternalRouter(prefix="/internal/queues", tags=["queues"], route_class=StrictRoute)

QueueName = Annotated[
    str,
    Path(
        description="The queue's name. It need not hold a job.",
        examples=["default"],
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00\n]+$",
    ),
]
_NO_PATH = may_be(_404="The name holds a line break, which no path of ours may.")


class QueueLine(Shown):
    """A queue that has unfinished or failed jobs, or is paused."""

    queue: str = Field(examples=["default"])
    pending: int = Field(
        description=f"Of each queue {overviews.GLANCE:,} waiting jobs are counted: where this and `retryWait` make one "
        "more, there are more, also of those that are due."
    )
    retry_wait: int = Field(description="Jobs that failed and will be tried again.")
    due: int = Field(description="How many of `pending` and `retryWait` may run now.")
    running: int = Field(description=f"Counted up to {overviews.GLANCE:,} in all queues together.")
    failed: int = Field(description=f"Dead letters, among the newest {overviews.GLANCE:,} of all queues.")
    oldest_due_seconds: Seconds | None = Field(
        validation_alias="oldest_due", description="For how long the oldest due job has been due."
    )
    oldest_id: int | None = Field(description="The id of that job.")
    paused_at: datetime | None
    paused_reason: str | None = Field(examples=["the mail server is away"])


class QueueList(Shown):
    items: list[QueueLine]


class ThroughputLine(Shown):
    """The jobs of one kind in one queue that ended within the last hour."""

    queue: str = Field(examples=["default"])
    kind: str = Field(examples=["demo.hello"])
    completed: int
    failed: int
    cancelled: int
    mean_ms: float | None = Field(description="Their mean duration.")
    mean_wait_ms: float | None = Field(description="How long they waited on average.")


class ThroughputList(Shown):
    items: list[ThroughputLine]


class QueuePausing(Sent):
    reason: Text | None = Field(None, description="Why, for other people.", examples=["the mail server is away"])


class Switch(Shown):
    """Whether workers claim from the queue."""

    queue: str = Field(examples=["default"])
    paused_at: datetime | None = Field(description="Since when it is paused; null: it is open.")
    paused_reason: str | None


@router.get("")
def list_queues(db: Writing) -> QueueList:  # nothing is written, but its planner settings need a transaction
    """The queues that have anything but finished jobs, and those that are paused."""
    return QueueList(items=[QueueLine.model_validate(each) for each in overviews.queues(db, overviews.GLANCE)])


@router.get("/throughput")
def show_throughput(db: Reading) -> ThroughputList:
    """The jobs that ended within the last hour, by kind, among the newest 100,000 jobs."""
    return ThroughputList(items=[ThroughputLine.model_validate(each) for each in overviews.throughput(db)])


@router.post("/{name:path}/pause", responses=_NO_PATH)
def pause_queue(db: Writing, name: QueueName, who: Who, wanted: QueuePausing | None = None) -> Switch:
    """Workers claim no jobs from the queue until it is resumed; running jobs go on."""
    reason = wanted.reason if wanted else None
    overviews.pause(db, name, reason, by=who.name or "/internal")
    audit.write(db, who, "queue.pause", f"queue {name}", detail={"reason": reason})
    return _switch(db, name)


@router.post("/{name:path}/resume", responses=_NO_PATH)
def resume_queue(db: Writing, name: QueueName, who: Who) -> Switch:
    """Workers claim from the queue again."""
    overviews.resume(db, name)
    audit.write(db, who, "queue.resume", f"queue {name}")
    return _switch(db, name)


def _switch(db: Writing, name: str) -> Switch:
    paused_at, paused_reason = overviews.switch(db, name)
    return Switch(queue=name, paused_at=paused_at, paused_reason=paused_reason)

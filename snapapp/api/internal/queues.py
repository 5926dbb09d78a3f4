"""/internal/queues: how full they are, how fast they go, and the switch that each has."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from snapapp.api.http.deps import Reading, Who, Writing
from snapapp.api.http.errors import may_be
from snapapp.api.http.schema import Seconds, Sent, Shown, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.jobs.rows.people import audit, overviews

router = APIRouter(prefix="/internal/queues", tags=["queues"], route_class=StrictRoute)

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
    """A queue with work in it, or one that is paused."""

    queue: str = Field(examples=["default"])
    pending: int = Field(
        description=f"Of each queue {overviews.GLANCE:,} waiting jobs are counted: where this and `retryWait` make one "
        "more, there are more, also of those that are due."
    )
    retry_wait: int = Field(description="Failed, and to come again.")
    due: int = Field(description="Of these two, how many may run now.")
    running: int = Field(description=f"Counted up to {overviews.GLANCE:,} in all queues together.")
    failed: int = Field(description=f"Dead letters, among the newest {overviews.GLANCE:,} of all queues.")
    oldest_due_seconds: Seconds | None = Field(
        validation_alias="oldest_due", description="For how long the oldest of those that are due could have run."
    )
    oldest_id: int | None = Field(description="That job.")
    paused_at: datetime | None
    paused_reason: str | None = Field(examples=["the mail server is away"])


class QueueList(Shown):
    items: list[QueueLine]


class ThroughputLine(Shown):
    """The last hour of one kind in one queue."""

    queue: str = Field(examples=["default"])
    kind: str = Field(examples=["demo.hello"])
    completed: int
    failed: int
    cancelled: int
    mean_ms: float | None = Field(description="How long they ran.")
    mean_wait_ms: float | None = Field(description="How long they waited first.")


class ThroughputList(Shown):
    items: list[ThroughputLine]


class QueuePausing(Sent):
    reason: Text | None = Field(None, description="For whoever wonders.", examples=["the mail server is away"])


class Switch(Shown):
    """Whether workers claim from the queue."""

    queue: str = Field(examples=["default"])
    paused_at: datetime | None = Field(description="Since when it is paused; null: it is open.")
    paused_reason: str | None


@router.get("")
def list_queues(db: Writing) -> QueueList:  # it writes nothing, and wants a transaction for its plans
    """The queues that have anything but finished jobs, and those that are paused."""
    return QueueList(items=[QueueLine.model_validate(each) for each in overviews.queues(db, overviews.GLANCE)])


@router.get("/throughput")
def show_throughput(db: Reading) -> ThroughputList:
    """What ended within the last hour, by kind, as far as the newest 100,000 jobs tell."""
    return ThroughputList(items=[ThroughputLine.model_validate(each) for each in overviews.throughput(db)])


@router.post("/{name:path}/pause", responses=_NO_PATH)
def pause_queue(db: Writing, name: QueueName, who: Who, wanted: QueuePausing | None = None) -> Switch:
    """No worker claims from the queue until it is resumed; what runs goes on."""
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

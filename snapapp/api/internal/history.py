"""/internal/history: outcomes and durations of attempts over an hour, a day or a week, from the table job_history."""

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import Field

from snapapp.api.http.deps import Reading
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Name, Shown
from snapapp.jobs.rows.people import history
from snapapp.jobs.rows.people.history import STEPS, Over

router = InternalRouter(prefix="/internal/history", tags=["queues"])

_Over = Annotated[Over, Query(description="For how long it looks back.", examples=["24h"])]


class PercentileLine(Shown):
    """Percentiles in ms, as exact as buckets that grow by the square root of two; null: nothing was measured."""

    p50: float | None
    p95: float | None
    p99: float | None


class _Counted(Shown):
    completed: int = Field(description="Attempts that completed their job.")
    failed: int = Field(description="Attempts after which their job failed for good.")
    cancelled: int
    retried: int = Field(description="Attempts that failed and are repeated.")
    wait: PercentileLine = Field(description="From when the attempts were due to when they began.")
    run: PercentileLine = Field(description="How long the attempts ran.")


class PointLine(_Counted):
    at: datetime = Field(description="When the point begins.")


class PointList(Shown):
    step_seconds: int = Field(description="How long each point is.", examples=[600])
    items: list[PointLine] = Field(description="Oldest first; there is no point for a time in which nothing ran.")


class KindOverTime(_Counted):
    kind: str = Field(examples=["demo.hello"])


class KindsOverTime(Shown):
    items: list[KindOverTime]


@router.get("")
def show_points(
    db: Reading,
    over: _Over = Over.HOUR,
    kind: Annotated[Name | None, Query(description="Only this kind.", examples=["demo.hello"])] = None,
) -> PointList:
    """Attempts that ran, minute by minute over an hour, in tens of minutes over a day, by the hour over a week."""
    items = [PointLine.model_validate(each) for each in history.points(db, over, kind or "")]
    return PointList(step_seconds=round(STEPS[over].total_seconds()), items=items)


@router.get("/kinds")
def show_kinds(db: Reading, over: _Over = Over.HOUR) -> KindsOverTime:
    """The attempts that ran, summed up for each kind."""
    return KindsOverTime(items=[KindOverTime.model_validate(each) for each in history.kinds(db, over)])

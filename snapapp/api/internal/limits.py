"""/internal/limits: how many jobs may run at once, how many may start a second, and how full that is."""

from fastapi import APIRouter
from pydantic import Field

from snapapp.api.http.deps import Reading
from snapapp.api.http.schema import Shown
from snapapp.jobs.rows import limits

router = APIRouter(prefix="/internal/limits", tags=["queues"])


class LimitLine(Shown):
    """A limit, and what runs under it."""

    key_pattern: str = Field(description="Of which queues, kinds or keys.", examples=["key:camera:*"])
    max_running: int | None = Field(description="So many at once.", examples=[3])
    rate: float | None = Field(description="So many starts a second.")
    burst: int | None = Field(description="So many starts at once after a rest.")
    running: int
    keys_running: int = Field(description="Each key that fits the pattern has the limit for itself.")
    keys_full: int = Field(description="How many of these run as many as they may.")


class LimitList(Shown):
    items: list[LimitLine]


@router.get("")
def list_limits(db: Reading) -> LimitList:
    """All limits, by what they limit."""
    return LimitList(items=[LimitLine.model_validate(each) for each in limits.limits(db)])

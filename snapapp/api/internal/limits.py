"""/internal/limits: how many jobs may run at once, how many may start a second, and how much of that is used."""

from pydantic import Field

from snapapp.api.http.deps import Reading
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Shown
from snapapp.jobs.rows import limits

router = InternalRouter(prefix="/internal/limits", tags=["queues"])


class LimitLine(Shown):
    """A limit, and the jobs that run under it."""

    key_pattern: str = Field(description="The queues, kinds or keys that are limited.", examples=["key:camera:*"])
    max_running: int | None = Field(description="How many may run at once.", examples=[3])
    rate: float | None = Field(description="How many may start a second.")
    burst: int | None = Field(description="How many may start at once after a pause.")
    running: int
    keys_running: int = Field(
        description="How many keys run jobs; the limit applies to each key that fits the pattern."
    )
    keys_full: int = Field(description="How many of these keys have reached the limit.")


class LimitList(Shown):
    items: list[LimitLine]


@router.get("")
def list_limits(db: Reading) -> LimitList:
    """All limits, by what they limit."""
    return LimitList(items=[LimitLine.model_validate(each) for each in limits.limits(db)])

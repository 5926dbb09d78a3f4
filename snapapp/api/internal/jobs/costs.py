"""/internal/costs: waiting time, duration, processor time and memory of attempts, by kind."""

from datetime import datetime

from pydantic import Field

from snapapp.api.http.deps import Reading
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Shown
from snapapp.jobs.rows import costs

router = InternalRouter(prefix="/internal/costs", tags=["jobs"])


class KindCostLine(Shown):
    """The costs of a kind, from its newest 1,000 recorded rows. Null: never measured."""

    kind: str = Field(examples=["demo.crunch"])
    attempts: int = Field(description="How many attempts the rows stand for.")
    measured: int = Field(description="How many rows there are.")
    since: datetime = Field(description="When the oldest of them began.")
    wait_p50_ms: float | None
    wait_p95_ms: float | None
    wait_p99_ms: float | None
    wall_p50_ms: float
    wall_p95_ms: float
    wall_p99_ms: float
    cpu_p50_ms: float | None = Field(description="Processor time.")
    cpu_p95_ms: float | None
    cpu_p99_ms: float | None
    peak_p50_mb: float | None = Field(description="The most memory, where an attempt has a process of its own.")
    peak_p95_mb: float | None
    peak_p99_mb: float | None


class KindCostList(Shown):
    items: list[KindCostLine]


@router.get("")
def list_costs(db: Reading) -> KindCostList:
    """The costs of each kind, in percentiles."""
    return KindCostList(items=[KindCostLine.model_validate(each) for each in costs.of_kinds(db)])

"""/internal/kinds: the kinds of jobs that this process can run, and their payloads."""

from typing import Any

from pydantic import Field

from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Shown
from snapapp.jobs import registry
from snapapp.jobs.process import kinds

router = InternalRouter(prefix="/internal/kinds", tags=["jobs"])


class KindLine(Shown):
    """A kind of job that this process has declared."""

    kind: str = Field(examples=["mail.send"])
    queue: str = Field(description="The queue of its jobs, unless another is given.", examples=["default"])
    executor: str = Field(description="thread, async, process or command.", examples=["thread"])
    max_attempts: int | None = Field(description="null: the worker's default.")
    timeout_ms: int | None = Field(description="Time limit of an attempt; null: the worker's default.")
    about: str | None = Field(description="The first line of its function's docstring.")
    payload: dict[str, Any] | None = Field(description="The JSON schema of its payload; null: any object.")


class KindList(Shown):
    items: list[KindLine]


@router.get("")
def list_kinds() -> KindList:
    """Every kind that this process has declared, by name."""
    return KindList(items=[KindLine.model_validate(one) for one in kinds.summaries(registry.default)])

"""/internal/kinds: what this process can run, and what it takes."""

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from snapapp.api.http.schema import Shown
from snapapp.jobs import registry
from snapapp.jobs.process import kinds

router = APIRouter(prefix="/internal/kinds", tags=["jobs"])


class KindLine(Shown):
    """A kind of job, as this process has it declared."""

    kind: str = Field(examples=["mail.send"])
    queue: str = Field(description="Where its jobs wait, unless something else is said.", examples=["default"])
    executor: str = Field(description="thread, async, process or command.", examples=["thread"])
    max_attempts: int | None = Field(description="null: the worker's default.")
    timeout_ms: int | None = Field(description="Likewise.")
    about: str | None = Field(description="The first line of what its function says of itself.")
    payload: dict[str, Any] | None = Field(description="The JSON schema of its payload; null: any object.")


class KindList(Shown):
    items: list[KindLine]


@router.get("")
def list_kinds() -> KindList:
    """Every kind that was declared here, in the order of their names."""
    return KindList(items=[KindLine.model_validate(one) for one in kinds.known(registry.default)])

"""What a process knows of its kinds, for people: `snapapp kinds` and /internal/kinds."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from snapapp.jobs import payloads
from snapapp.jobs.model import describe
from snapapp.jobs.registry import Registry


@dataclass(frozen=True, slots=True)
class KindSummary:
    kind: str
    queue: str
    executor: str
    max_attempts: int | None  # None: the worker's default, as for the timeout
    timeout_ms: int | None
    about: str | None  # the first line of what its function says of itself
    payload: dict[str, Any] | None  # a JSON schema; None: any object


def known(registry: Registry) -> list[KindSummary]:
    return [
        KindSummary(
            kind=one.kind,
            queue=one.queue,
            executor=one.executor,
            max_attempts=one.max_attempts,
            timeout_ms=None if one.timeout is None else int(one.timeout.total_seconds() * 1000),
            about=(inspect.getdoc(one.function) or "").partition("\n")[0] or None,
            payload=_schema(one.function),
        )
        for one in sorted(registry, key=lambda one: one.kind)
    ]


def _schema(function: Callable[..., Any]) -> dict[str, Any] | None:
    """One type that cannot be read must not hide the other kinds."""
    try:
        return payloads.schema(payloads.wanted_by(function))
    except Exception as error:  # noqa: BLE001 - a name that is not there, or whatever pydantic says of a type
        return {"description": f"its type cannot be read: {describe(error)}"}

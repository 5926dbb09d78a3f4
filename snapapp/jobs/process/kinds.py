"""The kinds of jobs that this process knows, for `snapapp kinds` and /internal/kinds."""

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
    about: str | None  # the first line of its function's docstring
    payload: dict[str, Any] | None  # a JSON schema; None: any object


def summaries(registry: Registry) -> list[KindSummary]:
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
    """The JSON schema of a kind's payload. A type that cannot be read must not hide the other kinds, so it gives a
    schema that says so."""
    try:
        return payloads.schema(payloads.wanted_by(function))
    except Exception as error:  # noqa: BLE001 - an unknown name, or any error of pydantic
        return {"description": f"its type cannot be read: {describe(error)}"}

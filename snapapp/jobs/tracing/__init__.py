"""Distributed tracing: which trace the running code belongs to, and the tracer that records spans. Without a tracer
nothing here has an effect.

The row of a job keeps the `traceparent` (W3C Trace Context) of the place where it was enqueued. So all its attempts, in
any process, belong to the trace of the request that enqueued it. `spans` records with OpenTelemetry, an extra.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from snapapp.jobs.tracing.spans import RecordedSpan, Spans

Facts = Mapping[str, str | int | float | bool]

# The traceparent of the running code. Set around each span, and in a child process, which records no spans itself.
current: ContextVar[str | None] = ContextVar("traceparent", default=None)


class NoSpan:
    """A span that is not recorded."""

    def name(self, name: str) -> None: ...
    def tell(self, facts: Facts) -> None: ...
    def fail(self, why: str) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


tracer: "Spans | None" = None  # of this process; set once, before its first worker or request
_NO_SPAN = NoSpan()
_TRACEPARENT = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def span(
    what: str, name: str, facts: Facts | None = None, *, under: str | None = None
) -> "AbstractContextManager[RecordedSpan | NoSpan]":
    """Begins a span; `what` is enqueue, hook, request or send. Its parent is `under`, else the running code's span."""
    return _NO_SPAN if tracer is None else tracer.span(what, name, facts or {}, under)


@contextmanager
def at(traceparent: str | None) -> Iterator[None]:
    """Within this block, what is logged or enqueued belongs to this place of a trace."""
    token = current.set(traceparent)
    try:
        yield
    finally:
        current.reset(token)


def header() -> dict[str, str]:
    """The traceparent of the running code, by its name; empty outside a trace."""
    place = current.get()
    return {"traceparent": place} if place else {}


def ids(traceparent: str | None) -> tuple[str, str] | None:
    """The ids of the trace and the span; None if the text is no traceparent, for a row may hold any text."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    return (match[1], match[2]) if match else None


def stop() -> None:
    global tracer
    stopped, tracer = tracer, None
    if stopped:
        stopped.stop()

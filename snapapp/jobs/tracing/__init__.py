"""Which trace the work belongs to, and who draws it. Without a tracer nothing here does anything.

The row of a job keeps where in its trace it was enqueued, as W3C Trace Context writes it (`traceparent`): so its
attempts, in whatever process and however often, belong to the trace of the request that wanted them. `spans` draws with
OpenTelemetry, an extra.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from snapapp.jobs.model import Finished, Job, Status

Facts = Mapping[str, str | int | float | bool]

# Where in its trace the running code is. Set around each span, and in a child process, which draws none itself.
current: ContextVar[str | None] = ContextVar("traceparent", default=None)


class Span(Protocol):
    """Some work, from its begin to its end."""

    def name(self, name: str) -> None:
        """Where the right one is known only later."""
        ...

    def tell(self, facts: Facts) -> None: ...

    def fail(self, why: str) -> None: ...


class Tracer(Protocol):
    """It never raises and never waits: what becomes of a trace is no matter of the jobs."""

    def span(self, what: str, name: str, facts: Facts, under: str | None) -> AbstractContextManager[Span]: ...

    def begins(self, job: "Job", worker: str) -> None:
        """Puts the attempt's own place into `job.traceparent`, for whatever the attempt starts."""
        ...

    def rests(self) -> None:
        """The slot that it began on has nothing to do."""
        ...

    def ended(self, finished: "Finished", status: "Status | None") -> None:
        """As it was written down; None: the lease was lost."""
        ...

    def stop(self) -> None:
        """Sends what is left, if that is quickly done."""
        ...


class _Nothing:
    def name(self, name: str) -> None: ...
    def tell(self, facts: Facts) -> None: ...
    def fail(self, why: str) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


tracer: Tracer | None = None  # of this process; written once, before its first worker or request
_NOTHING = _Nothing()
_TRACEPARENT = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def span(what: str, name: str, facts: Facts | None = None, *, under: str | None = None) -> AbstractContextManager[Span]:
    """`what` is enqueue, hook, request or send. Below the place `under`, else below what runs here."""
    return _NOTHING if tracer is None else tracer.span(what, name, facts or {}, under)


@contextmanager
def at(traceparent: str | None) -> Iterator[None]:
    """What is logged or enqueued meanwhile belongs there."""
    token = current.set(traceparent)
    try:
        yield
    finally:
        current.reset(token)


def ids(traceparent: str | None) -> tuple[str, str] | None:
    """Of the trace and of the span. A row may hold anything."""
    found = _TRACEPARENT.fullmatch(traceparent or "")
    return (found[1], found[2]) if found else None


def stop() -> None:
    global tracer
    its, tracer = tracer, None
    if its:
        its.stop()

"""Records spans with OpenTelemetry and sends them to a collector as OTLP over HTTP. The standard variables OTEL_…
configure it."""

import logging
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from time import monotonic, time_ns
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from snapapp.jobs import tracing
from snapapp.jobs.model import Buried, Finished, Job, Lease, Retried, Status, describe

_log = logging.getLogger(__name__)

_LAST_SEND = 3.0  # seconds that a process waits at its end for the collector
_KINDS = {"request": SpanKind.SERVER, "enqueue": SpanKind.PRODUCER, "send": SpanKind.CLIENT}
_FORMAT = TraceContextTextMapPropagator()


def start(*, version: str) -> None:
    """Records spans in this process from now on."""
    provider = TracerProvider(resource=_resource(version), shutdown_on_exit=False)
    exporter = _Exporter(OTLPSpanExporter())
    provider.add_span_processor(BatchSpanProcessor(exporter))  # type: ignore[arg-type, unused-ignore]
    trace.set_tracer_provider(provider)  # so that spans of a processor's own libraries become children of its attempt
    for name in ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # _Exporter logs the first failure
    tracing.tracer = Spans(provider)


def _resource(version: str) -> Resource:
    """Our attributes; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over them."""
    defaults = {"service.name": "snapapp", "service.version": version, "host.name": platform.node() or "localhost"}
    configured = Resource.create()
    attributes = configured.attributes.items()
    known = {name: value for name, value in attributes if not str(value).startswith("unknown_service")}
    return Resource({**defaults, "process.pid": os.getpid(), **known}, configured.schema_url)


class _Exporter:
    """Logs once that the collector takes no spans, and once that it takes them again."""

    def __init__(self, exporter: OTLPSpanExporter) -> None:
        self._exporter = exporter
        self._failed_since: float | None = None  # written by the exporting thread, as is the next one
        self._lost = 0

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            if self._failed_since is None:
                self._failed_since = monotonic()
                _log.warning("Traces do not arrive at %s: jobs go on, spans are dropped.", self._exporter._endpoint)
            self._lost += len(spans)
        elif self._failed_since is not None:
            seconds = monotonic() - self._failed_since
            _log.info("Traces arrive again, after %.0f s; %d spans were dropped.", seconds, self._lost)
            self._failed_since, self._lost = None, 0
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call, unused-ignore]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))


class Spans:
    """The tracer of this process. It never raises and never blocks, so that tracing cannot disturb a job."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("snapapp")
        self._attempts: dict[Lease, trace.Span] = {}  # slots add them, settling threads remove them

    @contextmanager
    def span(self, what: str, name: str, facts: tracing.Facts, under: str | None) -> Iterator["RecordedSpan"]:
        above = _place(under) if under else None
        kind = _KINDS.get(what, SpanKind.INTERNAL)
        span = self._tracer.start_span(f"{what} {name}", above, kind, attributes=dict(facts))
        token = attach(trace.set_span_in_context(span))
        try:
            with tracing.at(_traceparent_of(span)):
                yield RecordedSpan(span)
        except BaseException as error:
            span.record_exception(error)
            span.set_status(StatusCode.ERROR, describe(error))
            raise
        finally:
            detach(token)
            span.end()

    def begins(self, job: Job, worker: str) -> None:
        """Begins the attempt's span and puts its place into `job.traceparent`, for spans below it."""
        now = time_ns()
        since = now - int((monotonic() - job.claimed_at) * 1e9) if job.claimed_at else now
        facts: dict[str, str | int] = {
            "snapapp.job.id": job.id,
            "snapapp.job.kind": job.kind,
            "snapapp.job.queue": job.queue,
            "snapapp.job.attempt": job.attempt,
            "snapapp.job.max_attempts": job.max_attempts,
            "snapapp.worker.id": worker,
        }
        claim = self._tracer.start_span(
            f"claim {job.kind}", _place(job.traceparent), SpanKind.CONSUMER, attributes=facts, start_time=since
        )
        claim.end(now)
        below = trace.set_span_in_context(claim)
        attempt = self._tracer.start_span(f"attempt {job.kind}", below, attributes=facts, start_time=now)
        self._attempts[job.lease] = attempt
        job.traceparent = _traceparent_of(attempt)
        attach(trace.set_span_in_context(attempt))  # until `rests`
        tracing.current.set(job.traceparent)

    def rests(self) -> None:
        """Called on the slot after an attempt: the slot belongs to no trace now."""
        attach(Context())  # an empty context, not detach: the attempt may end in another context than it began in
        tracing.current.set(None)

    def ended(self, finished: Finished, status: Status | None) -> None:
        """Ends the attempt's span with the status that was settled; None: its lease was lost."""
        attempt = self._attempts.pop(finished.job.lease, None)
        if attempt is None:  # the attempt never started
            return
        attempt.set_attribute("snapapp.job.status", status.value if status else "LEASE_LOST")
        match finished.outcome:
            case Retried(failure) | Buried(failure):
                attempt.add_event(
                    "exception", {"exception.message": failure.error, "exception.stacktrace": failure.trace}
                )
                attempt.set_status(StatusCode.ERROR, failure.error)
        if status is None:
            attempt.set_status(StatusCode.ERROR, "somebody else has the job")
        attempt.end()

    def stop(self) -> None:
        """Sends the remaining spans on a thread, so that a collector that hangs cannot delay the stop."""
        last = Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        last.start()
        last.join(_LAST_SEND)


class RecordedSpan:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def name(self, name: str) -> None:
        """Replaces the name, for work whose right name is known only later."""
        self._span.update_name(name)

    def tell(self, facts: tracing.Facts) -> None:
        self._span.set_attributes(dict(facts))

    def fail(self, why: str) -> None:
        self._span.set_status(StatusCode.ERROR, why)


def _place(traceparent: str | None) -> Context:
    """The context of a traceparent; an invalid one, from a request or a row, counts as none."""
    return _FORMAT.extract({"traceparent": traceparent} if traceparent else {}, Context())


def _traceparent_of(span: trace.Span) -> str | None:
    carrier: dict[str, str] = {}
    _FORMAT.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent")

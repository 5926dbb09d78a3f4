"""Traces, taken by a real collector from real processes."""

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest

from tests.factory import Db, scalar
from tests.media import material
from tests.running import Running, Served
from tests.sources.server import Film, Listener, Server, Visit, serving
from tests.test_flow import MOMENT

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from snapapp.jobs import tracing
from snapapp.jobs.registry import Registry
from snapapp.jobs.tracing import spans
from tests.jobs.executors.test_executors import put
from tests.jobs.tracing.sink import Sink, Span
from tests.jobs.working import until, until_status, working

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    sink = Sink(tmp_path)
    yield sink
    sink.process.kill()
    sink.end()


def settings(url: str, folder: Path, **others: str) -> dict[str, str]:
    own = {"DATABASE_URL": url, "DATA_DIR": str(folder), "RETRY_BASE_MS": "100", "RETRY_MAX_MS": "200", "DEMO": "false"}
    return {f"SNAPAPP_{name}": value for name, value in own.items()} | others


def with_kinds(url: str, folder: Path, **others: str) -> dict[str, str]:
    named = {"SNAPAPP_PROCESSORS": "tests.jobs.kinds.traced", "SNAPAPP_PRODUCT": "false"}
    return settings(url, folder, **named) | others


def enqueued(db: Db, kind: str, traceparent: str | None = TRACEPARENT) -> int:
    return int(scalar(db, "SELECT enqueue_job(%s, traceparent => %s)", kind, traceparent))


def until_over(db: Db, count: int) -> None:
    finished = "SELECT count(*) FROM snap_processing_job WHERE status = 'COMPLETED'"
    until(lambda: scalar(db, finished) == count, within=60)


def test_one_trace_goes_from_the_request_to_the_webhook_through_two_processes(
    url: str, tmp_path: Path, sink: Sink
) -> None:
    heard: list[str | None] = []
    states: list[str | None] = []

    def receiver(visit: Visit) -> None:
        heard.append(visit.headers.get("traceparent"))
        states.append(visit.headers.get("tracestate"))
        visit.say(503 if len(heard) == 1 else 200)

    with serving(Server()) as others:
        film = material.make(material.GOOD["irregular"], tmp_path / "brete.mp4").read_bytes()
        others.acts |= {"/brete.mp4": Film(film), "/hook": receiver}
        allowed = {"SNAPAPP_FETCH_ALLOWED_HOSTS": f"127.0.0.1:{others.port}"}
        its = settings(url, tmp_path, **sink.settings, **allowed)
        web = Served(tmp_path, **its, SNAPAPP_WORKER_ENABLED="false").until_up()
        worker = Running(tmp_path, "worker", **its)
        hook = {"url": others.url("/hook"), "events": ["snap.completed"]}
        assert web.ask("/v2/webhooks", "POST", hook).status == 201
        moment = {**MOMENT, "videoUrl": others.url("/brete.mp4")}
        caller = {"traceparent": TRACEPARENT, "tracestate": "vendor=of-the-caller"}
        assert web.ask("/v2/snaps", "POST", moment, **caller).status == 202
        until(lambda: len(heard) == 2, within=90)
        for process in (worker, web):
            process.process.terminate()
            assert process.end() == 0

    spans = [span for span in sink.spans() if span.trace == TRACE]
    assert all(span.is_in_order for span in spans)
    assert chain(spans, of_name(spans, "hook snap.process")) == [
        "POST /v2/snaps",
        "enqueue snap.process",
        "claim snap.process",
        "attempt snap.process",
        "hook snap.process",
    ]
    sent = of_name(spans, "send snap.completed")
    for post in sent:
        assert chain(spans, [post]) == [
            *chain(spans, of_name(spans, "hook snap.process")),
            "enqueue snap.webhook",
            "claim snap.webhook",
            "attempt snap.webhook",
            "send snap.completed",
        ]
    assert heard == [f"00-{TRACE}-{span.id}-01" for span in sent]
    assert states == [None, None]  # a stranger reads nothing of what the caller's vendor wrote
    attempts = of_name(spans, "attempt snap.webhook")
    assert [span.facts["snapapp.job.attempt"] for span in attempts] == [1, 2]
    assert [span.facts["snapapp.job.status"] for span in attempts] == ["RETRY_WAIT", "COMPLETED"]
    assert ["503" in span.failure for span in attempts] == [True, False]
    [request] = of_name(spans, "POST /v2/snaps")
    assert (request.parent, request.facts["http.response.status_code"]) == (CALLER, 202)
    assert request.service["process.pid"] == web.process.pid != worker.process.pid
    assert {span.service["process.pid"] for span in attempts} == {worker.process.pid}
    assert {span.service["service.name"] for span in spans} == {"snapapp"}
    [line] = [line for line in worker.said().splitlines() if "job.retried" in line]
    assert f'traceId="{TRACE}" spanId="{attempts[0].id}"' in line


def of_name(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def chain(spans: list[Span], those: list[Span]) -> list[str]:
    """The names above a span, from the request on."""
    [span] = those
    above = [one for one in spans if one.id == span.parent]
    return [*(chain(spans, above) if above else []), span.name]


# a supervisor's worker is the same, and has one process more between it and the request
@pytest.mark.at_length  # one trace goes through two processes above, in every run
@pytest.mark.parametrize("command", [pytest.param(("worker",), marks=pytest.mark.at_length), ("supervisor",)])
def test_an_attempt_knows_its_place_wherever_it_runs(
    command: tuple[str, ...], url: str, db: Db, tmp_path: Path, sink: Sink
) -> None:
    kinds = ("mail.send", "mail.wait", "mail.render", "mail.print", "mail.bounce")
    for kind in kinds:
        enqueued(db, kind)
    at_its_end = sink.settings | {"OTEL_BSP_SCHEDULE_DELAY": "600000"}  # spans wait for that
    worker = Running(tmp_path, *command, **with_kinds(url, tmp_path, **at_its_end))
    until_over(db, len(kinds))
    worker.process.terminate()
    assert worker.end() == 0

    spans = {(span.name, span.facts.get("snapapp.job.attempt")): span for span in sink.spans()}
    for kind in kinds:
        assert spans[f"claim {kind}", 1].parent == CALLER
        assert spans[f"attempt {kind}", 1].parent == spans[f"claim {kind}", 1].id
    results: dict[str, str] = dict(
        db.execute("SELECT kind, result->>'traceparent' FROM snap_processing_job").fetchall()
    )
    for kind in kinds[:4]:
        assert results[kind] == f"00-{TRACE}-{spans[f'attempt {kind}', 1].id}-01"
    assert spans["hook mail.wait", None].parent == spans["attempt mail.wait", 1].id  # on another thread
    assert spans["attempt mail.bounce", 2].trace == TRACE
    assert "nobody lives there" in spans["attempt mail.bounce", 1].failure


GARBAGE = [
    "",
    "-",
    "00-0-0-01",
    f"00-{'0' * 32}-{CALLER}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"ff-{TRACE}-{CALLER}-01",
    "é'\"<",
]


def test_a_traceparent_that_is_none_begins_a_new_trace(url: str, db: Db, tmp_path: Path, sink: Sink) -> None:
    for garbage in GARBAGE:
        enqueued(db, "mail.send", garbage)
    worker = Running(tmp_path, "worker", "--drain", **with_kinds(url, tmp_path, **sink.settings))
    assert worker.end() == 0, worker.said()
    claims, attempts = ([span for span in sink.spans() if span.name == f"{what} mail.send"] for what in WHAT)
    assert [claim.parent for claim in claims] == [""] * len(GARBAGE)
    assert {(each.parent, each.trace) for each in attempts} == {(each.id, each.trace) for each in claims}
    assert len({claim.trace for claim in claims} - {TRACE, "0" * 32}) == len(GARBAGE)


WHAT = ("claim", "attempt")


def test_a_request_with_garbage_begins_a_new_trace_and_what_asks_for_health_begins_none(
    url: str, tmp_path: Path, sink: Sink
) -> None:
    web = Served(tmp_path, **settings(url, tmp_path, **sink.settings, SNAPAPP_WORKER_ENABLED="false")).until_up()
    for garbage in ("00-ü", "x" * 5000, TRACEPARENT.upper(), f"{TRACEPARENT}-more"):
        assert web.ask("/v2/snaps/search?subjectId=x", traceparent=garbage).status == 200
    web.ask("/actuator/health", traceparent=TRACEPARENT)
    web.process.terminate()
    assert web.end() == 0
    spans = sink.spans()
    assert [(span.name, span.parent) for span in spans] == [("GET /v2/snaps/search", "")] * 4
    assert len({span.trace for span in spans}) == 4


AT_LENGTH = pytest.mark.at_length  # they differ in what a connection says; the one that says nothing is the worst


@pytest.mark.at_length  # a collector that goes and comes is told of in every run
@pytest.mark.parametrize("collector", ["hangs", *(pytest.param(ill, marks=AT_LENGTH) for ill in ("away", "refuses"))])
def test_no_job_waits_for_a_collector_that_is_ill(collector: str, url: str, db: Db, tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        free = taken.getsockname()[1]
    db.execute(
        'SELECT enqueue_jobs((SELECT jsonb_agg(\'{"kind": "mail.send"}\'::jsonb) FROM generate_series(1, 5000)))'
    )
    with Listener() as silent, serving(Server()) as refusing:
        refusing.acts["/v1/traces"] = lambda visit: visit.say(503)
        port = {"away": free, "hangs": silent.port, "refuses": refusing.port}[collector]
        ill = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_BSP_SCHEDULE_DELAY": "50"}
        ill |= {"OTEL_EXPORTER_OTLP_TIMEOUT": "2"}  # seconds; by default it gives up after ten
        worker = Running(tmp_path, "worker", **with_kinds(url, tmp_path, **ill))
        until_over(db, 5000)
        worker.hear("Traces do not arrive at")
        began = monotonic()
        worker.process.terminate()
        assert worker.end() == 0
    assert monotonic() - began < 30  # the SDK's own patience alone, on top of the worker's
    assert "Traceback" not in worker.said()


def test_a_collector_that_goes_and_comes_is_told_of_twice(url: str, db: Db, tmp_path: Path) -> None:
    answers = [503]
    with serving(Server()) as collector:
        collector.acts["/v1/traces"] = lambda visit: visit.say(answers[-1])
        place = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url(""), "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
        its = with_kinds(url, tmp_path, **place, OTEL_BSP_SCHEDULE_DELAY="50", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="1")
        worker = Running(tmp_path, "worker", **its)
        for _ in range(5):
            enqueued(db, "mail.send")
        until_over(db, 5)
        until(lambda: len(collector.requests) >= 6, within=60)  # ten batches, each tried twice at most
        answers.append(200)
        worker.hear("Traces arrive again")
        worker.process.terminate()
        assert worker.end() == 0
    assert worker.said().count("Traces do not arrive at") == worker.said().count("Traces arrive again") == 1


def test_a_slot_that_rests_belongs_to_no_trace(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch, registry: Registry
) -> None:
    places: list[tuple[str | None, bool]] = []

    def look(_: object) -> None:
        places.append((tracing.current.get(), trace.get_current_span().get_span_context().is_valid))

    monkeypatch.setattr(tracing, "tracer", spans.Spans(TracerProvider()))
    monkeypatch.setattr(
        "snapapp.jobs.worker.capacity.web_priority.WebPriority.give_way", look
    )  # the first that a slot does
    registry.processor("quick")(lambda _job: None)
    with working(url, registry, concurrency=1):
        for _ in range(3):
            until_status(db, put(db, "quick"), "COMPLETED")
    assert {*places} == {(None, False)}


def test_nothing_of_it_is_there_when_nobody_wants_it(url: str, db: Db, tmp_path: Path) -> None:
    """A row that came with a trace is worked all the same."""
    enqueued(db, "mail.send")
    for garbage in ("x" * 55, ""):
        enqueued(db, "mail.bounce", garbage)
    off = {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "nonsense"}
    worker = Running(tmp_path, "worker", **with_kinds(url, tmp_path, **off))
    until_over(db, 3)
    loaded = Path(f"/proc/{worker.process.pid}/maps").read_text()
    worker.process.terminate()
    assert worker.end() == 0
    assert "Traceback" not in worker.said()
    assert not re.search(r"opentelemetry|google/_upb", loaded)


WRONG = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://ana:s3cret@collector:4318",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "abc",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "-1",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "soon",
    "OTEL_EXPORTER_OTLP_HEADERS": "Bearer s3cret",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "zip",
    "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere/ca.pem",
    "OTEL_TRACES_EXPORTER": "jaeger",
    "OTEL_TRACES_SAMPLER": "sometimes",
    "OTEL_RESOURCE_ATTRIBUTES": "just words",
    "OTEL_BSP_MAX_QUEUE_SIZE": "0",
    "OTEL_SDK_DISABLED": "perhaps",
}


def test_each_wrong_variable_stops_the_start_and_is_named(url: str, tmp_path: Path) -> None:
    worker = Running(tmp_path, "worker", "--once", **with_kinds(url, tmp_path, **WRONG))
    assert worker.end() != 0
    for name in WRONG:
        assert f"- {name}" in worker.said()
    assert "s3cret" not in worker.said()
    assert "Traceback" not in worker.said()


def test_a_limit_that_only_the_file_sets_is_kept(url: str, db: Db, tmp_path: Path, sink: Sink) -> None:
    file = tmp_path / "snapapp.env"
    file.write_text("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=2\n")
    enqueued(db, "mail.send")
    its = with_kinds(url, tmp_path, SNAPAPP_ENV_FILE=str(file), **sink.settings)
    worker = Running(tmp_path, "worker", "--once", **its)
    assert worker.end() == 0, worker.said()
    [attempt] = [span for span in sink.spans() if span.name.startswith("attempt ")]
    assert len(attempt.facts) == 2


def test_a_batch_that_is_larger_than_its_queue_and_a_ratio_that_is_none_are_named(url: str, tmp_path: Path) -> None:
    wrong = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_MAX_QUEUE_SIZE": "100"}
    ratio = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"}
    worker = Running(tmp_path, "worker", "--once", **with_kinds(url, tmp_path, **wrong, **ratio))
    assert worker.end() != 0
    for name in ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_TRACES_SAMPLER_ARG"):
        assert f"- {name}" in worker.said()

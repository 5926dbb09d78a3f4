"""A collector: takes spans as OTLP over HTTP, and writes each as a line of JSON. `python -m tests.jobs.tracing.sink
FILE`; it says where it listens."""

import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.jobs.working import until
from tests.running import Running


class Span(NamedTuple):
    name: str
    trace: str
    id: str
    parent: str
    facts: dict[str, Any]
    service: dict[str, Any]
    failure: str  # empty: it went well
    is_in_order: bool  # it does not end before it begins


class Sink(Running):
    module = ("tests.jobs.tracing.sink",)

    def __init__(self, folder: Path) -> None:
        self._file = folder / "spans"
        self._file.touch()
        super().__init__(folder, str(self._file))

    @property
    def settings(self) -> dict[str, str]:
        self.hear(".")
        port = self.said().strip().removeprefix("listening on ").removesuffix(".")
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def spans(self) -> list[Span]:
        lines = self._file.read_text().splitlines(keepends=True)
        return [Span(*json.loads(line)) for line in lines if line.endswith("\n")]

    def named(self, *names: str) -> list[Span]:
        """As soon as they are all there."""
        until(lambda: {span.name for span in self.spans()} >= set(names), within=60)
        return [span for span in self.spans() if span.name in names]


class _Taken(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        with Path(sys.argv[1]).open("a") as file:
            file.writelines(_lines(ExportTraceServiceRequest.FromString(body)))
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def _lines(request: Any) -> list[str]:
    return [
        json.dumps(
            Span(
                span.name,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                _facts(span.attributes),
                _facts(of_process.resource.attributes),
                span.status.message if span.status.code == 2 else "",
                span.start_time_unix_nano <= span.end_time_unix_nano,
            )
        )
        + "\n"
        for of_process in request.resource_spans
        for scope in of_process.scope_spans
        for span in scope.spans
    ]


def _facts(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), _Taken) as server:
        print(f"listening on {server.server_address[1]}.", flush=True)
        server.serve_forever()

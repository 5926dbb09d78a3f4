"""What traces cost: one job enqueues no-ops, one call each, and its worker then runs them; with traces and without,
in turns. Prints jobs a second and processor time a job, and of each round the ratio. The collector of this lab takes
what it is sent and looks into it only afterwards. `python -m tests.labs traces [--jobs N] [--rounds N]`."""

import argparse
import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

from snapapp import postgres
from snapapp.jobs import Job, processor
from snapapp.jobs.adding import enqueue
from snapapp.postgres.migrate import migrate
from tests.jobs.working import until
from tests.labs.console.stage import Db, asked, connected, worker_process

_PACE = """
SELECT its.jobs / extract(epoch FROM fan.finished_at - fan.started_at),
       its.jobs / extract(epoch FROM its.ended - greatest(fan.finished_at, its.began))
  FROM snap_processing_job AS fan, (SELECT count(*) AS jobs, min(started_at) AS began, max(finished_at) AS ended
                                      FROM snap_processing_job WHERE kind = 'lab.noop') AS its
 WHERE fan.kind = 'lab.fan'
"""
# It is asked again and again, so it must cost nothing.
_IS_OVER = """
SELECT EXISTS (SELECT FROM snap_processing_job WHERE id = %s AND status = 'COMPLETED')
   AND NOT EXISTS (SELECT FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT'))
   AND NOT EXISTS (SELECT FROM snap_processing_job WHERE status = 'RUNNING')
"""


@processor("lab.noop")
def noop(_job: Job) -> None: ...


@processor("lab.fan")
def fan(job: Job) -> None:
    with job.connection() as db:
        for _ in range(job.payload["jobs"]):
            enqueue(db, "lab.noop")


@dataclass
class Round:
    enqueued: float  # a second
    run: float  # a second
    cpu: float  # microseconds a job, enqueued and run, of the worker
    spans: int  # that arrived


@dataclass
class Collector:
    port: int
    bodies: list[bytes] = field(default_factory=list)  # written by its threads, one call each

    def spans(self) -> int:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        requests = [ExportTraceServiceRequest.FromString(each) for each in self.bodies]
        return sum(len(scope.spans) for each in requests for its in each.resource_spans for scope in its.scope_spans)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds = run(arguments.jobs, arguments.rounds)
    for what, words in (("enqueued", "a second"), ("run", "a second"), ("cpu", "µs a job")):
        off, on = (median(getattr(its[n], what) for its in rounds) for n in range(2))
        ratios = ", ".join(f"{getattr(traced, what) / getattr(plain, what):.2f}" for plain, traced in rounds)
        print(f"{what:<8} {off:8,.0f} {words} without, {on:8,.0f} with traces; of each round {ratios}")
    print(f"spans that arrived: {', '.join(f'{traced.spans:,}' for _, traced in rounds)}")
    return int(any(plain.spans or not traced.spans for plain, traced in rounds))


def run(jobs: int, rounds: int) -> list[tuple[Round, Round]]:
    """Without and with traces."""
    pairs = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="snapapp-traces-")))
        server = stack.enter_context(postgres.start(folder / "postgres", create=True))
        migrate(server.url)
        db = stack.enter_context(connected(server.url))
        for number in range(rounds):
            turn = [bool(number % 2), not number % 2]  # neither is always the first
            took = {traced: measured(folder, server.url, db, jobs, traced=traced) for traced in turn}
            pairs.append((took[False], took[True]))
    return pairs


def measured(folder: Path, url: str, db: Db, jobs: int, *, traced: bool) -> Round:
    db.execute("TRUNCATE snap_processing_job CASCADE")
    with collecting() as collector:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}"} if traced else {}
        with worker_process(folder, url, SNAPAPP_PROCESSORS="tests.labs.traces", **settings) as worker:
            until(lambda: asked(db, "SELECT count(*) FROM job_worker WHERE expires_at > now()") == 1, within=60)
            before = cpu_of(worker.process.pid)
            first = asked(db, "SELECT enqueue_job('lab.fan', jsonb_build_object('jobs', %s::integer))", jobs)
            until(lambda: asked(db, _IS_OVER, first), within=300)
            took = cpu_of(worker.process.pid) - before
    pace = db.execute(_PACE).fetchone()
    assert pace
    return Round(float(pace[0]), float(pace[1]), took / jobs * 1e6, collector.spans())


def cpu_of(pid: int) -> float:
    """Seconds so far, of all its threads; unlike the pace it hardly depends on what else runs here."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def collecting() -> Iterator[Collector]:
    class Taken(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taken) as server:
        collector = Collector(server.server_port)
        Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()

"""The bench of promise 10: how quick the API stays while the worker in the same process has a backlog without end, and
what the worker still does meanwhile."""

import asyncio
import re
from dataclasses import dataclass
from time import monotonic, perf_counter, sleep
from typing import cast

from snapapp.bench.plan import Plan, Step
from snapapp.bench.report import Measurement, Target, percentile
from snapapp.bench.server import BenchServer, Db, ask, connect, fill, until
from snapapp.bench.web.served import served
from snapapp.jobs.adding import enqueue

RATE = 50  # requests a second, each sent on time even if the previous one was not answered yet
_PROCESSORS = "snapapp.bench.roles.kinds"
_WARM_UP = 5.0  # seconds
_BACKLOG_A_SECOND = 60_000  # jobs: more than one worker can do


@dataclass(frozen=True, slots=True)
class RequestSeries:
    """The results of one series of requests."""

    latencies: list[float]  # ms, from when each was due
    jobs_a_second: float

    @property
    def p99(self) -> float:
        return percentile(self.latencies, 99)


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    idle: list[RequestSeries] = []
    backlog: list[RequestSeries] = []
    crunching: list[RequestSeries] = []
    alone: list[float] = []
    seconds = plan.web_for.total_seconds()
    for run in range(1, plan.runs + 1):
        step(f"web beside a backlog, run {run} of {plan.runs}")
        with server.database() as url, connect(url) as db, served(url, SNAPAPP_PROCESSORS=_PROCESSORS) as port:
            job_id = _hello(db)
            _series(db, port, job_id, _WARM_UP)  # not measured: children start, connections open
            idle.append(_series(db, port, job_id, seconds))
            _fill(db, seconds)
            alone.append(_throughput(db, seconds / 2))
            backlog.append(_series(db, port, job_id, seconds))
            _crunch(db, seconds)
            crunching.append(_series(db, port, job_id, seconds))
    return [
        _latencies("web.backlog", "p99 of GET a job beside an endless backlog", backlog, idle),
        _latencies("web.crunch", "  and beside a child process that needs a whole core", crunching, idle),
        Measurement(
            name="web.throughput",
            what=f"  jobs that the worker still does at {RATE} requests/s",
            unit="jobs/s",
            ours=[stay.jobs_a_second for stay in backlog],
            beside=alone,
            beside_is="without requests",
        ),
    ]


def _latencies(name: str, what: str, series: list[RequestSeries], idle: list[RequestSeries]) -> Measurement:
    return Measurement(
        name=name,
        what=what,
        unit="ms",
        ours=[one.p99 for one in series],
        beside=[one.p99 for one in idle],
        beside_is="p99 when idle",
        target=Target("ratio", "at most", 2),
        more={"samples": [one.latencies for one in series], "beside_samples": [one.latencies for one in idle]},
    )


# --- the queue --------------------------------------------------------------------------------------------------


def _hello(db: Db) -> int:
    """Runs a job, which warms the worker up; returns its id, for the requests."""
    job_id = cast(int, enqueue(db, "demo.hello", {}))
    until(lambda: _status(db, job_id) == "COMPLETED", "the first job", within=30)
    return job_id


def _fill(db: Db, seconds: float) -> None:
    fill(db, int(3 * seconds * _BACKLOG_A_SECOND))
    db.execute("SELECT pg_notify('snapapp_job', 'default')")


def _crunch(db: Db, seconds: float) -> None:
    job_id = cast(int, enqueue(db, "demo.crunch", {"seconds": seconds + 10}))
    until(lambda: _status(db, job_id) == "RUNNING", "the start of a child's job", within=30)


def _status(db: Db, job_id: int) -> str:
    return str(ask(db, "SELECT status FROM snap_processing_job WHERE id = %s", job_id))


def _throughput(db: Db, seconds: float) -> float:
    began, done = monotonic(), _last_done_id(db)
    sleep(seconds)
    return (_last_done_id(db) - done) / (monotonic() - began)


def _last_done_id(db: Db) -> int:
    """The id up to which the jobs are done. The worker takes the jobs of one lane in the order of their ids, so a
    binary search finds it; counting the jobs would disturb the measurement."""
    [(low, high)] = db.execute("SELECT min(id), max(id) FROM snap_processing_job").fetchall()
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _status(db, middle) == "COMPLETED" else (low, middle - 1)
    return int(low)


# --- the requests -----------------------------------------------------------------------------------------------


def _series(db: Db, port: int, job_id: int, seconds: float) -> RequestSeries:
    began, done = monotonic(), _last_done_id(db)
    latencies = asyncio.run(requests(port, f"/internal/jobs/{job_id}", seconds))
    return RequestSeries(latencies, (_last_done_id(db) - done) / (monotonic() - began))


async def requests(port: int, path: str, seconds: float) -> list[float]:
    """Sends the requests in an open loop: each has its time, and a late answer does not delay the next request."""
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    latencies: list[float] = []
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    async def one(due: float) -> None:
        await asyncio.sleep(due - perf_counter())
        reader, writer = free.pop() if free else await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"GET {path} answered {head[:80]!r}")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(length[1]) if length else 0)
        latencies.append((perf_counter() - due) * 1000)
        free.append((reader, writer))

    began = perf_counter() + 0.1
    await asyncio.gather(*(one(began + number / RATE) for number in range(int(seconds * RATE))))
    for _, writer in free:
        writer.close()
    return latencies

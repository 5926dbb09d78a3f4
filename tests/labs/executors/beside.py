"""What a crowd of good and bad jobs costs the people who ask the API meanwhile, and the memory of all processes."""

import asyncio
import random
from collections.abc import Iterator
from statistics import median
from threading import Event, Thread

import psycopg

from snapapp.bench.web import backlog
from snapapp.jobs import enqueue
from tests.jobs.working import until
from tests.labs.executors import lab
from tests.labs.server import lab_server
from tests.labs.stack import Watch
from tests.running import Served

STAY = 10.0  # seconds of requests at a time
QUIET = {"SNAPAPP_DEMO": "false", "SNAPAPP_RETRY_BASE_MS": "100", "SNAPAPP_WORKER_CHILDREN": "3"}


def report(jobs: int, seed: int) -> Iterator[str]:
    with lab_server("beside") as its:
        db = its.db
        settings = {"SNAPAPP_DATABASE_URL": its.url, "SNAPAPP_PROCESSORS": "tests.labs.executors.served", **QUIET}
        with Served(its.folder, **settings).up() as served:
            job_id = enqueue(db, "thread.good")
            until(lambda: lab.unfinished(db) == 0)
            path = f"/internal/jobs/{job_id}"
            stay(served.port, path)  # children start, connections open
            idle = stay(served.port, path)
            with Watch(served) as watch:
                lab.put(db, jobs, random.Random(seed), attempts=2, without={"thread.stuck"})
                beside = stays(served.port, path, db, within=60 + jobs)
        ended = lab.Report()
        lab.judge(db, ended)
    yield f"{ended.good} good and {ended.bad} bad jobs ended as they should, {len(ended.problems)} did not"
    yield from ended.problems[:10]
    each = sorted(map(p99, beside))
    yield f"p99 of a GET: {p99(idle):.1f} ms idle; beside them {median(each):.1f} [{each[0]:.1f}–{each[-1]:.1f}] ms"
    yield f"({len(beside)} times {STAY:g} s; the slowest request {max(map(max, beside)):.0f} ms)"
    yield f"memory of all processes at most {watch.peak}"


def stay(port: int, path: str) -> list[float]:
    return asyncio.run(backlog.requests(port, path, STAY))


def stays(port: int, path: str, db: "psycopg.Connection[tuple[object, ...]]", within: float) -> list[list[float]]:
    """One after the other until all is done."""
    seen: list[list[float]] = []
    over = Event()

    def ask() -> None:
        while not over.is_set():
            seen.append(stay(port, path))

    asker = Thread(target=ask)
    asker.start()
    try:
        until(lambda: lab.unfinished(db) == 0, within=within)
    finally:
        over.set()
        asker.join()
    return seen


def p99(latencies: list[float]) -> float:
    return sorted(latencies)[int(0.99 * len(latencies))]

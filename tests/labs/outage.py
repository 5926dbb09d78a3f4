"""A lab: PostgreSQL goes away in the middle of many running jobs, and the process that serves and works stays.

`python -m tests.labs outage --jobs 1000 --seconds 30` prints what health said meanwhile and what became of the jobs.
"""

import argparse
import asyncio
import signal
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

import psycopg

from snapapp import postgres
from snapapp.jobs import Job, enqueue_many, processor
from snapapp.postgres.migrate import migrate
from tests.jobs.working import put_effect, until
from tests.running import Served


@processor("lab.doze", commit=put_effect)
async def doze(job: Job) -> None:
    await asyncio.sleep(job.payload["seconds"])


@dataclass
class Seen:
    answers: Counter[int] = field(default_factory=Counter)  # of health, by status, while the database was away
    slowest: float = 0.0  # of those answers
    missing: int = 0  # questions without an answer
    alive: Counter[int] = field(default_factory=Counter)  # of liveness
    back_after: float = 0.0  # from the database's return to health's UP
    all_done_after: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)
    effects: int = 0
    distinct: int = 0
    most_attempts: int = 0
    same_process: bool = False


def run(jobs: int, seconds: float) -> Seen:
    seen = Seen()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="snapapp-outage-")))
        server = postgres.start(folder / "postgres", create=True)
        url = server.url
        migrate(url)
        prepare(url, jobs, seconds)
        served = Served(
            folder,
            SNAPAPP_DATABASE_URL=url,
            SNAPAPP_PROCESSORS="tests.labs.outage",
            SNAPAPP_WORKER_ASYNC_CONCURRENCY=str(jobs),
            SNAPAPP_WORKER_BATCH_SIZE="1000",
        )
        stack.callback(served.process.kill)
        served.until_up()
        until(lambda: statuses(url).get("RUNNING") == jobs, within=60)
        server.stop()
        watch(served, seconds, seen)
        stack.enter_context(postgres.start(folder / "postgres", create=False))
        began = monotonic()
        until(lambda: served.ask("/actuator/health").status == 200, within=60)
        seen.back_after = monotonic() - began
        until(lambda: statuses(url).get("COMPLETED") == jobs, within=seconds + 120)
        seen.all_done_after = monotonic() - began
        count(url, seen)
        seen.same_process = served.process.poll() is None
        served.signal(signal.SIGTERM)
        served.end()
    return seen


def prepare(url: str, jobs: int, seconds: float) -> None:
    """They end while the database is away, when it is just back, and later."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE effect (job_id bigint)")
        dozes = [{"kind": "lab.doze", "payload": {"seconds": 5 + (seconds + 5) * n / jobs}} for n in range(jobs)]
        enqueue_many(db, dozes)


def watch(served: Served, seconds: float, seen: Seen) -> None:
    began = monotonic()
    while (asked := monotonic()) < began + seconds:
        try:
            seen.answers[served.ask("/actuator/health").status] += 1
            seen.slowest = max(seen.slowest, monotonic() - asked)
            seen.alive[served.ask("/actuator/liveness").status] += 1
        except OSError:
            seen.missing += 1
        sleep(0.1)


def statuses(url: str) -> dict[str, int]:
    with psycopg.connect(url) as db:
        return dict(db.execute("SELECT status, count(*) FROM snap_processing_job GROUP BY status").fetchall())


def count(url: str, seen: Seen) -> None:
    seen.statuses = statuses(url)
    with psycopg.connect(url) as db:
        found = db.execute("SELECT count(*), count(DISTINCT job_id) FROM effect").fetchall()
        [(seen.effects, seen.distinct)] = found
        [(seen.most_attempts,)] = db.execute("SELECT max(attempt_count) FROM snap_processing_job").fetchall()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args()
    seen = run(arguments.jobs, arguments.seconds)
    print(seen)
    is_well = (
        seen.missing == 0
        and seen.alive.keys() == {200}
        and seen.effects == seen.distinct == arguments.jobs
        and seen.most_attempts == 1
        and seen.same_process
    )
    return 0 if is_well else 1

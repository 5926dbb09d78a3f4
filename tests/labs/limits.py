"""The lab of the limits: `python -m tests.labs limits --seconds 60`. Four worker processes share a key of which three
jobs may run; one of them after the other is killed with SIGKILL. An observer counts what runs as the database sees it,
and a checker counts again from what the rows say in the end.
`--mutant` claims without the lock, and must be noticed."""

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from time import monotonic

from snapapp.jobs.model import Job
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import connect
from tests import ROOT
from tests.conftest import embedded_server
from tests.databases import Postgres
from tests.factory import Db
from tests.jobs.working import QUICK, quick_settings, until

LIMIT = 3
KEY = "camera"
KINDS = ("held.odd", "held.even")  # a worker knows one: those who ask for different jobs of a key meet in its limit
STOCK = 300  # due jobs that always wait
WORKERS = 4
LOOK_EVERY = 0.001  # seconds
# a lease, a sweep, the spread in which suspects come back, a beat that finds them, and a slow machine
STUCK_AFTER = sum(QUICK[part].total_seconds() for part in ("lease_for", "recover_every", "beat_every")) + 2.0 + 1.0


@dataclass
class Report:
    samples: int = 0
    most_running: int = 0
    running_sum: int = 0
    longest_below: float = 0.0  # seconds with fewer than the limit, while more waited
    kills: int = 0
    completed: int = 0
    most_at_once: int = 0  # by started_at and finished_at
    problems: list[str] = field(default_factory=list)


def run(url: str, *, seconds: float, kill_every: float, seed: int = 1, mutant: bool = False) -> Report:
    report, chance = Report(), random.Random(seed)
    with connect(url, name="lab") as db, ExitStack() as stack:
        db.execute("INSERT INTO job_limit VALUES (%s, %s)", [f"key:{KEY}", LIMIT])
        if mutant:
            claims_without_the_lock(db)
        stock_up(db)
        workers = [stack.enter_context(worker_process(url, number)) for number in range(WORKERS)]
        until(lambda: running_and_waiting(db)[0] >= LIMIT, within=30)
        ends_at, kill_at = monotonic() + seconds, monotonic() + kill_every
        full_at = monotonic()
        while monotonic() < ends_at:
            threading.Event().wait(LOOK_EVERY)
            running, waiting = running_and_waiting(db)
            report.samples += 1
            report.running_sum += running
            report.most_running = max(report.most_running, running)
            if running >= LIMIT or not waiting:
                full_at = monotonic()
            report.longest_below = max(report.longest_below, monotonic() - full_at)
            if waiting < STOCK / 2:
                stock_up(db)
            if monotonic() >= kill_at and are_up(db, workers):
                victim = chance.randrange(WORKERS)
                workers[victim].send_signal(signal.SIGKILL)
                workers[victim].wait()
                workers[victim] = stack.enter_context(worker_process(url, victim))
                report.kills += 1
                kill_at = monotonic() + kill_every * chance.uniform(0.5, 1.5)
        check(db, report)
    return report


def running_and_waiting(db: Db) -> tuple[int, int]:
    """In one statement, so in one snapshot."""
    counted = db.execute(
        "SELECT count(*) FILTER (WHERE status = 'RUNNING'),"
        "       count(*) FILTER (WHERE status <> 'RUNNING' AND losses < 2 AND next_retry_at <= now())"
        "  FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT', 'RUNNING')"
    ).fetchone()
    assert counted
    return counted[0], counted[1]


def are_up(db: Db, workers: Sequence[subprocess.Popen[bytes]]) -> bool:
    """A machine that is busy with other things takes seconds to start a process; one at least should be at work."""
    here = db.execute("SELECT count(*) FROM job_worker WHERE pid = ANY (%s)", [[one.pid for one in workers]]).fetchone()
    return here == (len(workers),)


def stock_up(db: Db) -> None:
    db.execute(
        "SELECT enqueue_job((%s::text[])[1 + n %% 2], concurrency_key => %s, max_attempts => 1000)"
        "  FROM generate_series(1, %s) AS its (n)",
        [[*KINDS], KEY, STOCK],
    )


def check(db: Db, report: Report) -> None:
    """The rows' own story: what began and ended when, with the ends before the beginnings of the same moment."""
    ended = "SELECT started_at, finished_at FROM snap_processing_job WHERE status = 'COMPLETED'"
    spans = db.execute(ended).fetchall()
    steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    at_once = 0
    for _, step in steps:
        at_once += step
        report.most_at_once = max(report.most_at_once, at_once)
    report.completed = len(spans)
    if report.most_running > LIMIT:
        report.problems.append(f"{report.most_running} of a key with a limit of {LIMIT} were seen running")
    if report.most_at_once > LIMIT:
        report.problems.append(f"{report.most_at_once} of a key with a limit of {LIMIT} ran at once, by their rows")
    if report.longest_below > STUCK_AFTER:
        report.problems.append(f"fewer than {LIMIT} ran for {report.longest_below:.1f} s while others waited")
    if not report.completed:
        report.problems.append("nothing was completed")


# --- the workers ------------------------------------------------------------------------------------------------


def claims_without_the_lock(db: Db) -> None:
    [(function,)] = db.execute("SELECT pg_get_functiondef('job_let_in'::regproc)").fetchall()
    lock = "NOT pg_try_advisory_xact_lock(7266823110002)"
    body, end, rest = function.replace(lock, "false").rpartition("\nEND")
    assert lock in function
    assert end
    # as if there were much to count, so that two of them meet within seconds
    db.execute(f"{body}\n    PERFORM pg_sleep(0.02);{end}{rest}")


@contextmanager
def worker_process(url: str, number: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.labs", "limits", "--worker", url, "--kind", KINDS[number % len(KINDS)]]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def work(url: str, kind: str) -> None:
    registry, lab = Registry(), os.getppid()
    registry.processor(kind)(hold)
    runtime = Runtime(quick_settings(url, concurrency=2), registry=registry)
    runtime.worker().start()
    while os.getppid() == lab:
        threading.Event().wait(0.2)
    os._exit(0)


def hold(job: Job) -> None:
    threading.Event().wait(0.01 + job.id % 7 / 100)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kill-every", type=float, default=1.5, help="seconds, on average")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant", action="store_true", help="claim without the lock: the lab must notice")
    parser.add_argument("--worker", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    typed = parser.parse_args()
    if typed.worker:
        work(typed.worker, typed.kind)
    with embedded_server() as address, closing(Postgres(address)) as server, server.database("migrated") as url:
        report = run(url, seconds=typed.seconds, kill_every=typed.kill_every, seed=typed.seed, mutant=typed.mutant)
    for problem in report.problems:
        print(f"seed {typed.seed}: {problem}")
    print(
        f"{report.samples} samples, at most {report.most_running} running, {report.running_sum / report.samples:.2f}"
        f" on average, {report.longest_below:.2f} s below the limit at most; {report.completed} completed,"
        f" {report.most_at_once} at once by their rows; {report.kills} kills"
    )
    return 1 if report.problems else 0

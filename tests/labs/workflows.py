"""The lab of workflows: `python -m tests.labs workflows`. 10,000 chains of three and 1,000 batches of ten are added
while four worker processes run them and are killed, one after the other. One link in twenty fails for good. The rows
then say whether every child ran once, after all its parents, or was cancelled for the one that failed.

`--scale 0.05` makes a twentieth of that. Beside it: plain jobs, claimed and settled with the queue's triggers and
without them, by turns. Its exit code is 1 where anything was violated; `--mutant` lets a child in with its first
parent, and must be noticed."""

import argparse
import multiprocessing
import os
import random
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from statistics import median
from time import monotonic

from snapapp.jobs import enqueue_many
from snapapp.jobs.errors import Permanent
from snapapp.jobs.model import Job, Status
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import connect
from tests.conftest import embedded_server
from tests.databases import Postgres
from tests.factory import Db, claimed, complete, scalar
from tests.jobs.working import put_effect, quick_settings, until

CHAINS, BATCHES, LINKS, MEMBERS = 10_000, 1_000, 3, 10
WORKERS = 4
PAGE = 100  # chains, or batches, added in one transaction
FAILS = 20  # one link of so many
ROUNDS, PLAIN, AT_ONCE = 7, 4_000, 200  # of plain jobs
STANDS_STILL = 60.0  # seconds without an end, after which nothing more is expected


@dataclass
class Report:
    jobs: int = 0
    seconds: float = 0.0
    kills: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    losses: int = 0  # attempts whose worker died
    problems: list[str] = field(default_factory=list)


# --- what is added ----------------------------------------------------------------------------------------------


def add(url: str, chains: int, batches: int, chance: random.Random) -> None:
    with connect(url, name="adds") as db:
        for done in range(0, chains, PAGE):
            with at_once_or_not(db, chance):
                before: list[int] = []
                for _ in range(LINKS):
                    before = linked(db, [[one] for one in before] or [[]] * min(PAGE, chains - done), chance)
        for _ in range(batches):
            with at_once_or_not(db, chance):
                linked(db, [linked(db, [[]] * MEMBERS, chance)], chance)


def at_once_or_not(db: Db, chance: random.Random) -> AbstractContextManager[object]:
    """In one transaction; or link by link, so that parents run and end while their children are added."""
    return db.transaction() if chance.random() < 0.5 else nullcontext()


def linked(db: Db, parents: list[list[int]], chance: random.Random) -> list[int]:
    specs = [
        {
            "kind": "effective" if after else "plain",
            "payload": {"fails": chance.randrange(FAILS) == 0},
            "after": after,
            "on_parent_failure": chance.choice(["cancel", "cancel", "run"]),
        }
        for after in parents
    ]
    return [one for one in enqueue_many(db, specs) if one is not None]


# --- the run ----------------------------------------------------------------------------------------------------


def run(url: str, *, scale: float, kill_every: float, seed: int = 1, mutant: bool = False) -> Report:
    report, chance = Report(), random.Random(seed)
    chains, batches = max(1, int(CHAINS * scale)), max(1, int(BATCHES * scale))
    report.jobs = chains * LINKS + batches * (MEMBERS + 1)
    with connect(url, name="lab") as db, ExitStack() as stack:
        db.execute("CREATE TABLE effect (job bigint)")
        if mutant:
            waits_for_one_parent(db)
        workers = [stack.enter_context(worker_process(url)) for _ in range(WORKERS)]
        until(lambda: scalar(db, "SELECT count(*) FROM job_worker") > 0, within=60)
        began = monotonic()
        adding = threading.Thread(target=add, args=(url, chains, batches, random.Random(seed)))
        adding.start()
        stack.callback(adding.join)
        kill_at, news_at, ended = began + kill_every, began, -1
        while True:
            threading.Event().wait(0.1)
            now = scalar(db, "SELECT count(*) FROM snap_processing_job WHERE finished_at IS NOT NULL")
            if now > ended:
                ended, news_at = now, monotonic()
            if ended == report.jobs or monotonic() - news_at > STANDS_STILL:
                break
            if monotonic() >= kill_at:
                victim = chance.randrange(WORKERS)
                workers[victim].kill()
                workers[victim].join()
                workers[victim] = stack.enter_context(worker_process(url))
                report.kills += 1
                kill_at = monotonic() + kill_every * chance.uniform(0.5, 1.5)
        report.seconds = monotonic() - began
        check(db, report)
    return report


VIOLATIONS = {
    "is not over": "SELECT id FROM snap_processing_job WHERE finished_at IS NULL",
    "began before a parent had ended": (
        "SELECT its.job_id FROM job_parent AS its JOIN snap_processing_job AS parent ON parent.id = its.parent_id"
        "  JOIN snap_processing_job AS child ON child.id = its.job_id"
        " WHERE child.started_at < parent.finished_at - interval '1 millisecond'"
    ),
    "ran though a parent did not complete": (
        "SELECT its.job_id FROM job_parent AS its JOIN snap_processing_job AS parent ON parent.id = its.parent_id"
        "  JOIN snap_processing_job AS child ON child.id = its.job_id"
        " WHERE its.must_complete AND parent.status <> 'COMPLETED' AND child.status <> 'CANCELLED'"
    ),
    "was cancelled, and all its parents had completed": (
        "SELECT id FROM snap_processing_job AS child WHERE status = 'CANCELLED' AND NOT EXISTS ("
        "  SELECT FROM job_parent AS its JOIN snap_processing_job AS parent ON parent.id = its.parent_id"
        "   WHERE its.job_id = child.id AND its.must_complete AND parent.status IN ('FAILED', 'CANCELLED'))"
    ),
    "has another number of effects than one": (
        "SELECT id FROM snap_processing_job LEFT JOIN effect ON job = id WHERE kind = 'effective'"
        " GROUP BY id HAVING count(job) <> (status = 'COMPLETED')::integer"
    ),
    "failed and should not have": (
        "SELECT id FROM snap_processing_job WHERE status = 'FAILED' AND payload->>'fails' <> 'true'"
    ),
    "breaks an invariant": "SELECT job_id FROM queue_invariants",
}


def check(db: Db, report: Report) -> None:
    for what, statement in VIOLATIONS.items():
        found = [one for (one,) in db.execute(statement).fetchall()]
        if found:
            report.problems.append(f"{len(found)} jobs: it {what}, such as {found[:5]}")
    counted = "SELECT status, count(*) FROM snap_processing_job GROUP BY status ORDER BY status"
    report.ends = dict(db.execute(counted).fetchall())
    report.losses = scalar(db, "SELECT count(*) FROM snap_processing_job WHERE errors::text LIKE %s", "%worker lost%")
    if sum(report.ends.values()) != report.jobs:
        report.problems.append(f"{report.jobs} jobs were to be added, and there are {report.ends}")


def waits_for_one_parent(db: Db) -> None:
    [(function,)] = db.execute("SELECT pg_get_functiondef('job_parents_changed'::regproc)").fetchall()
    assert "waits_for - its.ended" in function
    db.execute(function.replace("waits_for - its.ended", "0"))


# --- the workers ------------------------------------------------------------------------------------------------


# A clean process forks the workers, so that a new one costs no imports; it dies with the lab, and they with it.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.labs.workflows"])


@contextmanager
def worker_process(url: str) -> Iterator[ForkServerProcess]:
    process = _FORKS.Process(target=work, args=[url])
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def work(url: str) -> None:
    registry, lab = Registry(), os.getppid()
    registry.processor("plain", max_attempts=1000)(link)
    registry.processor("effective", max_attempts=1000, commit=put_effect)(link)
    runtime = Runtime(quick_settings(url, concurrency=2), registry=registry)
    runtime.worker().start()
    while os.getppid() == lab:
        threading.Event().wait(0.2)
    os._exit(0)


def link(job: Job) -> int:
    threading.Event().wait(job.id % 5 / 200)
    open_ones = [one for one in job.parents if one.status in (Status.PENDING, Status.RUNNING, Status.RETRY_WAIT)]
    if job.payload["fails"] or open_ones:
        raise Permanent(f"as it was told, or because of {open_ones}")
    return job.id


# --- plain jobs, beside it --------------------------------------------------------------------------------------


def drains(with_triggers: Db, without: Db) -> tuple[float, float]:
    """Jobs a second, claimed and settled, the middle of some rounds by turns."""
    for trigger in ("job_parent_changed", "job_parents_changed"):
        without.execute(f"DROP TRIGGER {trigger} ON snap_processing_job")
    rates: tuple[list[float], list[float]] = ([], [])
    for number in range(2 * ROUNDS):
        rates[number % 2].append(drained((with_triggers, without)[number % 2]))
    return median(rates[0]), median(rates[1])


def drained(db: Db) -> float:
    db.execute("INSERT INTO snap_processing_job (kind) SELECT 'test' FROM generate_series(1, %s)", [PLAIN])
    began = monotonic()
    for _ in range(PLAIN // AT_ONCE):
        complete(db, *claimed(db, AT_ONCE).jobs)
    rate = PLAIN / (monotonic() - began)
    db.execute("TRUNCATE snap_processing_job")
    return rate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of 10,000 chains and 1,000 batches")
    parser.add_argument("--kill-every", type=float, default=3.0, help="seconds, on average")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant", action="store_true", help="let a child in too early: the lab must notice")
    typed = parser.parse_args()
    with embedded_server() as address, closing(Postgres(address)) as server:
        with (
            server.database("migrated") as one,
            server.database("migrated") as two,
            connect(one, name="with") as its,
            connect(two, name="without") as other,
        ):
            fast, bare = drains(its, other)
        with server.database("migrated") as url:
            report = run(url, scale=typed.scale, kill_every=typed.kill_every, seed=typed.seed, mutant=typed.mutant)
    for problem in report.problems:
        print(f"seed {typed.seed}: {problem}")
    ends = ", ".join(f"{count} {status}" for status, count in report.ends.items())
    print(f"{report.jobs} jobs in {report.seconds:.0f} s: {ends}")
    print(
        f"{report.kills} kills, {report.losses} jobs lost their worker as they ran; {len(report.problems)} violations"
    )
    print(f"plain jobs: {fast:.0f} a second, {bare:.0f} without the triggers")
    return 1 if report.problems else 0

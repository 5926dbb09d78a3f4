"""A crowd of good and bad jobs over all four executors, while children are killed at random: what became of each."""

import ctypes
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg

from snapapp.jobs import enqueue_many
from snapapp.jobs.os.processes import started
from tests.jobs.working import until, working
from tests.labs.executors import kinds
from tests.labs.server import lab_server

_PR_SET_CHILD_SUBREAPER = 36
_STUCK_AT_MOST = 6  # each keeps a thread to the end
_MANY = 50  # attempts of a good job: the killer may meet it often


@dataclass
class Report:
    jobs: int = 0
    seconds: float = 0.0
    kinds: int = 0
    kills: int = 0
    good: int = 0
    bad: int = 0
    problems: list[str] = field(default_factory=list)


def run(jobs: int, seed: int, attempts: int) -> Report:
    report = Report(jobs=jobs)
    adopt_orphans()
    before = descendants()
    with lab_server("executors") as its:
        began = monotonic()
        put(its.db, jobs, random.Random(seed), attempts)
        work(its.url, its.db, jobs, random.Random(seed), report)
        report.seconds = monotonic() - began
        judge(its.db, report)
        kinds.released.set()
    left = [pid for pid in descendants() if pid not in before]
    report.problems += [f"process {pid} is left: {command_line(pid)}" for pid in left]
    return report


def put(
    db: psycopg.Connection[tuple[object, ...]],
    jobs: int,
    chance: random.Random,
    attempts: int,
    without: Collection[str] = (),
) -> None:
    """Half of them good; every kind at least once, if there are enough."""
    crowd = [kind for kind in (*kinds.GOOD, *kinds.BAD) if kind not in without][:jobs]
    harmless = [kind for kind in kinds.BAD if kind != "thread.stuck"]
    crowd += [chance.choice(chance.choice([kinds.GOOD, harmless])) for _ in range(jobs - len(crowd))]
    chance.shuffle(crowd)
    enqueue_many(db, [{"kind": kind, "max_attempts": attempts if kind in kinds.BAD else _MANY} for kind in crowd])


def work(
    url: str, db: psycopg.Connection[tuple[object, ...]], jobs: int, chance: random.Random, report: Report
) -> None:
    is_over = threading.Event()

    def kill_now_and_then() -> None:
        while not is_over.wait(chance.uniform(0.2, 1.0)):
            children = [pid for pid in descendants() if "snapapp.jobs.executors.child" in command_line(pid)]
            if children:
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(children), signal.SIGKILL)
                    report.kills += 1

    killer = threading.Thread(target=kill_now_and_then)
    lasting: dict[str, Any] = {"beat_every": timedelta(seconds=2), "lease_for": timedelta(seconds=20)}
    with working(url, kinds.registry, children=3, commands=3, max_stuck=_STUCK_AT_MOST, **lasting):
        killer.start()
        try:
            until(lambda: unfinished(db) == 0, within=60 + jobs)
        finally:
            is_over.set()
            killer.join()


def judge(db: psycopg.Connection[tuple[object, ...]], report: Report) -> None:
    rows = db.execute("SELECT id, kind, status, attempt_count, last_error FROM snap_processing_job").fetchall()
    report.kinds = len({kind for _, kind, *_ in rows})
    tally: Counter[str] = Counter()
    for job_id, kind, status, attempts, error in rows:
        wanted = "FAILED" if kind in kinds.BAD else "COMPLETED"
        tally[wanted] += 1
        said = str(error)
        if status != wanted:
            report.problems.append(f"job {job_id} ({kind}) is {status} after {attempts} attempts: {said[:200]}")
        elif wanted == "FAILED" and kinds.BAD[str(kind)] not in said and "was killed by SIGKILL, which" not in said:
            report.problems.append(f"job {job_id} ({kind}) ended with {said[:200]!r}")
    report.good, report.bad = tally["COMPLETED"], tally["FAILED"]


def unfinished(db: psycopg.Connection[tuple[object, ...]]) -> int:
    statement = "SELECT count(*) FROM snap_processing_job WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')"
    [(count,)] = db.execute(statement).fetchall()
    assert isinstance(count, int)
    return count


def adopt_orphans() -> None:
    """Whatever loses its parent becomes our child, so that nothing can hide."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants() -> list[int]:
    """Those that live; the kernel's lists of children may skip some while others end, so parents are asked for."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and started(int(entry.name)) is not None:
            with suppress(OSError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""

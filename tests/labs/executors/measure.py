"""What a job in a child or a program costs, and how soon a cancelled one is dead."""

import os
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median, quantiles
from time import monotonic
from typing import Any

import psycopg
from tenacity import wait_none

from snapapp.jobs import enqueue
from snapapp.jobs.context import Within
from snapapp.jobs.executors.children import Child
from snapapp.jobs.executors.command import Command, command_input
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.executors.runners import Runner
from snapapp.jobs.model import Job, Succeeded
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.settings import JobsSettings
from tests.jobs.working import until, working
from tests.labs.executors import kinds
from tests.labs.server import lab_server

_SETTINGS = JobsSettings(database_url="", child_nice=0)  # else a busy machine would be measured, not us
_ROUNDS = 5


def report() -> list[str]:
    guard = Guard()
    nobody = Within()
    child = Child(("tests.labs.executors.kinds",), _SETTINGS, guard, nobody)
    command = Command(_SETTINGS, guard, nobody)
    child.prepare()
    try:
        overhead = sorted(timed(lambda: run(child, "process.good")) for _ in range(500))
        rounds = [side_by_side(run_bare, lambda: run(command, "command.good"), times=200) for _ in range(_ROUNDS)]
    finally:
        for runner in (child, command):
            runner.shut()
            runner.close()
        guard.stop()
    lines = [f"process: {1000 * median(overhead):.2f} ms a job p50, {1000 * overhead[494]:.2f} ms p99"]
    bare, ours = (sorted(median(each[side]) for each in rounds) for side in (0, 1))
    ratios = sorted(median(ours) / median(bare) for bare, ours in rounds)
    lines.append(
        f"command: {1000 * median(ours):.2f} ms a job p50, subprocess.run {1000 * median(bare):.2f} ms, ratio of the"
        f" medians {median(ratios):.2f} [{ratios[0]:.2f}-{ratios[-1]:.2f}] in {_ROUNDS} rounds of 200 by turns"
    )
    return [*lines, *cancels(50)]


def timed(call: Callable[[], object]) -> float:
    began = monotonic()
    call()
    return monotonic() - began


def side_by_side(one: Callable[[], object], other: Callable[[], object], times: int) -> tuple[list[float], list[float]]:
    """In turns, because the machine has moods."""
    pairs = [(timed(one), timed(other)) for _ in range(times)]
    return [first for first, _ in pairs], [second for _, second in pairs]


def job_of(kind: str) -> Job:
    return Job(1, kind, "default", "", 0, b"{}", None, 1, 1, 1, None, None)


def run(runner: Runner, kind: str) -> None:
    job = job_of(kind)
    job.started_at = monotonic()
    job.deadline = job.started_at + 60
    outcome = runner.run(job, kinds.registry.get(kind), wait_none())
    assert isinstance(outcome, Succeeded), outcome
    runner.prepare()


def run_bare() -> None:
    """The same program with the same input: a shell reads its line byte by byte, a call for each."""
    argv = list(kinds.registry.get("command.good").command)
    line = command_input(job_of("command.good"))
    answer = subprocess.run(argv, input=line, capture_output=True, check=True, cwd="/tmp")
    assert answer.stdout.startswith(b'{"ok": true')


def cancels(times: int) -> list[str]:
    """From the cancel's commit until nothing of the job lives: through NOTIFY, as it is in production."""
    lines = []
    lasting: dict[str, Any] = {"beat_every": timedelta(seconds=10), "lease_for": timedelta(seconds=60)}
    with lab_server("executors") as its, working(its.url, kinds.registry, **lasting):
        for kind in ("process.brooding", "command.brooding"):
            took = sorted(cancel_one(its.db, kind) for _ in range(times))
            lines.append(f"{kind}: cancel to dead {median(took):.3f} s p50, {quantiles(took, n=100)[98]:.3f} s p99")
    return lines


def cancel_one(db: psycopg.Connection[tuple[object, ...]], kind: str) -> float:
    job_id = enqueue(db, kind)
    assert job_id
    until(lambda: said(db, job_id))
    pids = [int(pid) for pid in said(db, job_id).split()]
    began = monotonic()
    lifecycle.cancel(db, job_id)
    while any(map(is_there, pids)):
        assert monotonic() < began + 20
    return monotonic() - began


def said(db: psycopg.Connection[tuple[object, ...]], job_id: int) -> str:
    return " ".join(str(line) for (line,) in db.execute("SELECT message FROM job_log WHERE job_id = %s", [job_id]))


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    os.sched_yield()
    return state not in "ZX"

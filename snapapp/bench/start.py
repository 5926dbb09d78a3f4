"""Measures what `snapapp worker` costs: the time from its start to the end of its first job, and the memory of all its
processes when it is idle after that."""

import os
import subprocess
import sys
from time import monotonic, sleep

from snapapp.bench.plan import Plan, Step
from snapapp.bench.report import Measurement, Target
from snapapp.bench.server import BenchServer, Db, ask, connect, until
from snapapp.jobs.adding import enqueue
from snapapp.jobs.os import memory, processes

_KIND, _KINDS = "demo.hello", "snapapp.demo.kinds"
_STATUS = "SELECT status FROM snap_processing_job WHERE id = %s"
_SETTLES_IN = 2.0  # seconds until the work of the start is over


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    """Starts `snapapp worker` as a person types it, with a job that waits for it."""
    times, sizes = [], []
    with server.database() as url, connect(url) as db:
        for run in range(plan.runs):
            step(f"start of a worker, run {run + 1}")
            seconds, megabytes = _run(url, db)
            times.append(seconds)
            sizes.append(megabytes)
    return [
        Measurement(
            name="start.first_job",
            what="from the start of `snapapp worker` to the end of its first job",
            unit="s",
            ours=times,
            target=Target("ours", "at most", 0.8),
        ),
        Measurement(
            name="start.memory",
            what="resident memory of an idle `snapapp worker`, all its processes",
            unit="MB",
            ours=sizes,
            target=Target("ours", "at most", 64.0),
        ),
    ]


def _run(url: str, db: Db) -> tuple[float, float]:
    job = enqueue(db, _KIND)
    argv = [sys.executable, "-m", "snapapp", "worker", "--processors", _KINDS]
    environment = os.environ | {"SNAPAPP_DATABASE_URL": url}
    began = monotonic()
    with subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL) as worker:
        try:
            until(lambda: ask(db, _STATUS, job) == "COMPLETED", "the first job of a worker", within=60)
            took = monotonic() - began
            sleep(_SETTLES_IN)
            return took, sum(map(memory.resident_mb, [worker.pid, *processes.below(worker.pid)]))
        finally:
            worker.terminate()

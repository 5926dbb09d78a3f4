"""Measures what an idle worker costs the database: every statement that it sends, including BEGIN and COMMIT.

libpq traces the protocol, so no statement can be missed."""

import re
import tempfile
from datetime import timedelta
from pathlib import Path
from time import sleep

from snapapp.bench.plan import Plan, Step
from snapapp.bench.processes import BenchProcess
from snapapp.bench.report import Measurement, Target
from snapapp.bench.server import BenchServer

# One line a message: F is for frontend. A simple statement is one Query, any other ends in one Execute.
_STATEMENT = re.compile(rb"^F\t\d+\t(?:Query|Execute)\t.*$", re.MULTILINE)


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    """One worker with its default settings, watched for `runs` windows in a row."""
    with server.database() as url, tempfile.TemporaryDirectory() as folder:
        protocol = Path(folder) / "protocol"
        with BenchProcess("worker", url=url, protocol=str(protocol)) as worker:
            worker.receive()
            windows = []
            for run in range(plan.runs):
                step(f"idle for {plan.idle_for.total_seconds():g} s, window {run + 1}")
                before = _count(protocol)
                sleep(plan.idle_for.total_seconds())
                windows.append(_count(protocol) - before)
        seen = protocol.read_bytes()
    minutes = plan.idle_for / timedelta(minutes=1)
    return [
        Measurement(
            name="idle.statements",
            what="statements of an idle worker",
            unit="a minute",
            ours=[statements / minutes for statements in windows],
            target=Target("ours", "at most", 30.0),
            more={"last_statements": [line.decode()[:200] for line in _STATEMENT.findall(seen)[-30:]]},
        )
    ]


def _count(protocol: Path) -> int:
    return len(_STATEMENT.findall(protocol.read_bytes()))

"""Measures what an idle worker costs the database: every statement that it sends, including BEGIN and COMMIT.

libpq traces the protocol, so no statement can be missed. PostgreSQL's own count of transactions in the database is
shown beside it; that one includes autovacuum's transactions."""

import re
import tempfile
from datetime import timedelta
from pathlib import Path
from time import sleep

import sqlalchemy

from snapapp.bench.ground import Ground
from snapapp.bench.plan import Plan, Step
from snapapp.bench.players import Player
from snapapp.bench.report import Measurement, Target

# One line a message: F is for frontend. A simple statement is one Query, any other ends in one Execute.
_STATEMENT = re.compile(rb"^F\t\d+\t(?:Query|Execute)\t.*$", re.MULTILINE)


def measure(ground: Ground, plan: Plan, step: Step) -> list[Measurement]:
    """One worker with its default settings, watched for `runs` windows in a row."""
    with ground.database() as url, tempfile.TemporaryDirectory() as folder:
        protocol = Path(folder) / "protocol"
        with Player("worker", url=url, protocol=str(protocol)) as player:
            player.hear()
            windows = []
            for run in range(plan.runs):
                step(f"idle for {plan.idle_for.total_seconds():g} s, window {run + 1}")
                windows.append(_watch(ground, url, protocol, plan.idle_for))
        seen = protocol.read_bytes()
    minutes = plan.idle_for / timedelta(minutes=1)
    return [
        Measurement(
            name="idle.statements",
            what="statements of an idle worker",
            unit="a minute",
            ours=[statements / minutes for statements, _ in windows],
            target=Target("ours", "at most", 30.0),
            more={"last_statements": [line.decode()[:200] for line in _STATEMENT.findall(seen)[-30:]]},
        ),
        Measurement(
            name="idle.transactions",
            what="  transactions meanwhile by pg_stat_database, autovacuum's too",
            unit="a minute",
            ours=[transactions / minutes for _, transactions in windows],
        ),
    ]


def _watch(ground: Ground, url: str, protocol: Path, time: timedelta) -> tuple[int, int]:
    statements, transactions = _count(protocol), _transactions(ground, url)
    sleep(time.total_seconds())
    return _count(protocol) - statements, _transactions(ground, url) - transactions


def _count(protocol: Path) -> int:
    return len(_STATEMENT.findall(protocol.read_bytes()))


def _transactions(ground: Ground, url: str) -> int:
    """PostgreSQL's count of transactions, asked from another database, so that the question itself is not counted."""
    row = ground.admin.execute(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s",
        [sqlalchemy.make_url(url).database],
    ).fetchone()
    assert row
    return int(row[0])

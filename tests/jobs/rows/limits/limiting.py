"""Limits, fair queues, and claims that keep to them."""

from collections.abc import Sequence
from typing import Any

import pytest

from snapapp.jobs.rows.claim import Claimed, ClaimingWorker, Look
from tests.factory import BY, Db, claimed, make_jobs, scalar

both_servers = pytest.mark.both_servers

WAITING = "SELECT count(*) FROM snap_processing_job WHERE status = 'PENDING'"


def limit(
    db: Db, pattern: str, max_running: int | None = None, *, rate: float | None = None, burst: int | None = None
) -> None:
    db.execute(
        "INSERT INTO job_limit VALUES (%s, %s, %s, %s) ON CONFLICT (key_pattern) DO UPDATE"
        "   SET max_running = excluded.max_running, rate = excluded.rate, burst = excluded.burst",
        [pattern, max_running, rate, burst],
    )


def keyed(db: Db, count: int, key: str = "k", **columns: Any) -> list[int]:
    return make_jobs(db, count, concurrency_key=key, **columns)


Turns = dict[tuple[str, str], str]  # of each (queue, kind) the lane whose turn was last


def turn(
    db: Db,
    most: int = 100,
    *,
    by: ClaimingWorker = BY,
    served: Turns | None = None,
    kinds: Sequence[str] = ("test",),
    **how: Any,
) -> Claimed:
    """A claim that remembers in `served` whose turn was last."""
    turns = tuple((*head, lane) for head, lane in (served or {}).items())
    seen = claimed(db, most, Look(turns=turns, **how), kinds=kinds, by=by)
    if served is not None:
        served |= {(queue, kind): lane for queue, kind, lane in seen.turns}
    return seen


def take(db: Db, most: int = 100, **how: Any) -> list[int]:
    return sorted(job.id for job in turn(db, most, **how).jobs)


PAUSE = 42  # whoever holds this advisory lock holds up the functions that `pausing` has changed


def pausing(db: Db, function: str, at: str, pause: str) -> None:
    """Changes an SQL function of ours so that it waits where `at` stands in its text."""
    its = scalar(db, "SELECT pg_get_functiondef(%s::regproc)", function)
    assert its.count(at) == 1
    db.execute(its.replace(at, pause))

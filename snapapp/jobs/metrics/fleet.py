"""Metrics of supervisors (is each one alive) and of their pools (how many processes they want and have)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import Metric

from snapapp.jobs.metrics.exposition import gauge
from snapapp.jobs.rows.database import Db, run

_POOLS = """
SELECT host, master <> 'LOST', pool, wanted, present, state <> 'ACTIVE' FROM fleet_overview ORDER BY host, pool
"""


class Pool(NamedTuple):
    """A pool, or a host without pools (then the last four are None)."""

    host: str
    is_supervised: bool
    name: str | None
    wanted: int | None
    present: int | None
    is_held: bool | None  # paused or drained by a person


def pools(db: Db) -> list[Pool]:
    return [Pool(*row) for row in run(db, _POOLS, {})]


def families(known: Sequence[Pool]) -> Iterator[Metric]:
    hosts = {pool.host: float(pool.is_supervised) for pool in known}
    named = [({"host": pool.host, "pool": pool.name}, pool) for pool in known if pool.name is not None]
    yield gauge(
        "snapapp_supervisor_up",
        "1: the host's supervisor is alive; 0: its heartbeat stopped although it did not leave.",
        *((is_up, {"host": host}) for host, is_up in hosts.items()),
    )
    yield gauge(
        "snapapp_pool_wanted_processes",
        "Worker processes that the plan, its balance or a person wants.",
        *((pool.wanted or 0, labels) for labels, pool in named),
    )
    yield gauge(
        "snapapp_pool_processes",
        "Worker processes that the pool has, as its supervisor last reported.",
        *((pool.present or 0, labels) for labels, pool in named),
    )
    yield gauge(
        "snapapp_pool_held",
        "1 where a person paused or drained the pool.",
        *((float(bool(pool.is_held)), labels) for labels, pool in named),
    )

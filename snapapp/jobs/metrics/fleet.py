"""Metrics of supervisors (is each one alive) and of their pools (how many processes they want and have)."""

from collections.abc import Iterator, Sequence

from prometheus_client import Metric

from snapapp.jobs.fleet.overview import PoolLine
from snapapp.jobs.metrics.exposition import gauge


def families(known: Sequence[PoolLine]) -> Iterator[Metric]:
    hosts = {pool.host: float(pool.master != "LOST") for pool in known}
    named = [({"host": pool.host, "pool": pool.pool}, pool) for pool in known if pool.pool is not None]
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
        *((float(pool.state != "ACTIVE"), labels) for labels, pool in named),
    )

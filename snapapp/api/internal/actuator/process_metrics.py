"""The numbers of this process, by name and as Prometheus families. Only `depth` and `backups` ask the database, and
rarely."""

import resource
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import Metric, ProcessCollector
from sqlalchemy import QueuePool

from snapapp import __version__
from snapapp.api.http.requests.route_counts import BUCKETS, Traffic
from snapapp.backup import records
from snapapp.backup.records import State, What
from snapapp.jobs.metrics import depth, work
from snapapp.jobs.metrics.depth import CachedAnswer, Depth
from snapapp.jobs.metrics.exposition import counter, gauge, histogram
from snapapp.jobs.metrics.work import Pruned
from snapapp.jobs.rows.costs import Spent
from snapapp.jobs.rows.roster import Counts
from snapapp.process.loop_lag import Lag
from snapapp.process.monolith import Monolith

_BEGAN = time.time()


class Numbers:
    """The numbers of this process. They are written on the event loop's thread, or by the worker's threads in atomic
    steps."""

    def __init__(self, monolith: Monolith, traffic: Traffic, lag: Lag) -> None:
        self._monolith = monolith
        self.traffic = traffic
        self._lag = lag
        self._pruned = Pruned(monolith.events)
        self.depth = CachedAnswer(lambda: monolith.web.begin(), depth.depth)
        self.backups = CachedAnswer(lambda: monolith.web.begin(), records.states)

    # --- by name ----------------------------------------------------------------------------------------------

    def of_jobs(self) -> dict[str, float]:
        return work.numbers(self._counts(), self._pruned.jobs)

    def by_name(self) -> dict[str, float]:
        return self.of_jobs() | self._of_http() | self._of_process()

    def _of_http(self) -> dict[str, float]:
        routes = self.traffic.routes()
        requests, seconds = sum(route.requests for route in routes), sum(route.seconds for route in routes)
        return {
            "http.server.requests": requests,
            "http.server.errors": sum(route.errors for route in routes),
            "http.server.avg.duration.ms": round(seconds / requests * 1000, 3) if requests else 0.0,
            "http.server.max.duration.ms": round(max((route.longest for route in routes), default=0.0) * 1000, 3),
        }

    def _of_process(self) -> dict[str, float]:
        lateness = self._lag.lately()
        return {
            "process.memory.rss": _resident(),
            "process.cpu.seconds": round(time.process_time(), 3),
            "process.uptime.seconds": round(time.time() - _BEGAN, 3),
            "process.threads": threading.active_count(),
            "loop.lag.p99.ms": round(lateness.p99 * 1000, 3),
            "loop.lag.max.ms": round(lateness.longest * 1000, 3),
            "worker.jobs.held": self._held(),
            "worker.held.back.share": round(self._monolith.web_priority.share(), 4),
            "web.pool.in.use": self._pool_in_use(),
        }

    # --- for Prometheus ---------------------------------------------------------------------------------------

    def families(
        self, known: Depth | None, backups: Mapping[What, State] | None, *, is_database_up: bool
    ) -> Iterator[Metric]:
        yield gauge("snapapp_info", "1; the label says which version runs.", (1, {"version": __version__}))
        yield gauge("snapapp_database_up", "1 while the database answers this process.", (is_database_up, {}))
        if known and is_database_up:
            yield from depth.families(known)
        if backups and is_database_up:
            yield from _of_backups(backups)
        yield from work.families(self._counts(), self._pruned.jobs, self._spent())
        yield from self._worker_families()
        yield from self._web_families()
        yield from ProcessCollector(registry=None).collect()  # under the usual names of the Prometheus client

    def _worker_families(self) -> Iterator[Metric]:
        if self._monolith.worker:
            vitals = self._monolith.worker.vitals()
            is_up = vitals.claims and vitals.beats and vitals.settles
            yield gauge("snapapp_worker_up", "1 while the worker of this process claims and beats.", (is_up, {}))
        yield gauge("snapapp_jobs_held", "Jobs that this process holds, running or about to.", (self._held(), {}))
        share = self._monolith.web_priority.share()
        yield gauge("snapapp_held_back_ratio", "Part of the time in which the worker waited for the web.", (share, {}))

    def _web_families(self) -> Iterator[Metric]:
        yield histogram(
            "snapapp_http_request_duration_seconds",
            "From a request's first byte to its answer's last, by route and class of status.",
            BUCKETS,
            *(
                (counted.buckets, counted.seconds, labels | {"status": f"{number}xx"})
                for route in self.traffic.routes()
                for labels in [{"method": route.method, "route": route.pattern}]
                for number, counted in sorted(route.by_class.items())
            ),
        )
        pool = self._pool_in_use()
        yield gauge("snapapp_web_pool_in_use", "Connections that requests hold at this moment.", (pool, {}))
        yield gauge("snapapp_web_pool_size", "As many as they can have.", (self._monolith.settings.web_connections, {}))
        lateness = self._lag.lately()
        yield gauge("snapapp_loop_lag_p99_seconds", "How late the event loop was; last minute.", (lateness.p99, {}))
        yield gauge("snapapp_loop_lag_max_seconds", "The latest of that minute.", (lateness.longest, {}))
        yield counter(
            "snapapp_loop_lag_pauses_total", "How often the worker was asked to pause for it.", (self._lag.presses, {})
        )

    # --- single values ---------------------------------------------------------------------------------------

    def _counts(self) -> Counts:
        return self._monolith.worker.counts if self._monolith.worker else Counts()

    def _spent(self) -> Mapping[str, Spent]:
        return self._monolith.worker.spent if self._monolith.worker else {}

    def _held(self) -> int:
        return self._monolith.worker.vitals().held if self._monolith.worker else 0

    def _pool_in_use(self) -> int:
        pool = self._monolith.web.pool
        return pool.checkedout() if isinstance(pool, QueuePool) else 0


def _of_backups(backups: Mapping[What, State]) -> Iterator[Metric]:
    ages = [(state.good_age, {"what": what.value}) for what, state in backups.items()]
    yield gauge(
        "snapapp_backup_age_seconds",
        "Since the last backup, and the last drill, that ended well; there is none where none did.",
        *((age.total_seconds(), labels) for age, labels in ages if age is not None),
    )
    yield gauge(
        "snapapp_backup_failed",
        "1 where the last one failed.",
        *((float(state.failed is not None), {"what": what.value}) for what, state in backups.items()),
    )


def _resident() -> int:
    """Resident memory in bytes, or its peak on systems without /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

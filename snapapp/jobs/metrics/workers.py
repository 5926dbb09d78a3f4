"""What each live worker has done, as of its last heartbeat. Read from the database, so it includes the workers of other
processes, which Prometheus does not scrape."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import Metric

from snapapp.jobs.metrics.exposition import counter, gauge
from snapapp.jobs.rows.database import Db, run

_AT_MOST = 200  # workers, because each one is a time series of its own

_MEMBERS = """
SELECT name, left(id, 8), jobs_completed, jobs_failed, jobs_retried, cardinality(current_jobs),
       extract(epoch FROM now() - beat_at)::float8
  FROM job_worker WHERE expires_at > now() ORDER BY started_at, id LIMIT %(at_most)s
"""


class Member(NamedTuple):
    name: str
    id: str
    completed: int
    failed: int
    retried: int
    held: int
    silent_for: float  # seconds


def members(db: Db) -> list[Member]:
    return [Member(*row) for row in run(db, _MEMBERS, {"at_most": _AT_MOST})]


def families(known: Sequence[Member]) -> Iterator[Metric]:
    labelled = [({"worker": its.name, "id": its.id}, its) for its in known]
    yield counter(
        "snapapp_worker_attempts_total",
        f"How the attempts of each live worker ended, as of its last heartbeat in the database; for the {_AT_MOST} "
        "oldest workers.",
        *(
            (amount, labels | {"outcome": outcome})
            for labels, its in labelled
            for outcome, amount in (("completed", its.completed), ("failed", its.failed), ("retried", its.retried))
        ),
    )
    yield gauge(
        "snapapp_worker_held_jobs",
        "Jobs that the worker holds, as of its last heartbeat.",
        *((its.held, of) for of, its in labelled),
    )
    yield gauge(
        "snapapp_worker_silent_seconds",
        "Seconds since the worker's last heartbeat.",
        *((its.silent_for, of) for of, its in labelled),
    )

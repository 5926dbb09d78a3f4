"""How full the queues are and who works on them. The queries read a limited number of rows, so that a million waiting
jobs cost no more than ten thousand."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Generic, TypeVar

import psycopg
import sqlalchemy.exc
from prometheus_client import Metric

from snapapp.jobs.fleet import overview
from snapapp.jobs.fleet.overview import PoolLine
from snapapp.jobs.metrics import fleet, workers
from snapapp.jobs.metrics.exposition import gauge
from snapapp.jobs.rows.database import Db, run
from snapapp.jobs.rows.people import overviews
from snapapp.jobs.rows.people.overviews import CAP, LANES, LONG_WAIT, QueueSummary, walks

T = TypeVar("T")

_SAMPLE = 10_000  # how many of the newest jobs the mean duration is computed from
_TRY_AGAIN_AFTER = 1.0  # seconds
_SCRAPED_EVERY = timedelta(seconds=15)  # the database is asked at most so often, however often Prometheus scrapes


@dataclass(frozen=True, slots=True)
class Depth:
    queues: list[QueueSummary]
    pools: list[PoolLine]
    members: list[workers.Member]
    dead_letters: int
    overdue: int  # running jobs whose lease has ended
    unknown_kinds: list[str]  # kinds with jobs due for a minute that no live worker knows
    workers: int
    slots: int
    oldest_beat: float | None  # seconds since the last beat of the running job that was confirmed longest ago
    mean_ms: float | None  # of the jobs around the newest running one that finished in the last 24 hours

    @property
    def stuck(self) -> int:
        """As many as the view queue_stuck has rows: one for each overdue job and one for each unknown kind."""
        return self.overdue + len(self.unknown_kinds)


# EXISTS stops at the first job that has been due for long: with a million of them of unknown kinds in a hundred queues,
# reading the first 10,000 of each took 4 s, and this statement has 2.
_NUMBERS = """, unknown AS (
    SELECT kind FROM open
     WHERE NOT EXISTS (SELECT FROM job_worker WHERE expires_at > now() AND open.kind = ANY (kinds))
       AND EXISTS (SELECT FROM (
               SELECT next_retry_at FROM snap_processing_job AS job
                WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open'
                  AND job.queue = open.queue AND job.kind = open.kind LIMIT %(cap)s) AS first
            WHERE next_retry_at < now() - interval '1 minute')
  UNION
    SELECT kind FROM held
     WHERE NOT EXISTS (SELECT FROM job_worker WHERE expires_at > now() AND held.kind = ANY (kinds))
       AND EXISTS (SELECT FROM (
               SELECT next_retry_at FROM snap_processing_job AS job
                WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held'
                  AND job.queue = held.queue AND job.kind = held.kind LIMIT %(cap)s) AS first
            WHERE next_retry_at < now() - interval '1 minute')
  UNION  -- what workers would look through first: more than a minute old only where there are none
    SELECT kind FROM (
        (SELECT kind, next_retry_at FROM snap_processing_job
          WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later' ORDER BY next_retry_at, id LIMIT %(cap)s)
        UNION ALL
        (SELECT kind, next_retry_at FROM snap_processing_job
          WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone' ORDER BY next_retry_at, id LIMIT %(cap)s)
        ) AS first
     WHERE next_retry_at < now() - interval '1 minute'
       AND NOT EXISTS (SELECT FROM job_worker WHERE expires_at > now() AND first.kind = ANY (kinds))
)
SELECT (SELECT count(*) FROM (
           SELECT FROM snap_processing_job WHERE status = 'FAILED' LIMIT %(cap)s + 1) AS dead),
       (SELECT count(*) FROM (
           SELECT lock_expires_at FROM snap_processing_job WHERE status = 'RUNNING' LIMIT %(cap)s + 1) AS running
         WHERE lock_expires_at < now()),
       ARRAY(SELECT kind FROM unknown ORDER BY kind),
       (SELECT count(*) FROM job_worker WHERE expires_at > now()),
       (SELECT coalesce(sum(slots), 0)::bigint FROM job_worker WHERE expires_at > now()),
       (SELECT extract(epoch FROM now() - min(locked_at))::float8 FROM (
           SELECT locked_at FROM snap_processing_job WHERE status = 'RUNNING' LIMIT %(cap)s + 1) AS running),
       (SELECT (avg(extract(epoch FROM finished_at - started_at)) * 1000)::float8 FROM snap_processing_job
         WHERE id <= newest.id AND id > newest.id - %(sample)s AND finished_at > now() - interval '24 hours')
  FROM (SELECT coalesce((SELECT max(id) FROM snap_processing_job WHERE status = 'RUNNING'),
                        (SELECT max(id) FROM snap_processing_job), 0) AS id) AS newest
"""
_REST = walks(open=("open", "queue, kind"), held=("held", "queue, kind")) + _NUMBERS


def depth(db: Db) -> Depth:
    """Measures in the caller's transaction, and sets a statement timeout for the rest of it."""
    run(db, "SELECT set_config('statement_timeout', '2000', true)", {})
    queues = overviews.queues(db)
    [rest] = run(db, _REST, {"cap": CAP, "sample": _SAMPLE})
    return Depth(queues, overview.fleet(db), workers.members(db), *rest)


class CachedAnswer(Generic[T]):
    """Caches the answer to a question to the database for a moment. Any thread may call it; one of them asks."""

    def __init__(self, transaction: Callable[[], AbstractContextManager[Db]], question: Callable[[Db], T]) -> None:
        self._transaction = transaction
        self._question = question
        self._turn = threading.Lock()
        # The thread that holds the lock `_turn` writes these three.
        self._asked_at = float("-inf")
        self._known: T | None = None
        self.trouble: str | None = None  # why there is no answer

    def look(self, *, fresh_for: timedelta = _SCRAPED_EVERY) -> T | None:
        with self._turn:
            patience = fresh_for.total_seconds() if self._known else min(_TRY_AGAIN_AFTER, fresh_for.total_seconds())
            if monotonic() - self._asked_at >= patience:
                self._ask()
            return self._known

    def _ask(self) -> None:
        try:
            with self._transaction() as db:
                self._known, self.trouble = self._question(db), None
        except (psycopg.Error, sqlalchemy.exc.SQLAlchemyError) as error:
            self._known, self.trouble = None, " ".join(str(getattr(error, "orig", error)).split())
        self._asked_at = monotonic()


def families(known: Depth) -> Iterator[Metric]:
    queues = [({"queue": one.queue}, one) for one in known.queues]
    yield gauge(
        "snapapp_queue_waiting_jobs",
        f"Jobs that wait, due or not, counted up to {CAP} a queue: {CAP + 1} means more. In the database, like all "
        "snapapp_queue_*: every process tells the same, so take max() over processes, never sum().",
        *((one.waiting, labels) for labels, one in queues),
    )
    yield gauge(
        "snapapp_queue_running_jobs",
        f"Jobs that some worker holds, counted up to {CAP} in all.",
        *((one.running, labels) for labels, one in queues),
    )
    yield gauge(
        "snapapp_queue_oldest_due_seconds",
        f"Seconds for which the oldest due job has been due, in the first {LANES} kinds and lanes of all queues; "
        "0: nothing is due.",
        *((one.oldest_due.total_seconds() if one.oldest_due else 0.0, labels) for labels, one in queues),
    )
    yield gauge(
        "snapapp_queue_long_wait_seconds",
        "From when on a wait is an alert: job_queue.long_wait, or 300.",
        *(((one.long_wait or LONG_WAIT).total_seconds(), labels) for labels, one in queues),
    )
    yield gauge(
        "snapapp_queue_paused",
        "1 where a person paused the queue.",
        *((float(one.paused_at is not None), labels) for labels, one in queues),
    )
    yield gauge("snapapp_dead_letters", f"Failed jobs, counted up to {CAP}.", (known.dead_letters, {}))
    yield gauge(
        "snapapp_stuck_jobs",
        "Running jobs whose lease ended, and kinds that have been due for a minute and that no worker alive knows.",
        (known.stuck, {}),
    )
    yield gauge("snapapp_workers", "Live workers, of all processes.", (known.workers, {}))
    yield gauge("snapapp_worker_slots", "Jobs that all live workers can run at once.", (known.slots, {}))
    yield gauge(
        "snapapp_oldest_heartbeat_seconds",
        "Seconds since the oldest last heartbeat of all running jobs. When it comes near the length of a lease, a "
        "worker is about to lose its job. 0: nothing runs.",
        (known.oldest_beat or 0.0, {}),
    )
    yield from workers.families(known.members)
    yield from fleet.families(known.pools)

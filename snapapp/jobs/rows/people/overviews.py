"""Overviews of queues, workers and throughput; and pausing and resuming a queue.

No overview reads the whole table: waiting jobs are found by walking over their index, and counted up to a cap.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, cast

from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.database import run as _run

CAP = 10_000  # waiting jobs counted in each queue; a count of CAP + 1 means "more than CAP"
GLANCE = 1_000  # likewise for a page that asks every three seconds
LONG_WAIT = timedelta(minutes=5)  # a due job that waits longer is reported, where its queue has no limit of its own
LANES = 1_000  # steps of one walk: heads, or lanes, in which the oldest due job is searched

_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """A queue that has unfinished or FAILED jobs, or is paused. A count of CAP + 1 means "more than CAP". Running jobs,
    and the newest FAILED ones, are counted up to CAP in all queues together."""

    queue: str
    pending: int
    retry_wait: int
    due: int
    running: int
    failed: int
    oldest_due: timedelta | None
    oldest_id: int | None  # id of the job that has been due for the longest time
    paused_at: datetime | None
    paused_reason: str | None
    long_wait: timedelta | None = None  # the queue's own limit in place of LONG_WAIT

    @property
    def waiting(self) -> int:
        return self.pending + self.retry_wait

    @property
    def waits_long(self) -> bool:
        is_late = self.oldest_due is not None and self.oldest_due > (self.long_wait or LONG_WAIT)
        return is_late and self.paused_at is None


@dataclass(frozen=True, slots=True)
class Throughput:
    """The jobs of one queue and kind that ended in the last hour, among the newest 100,000 jobs."""

    queue: str
    kind: str
    completed: int
    failed: int
    cancelled: int
    mean_ms: float | None
    mean_wait_ms: float | None


class Switch(NamedTuple):
    """Since when and why a queue is paused; None: it is not."""

    paused_at: datetime | None
    paused_reason: str | None


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """A worker on the roster, as of its last heartbeat."""

    id: str
    name: str
    host: str
    pid: int
    status: str
    note: str | None
    queues: list[str]
    kinds: list[str]
    slots: int
    current_jobs: list[int]
    memory_mb: int
    jobs_claimed: int
    jobs_completed: int
    jobs_failed: int
    jobs_retried: int
    jobs_recovered: int
    mean_ms: float | None
    up_for: timedelta
    last_beat: timedelta
    pool: str | None  # of the supervisor that started it; None: no supervisor did
    max_jobs: int | None
    max_seconds: int | None
    max_memory_mb: int | None


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How a worker ended."""

    id: int
    worker_id: str
    name: str
    host: str
    pid: int
    pool: str | None
    queues: list[str]
    reason: str
    jobs_completed: int
    jobs_failed: int
    started_at: datetime
    exited_at: datetime


# --- queues, workers, numbers -----------------------------------------------------------------------------------

# Forces plans that walk along the index, also before the first ANALYZE: with 500,000 new jobs in 50 queues the planner
# chose to sort all of them for each step, which took 22 s.
_BY_INDEX = """
SELECT set_config('statement_timeout', coalesce(%(within)s, current_setting('statement_timeout')), true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true)
"""


_WALK = """{name} AS (
    (SELECT 1 AS number, {columns} FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = '{gate}' ORDER BY {columns} LIMIT 1)
  UNION ALL
    SELECT {name}.number + 1, next.* FROM {name} CROSS JOIN LATERAL (
        SELECT {columns} FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = '{gate}' AND ({columns}) > ({its})
         ORDER BY {columns} LIMIT 1) AS next
     WHERE {name}.number < {most})
"""


def walks(**gates: tuple[str, str]) -> str:
    """Returns the beginning of a statement: for each name => (gate, columns) a recursive CTE with the first LANES
    different values of these columns among waiting jobs with this gate. Each step costs one probe of the index."""
    parts = []
    for name, (gate, columns) in gates.items():
        its = ", ".join(f"{name}.{column}" for column in columns.split(", "))
        parts.append(_WALK.format(name=name, gate=gate, columns=columns, its=its, most=LANES))
    return "WITH RECURSIVE " + ", ".join(parts)


# Walks over two indexes find the queues; the jobs of each are counted up to the cap. It takes 6 ms with a million
# waiting jobs in one queue, and 0.5 s with fifty queues above the cap. The view queue_overview counts all jobs: 0.2 to
# 0.4 s for a million, too long for a page that asks every three seconds.
# isfinite: people may write infinity into a run_at. min(ARRAY[time, id])[2] is the id of the job with the lowest time.
_QUEUE_WALKS = walks(
    open=("open", "queue"),
    held=("held", "queue"),
    head=("open", "queue, kind, priority"),
    lane=("held", "queue, kind, lane"),
)
_QUEUE_COUNTS = """, found AS (
    SELECT entry.* FROM open CROSS JOIN LATERAL (
        SELECT queue, status, next_retry_at, NULL::bigint AS id FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open' AND queue = open.queue LIMIT %(cap)s + 1) AS entry
  UNION ALL
    SELECT entry.* FROM held CROSS JOIN LATERAL (
        SELECT queue, status, next_retry_at, NULL::bigint AS id FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held' AND queue = held.queue LIMIT %(cap)s + 1) AS entry
  UNION ALL
    (SELECT queue, status, next_retry_at, NULL FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later' LIMIT %(cap)s + 1)
  UNION ALL
    (SELECT queue, status, next_retry_at, NULL FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone' LIMIT %(cap)s + 1)
  UNION ALL
    (SELECT queue, status, NULL, NULL FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'after' LIMIT %(cap)s + 1)
  UNION ALL
    (SELECT queue, status, NULL, NULL FROM snap_processing_job WHERE status = 'RUNNING' LIMIT %(cap)s + 1)
  UNION ALL
    (SELECT queue, status, NULL, NULL FROM snap_processing_job
      WHERE status = 'FAILED' ORDER BY id DESC LIMIT %(cap)s + 1)
  UNION ALL
    SELECT name, 'PAUSED', NULL, NULL FROM job_queue WHERE paused_at IS NOT NULL
  UNION ALL
    SELECT head.queue, 'OLDEST', first.next_retry_at, first.id FROM head CROSS JOIN LATERAL (
        SELECT next_retry_at, id FROM snap_processing_job AS job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open' AND job.queue = head.queue
           AND job.kind = head.kind AND job.priority = head.priority
         ORDER BY next_retry_at LIMIT 1) AS first
  UNION ALL
    SELECT lane.queue, 'OLDEST', first.next_retry_at, first.id FROM lane CROSS JOIN LATERAL (
        SELECT next_retry_at, id FROM snap_processing_job AS job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held' AND job.queue = lane.queue
           AND job.kind = lane.kind AND job.lane = lane.lane
         ORDER BY priority DESC, next_retry_at LIMIT 1) AS first
)
SELECT queue, count(*) FILTER (WHERE status = 'PENDING'), count(*) FILTER (WHERE status = 'RETRY_WAIT'),
       count(*) FILTER (WHERE status IN ('PENDING', 'RETRY_WAIT') AND next_retry_at <= now()),
       count(*) FILTER (WHERE status = 'RUNNING'), count(*) FILTER (WHERE status = 'FAILED'),
       now() - min(next_retry_at) FILTER (WHERE next_retry_at <= now() AND isfinite(next_retry_at)),
       (min(ARRAY[extract(epoch FROM next_retry_at), id]) FILTER (
           WHERE status = 'OLDEST' AND next_retry_at <= now() AND isfinite(next_retry_at)))[2]::bigint,
       max(paused_at), max(paused_reason), max(long_wait)
  FROM found LEFT JOIN job_queue ON name = queue
 GROUP BY queue ORDER BY queue
"""
_QUEUES = _QUEUE_WALKS + _QUEUE_COUNTS

# The view queue_throughput would not do: it has means of minutes without their numbers of jobs. coalesce: a job that
# ended without a start waited until its end.
_THROUGHPUT = """
SELECT queue, kind, count(*) FILTER (WHERE status = 'COMPLETED'), count(*) FILTER (WHERE status = 'FAILED'),
       count(*) FILTER (WHERE status = 'CANCELLED'),
       round(avg(extract(epoch FROM finished_at - started_at) * 1000)::numeric, 1)::float8,
       round(avg(extract(epoch FROM coalesce(started_at, finished_at) - created_at) * 1000)::numeric, 1)::float8
  FROM snap_processing_job
 WHERE id > (SELECT coalesce(max(id), 0) - 100000 FROM snap_processing_job)
   AND finished_at > now() - interval '1 hour'
 GROUP BY queue, kind ORDER BY queue, kind
"""

_WORKERS = """
SELECT seen.id, seen.name, seen.host, seen.pid, seen.status, seen.note, seen.queues, member.kinds, seen.slots,
       seen.current_jobs, seen.memory_mb, seen.jobs_claimed, seen.jobs_completed, seen.jobs_failed,
       seen.jobs_retried, seen.jobs_recovered, seen.mean_ms::float8, seen.up_for, seen.last_beat, member.pool,
       member.max_jobs, member.max_seconds, member.max_memory_mb
  FROM worker_overview AS seen JOIN job_worker AS member USING (id)
 ORDER BY seen.host, seen.name, seen.id
"""


def bend_plans(db: Db, within: timedelta | None = None) -> None:
    """Until the caller's transaction ends: makes plans follow the index walked, and stops statements after `within`."""
    _run(db, _BY_INDEX, {"within": within and str(within // timedelta(milliseconds=1))})


def queues(db: Db, cap: int = CAP) -> list[QueueSummary]:
    """The queues with unfinished or FAILED jobs, and the paused ones. Calls `bend_plans` on the caller's
    transaction."""
    bend_plans(db)
    return [QueueSummary(*row) for row in _run(db, _QUEUES, {"cap": cap})]


def throughput(db: Db) -> list[Throughput]:
    return [Throughput(*row) for row in _run(db, _THROUGHPUT, {})]


def workers(db: Db) -> list[WorkerSummary]:
    return [WorkerSummary(*row) for row in _run(db, _WORKERS, {})]


_EXITS = """
SELECT id, worker_id, name, host, pid, pool, queues, reason, jobs_completed, jobs_failed, started_at, exited_at
  FROM job_worker_exit WHERE id < %(before)s ORDER BY id DESC LIMIT %(limit)s
"""


def exits(db: Db, *, before: int | None = None, limit: int = 50) -> list[WorkerExit]:
    """A page of exits of workers, newest first; `before` is the id of the last one seen."""
    return [WorkerExit(*row) for row in _run(db, _EXITS, {"before": before or _HIGHEST, "limit": limit})]


def is_known(db: Db, kind: str) -> bool:
    """Does any living worker run this kind?"""
    statement = "SELECT EXISTS (SELECT FROM job_worker WHERE expires_at > now() AND %(kind)s = ANY (kinds))"
    return cast(bool, _run(db, statement, {"kind": kind})[0][0])


_IS_DRAINED = """
SELECT NOT EXISTS (SELECT FROM snap_processing_job WHERE status = 'RUNNING' AND claimed_by = %(worker)s)
   AND NOT EXISTS (
       SELECT FROM (SELECT kind, queue, next_retry_at FROM snap_processing_job
                     WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open'
                    UNION ALL SELECT kind, queue, next_retry_at FROM job_apart WHERE gate <> 'after') AS waiting
        WHERE next_retry_at <= now()
          AND kind = ANY (%(kinds)s) AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
          AND NOT EXISTS (SELECT FROM job_queue WHERE name = queue AND paused_at IS NOT NULL))
"""


def is_drained(db: Db, worker: str, kinds: Collection[str], queues: Collection[str]) -> bool:
    """Is no job of these kinds due in these queues (empty: in any), and does this worker run none?"""
    parameters = {"worker": worker, "kinds": list(kinds), "queues": list(queues) or None}
    return cast(bool, _run(db, _IS_DRAINED, parameters)[0][0])


# --- the switch -------------------------------------------------------------------------------------------------


def pause(db: Db, queue: str, reason: str | None = None, *, by: str | None = None) -> None:
    """No worker claims from the queue until `resume`; running jobs go on. explain_job shows `by`."""
    statement = "SELECT pause_queue(%(queue)s, %(reason)s, %(by)s)"
    _run(db, statement, {"queue": queue, "reason": reason, "by": by})


_NAMED = """
SELECT queue FROM job_kind UNION SELECT queue FROM job_schedule UNION SELECT name FROM job_queue
UNION SELECT unnest(queues) FROM job_worker
"""


def known(db: Db) -> set[str]:
    """The queues that a kind, a schedule, a worker, a pause or a rule names, and those with unfinished or FAILED jobs.
    Calls `bend_plans` on the caller's transaction."""
    return {row[0] for row in _run(db, _NAMED, {})} | {each.queue for each in queues(db, cap=1)}


def resume(db: Db, queue: str) -> None:
    _run(db, "SELECT resume_queue(%(queue)s)", {"queue": queue})


def switch(db: Db, queue: str) -> Switch:
    rows = _run(db, "SELECT paused_at, paused_reason FROM job_queue WHERE name = %(queue)s", {"queue": queue})
    return Switch(*rows[0]) if rows else Switch(None, None)

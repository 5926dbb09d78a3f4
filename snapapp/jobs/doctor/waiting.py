"""Counts the waiting jobs by queue and kind. The query reads a limited number of rows, so that a million waiting jobs
cost no more than ten thousand."""

from dataclasses import dataclass
from datetime import timedelta

from snapapp.jobs.rows.database import Db, run
from snapapp.jobs.rows.people.overviews import bend_plans, walks

CAP = 1000  # jobs of a kind in a queue are counted up to this; CAP + 1 means that there are more


@dataclass(frozen=True, slots=True)
class WaitingKind:
    """The waiting jobs of a kind in a queue. `jobs` is CAP + 1 if there are more than CAP."""

    queue: str
    kind: str
    jobs: int
    oldest_due: float | None  # seconds for which the oldest job has been due; None: no job is due
    oldest_id: int | None  # its id, or that of the oldest in the first LANES heads and lanes
    is_known: bool  # a live worker knows the kind
    is_served: bool  # a live worker that knows the kind works on this queue
    is_paused: bool
    long_wait: timedelta | None  # the queue's own limit for DUE_FOR_LONG

    @property
    def count(self) -> str:
        return f"more than {CAP:,}" if self.jobs > CAP else f"{self.jobs:,}"


# Walks over two indexes find the queues, kinds, priorities and lanes; jobs of the other gates are few and are counted.
_WALKS = walks(
    open=("open", "queue, kind"),
    held=("held", "queue, kind"),
    head=("open", "queue, kind, priority"),
    lane=("held", "queue, kind, lane"),
)
_COUNTS = """, counted AS (
    -- the oldest of the counted jobs matters too, because there may be more lanes than the walk visits
    SELECT open.queue, open.kind, entries.jobs, entries.oldest, NULL::bigint AS id FROM open CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(next_retry_at) AS oldest FROM (
            SELECT next_retry_at FROM snap_processing_job AS job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open'
               AND job.queue = open.queue AND job.kind = open.kind LIMIT %(cap)s + 1) AS first_ones) AS entries
  UNION ALL
    SELECT held.queue, held.kind, entries.jobs, entries.oldest, NULL FROM held CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(next_retry_at) AS oldest FROM (
            SELECT next_retry_at FROM snap_processing_job AS job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held'
               AND job.queue = held.queue AND job.kind = held.kind LIMIT %(cap)s + 1) AS first_ones) AS entries
  UNION ALL
    SELECT head.queue, head.kind, 0, first.next_retry_at, first.id FROM head CROSS JOIN LATERAL (
        SELECT next_retry_at, id FROM snap_processing_job AS job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open' AND job.queue = head.queue
           AND job.kind = head.kind AND job.priority = head.priority
         ORDER BY next_retry_at LIMIT 1) AS first
  UNION ALL
    SELECT lane.queue, lane.kind, 0, first.next_retry_at, first.id FROM lane CROSS JOIN LATERAL (
        SELECT next_retry_at, id FROM snap_processing_job AS job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held' AND job.queue = lane.queue
           AND job.kind = lane.kind AND job.lane = lane.lane
         ORDER BY priority DESC, next_retry_at LIMIT 1) AS first
  UNION ALL
    (SELECT queue, kind, 1, next_retry_at, id FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone' LIMIT %(cap)s + 1)
  UNION ALL
    (SELECT queue, kind, 1, next_retry_at, id FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later' ORDER BY next_retry_at LIMIT %(cap)s + 1)
)
SELECT queue, kind, least(sum(jobs), %(cap)s + 1)::bigint,
       extract(epoch FROM now() - min(oldest) FILTER (WHERE oldest <= now() AND isfinite(oldest)))::float8,
       -- min(ARRAY[time, id])[2] is the id of the job with the lowest time
       (min(ARRAY[extract(epoch FROM oldest), id]) FILTER (
           WHERE id IS NOT NULL AND oldest <= now() AND isfinite(oldest)))[2]::bigint,
       EXISTS (SELECT FROM job_worker WHERE expires_at > now() AND counted.kind = ANY (kinds)),
       EXISTS (SELECT FROM job_worker WHERE expires_at > now() AND counted.kind = ANY (kinds)
                  AND (queues = '{}' OR counted.queue = ANY (queues))),
       EXISTS (SELECT FROM job_queue WHERE name = counted.queue AND paused_at IS NOT NULL),
       (SELECT long_wait FROM job_queue WHERE name = counted.queue)
  FROM counted GROUP BY queue, kind ORDER BY queue, kind
"""
_WAITING = _WALKS + _COUNTS


def waiting(db: Db) -> list[WaitingKind]:
    """Counts in the caller's transaction, and changes planner settings for the rest of it."""
    bend_plans(db)
    return [WaitingKind(*row) for row in run(db, _WAITING, {"cap": CAP})]

"""What waits, by queue and kind, found so that a million waiting jobs cost no more than ten thousand."""

from dataclasses import dataclass

from snapapp.jobs.database import Db, run

CAP = 1000  # jobs of a kind in a queue that are counted: one more than that means more
_LANES = 1000  # in which the oldest due job is looked for


@dataclass(frozen=True, slots=True)
class WaitingKind:
    """A kind that waits in a queue. CAP + 1 jobs: more than CAP."""

    queue: str
    kind: str
    jobs: int
    oldest_due: float | None  # seconds since the oldest due one could have run; None: nothing is due
    is_known: bool  # to a worker that is alive
    is_served: bool  # by such a worker in this queue
    is_paused: bool

    @property
    def count(self) -> str:
        return f"more than {CAP:,}" if self.jobs > CAP else f"{self.jobs:,}"


# For the rest of the transaction: the walks must follow the index even before the statistics know of the rows in it.
_BY_INDEX = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true)
"""

# Two walks over the index, one probe a step; suspects have an index of their own, and are few.
_WAITING = """
WITH RECURSIVE kind AS (
    (SELECT queue, kind FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect ORDER BY queue, kind LIMIT 1)
  UNION ALL
    SELECT next.* FROM kind CROSS JOIN LATERAL (
        SELECT queue, kind FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect AND (queue, kind) > (kind.queue, kind.kind)
         ORDER BY queue, kind LIMIT 1) AS next
), lane AS (
    (SELECT 1 AS number, queue, kind, priority, lane FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect ORDER BY queue, kind, priority, lane LIMIT 1)
  UNION ALL
    SELECT lane.number + 1, next.* FROM lane CROSS JOIN LATERAL (
        SELECT queue, kind, priority, lane FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
           AND (queue, kind, priority, lane) > (lane.queue, lane.kind, lane.priority, lane.lane)
         ORDER BY queue, kind, priority, lane LIMIT 1) AS next
     WHERE lane.number < %(lanes)s
), counted AS (
    -- the oldest of those counted, too: the lanes may be more than are walked
    SELECT kind.queue, kind.kind, entries.jobs, entries.oldest FROM kind CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(next_retry_at) AS oldest FROM (
            SELECT next_retry_at FROM snap_processing_job AS job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
               AND job.queue = kind.queue AND job.kind = kind.kind LIMIT %(cap)s + 1) AS first_ones) AS entries
  UNION ALL
    SELECT lane.queue, lane.kind, 0, first.next_retry_at FROM lane CROSS JOIN LATERAL (
        SELECT next_retry_at FROM snap_processing_job AS job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect AND job.queue = lane.queue
           AND job.kind = lane.kind AND job.priority = lane.priority AND job.lane = lane.lane
         ORDER BY next_retry_at LIMIT 1) AS first
  UNION ALL
    SELECT queue, kind, count(*), min(next_retry_at) FROM (
        SELECT queue, kind, next_retry_at FROM snap_processing_job
         WHERE suspect AND status IN ('PENDING', 'RETRY_WAIT') LIMIT %(cap)s + 1) AS suspects GROUP BY queue, kind
)
SELECT queue, kind, sum(jobs)::bigint,
       extract(epoch FROM now() - min(oldest) FILTER (WHERE oldest <= now() AND isfinite(oldest)))::float8,
       EXISTS (SELECT FROM job_worker WHERE expires_at > now() AND counted.kind = ANY (kinds)),
       EXISTS (SELECT FROM job_worker WHERE expires_at > now() AND counted.kind = ANY (kinds)
                  AND (queues = '{}' OR counted.queue = ANY (queues))),
       EXISTS (SELECT FROM job_queue WHERE name = counted.queue AND paused_at IS NOT NULL)
  FROM counted GROUP BY queue, kind ORDER BY queue, kind
"""


def waiting(db: Db) -> list[WaitingKind]:
    """In the caller's transaction, whose plans it bends."""
    run(db, _BY_INDEX, {})
    return [WaitingKind(*row) for row in run(db, _WAITING, {"cap": CAP, "lanes": _LANES})]

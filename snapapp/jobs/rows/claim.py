"""The claim: due jobs become ours. One statement, whatever there is: backlogs, limits, fair queues, suspects."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

import psycopg

from snapapp.jobs.model import JSON_CAP, Job, Lease
from snapapp.jobs.rows.database import Db, Rows, row_by_row, run

HEADS_AT_ONCE = 64  # one claim looks at so many; where there are more, the next one goes on behind them

# `found` jumps from head to head (queue, kind, priority) over the index: a million rows of a kind that we do not know
# cost one probe. It leaves out the heads that we know, at whose bookmarks `known` looks: what lies before them are dead
# entries, which vacuum cannot remove while somebody holds an old snapshot. `share` then decides how many each gives,
# the oldest first, before `picked` locks them: so two workers get different rows, and nothing is locked in vain.
# A locking CTE is never inlined, so LIMIT is applied once; the ARRAY keeps the generic plan on the primary key.
# psycopg cannot read the -infinity that people may write into a run_at: an answer with one was lost, batch and all.
_CLAIM = """
WITH RECURSIVE known AS MATERIALIZED (
    SELECT * FROM unnest(
        %(from_queue)s::text[], %(from_kind)s::text[], %(from_priority)s::integer[],
        %(after)s::timestamptz[], %(after_id)s::bigint[],
        %(until_queue)s::text[], %(until_kind)s::text[], %(until_priority)s::integer[])
      AS its (queue, kind, priority, after, after_id, until_queue, until_kind, until_priority)
), found AS (
    SELECT next.*, until_queue, until_kind, until_priority FROM known CROSS JOIN LATERAL (
        SELECT job.queue, job.kind, job.priority, job.next_retry_at AS due FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
           AND (job.queue, job.kind, job.priority) > (known.queue, known.kind, known.priority)
           AND (job.queue, job.kind, job.priority) < (known.until_queue, known.until_kind, known.until_priority)
         ORDER BY job.queue, job.kind, job.priority, job.next_retry_at LIMIT 1) AS next
  UNION ALL
    SELECT next.*, until_queue, until_kind, until_priority FROM found CROSS JOIN LATERAL (
        SELECT job.queue, job.kind, job.priority, job.next_retry_at AS due FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
           AND (job.queue, job.kind, job.priority) > (found.queue, found.kind, found.priority)
           AND (job.queue, job.kind, job.priority) < (found.until_queue, found.until_kind, found.until_priority)
         ORDER BY job.queue, job.kind, job.priority, job.next_retry_at LIMIT 1) AS next
), fresh AS MATERIALIZED (
    SELECT queue, kind, priority, due FROM found LIMIT %(heads)s
), head AS MATERIALIZED (  -- those of ours, each with its first job
    SELECT its.*, wanted.executor, wanted.at_most, wanted.at_once
      FROM (SELECT queue, kind, priority, after, after_id, first.due FROM known CROSS JOIN LATERAL (
                SELECT job.next_retry_at AS due FROM snap_processing_job AS job
                 WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
                   AND job.queue = known.queue AND job.kind = known.kind AND job.priority = known.priority
                   AND (job.next_retry_at, job.id) > (known.after, known.after_id)
                 ORDER BY job.next_retry_at, job.id LIMIT 1) AS first
             WHERE %(suspect)s::text IS NULL
          UNION ALL
            SELECT queue, kind, priority, '-infinity', 0, due FROM fresh WHERE %(suspect)s::text IS NULL) AS its
      JOIN unnest(%(kinds)s::text[], %(executors)s::integer[], %(at_most)s::integer[], %(at_once)s::integer[])
           AS wanted (kind, executor, at_most, at_once) USING (kind)
     WHERE %(queues)s::text[] IS NULL OR its.queue = ANY (%(queues)s)
), ready AS MATERIALIZED (
    SELECT *, count(*) OVER () AS heads FROM (
        SELECT head.*, priority + CASE WHEN ages_after IS NULL THEN 0 ELSE least(2000, floor(
                   extract(epoch FROM now() - due) / extract(epoch FROM ages_after)))::integer END AS rank
          FROM head LEFT JOIN job_queue ON job_queue.name = head.queue
         WHERE due <= now() AND paused_at IS NULL
         ORDER BY rank DESC, due LIMIT 16) AS oldest
), share AS MATERIALIZED (  -- how many each gives
    SELECT queue, kind, priority, after, after_id, executor, at_most, at_once, rank, at_most AS jobs, false AS is_cut
      FROM ready WHERE heads = 1
  UNION ALL
    SELECT queue, kind, priority, after, after_id, executor, at_most, at_once, rank, count(*)::integer, bool_or(is_cut)
      FROM (SELECT ready.*, job.nth >= looked_at AS is_cut,
                   row_number() OVER (PARTITION BY executor ORDER BY rank DESC, job.next_retry_at, job.id) AS place
              FROM ready
             CROSS JOIN LATERAL (SELECT least(at_most, 5 * at_most / heads + 4) AS looked_at) AS look
             CROSS JOIN LATERAL (
                SELECT next_retry_at, id, row_number() OVER (ORDER BY next_retry_at, id) AS nth FROM (
                    SELECT job.next_retry_at, job.id FROM snap_processing_job AS job
                     WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
                       AND job.queue = ready.queue AND job.kind = ready.kind AND job.priority = ready.priority
                       AND (job.next_retry_at, job.id) > (ready.after, ready.after_id) AND job.next_retry_at <= now()
                     ORDER BY job.next_retry_at, job.id LIMIT looked_at) AS first_ones) AS job
             WHERE heads > 1) AS merged
     WHERE place <= at_most
     GROUP BY queue, kind, priority, after, after_id, executor, at_most, at_once, rank
), let_in AS MATERIALIZED (  -- of those that a rule holds
    SELECT * FROM job_let_in(%(kinds)s::text[], %(queues)s::text[], %(let_in)s, %(is_idle)s,
                             %(turn_queue)s::text[], %(turn_kind)s::text[], %(turn_lane)s::text[],
                             %(besides)s::bigint[])
     WHERE %(has_rules)s::boolean AND %(suspect)s::text IS NULL
), alone AS MATERIALIZED (
    SELECT id FROM snap_processing_job
     WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone' AND next_retry_at <= now()
       AND kind = ANY (%(kinds)s) AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
       AND NOT EXISTS (SELECT FROM job_queue WHERE name = queue AND paused_at IS NOT NULL)
       -- nothing runs beside it, or it has let others go first; or it has a process of its own, or is only to be buried
       AND (%(suspect)s::text = 'idle' OR next_retry_at < now() - interval '1 minute'
            OR (kind = ANY (%(apart)s) AND memory_mb IS NULL) OR attempt_count >= max_attempts)
       AND %(suspect)s::text IS NOT NULL AND id <> ALL (%(besides)s::bigint[])
     ORDER BY next_retry_at, id LIMIT 1
), ranked AS MATERIALIZED (
    SELECT id, executor, at_most, at_once, max_attempts > 1 AND may_wait AS may_wait,
           row_number() OVER (PARTITION BY executor ORDER BY rank DESC, due, turn, id) AS place
      FROM (SELECT job.*, share.executor, share.at_most, share.at_once, share.rank, 0 AS turn, true AS may_wait
              FROM share CROSS JOIN LATERAL (
                SELECT job.id, job.next_retry_at AS due, job.max_attempts FROM snap_processing_job AS job
                 WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
                   AND job.queue = share.queue AND job.kind = share.kind AND job.priority = share.priority
                   AND (job.next_retry_at, job.id) > (share.after, share.after_id) AND job.next_retry_at <= now()
                   AND job.id <> ALL (%(besides)s::bigint[])
                 ORDER BY job.next_retry_at, job.id LIMIT share.jobs
                   FOR UPDATE SKIP LOCKED) AS job
          UNION ALL
            SELECT job.id, coalesce(chosen.due, job.next_retry_at), job.max_attempts, executor, at_most, at_once,
                   job.priority, chosen.turn, chosen.may_wait
              FROM (SELECT job_id AS id, due, turn, NOT is_limited AS may_wait FROM let_in WHERE job_id IS NOT NULL
                    UNION ALL SELECT id, NULL, 0, false FROM alone) AS chosen
             CROSS JOIN LATERAL (
                SELECT job.* FROM snap_processing_job AS job
                 WHERE job.id = chosen.id AND job.status IN ('PENDING', 'RETRY_WAIT')
                   AND job.id <> ALL (%(besides)s::bigint[]) FOR UPDATE SKIP LOCKED) AS job
              JOIN unnest(%(kinds)s::text[], %(executors)s::integer[], %(at_most)s::integer[], %(at_once)s::integer[])
                   AS wanted (kind, executor, at_most, at_once) USING (kind)) AS job
), picked AS MATERIALIZED (  -- what must not wait in memory only as far as a slot is free; the others move up
    SELECT id, at_most, row_number() OVER (PARTITION BY executor ORDER BY place) AS place
      FROM ranked WHERE may_wait OR place <= at_once
), claimed AS (
    UPDATE snap_processing_job AS job
       SET status = 'RUNNING', claimed_by = %(worker)s, locked_at = now(), lock_expires_at = now() + %(lease_for)s,
           lease_seq = lease_seq + 1, attempt_count = attempt_count + 1, started_at = NULL
     WHERE id = ANY (ARRAY(SELECT id FROM picked WHERE place <= at_most))
    RETURNING id, kind, queue, tenant, priority,
        -- as text, which is what comes; the size on disk first, so that a large one is not read for it
        CASE WHEN waits_for IS NULL AND pg_column_size(payload) <= 65536 AND octet_length(payload::text) <= 65536
             THEN payload END,
        snap_id, attempt_count, max_attempts, lease_seq, timeout_ms, request_id, traceparent, memory_mb,
        greatest(next_retry_at, '1900-01-01Z')
), spent AS (
    INSERT INTO job_limit_key AS bucket (key, full_at)
    SELECT its.key, now() + make_interval(secs => sum(1 / its.value::float8))
      FROM let_in JOIN claimed ON claimed.id = let_in.job_id CROSS JOIN LATERAL jsonb_each_text(let_in.rates) AS its
     GROUP BY its.key
    ON CONFLICT (key) DO UPDATE SET full_at = greatest(bucket.full_at, now()) + (excluded.full_at - now())
)
SELECT claimed.*, picked.place, NULL FROM claimed JOIN picked USING (id)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, now(), NULL,
    jsonb_build_object(
    'due_in', (SELECT extract(epoch FROM min(due) - now())
                 FROM (SELECT due FROM head WHERE due > now()
                       UNION ALL  -- what comes next in a head that had something due: it lies behind that
                       SELECT next.due FROM ready CROSS JOIN LATERAL (
                           SELECT job.next_retry_at AS due FROM snap_processing_job AS job
                            WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
                              AND job.queue = ready.queue AND job.kind = ready.kind AND job.priority = ready.priority
                              AND job.next_retry_at > now()
                            ORDER BY job.next_retry_at, job.id LIMIT 1) AS next) AS later
                WHERE isfinite(due)),
    'found', (SELECT jsonb_agg(jsonb_build_array(queue, kind, priority)) FROM fresh),
    'due', (SELECT jsonb_agg(jsonb_build_array(queue, kind, priority)) FROM head WHERE due <= now()),
    'is_cut', (SELECT coalesce(bool_or(is_cut), false) FROM share) OR (SELECT count(*) >= 16 FROM ready)
              OR (SELECT count(*) FROM ranked) > (SELECT count(*) FROM claimed),
    'let_in', (SELECT jsonb_agg(told) FROM let_in WHERE told IS NOT NULL))
"""


class Head(NamedTuple):
    """Where a claim begins to look: the jobs of one queue, kind and priority, by age."""

    queue: str
    kind: str
    priority: int


FIRST, LAST = Head("", "", -1_000_000), Head("\U0010ffff", "", 0)


class Bookmark(NamedTuple):
    """Up to where a head has nothing that waits."""

    due: datetime
    id: int


class Wanted(NamedTuple):
    """How many jobs of a kind to take, of all that share its executor."""

    kind: str
    executor: int
    at_most: int
    at_once: int  # of those, how many find a free slot; the others wait in memory


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims."""

    worker: str
    lease_for: timedelta
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """Where to look. The default looks at everything that fits into one look."""

    begin: Head = FIRST
    end: Head = LAST
    bookmarks: dict[Head, Bookmark] = field(default_factory=dict)  # of heads between the two
    has_rules: bool = True  # False: nothing is held by limits or fair queues
    is_idle: bool = True  # nothing runs here: a suspect may
    suspect: str | None = None  # "idle" or "busy": take one suspect, and nothing else
    apart: Sequence[str] = ()  # kinds that have a process of their own
    turns: tuple[tuple[str, str, str], ...] = ()  # (queue, kind, lane): whose turn was last
    besides: Collection[int] = ()  # jobs that are known to be refused


class Claimed(NamedTuple):
    """What a claim came to."""

    jobs: list[Job]  # in the order in which they should begin
    last: dict[Head, Bookmark]  # of each head the youngest that was taken
    found: list[Head]  # heads without a bookmark, in order; as many as HEADS_AT_ONCE: there may be more
    due: set[Head]  # those of ours that had something due
    is_cut: bool  # more was due than was looked at
    due_in: float | None  # seconds until the next one of what was looked at
    again_in: float | None  # seconds until rules may let more in
    turns: list[tuple[str, str, str]]
    at: datetime  # by the database's clock


def claim(db: Db, by: Claimant, wanted: Sequence[Wanted], look: Look | None = None) -> Claimed:
    """Takes what is due, older before younger, as much as is wanted."""
    rows = run(db, _CLAIM, _asked(by, wanted, look or Look()))
    told = next(row for row in rows if row[0] is None)
    taken = sorted((row for row in rows if row[0] is not None), key=lambda row: cast(int, row[15]))
    return _claimed([row[:15] for row in taken], told[14], told[16])


_NEXT = """
SELECT id FROM snap_processing_job
 WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate <> 'after' AND next_retry_at <= now()
   AND id <> ALL (%(besides)s::bigint[])
   AND kind = ANY (%(kinds)s) AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
 ORDER BY priority DESC, next_retry_at, id LIMIT 1000
"""
_TRY = """
UPDATE snap_processing_job
   SET status = 'RUNNING', claimed_by = %(worker)s, locked_at = now(), lock_expires_at = now(),
       lease_seq = lease_seq + 1, attempt_count = attempt_count + 1
 WHERE id = ANY (ARRAY(SELECT id FROM snap_processing_job
                        WHERE id = ANY (%(ids)s) AND status IN ('PENDING', 'RETRY_WAIT') FOR UPDATE SKIP LOCKED))
RETURNING id
"""


def refused(db: psycopg.Connection[Any], by: Claimant, kinds: Sequence[str], besides: Collection[int]) -> set[int]:
    """After a claim that PostgreSQL has refused: the jobs that it lets nobody claim, found by trying."""
    found: set[int] = set()

    def tried(ids: Sequence[int]) -> Rows:
        with db.transaction(force_rollback=True):
            return run(db, _TRY, {"worker": by.worker, "ids": list(ids)})

    whose = {"kinds": list(kinds), "queues": list(by.queues) or None, "besides": list(besides)}
    row_by_row(tried, [row[0] for row in run(db, _NEXT, whose)], lambda job_id, _: found.add(job_id))
    return found


def payload(db: Db, lease: Lease) -> bytes | None:
    """A payload that did not come with the claim: it is large, or its job has parents. None: the lease is lost."""
    rows = run(
        db,
        "SELECT convert_to(payload::text, 'UTF8') FROM snap_processing_job"
        " WHERE id = %(id)s AND lease_seq = %(lease_seq)s",
        lease._asdict(),
    )
    return bytes(rows[0][0]) if rows else None


# What the parents of a job have come to. All of their results, or none: a child process is sent 4 MiB at most.
_PARENTS = """
SELECT convert_to(coalesce(jsonb_agg(jsonb_build_object(
           'id', id, 'kind', kind, 'status', status, 'result', CASE WHEN size <= %(cap)s THEN result END,
           'left_out', coalesce(size > %(cap)s, false) AND result IS NOT NULL) ORDER BY id), '[]')::text, 'UTF8')
  FROM (SELECT parent.id, parent.kind, parent.status, parent.result,
               sum(octet_length(parent.result::text)) OVER () AS size
          FROM job_parent AS its JOIN snap_processing_job AS parent ON parent.id = its.parent_id
         WHERE its.job_id = %(id)s) AS parents
"""


def parents(db: Db, job_id: int) -> bytes:
    """As a JSON array, in the order of their ids."""
    return bytes(run(db, _PARENTS, {"id": job_id, "cap": JSON_CAP})[0][0])


def _asked(by: Claimant, wanted: Sequence[Wanted], look: Look) -> dict[str, Any]:
    known = sorted(look.bookmarks)
    begins = [look.begin, *known]
    ends = [*known, look.end]
    marks = [look.bookmarks[head] for head in known]
    return {
        "worker": by.worker,
        "lease_for": by.lease_for,
        "queues": list(by.queues) or None,
        "kinds": [one.kind for one in wanted],
        "executors": [one.executor for one in wanted],
        "at_most": [one.at_most for one in wanted],
        "at_once": [one.at_once for one in wanted],
        "let_in": sum({one.executor: one.at_most for one in wanted}.values()),
        "from_queue": [head.queue for head in begins],
        "from_kind": [head.kind for head in begins],
        "from_priority": [head.priority for head in begins],
        "after": ["-infinity", *(mark.due.isoformat() for mark in marks)],
        "after_id": [0, *(mark.id for mark in marks)],
        "until_queue": [head.queue for head in ends],
        "until_kind": [head.kind for head in ends],
        "until_priority": [head.priority for head in ends],
        "heads": HEADS_AT_ONCE,
        "has_rules": look.has_rules,
        "is_idle": look.is_idle,
        "suspect": look.suspect,
        "apart": list(look.apart),
        "besides": list(look.besides),
        "turn_queue": [queue for queue, _, _ in look.turns],
        "turn_kind": [kind for _, kind, _ in look.turns],
        "turn_lane": [lane for _, _, lane in look.turns],
    }


def _claimed(rows: list[tuple[Any, ...]], at: datetime, told: Any) -> Claimed:
    its = json.loads(told) if isinstance(told, bytes | str) else told
    let_in = its["let_in"] or []
    waits = [one["again_in"] for one in let_in if one.get("again_in") is not None]
    return Claimed(
        jobs=_jobs(rows),
        last=_ends(rows),
        found=[Head(*one) for one in its["found"] or []],
        due={Head(*one) for one in its["due"] or []},
        is_cut=its["is_cut"],
        due_in=None if its["due_in"] is None else max(0.0, float(its["due_in"])),
        again_in=min(waits, default=None),
        turns=[tuple(one) for each in let_in for one in each.get("after") or []],
        at=at,
    )


def _ends(rows: list[tuple[Any, ...]]) -> dict[Head, Bookmark]:
    ends: dict[Head, Bookmark] = {}
    for row in rows:
        head, mark = Head(row[2], row[1], row[4]), Bookmark(row[14], row[0])
        if head not in ends or ends[head] < mark:
            ends[head] = mark
    return ends


def _jobs(rows: list[tuple[Any, ...]]) -> list[Job]:
    jobs = [Job(*row) for row in rows]
    decoded = next((row[5] for row in rows if row[5] is not None), None)
    if isinstance(decoded, dict):  # not a worker's connection: this one decodes JSON
        for job in jobs:
            job.payload_json = None if job.payload_json is None else json.dumps(job.payload_json).encode()
    return jobs

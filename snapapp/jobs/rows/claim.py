"""The claim: one statement that makes due jobs RUNNING for a worker. It serves backlogs, limits, fair queues and
suspects alike."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, cast

import psycopg

from snapapp.jobs.model import JSON_CAP, Job, Lease
from snapapp.jobs.rows.database import Db, Rows, array, array_of_texts, row_by_row, run, run_prepared

HEADS_AT_ONCE = 64  # new heads that one claim looks at; where there are more, the next claim goes on after them

#   known (the heads with bookmarks) ──────┬→ head → ready → share → of_heads ─┐
#   found (the other heads) → fresh ───────┘                                   ├→ ranked → picked → claimed
#   chosen (by limits and fair queues; or a suspect) → of_chosen ──────────────┘
#
# A head is a queue, kind and priority. `found` jumps over the index from head to head: a million rows of a kind that
# this worker does not run cost one probe. It skips the heads in `known`, of which the caller has bookmarks: the index
# entries before a bookmark are dead, and vacuum cannot remove them while some transaction holds an old snapshot.
# `share` decides how many jobs each head gives, the oldest first, and only these does `ranked` lock: with SKIP LOCKED
# two workers get different rows, and no row is locked in vain.
# A CTE that locks is never inlined, so its LIMIT is applied once. `ARRAY(SELECT …)` keeps the generic plan on the
# primary key. greatest(…, '1900-01-01Z') replaces -infinity, which people may write into a run_at: psycopg cannot read
# it, and before version 17 PostgreSQL cannot subtract it, so the whole answer would be lost.
_HEADS = """
known AS MATERIALIZED (
    SELECT * FROM unnest(
        %(from_queue)s::text[], %(from_kind)s::text[], %(from_priority)s::integer[],
        %(after)s::timestamptz[], %(after_id)s::bigint[],
        %(until_queue)s::text[], %(until_kind)s::text[], %(until_priority)s::integer[])
      AS its (queue, kind, priority, after, after_id, until_queue, until_kind, until_priority)
), found AS (  -- the heads after each known one; the known ones themselves have no due
    SELECT queue, kind, priority, NULL::timestamptz AS due, until_queue, until_kind, until_priority FROM known
  UNION ALL
    SELECT next.*, until_queue, until_kind, until_priority
      FROM found CROSS JOIN LATERAL job_next_head(
        found.queue, found.kind, found.priority, until_queue, until_kind, until_priority) AS next
), fresh AS MATERIALIZED (
    SELECT queue, kind, priority, due FROM found WHERE due IS NOT NULL LIMIT %(heads)s
), head AS MATERIALIZED (  -- heads of our kinds and queues, each with the time of its first job
    SELECT its.*, wanted.executor, wanted.at_most, wanted.at_once
      FROM (SELECT queue, kind, priority, after, after_id, first.due FROM known CROSS JOIN LATERAL (
                SELECT job.next_retry_at AS due FROM snap_processing_job AS job
                 WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
                   AND job.queue = known.queue AND job.kind = known.kind AND job.priority = known.priority
                   AND (job.next_retry_at, job.id) > (known.after, known.after_id)
                 ORDER BY job.next_retry_at, job.id LIMIT 1) AS first
          UNION ALL
            SELECT queue, kind, priority, '-infinity', 0, due FROM fresh) AS its
      JOIN unnest(%(kinds)s::text[], %(executors)s::integer[], %(at_most)s::integer[], %(at_once)s::integer[])
           AS wanted (kind, executor, at_most, at_once) USING (kind)
     WHERE %(queues)s::text[] IS NULL OR its.queue = ANY (%(queues)s)
), ready AS MATERIALIZED (
    SELECT *, count(*) OVER () AS heads FROM (
        -- where a queue ages its jobs, each `ages_after` of waiting adds 1 to the priority, but never more than 2000
        SELECT head.*, priority + CASE WHEN ages_after IS NULL THEN 0 ELSE least(2000, floor(
                   extract(epoch FROM now() - greatest(due, '1900-01-01Z')) / extract(epoch FROM ages_after)
                   ))::integer END AS rank
          FROM head LEFT JOIN job_queue ON job_queue.name = head.queue
         WHERE due <= now() AND paused_at IS NULL
           AND (%(besides)s::bigint[] = '{}' OR EXISTS (
                SELECT FROM snap_processing_job AS job
                 WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
                   AND job.queue = head.queue AND job.kind = head.kind AND job.priority = head.priority
                   AND (job.next_retry_at, job.id) > (head.after, head.after_id) AND job.next_retry_at <= now()
                   AND job.id <> ALL (%(besides)s::bigint[])))
         ORDER BY rank DESC, due LIMIT 16) AS oldest
), share AS MATERIALIZED (  -- how many jobs each head gives; a single one needs no comparison with others
    SELECT queue, kind, priority, after, after_id, executor, at_most, at_once, rank, at_most AS jobs, false AS is_cut
      FROM ready WHERE heads = 1
  UNION ALL
    SELECT queue, kind, priority, after, after_id, executor, at_most, at_once, rank, count(*)::integer, bool_or(is_cut)
      FROM (SELECT ready.*, job.nth >= looked_at AS is_cut,
                   row_number() OVER (PARTITION BY executor ORDER BY rank DESC, job.next_retry_at, job.id) AS place
              FROM ready
             -- of many heads each gives few jobs, so it is enough to look at five times an equal share
             CROSS JOIN LATERAL (SELECT least(at_most, 5 * at_most / heads + 4) AS looked_at) AS look
             CROSS JOIN LATERAL (
                SELECT next_retry_at, id, row_number() OVER (ORDER BY next_retry_at, id) AS nth FROM (
                    SELECT job.next_retry_at, job.id FROM snap_processing_job AS job
                     WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
                       AND job.queue = ready.queue AND job.kind = ready.kind AND job.priority = ready.priority
                       AND (job.next_retry_at, job.id) > (ready.after, ready.after_id) AND job.next_retry_at <= now()
                       AND job.id <> ALL (%(besides)s::bigint[])
                     ORDER BY job.next_retry_at, job.id LIMIT looked_at) AS first_ones) AS job
             WHERE heads > 1) AS merged
     WHERE place <= at_most
     GROUP BY queue, kind, priority, after, after_id, executor, at_most, at_once, rank
), of_heads AS (
    SELECT job.*, share.executor, share.at_most, share.at_once, share.rank, 0 AS turn, true AS may_wait
      FROM share CROSS JOIN LATERAL (
        SELECT job.id, job.next_retry_at AS due, job.max_attempts FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
           AND job.queue = share.queue AND job.kind = share.kind AND job.priority = share.priority
           AND (job.next_retry_at, job.id) > (share.after, share.after_id) AND job.next_retry_at <= now()
           AND job.id <> ALL (%(besides)s::bigint[])
         ORDER BY job.next_retry_at, job.id LIMIT share.jobs
           FOR UPDATE SKIP LOCKED) AS job
)
"""

# Jobs held by limits or fair queues that may run now.
_LET_IN = """
let_in AS MATERIALIZED (
    SELECT * FROM job_let_in(%(kinds)s::text[], %(queues)s::text[], %(let_in)s, %(is_idle)s,
                             %(turn_queue)s::text[], %(turn_kind)s::text[], %(turn_lane)s::text[],
                             %(besides)s::bigint[])
), chosen AS (  -- a limited job would take a place under its limit while it waits in memory
    SELECT job_id AS id, due, turn, NOT is_limited AS may_wait FROM let_in WHERE job_id IS NOT NULL
)
"""
# One job that should run alone: a suspect, or one that ran short of memory before. It needs its slot at once.
_SUSPECT = """
chosen AS MATERIALIZED (
    SELECT id, next_retry_at AS due, 0 AS turn, false AS may_wait FROM snap_processing_job
     WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone' AND next_retry_at <= now()
       AND kind = ANY (%(kinds)s) AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
       AND NOT EXISTS (SELECT FROM job_queue WHERE name = queue AND paused_at IS NOT NULL)
       -- it may run when nothing else runs here, when it has waited for a minute, when its own process protects the
       -- others, or when its attempts are used up, because then it will only be settled as FAILED
       AND (%(is_idle)s OR next_retry_at < now() - interval '1 minute'
            OR (kind = ANY (%(apart)s) AND memory_mb IS NULL) OR attempt_count >= max_attempts)
       AND id <> ALL (%(besides)s::bigint[])
     ORDER BY next_retry_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
)
"""
# Those of `chosen` that nobody else has locked.
_CHOSEN = """
of_chosen AS (
    SELECT job.id, coalesce(chosen.due, job.next_retry_at) AS due, job.max_attempts, executor, at_most, at_once,
           job.priority AS rank, chosen.turn, chosen.may_wait
      FROM chosen CROSS JOIN LATERAL (
        SELECT job.* FROM snap_processing_job AS job
         WHERE job.id = chosen.id AND job.status IN ('PENDING', 'RETRY_WAIT')
           AND job.id <> ALL (%(besides)s::bigint[]) FOR UPDATE SKIP LOCKED) AS job
      JOIN unnest(%(kinds)s::text[], %(executors)s::integer[], %(at_most)s::integer[], %(at_once)s::integer[])
           AS wanted (kind, executor, at_most, at_once) USING (kind)
)
"""
_RANKED = """
ranked AS MATERIALIZED (
    -- a job with a single attempt never waits in memory: if the worker died meanwhile, the attempt would be lost
    SELECT id, executor, at_most, at_once, max_attempts > 1 AND may_wait AS may_wait,
           row_number() OVER (PARTITION BY executor ORDER BY rank DESC, due, turn, id) AS place
      FROM ({rows}) AS row
)
"""
_CLAIMED = """
picked AS MATERIALIZED (  -- jobs that must not wait in memory only while a slot is free; others move up
    SELECT id, at_most, row_number() OVER (PARTITION BY executor ORDER BY place) AS place
      FROM ranked WHERE may_wait OR place <= at_once
), claimed AS (
    UPDATE snap_processing_job AS job
       SET status = 'RUNNING', claimed_by = %(worker)s, locked_at = now(), lock_expires_at = now() + %(lease_for)s,
           -- A claim gives the time. After a failover that lost the last commits, a worker may still hold a lease that
           -- this server never gave: if leases were counted, a claim here would give the same one again, to another
           -- attempt or to a newer job with the same id, and that worker's result would end it.
           lease_seq = greatest(lease_seq + 1, (date_part('epoch', now()) * 1000000)::bigint),
           attempt_count = attempt_count + 1, started_at = NULL
     WHERE id = ANY (ARRAY(SELECT id FROM picked WHERE place <= at_most))
    RETURNING id, kind, queue, tenant, priority,
        -- above 64 KiB as text it is fetched later; the size on disk is asked first, so a large one is not even read
        CASE WHEN waits_for IS NULL AND pg_column_size(payload) <= 65536 AND octet_length(payload::text) <= 65536
             THEN payload END,
        snap_id, attempt_count, max_attempts, lease_seq, timeout_ms, request_id, traceparent, memory_mb,
        greatest(next_retry_at, '1900-01-01Z')
)
"""
# Token buckets of rate limits: each job moves the time when its bucket is full again.
_SPENT = """
spent AS (
    INSERT INTO job_limit_key AS bucket (key, full_at)
    SELECT its.key, now() + make_interval(secs => sum(1 / its.value::float8))
      FROM let_in JOIN claimed ON claimed.id = let_in.job_id CROSS JOIN LATERAL jsonb_each_text(let_in.rates) AS its
     GROUP BY its.key
    ON CONFLICT (key) DO UPDATE SET full_at = greatest(bucket.full_at, now()) + (excluded.full_at - now())
)
"""

_ANSWER = """
SELECT claimed.*, picked.place, NULL FROM claimed JOIN picked USING (id)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, now(), NULL,
       jsonb_build_object({summary})
"""
_ABOUT_HEADS = """
    'due_in', (SELECT extract(epoch FROM min(due) - now())
                 FROM (SELECT due FROM head WHERE due > now()
                       UNION ALL  -- heads that had a due job now: their first job that is not due yet
                       SELECT next.due FROM ready CROSS JOIN LATERAL (
                           SELECT job.next_retry_at AS due FROM snap_processing_job AS job
                            WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
                              AND job.queue = ready.queue AND job.kind = ready.kind AND job.priority = ready.priority
                              AND job.next_retry_at > now()
                            ORDER BY job.next_retry_at, job.id LIMIT 1) AS next) AS later
                WHERE isfinite(due)),  -- people may write infinity into a run_at: such a job is never due
    'found', (SELECT jsonb_agg(jsonb_build_array(queue, kind, priority)) FROM fresh),
    'due', (SELECT jsonb_agg(jsonb_build_array(queue, kind, priority)) FROM head WHERE due <= now()),
    -- bool_or of no rows is NULL; 16 rows in `ready` are its LIMIT, so it may have left out heads
    'is_cut', (SELECT coalesce(bool_or(is_cut), false) FROM share) OR (SELECT count(*) >= 16 FROM ready)
              OR (SELECT count(*) FROM ranked) > (SELECT count(*) FROM claimed),
    -- these take all places of an executor, but other transactions have locked them
    'passed_over', (
        SELECT jsonb_agg(job.id) FROM share CROSS JOIN LATERAL (
            SELECT job.id FROM snap_processing_job AS job
             WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
               AND job.queue = share.queue AND job.kind = share.kind AND job.priority = share.priority
               AND (job.next_retry_at, job.id) > (share.after, share.after_id) AND job.next_retry_at <= now()
               AND job.id <> ALL (%(besides)s::bigint[])
             ORDER BY job.next_retry_at, job.id LIMIT share.jobs) AS job
         WHERE share.executor <> ALL (ARRAY(SELECT executor FROM ranked)))
"""
_ABOUT_LET_IN = """
    'let_in', (SELECT jsonb_agg(told) FROM let_in WHERE told IS NOT NULL),
    -- these take places under limits, but other transactions have locked them; not those that job_let_in sees and this
    -- statement does not, because they came later: the next claim takes them
    'locked', (SELECT jsonb_agg(id) FROM snap_processing_job
                WHERE id = ANY (ARRAY(SELECT job_id FROM let_in WHERE job_id <> ALL (ARRAY(SELECT id FROM ranked))))
                  AND status IN ('PENDING', 'RETRY_WAIT'))
"""


@cache
def _statement(*, takes_suspect: bool, has_rules: bool) -> str:
    """The claim, of the parts that it needs. PostgreSQL sets up every part of a statement each time it runs, also one
    that then gives no rows, and on an idle queue most of a claim's time is that."""
    if takes_suspect:
        parts, rows, summary = [_SUSPECT, _CHOSEN], "TABLE of_chosen", "'is_cut', false"
    elif has_rules:
        parts, rows = [_HEADS, _LET_IN, _CHOSEN], "TABLE of_heads UNION ALL TABLE of_chosen"
        summary = f"{_ABOUT_HEADS}, {_ABOUT_LET_IN}"
    else:
        parts, rows, summary = [_HEADS], "TABLE of_heads", _ABOUT_HEADS
    last = [_RANKED.format(rows=rows), _CLAIMED, *([_SPENT] if _LET_IN in parts else [])]
    return f"WITH RECURSIVE {','.join([*parts, *last])} {_ANSWER.format(summary=summary)}"


class Head(NamedTuple):
    """The jobs of one queue, kind and priority, in the order in which they become due."""

    queue: str
    kind: str
    priority: int


# No name begins with U+10FFFF, which stands for no character; to pass a longer text took 0.1 ms of each claim.
_AFTER_ALL = "\U0010ffff"
FIRST, LAST = Head("", "", -1_000_000), Head(_AFTER_ALL, "", 0)


def bounds_of(queue: str) -> tuple[Head, Head]:
    """Two heads between which are those of the queue."""
    return FIRST._replace(queue=queue), Head(queue, _AFTER_ALL, 0)


class Bookmark(NamedTuple):
    """A place in a head before which no job waits."""

    due: datetime
    id: int


class Wanted(NamedTuple):
    """How many jobs of a kind to claim at most. `at_most` limits all kinds of its executor together."""

    kind: str
    executor: int
    at_most: int
    at_once: int  # how many of them find a free slot; the others wait in memory


@dataclass(frozen=True, slots=True)
class ClaimingWorker:
    id: str
    lease_for: timedelta
    queues: tuple[str, ...] = ()  # empty: all


@dataclass(frozen=True, slots=True)
class Look:
    """Which part of the queue one claim looks at. The default: from the first head on, HEADS_AT_ONCE of them."""

    begin: Head = FIRST
    end: Head = LAST
    bookmarks: dict[Head, Bookmark] = field(default_factory=dict)  # of heads between begin and end
    has_rules: bool = True  # False: there are no limits and no fair queues, so job_let_in is not called
    is_idle: bool = True  # this worker runs no job, so any suspect may run
    takes_suspect: bool = False  # claim one suspect and no other job
    apart: Sequence[str] = ()  # kinds whose jobs run in child processes
    turns: tuple[tuple[str, str, str], ...] = ()  # (queue, kind, lane): the lane that was served last
    besides: Collection[int] = ()  # jobs to leave out: PostgreSQL refuses to let us write them, or they were `locked`


class Claimed(NamedTuple):
    """The result of a claim."""

    jobs: list[Job]  # in the order in which they should begin
    last: dict[Head, Bookmark]  # the last job claimed of each head
    new_heads: list[Head]  # heads without a bookmark, in order; if there are HEADS_AT_ONCE, more may follow
    due: set[Head]  # heads of our kinds that had a due job
    is_cut: bool  # more jobs were due than were looked at
    due_in: float | None  # seconds until the next job of the heads looked at is due
    again_in: float | None  # seconds until limits or fair queues may let more jobs run
    turns: list[tuple[str, str, str]]  # as in Look, for the next claim
    locked: list[int]  # jobs that kept others from being claimed, although other transactions have locked them
    at: datetime  # when the claim began, by the database's clock


def claim(db: Db, by: ClaimingWorker, wanted: Sequence[Wanted], look: Look | None = None) -> Claimed:
    """Claims due jobs, by priority and then age, as many as wanted."""
    rows = ask(db, by, wanted, look or Look())
    summary = next(row for row in rows if row[0] is None)
    job_rows = sorted((row for row in rows if row[0] is not None), key=lambda row: cast(int, row[15]))
    return _claimed([row[:15] for row in job_rows], summary[14], summary[16])


def ask(db: Db, by: ClaimingWorker, wanted: Sequence[Wanted], look: Look) -> Rows:
    """Runs the claim, and returns the answer as PostgreSQL gives it."""
    statement = _statement(takes_suspect=look.takes_suspect, has_rules=look.has_rules)
    return run_prepared(db, statement, _parameters(by, wanted, look))


# The jobs that claims choose from: of each gate a thousand, so that none hides those of another. Of the held ones the
# first of each lane come before the second, because behind a full limit a million may wait.
_NEXT = """
WITH due AS (
    SELECT id, gate, next_retry_at,
           priority + CASE WHEN ages_after IS NULL THEN 0 ELSE least(2000, floor(
               extract(epoch FROM now() - greatest(next_retry_at, '1900-01-01Z')) / extract(epoch FROM ages_after)
               ))::integer END AS rank,
           CASE gate WHEN 'held' THEN row_number() OVER (
               PARTITION BY gate, queue, kind, lane ORDER BY priority DESC, next_retry_at, id) END AS nth
      FROM snap_processing_job LEFT JOIN job_queue ON job_queue.name = queue
     WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate <> 'after' AND next_retry_at <= now() AND paused_at IS NULL
       AND id <> ALL (%(besides)s::bigint[])
       AND kind = ANY (%(kinds)s) AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
), placed AS (
    SELECT id, row_number() OVER (PARTITION BY gate ORDER BY nth, rank DESC, next_retry_at, id) AS place FROM due
)
SELECT id FROM placed WHERE place <= 1000 ORDER BY place
"""
# Like a claim it also reads the payload, which may be damaged.
_TRY = """
UPDATE snap_processing_job
   SET status = 'RUNNING', claimed_by = %(worker)s, locked_at = now(), lock_expires_at = now(),
       lease_seq = lease_seq + 1, attempt_count = attempt_count + 1
 WHERE id = ANY (ARRAY(SELECT id FROM snap_processing_job
                        WHERE id = ANY (%(ids)s) AND status IN ('PENDING', 'RETRY_WAIT') FOR UPDATE SKIP LOCKED))
RETURNING id, CASE WHEN waits_for IS NULL AND pg_column_size(payload) <= 65536 THEN octet_length(payload::text) END
"""


def refused(
    db: psycopg.Connection[Any], by: ClaimingWorker, kinds: Sequence[str], besides: Collection[int]
) -> set[int]:
    """After a claim that PostgreSQL refused: tries the due jobs, ever fewer at a time, and returns those refused.
    Each try is rolled back."""
    refused_ids: set[int] = set()

    def try_to_claim(ids: Sequence[int]) -> Rows:
        with db.transaction(force_rollback=True):
            return run(db, _TRY, {"worker": by.id, "ids": list(ids)})

    filters = {"kinds": list(kinds), "queues": list(by.queues) or None, "besides": list(besides)}
    row_by_row(try_to_claim, [row[0] for row in run(db, _NEXT, filters)], lambda job_id, _: refused_ids.add(job_id))
    return refused_ids


# The row comparison alone would not end the scan before version 18.
_FIRST_BEFORE = """
SELECT its.queue, its.kind, its.priority, first.due, first.id
  FROM unnest(%(its_queue)s::text[], %(its_kind)s::text[], %(its_priority)s::integer[], %(due)s::timestamptz[],
              %(id)s::bigint[]) AS its (queue, kind, priority, due, id)
 CROSS JOIN LATERAL (
    SELECT CASE WHEN job.next_retry_at >= '1900-01-01Z' THEN job.next_retry_at END AS due, job.id
      FROM snap_processing_job AS job
     WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
       AND job.queue = its.queue AND job.kind = its.kind AND job.priority = its.priority
       AND job.next_retry_at <= its.due AND (job.next_retry_at, job.id) <= (its.due, its.id)
     ORDER BY job.next_retry_at, job.id LIMIT 1) AS first
"""


def first_before(db: Db, marks: Mapping[Head, Bookmark]) -> dict[Head, Bookmark | None]:
    """Of the heads in which a job waits before the bookmark: a bookmark just before the first of them. None: it is due
    before any time that a bookmark can name."""
    places = {
        "due": array_of_texts([mark.due.isoformat() for mark in marks.values()]),
        "id": array([mark.id for mark in marks.values()]),
    }
    rows = run_prepared(db, _FIRST_BEFORE, _columns("its", [*marks]) | places)
    return {Head(*row[:3]): None if row[3] is None else Bookmark(row[3], row[4] - 1) for row in rows}


def payload(db: Db, lease: Lease) -> bytes | None:
    """Reads a payload that the claim left out because it is large or its job has parents. None: the lease is lost."""
    rows = run(
        db,
        "SELECT convert_to(payload::text, 'UTF8') FROM snap_processing_job"
        " WHERE id = %(id)s AND lease_seq = %(lease_seq)s",
        lease._asdict(),
    )
    return bytes(rows[0][0]) if rows else None


# The results of a job's parents: all of them, or none when their sum is too large, because a message to a child
# process has at most 4 MiB. coalesce: jsonb_agg of no rows is NULL, and so is the size where no parent has a result.
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
    """The job's parents as a JSON array, in the order of their ids."""
    return bytes(run(db, _PARENTS, {"id": job_id, "cap": JSON_CAP})[0][0])


def _parameters(by: ClaimingWorker, wanted: Sequence[Wanted], look: Look) -> dict[str, Any]:
    bookmarked = sorted(look.bookmarks)
    marks = [look.bookmarks[head] for head in bookmarked]
    return {
        "worker": by.id,
        "lease_for": by.lease_for,
        "queues": array_of_texts(by.queues) if by.queues else None,
        "kinds": array_of_texts([one.kind for one in wanted]),
        "executors": array([one.executor for one in wanted]),
        "at_most": array([one.at_most for one in wanted]),
        "at_once": array([one.at_once for one in wanted]),
        "let_in": sum({one.executor: one.at_most for one in wanted}.values()),
        **_columns("from", [look.begin, *bookmarked]),
        "after": array_of_texts(["-infinity", *(mark.due.isoformat() for mark in marks)]),
        "after_id": array([0, *(mark.id for mark in marks)]),
        **_columns("until", [*bookmarked, look.end]),
        "heads": HEADS_AT_ONCE,
        "is_idle": look.is_idle,
        "apart": array_of_texts(look.apart),
        "besides": array(look.besides),
        "turn_queue": array_of_texts([queue for queue, _, _ in look.turns]),
        "turn_kind": array_of_texts([kind for _, kind, _ in look.turns]),
        "turn_lane": array_of_texts([lane for _, _, lane in look.turns]),
    }


def _columns(name: str, heads: Sequence[Head]) -> dict[str, str]:
    """The heads as the parameters `name`_queue, `name`_kind and `name`_priority."""
    return {
        f"{name}_queue": array_of_texts([head.queue for head in heads]),
        f"{name}_kind": array_of_texts([head.kind for head in heads]),
        f"{name}_priority": array([head.priority for head in heads]),
    }


def _claimed(rows: list[tuple[Any, ...]], at: datetime, summary: Any) -> Claimed:
    its = json.loads(summary) if isinstance(summary, bytes | str) else summary
    let_in = its.get("let_in") or []
    waits = [one["again_in"] for one in let_in if one.get("again_in") is not None]
    jobs = _jobs(rows)
    return Claimed(
        jobs=jobs,
        last=_last_of_each_head(jobs),
        new_heads=[Head(*one) for one in its.get("found") or []],
        due={Head(*one) for one in its.get("due") or []},
        is_cut=its["is_cut"],
        due_in=None if its.get("due_in") is None else max(0.0, float(its["due_in"])),
        again_in=min(waits, default=None),
        turns=[tuple(one) for each in let_in for one in each.get("after") or []],
        locked=[*(its.get("passed_over") or []), *(its.get("locked") or [])],
        at=at,
    )


def _last_of_each_head(jobs: list[Job]) -> dict[Head, Bookmark]:
    last: dict[Head, Bookmark] = {}
    for job in jobs:
        head, mark = Head(job.queue, job.kind, job.priority), Bookmark(cast(datetime, job.due_at), job.id)
        if head not in last or last[head] < mark:
            last[head] = mark
    return last


def _jobs(rows: list[tuple[Any, ...]]) -> list[Job]:
    jobs = [Job(*row) for row in rows]
    decoded = next((row[5] for row in rows if row[5] is not None), None)
    if isinstance(decoded, dict):  # a test's connection decodes JSON, a worker's does not
        for job in jobs:
            job.payload_json = None if job.payload_json is None else json.dumps(job.payload_json).encode()
    return jobs

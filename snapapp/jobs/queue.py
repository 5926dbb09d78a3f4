"""Every statement that changes a job, whole. Each function takes the caller's connection and never commits.

A statement is SQL text with psycopg placeholders: the worker runs it on psycopg, `enqueue` and the hooks on the
caller's SQLAlchemy connection. The order of reading is the life of a job: enqueued, claimed, beaten, settled,
recovered, pruned.

What people and callers ask for in vain is refused with UnknownJob, IllegalTransition or DuplicateKey, in the database's
own words. Where the database has said it, PostgreSQL has aborted the transaction that the call stood in: roll back, or
call within `together`.
"""

import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import psycopg
import sqlalchemy
from psycopg.pq import TransactionStatus
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from snapapp.jobs.database import Db as Db  # part of this module's signatures
from snapapp.jobs.database import Rows
from snapapp.jobs.database import run as _run
from snapapp.jobs.errors import DuplicateKey, IllegalTransition, JobsError, UnknownJob
from snapapp.jobs.model import (
    Buried,
    Failure,
    Finished,
    Job,
    Lease,
    Retried,
    Snoozed,
    Status,
    Stopped,
    Succeeded,
)

# --- enqueued ---------------------------------------------------------------------------------------------------

_ENQUEUE = """
SELECT enqueue_job(
    kind => %(kind)s, payload => %(payload)s::jsonb, queue => %(queue)s, priority => %(priority)s,
    run_at => %(run_at)s, unique_key => %(unique_key)s, max_attempts => %(max_attempts)s, delay => %(delay)s,
    unique_scope => %(unique_scope)s, on_conflict => %(on_conflict)s, concurrency_key => %(concurrency_key)s,
    timeout_ms => %(timeout_ms)s, tenant => %(tenant)s, snap_id => %(snap_id)s, request_id => %(request_id)s)
"""


def enqueue(db: Db, spec: Mapping[str, Any]) -> int | None:
    """Adds a job in the caller's transaction; None where on_conflict='ignore' met a holder of its unique key.
    DuplicateKey, which ends that transaction: on_conflict='replace' met a holder that waits no more."""
    return cast("int | None", _ask(db, _ENQUEUE, spec)[0][0])


def enqueue_many(db: Db, specs_json: str) -> list[int | None]:
    """Adds many: one jsonb parameter is the quickest way in, twice as quick as arrays. Refuses as `enqueue` does."""
    rows = _ask(db, "SELECT enqueue_jobs(%(specs)s::jsonb)", {"specs": specs_json})
    return [row[0] for row in rows]


# --- claimed ----------------------------------------------------------------------------------------------------

# `head` finds the distinct (queue, kind, priority) with waiting rows by a loose index scan: a million rows of a kind
# that we do not know cost one probe. `lane` walks each head's lanes the same way, only as far as the LIMIT pulls it.
# A locking CTE is never inlined, so LIMIT is applied once; the ARRAY keeps the generic plan on the primary key.
# psycopg cannot read the -infinity that people may write into a run_at: an answer with one was lost, batch and all.
# While there is any rule (a limit, a fair queue) it claims nothing: who does not know yet of a rule cannot break it.
_CLAIM = """
WITH RECURSIVE head AS (
    (SELECT queue, kind, priority FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
      ORDER BY queue, kind, priority LIMIT 1)
  UNION ALL
    SELECT next.* FROM head CROSS JOIN LATERAL (
        SELECT job.queue, job.kind, job.priority FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
           AND (job.queue, job.kind, job.priority) > (head.queue, head.kind, head.priority)
         ORDER BY job.queue, job.kind, job.priority LIMIT 1) AS next
), picked AS MATERIALIZED (
    SELECT due.id FROM (
        SELECT * FROM head
         WHERE kind = ANY (%(kinds)s) AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
           AND NOT EXISTS (SELECT FROM job_queue WHERE name = head.queue AND paused_at IS NOT NULL)
           AND NOT EXISTS (SELECT FROM job_limit) AND NOT EXISTS (SELECT FROM job_queue WHERE fair)
         ORDER BY priority DESC, random()) AS open  -- random: kinds of one priority take turns
     CROSS JOIN LATERAL (
        WITH RECURSIVE walk AS (
            (SELECT job.lane FROM snap_processing_job AS job
              WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
                AND job.queue = open.queue AND job.kind = open.kind AND job.priority = open.priority
              ORDER BY job.lane LIMIT 1)
          UNION ALL
            SELECT next.lane FROM walk CROSS JOIN LATERAL (
                SELECT job.lane FROM snap_processing_job AS job
                 WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
                   AND job.queue = open.queue AND job.kind = open.kind AND job.priority = open.priority
                   AND job.lane > walk.lane
                 ORDER BY job.lane LIMIT 1) AS next
        ) SELECT lane FROM walk) AS lanes
     CROSS JOIN LATERAL (
        SELECT job.id FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
           AND job.queue = open.queue AND job.kind = open.kind AND job.priority = open.priority
           AND job.lane = lanes.lane AND job.next_retry_at <= now()
         ORDER BY job.next_retry_at, job.id LIMIT %(limit)s
           FOR UPDATE SKIP LOCKED) AS due
     LIMIT %(limit)s
)
UPDATE snap_processing_job AS job
   SET status = 'RUNNING', claimed_by = %(worker)s, locked_at = now(), lock_expires_at = now() + %(lease_for)s,
       lease_seq = lease_seq + 1, attempt_count = attempt_count + 1, started_at = NULL
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
RETURNING id, kind, queue, tenant, priority,
    CASE WHEN pg_column_size(payload) <= 65536 THEN payload END, snap_id, attempt_count, max_attempts, lease_seq,
    timeout_ms, request_id, suspect, greatest(next_retry_at, '1900-01-01Z'), lane
"""

# The same from where the last full batch ended, within one head: it skips the entries that vacuum cannot remove yet
# while somebody holds an old snapshot (200,000 of them: 60 ms a claim without the bookmark, 2 ms with it).
_CLAIM_ON = """
WITH RECURSIVE walk AS (
    SELECT %(lane)s::text COLLATE "C" AS lane, %(next_retry_at)s::timestamptz AS after, %(id)s::bigint AS after_id
     WHERE NOT EXISTS (SELECT FROM job_queue WHERE name = %(queue)s AND paused_at IS NOT NULL)
       AND NOT EXISTS (SELECT FROM job_limit) AND NOT EXISTS (SELECT FROM job_queue WHERE fair)
  UNION ALL
    SELECT next.lane, '-infinity'::timestamptz, 0::bigint FROM walk CROSS JOIN LATERAL (
        SELECT job.lane FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
           AND job.queue = %(queue)s AND job.kind = %(kind)s AND job.priority = %(priority)s
           AND job.lane > walk.lane
         ORDER BY job.lane LIMIT 1) AS next
), picked AS MATERIALIZED (
    SELECT due.id FROM walk CROSS JOIN LATERAL (
        SELECT job.id FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
           AND job.queue = %(queue)s AND job.kind = %(kind)s AND job.priority = %(priority)s
           AND job.lane = walk.lane AND job.next_retry_at <= now()
           -- without the lane in this comparison, else it filters instead of positioning the scan
           AND (job.next_retry_at, job.id) > (walk.after, walk.after_id)
         ORDER BY job.next_retry_at, job.id LIMIT %(limit)s
           FOR UPDATE SKIP LOCKED) AS due
     LIMIT %(limit)s
)
UPDATE snap_processing_job AS job
   SET status = 'RUNNING', claimed_by = %(worker)s, locked_at = now(), lock_expires_at = now() + %(lease_for)s,
       lease_seq = lease_seq + 1, attempt_count = attempt_count + 1, started_at = NULL
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
RETURNING id, kind, queue, tenant, priority,
    CASE WHEN pg_column_size(payload) <= 65536 THEN payload END, snap_id, attempt_count, max_attempts, lease_seq,
    timeout_ms, request_id, suspect, greatest(next_retry_at, '1900-01-01Z'), lane
"""

_CLAIM_SUSPECT = """
WITH picked AS MATERIALIZED (
    SELECT id FROM snap_processing_job
     WHERE suspect AND status IN ('PENDING', 'RETRY_WAIT') AND next_retry_at <= now()
       AND kind = ANY (%(kinds)s) AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
       AND NOT EXISTS (SELECT FROM job_queue WHERE name = queue AND paused_at IS NOT NULL)
       AND NOT EXISTS (SELECT FROM job_limit)
     ORDER BY next_retry_at, id LIMIT 1
       FOR UPDATE SKIP LOCKED
)
UPDATE snap_processing_job AS job
   SET status = 'RUNNING', claimed_by = %(worker)s, locked_at = now(), lock_expires_at = now() + %(lease_for)s,
       lease_seq = lease_seq + 1, attempt_count = attempt_count + 1, started_at = NULL
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
RETURNING id, kind, queue, tenant, priority,
    CASE WHEN pg_column_size(payload) <= 65536 THEN payload END, snap_id, attempt_count, max_attempts, lease_seq,
    timeout_ms, request_id, suspect, greatest(next_retry_at, '1900-01-01Z'), lane
"""


class Bookmark(NamedTuple):
    """Where a full batch ended: the next claim may start here, for a while."""

    queue: str
    kind: str
    priority: int
    lane: str
    next_retry_at: datetime
    id: int


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims, and what it can run."""

    worker: str
    lease_for: timedelta
    queues: tuple[str, ...] = ()

    def asks_for(self, kinds: Collection[str]) -> dict[str, Any]:
        return {
            "worker": self.worker,
            "lease_for": self.lease_for,
            "queues": list(self.queues) or None,
            "kinds": list(kinds),
        }


def claim(db: Db, by: Claimant, kinds: Collection[str], limit: int) -> tuple[list[Job], Bookmark | None]:
    """Takes up to `limit` due jobs of these kinds, and says where the batch ended."""
    rows = _run(db, _CLAIM, by.asks_for(kinds) | {"limit": limit})
    return _jobs(rows), _end_of(rows)


def claim_on(db: Db, by: Claimant, after: Bookmark, limit: int) -> tuple[list[Job], Bookmark | None]:
    """Goes on where a full batch ended."""
    rows = _run(db, _CLAIM_ON, by.asks_for([after.kind]) | after._asdict() | {"limit": limit})
    return _jobs(rows), _end_of(rows)


def claim_suspect(db: Db, by: Claimant, kinds: Collection[str]) -> Job | None:
    """Takes one job that was running when a worker died, or that ran short of memory; the caller runs it with nothing
    beside it."""
    rows = _run(db, _CLAIM_SUSPECT, by.asks_for(kinds))
    return _with_its_memory(db, _jobs(rows)[0]) if rows else None


def _with_its_memory(db: Db, job: Job) -> Job:
    """Asked of suspects only, which are few: no other claim pays for it."""
    [(job.memory_mb,)] = _run(db, "SELECT memory_mb FROM snap_processing_job WHERE id = %(id)s", {"id": job.id})
    return job


def _jobs(rows: Rows) -> list[Job]:
    jobs = [Job(*row[:14]) for row in rows]
    decoded = next((row[5] for row in rows if row[5] is not None), None)
    if isinstance(decoded, dict):  # not a worker's connection: this one decodes JSON
        for job in jobs:
            job.payload_json = None if job.payload_json is None else json.dumps(job.payload_json).encode()
    return jobs


def _end_of(rows: Rows) -> Bookmark | None:
    """The last row in the order of the claim, if the batch came from one head; RETURNING promises no order."""
    if not rows:
        return None
    heads = {(row[2], row[1], row[4]) for row in rows}
    if len(heads) > 1:
        return None
    queue, kind, priority = heads.pop()
    lane, next_retry_at, job_id = max((row[14], row[13], row[0]) for row in rows)
    return Bookmark(queue, kind, priority, lane, next_retry_at, job_id)


def payload(db: Db, lease: Lease) -> bytes | None:
    """A payload that was too large to prefetch."""
    rows = _run(
        db,
        "SELECT convert_to(payload::text, 'UTF8') FROM snap_processing_job"
        " WHERE id = %(id)s AND lease_seq = %(lease_seq)s",
        lease._asdict(),
    )
    return bytes(rows[0][0]) if rows else None


def next_due(db: Db, kinds: Collection[str], queues: Collection[str]) -> float | None:
    """Seconds until the next waiting job of these kinds is due, at most a day, by the database's clock; None: nothing
    waits."""
    rows = _run(
        db,
        "SELECT job_next_due_in(%(kinds)s, %(queues)s)",
        {"kinds": list(kinds), "queues": list(queues) or None},
    )
    return cast("float | None", rows[0][0])


# --- claimed by the rules ---------------------------------------------------------------------------------------

# With limits or fair queues a claim takes turns between lanes, and goes in steps: which lanes have something due; lock
# the keys that limit them; count what runs; claim each lane's share; commit. Counting belongs into the statement after
# the lock: in the same one it would use the snapshot from before (probed: limit 3, 12 running).
_LANES = """
WITH RECURSIVE head AS (
    (SELECT queue, kind, priority FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
      ORDER BY queue, kind, priority LIMIT 1)
  UNION ALL
    SELECT next.* FROM head CROSS JOIN LATERAL (
        SELECT job.queue, job.kind, job.priority FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
           AND (job.queue, job.kind, job.priority) > (head.queue, head.kind, head.priority)
         ORDER BY job.queue, job.kind, job.priority LIMIT 1) AS next
), open AS MATERIALIZED (  -- each with the lane that was served last
    SELECT head.*, coalesce(served.lane, '') AS after
      FROM head
      LEFT JOIN unnest(%(after_queue)s::text[], %(after_kind)s::text[], %(after_priority)s::integer[],
                       %(after_lane)s::text[]) AS served (queue, kind, priority, lane) USING (queue, kind, priority)
     WHERE kind = ANY (%(kinds)s) AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
       AND NOT EXISTS (SELECT FROM job_queue WHERE name = head.queue AND paused_at IS NOT NULL)
), turn AS MATERIALIZED (  -- of each head the lanes after that one, and then those before it
    SELECT open.*, lanes.lane, lanes.nth, count(*) OVER () AS lanes
      FROM open CROSS JOIN LATERAL (
        WITH RECURSIVE later AS (
            (SELECT job.lane FROM snap_processing_job AS job
              WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
                AND job.queue = open.queue AND job.kind = open.kind AND job.priority = open.priority
                AND job.lane > open.after
              ORDER BY job.lane LIMIT 1)
          UNION ALL
            SELECT next.lane FROM later CROSS JOIN LATERAL (
                SELECT job.lane FROM snap_processing_job AS job
                 WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
                   AND job.queue = open.queue AND job.kind = open.kind AND job.priority = open.priority
                   AND job.lane > later.lane
                 ORDER BY job.lane LIMIT 1) AS next
        ), earlier AS (
            (SELECT job.lane FROM snap_processing_job AS job
              WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
                AND job.queue = open.queue AND job.kind = open.kind AND job.priority = open.priority
                AND job.lane <= open.after
              ORDER BY job.lane LIMIT 1)
          UNION ALL
            SELECT next.lane FROM earlier CROSS JOIN LATERAL (
                SELECT job.lane FROM snap_processing_job AS job
                 WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
                   AND job.queue = open.queue AND job.kind = open.kind AND job.priority = open.priority
                   AND job.lane > earlier.lane AND job.lane <= open.after
                 ORDER BY job.lane LIMIT 1) AS next
        )
        SELECT lane, row_number() OVER () AS nth FROM (
            SELECT lane FROM later UNION ALL SELECT lane FROM earlier LIMIT %(lanes)s) AS both_ways) AS lanes
)
SELECT queue, kind, priority, lane, due.jobs,
       ARRAY(SELECT key FROM (VALUES ('queue:' || queue), ('key:' || nullif(lane, ''))) AS its (key)
              WHERE EXISTS (SELECT FROM job_limit_of(key))),
       due.jobs > ahead, nth = %(lanes)s,
       EXISTS (SELECT FROM job_limit) OR EXISTS (SELECT FROM job_queue WHERE fair)
  FROM turn
 CROSS JOIN LATERAL (SELECT least(%(limit)s, 4 * %(limit)s / lanes + 1) AS ahead) AS look
 CROSS JOIN LATERAL (
    SELECT count(*)::integer AS jobs FROM (
        SELECT FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
           AND job.queue = turn.queue AND job.kind = turn.kind AND job.priority = turn.priority
           AND job.lane = turn.lane AND job.next_retry_at <= now()
         ORDER BY job.next_retry_at, job.id LIMIT ahead + 1) AS seen) AS due
 ORDER BY nth, random()  -- random: kinds of one priority take turns
"""

# A key that somebody else is claiming for is left to them: its lanes are skipped.
_LOCK_KEYS = "SELECT key FROM job_limit_key WHERE key = ANY (%(keys)s) ORDER BY key FOR NO KEY UPDATE SKIP LOCKED"

# In order, because it waits for whoever is adding the same. A bucket that is full needs no row.
_ADD_KEYS = """
WITH forgotten AS (
    DELETE FROM job_limit_key WHERE key = ANY (ARRAY(
        SELECT key FROM job_limit_key WHERE full_at < now() - interval '1 hour' AND key <> ALL (%(keys)s)
         LIMIT 100 FOR UPDATE SKIP LOCKED))
)
INSERT INTO job_limit_key (key)
SELECT key FROM unnest(%(keys)s::text[]) AS wanted (key)
 WHERE NOT EXISTS (SELECT FROM job_limit_key WHERE job_limit_key.key = wanted.key)
 ORDER BY key ON CONFLICT DO NOTHING
RETURNING key
"""

_ROOMS = """
WITH taken AS MATERIALIZED (
    SELECT queue, lane, count(*) AS jobs FROM snap_processing_job WHERE status = 'RUNNING' GROUP BY queue, lane
), kept AS MATERIALIZED (
    SELECT key FROM job_places_kept(%(kept_for)s, %(queues)s)
)
SELECT held.key, its.max_running, its.rate, room.places, room.tokens, room.next_token_in, for_suspects.jobs > 0
  FROM unnest(%(keys)s::text[]) AS wanted (key)
  JOIN job_limit_key AS held USING (key)
 CROSS JOIN LATERAL (
    SELECT coalesce(sum(jobs), 0)::bigint AS jobs FROM taken
     WHERE held.key IN ('queue:' || queue, 'key:' || lane)) AS now_running
 CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM kept WHERE kept.key = held.key) AS for_suspects
 CROSS JOIN LATERAL job_limit_of(held.key) AS its
 CROSS JOIN LATERAL job_limit_room(held.key, now_running.jobs + for_suspects.jobs, held.full_at) AS room
"""

_CLAIM_SHARES = """
WITH picked AS MATERIALIZED (
    SELECT due.id
      FROM unnest(%(of_queue)s::text[], %(of_kind)s::text[], %(of_priority)s::integer[], %(of_lane)s::text[],
                  %(jobs)s::integer[]) AS share (queue, kind, priority, lane, jobs)
     CROSS JOIN LATERAL (
        SELECT job.id FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
           AND job.queue = share.queue AND job.kind = share.kind AND job.priority = share.priority
           AND job.lane = share.lane AND job.next_retry_at <= now()
         ORDER BY job.next_retry_at, job.id LIMIT share.jobs
           FOR UPDATE SKIP LOCKED) AS due
)
UPDATE snap_processing_job AS job
   SET status = 'RUNNING', claimed_by = %(worker)s, locked_at = now(), lock_expires_at = now() + %(lease_for)s,
       lease_seq = lease_seq + 1, attempt_count = attempt_count + 1, started_at = NULL
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
RETURNING id, kind, queue, tenant, priority,
    CASE WHEN pg_column_size(payload) <= 65536 THEN payload END, snap_id, attempt_count, max_attempts, lease_seq,
    timeout_ms, request_id, suspect, greatest(next_retry_at, '1900-01-01Z'), lane
"""

# The first ones of each lane: a lane that is shut must not hide what waits behind it.
_SUSPECTS = """
SELECT id, ARRAY(SELECT key FROM (VALUES ('queue:' || queue), ('key:' || nullif(lane, ''))) AS its (key)
                  WHERE EXISTS (SELECT FROM job_limit_of(key)))
  FROM (SELECT id, queue, lane, next_retry_at,
               row_number() OVER (PARTITION BY queue, lane ORDER BY next_retry_at, id) AS nth
          FROM snap_processing_job
         WHERE suspect AND status IN ('PENDING', 'RETRY_WAIT') AND next_retry_at <= now()
           AND kind = ANY (%(kinds)s) AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
           AND NOT EXISTS (SELECT FROM job_queue WHERE name = queue AND paused_at IS NOT NULL)) AS suspect
 WHERE nth <= 10
 ORDER BY next_retry_at, id LIMIT 1000
"""

_CLAIM_SUSPECT_SHARE = """
WITH picked AS MATERIALIZED (
    SELECT id FROM snap_processing_job
     WHERE suspect AND status IN ('PENDING', 'RETRY_WAIT') AND id = %(id)s
       FOR UPDATE SKIP LOCKED
)
UPDATE snap_processing_job AS job
   SET status = 'RUNNING', claimed_by = %(worker)s, locked_at = now(), lock_expires_at = now() + %(lease_for)s,
       lease_seq = lease_seq + 1, attempt_count = attempt_count + 1, started_at = NULL
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
RETURNING id, kind, queue, tenant, priority,
    CASE WHEN pg_column_size(payload) <= 65536 THEN payload END, snap_id, attempt_count, max_attempts, lease_seq,
    timeout_ms, request_id, suspect, greatest(next_retry_at, '1900-01-01Z'), lane
"""

_SPEND = """
UPDATE job_limit_key AS its
   SET full_at = greatest(its.full_at, clock_timestamp()) + make_interval(secs => spent.seconds)
  FROM unnest(%(keys)s::text[], %(seconds)s::float8[]) AS spent (key, seconds)
 WHERE its.key = spent.key
RETURNING its.key
"""

_LANES_AT_ONCE = 100  # of each head in one claim, in rotation
_PLACE_AGAIN = 0.2  # seconds: nobody tells us that another worker's job has ended
_LANE_AGAIN = 0.01  # seconds: somebody else was claiming for its key
_LANES_AGAIN = 0.05  # seconds: there are more lanes than we looked at
_NOBODY: Mapping["Head", str] = MappingProxyType({})


class Head(NamedTuple):
    """Where a claim begins to look: jobs of one queue, kind and priority, whose lanes take turns."""

    queue: str
    kind: str
    priority: int


class Lane(NamedTuple):
    """Jobs of one head that come one after the other."""

    queue: str
    kind: str
    priority: int
    name: str
    due: int  # as many as were looked at
    keys: Sequence[str]  # those with a limit
    is_deeper: bool  # more are due

    @property
    def head(self) -> Head:
        return Head(self.queue, self.kind, self.priority)


class Room(NamedTuple):
    """What a key lets in now."""

    max_running: int | None
    rate: float | None
    places: int | None
    tokens: int | None
    next_token_in: float | None
    is_kept: bool  # of its places, for suspects

    def jobs(self, at_once: int) -> int:
        """Of those that do not begin at once but wait in memory, which is short, few: they hold others' places."""
        lets_in = min(most for most in (self.places, self.tokens) if most is not None)
        return max(0, min(lets_in, at_once + max(0, lets_in - at_once) // 3))

    @property
    def again_in(self) -> float:
        """When there may be room again, seen from a claim that found too little; with a limit of 0 there never is."""
        return max(self.next_token_in or 0.0, 0.001) if self.tokens == 0 else _PLACE_AGAIN


class Turn(NamedTuple):
    """What a claim by the rules came to."""

    jobs: list[Job]  # in the order in which they should run: lanes take turns
    served: dict[Head, str]  # of each head the lane that came last, for the next claim to begin after it
    again_in: float | None  # seconds; None: nothing that is due was left
    rules: bool  # are there any?
    suspects_wait: bool  # and have places kept for them


def has_rules(db: Db) -> bool:
    """Is there a limit, or a fair queue? Then only `claim_by_rules` claims."""
    rows = _run(db, "SELECT EXISTS (SELECT FROM job_limit) OR EXISTS (SELECT FROM job_queue WHERE fair)", {})
    return bool(rows[0][0])


def claim_by_rules(
    db: Db, by: Claimant, kinds: Collection[str], limit: int, at_once: int, served: Mapping[Head, str] = _NOBODY
) -> Turn:
    """Takes up to `limit` due jobs within all limits, lane by lane in turns; `at_once` is how many can begin now, and
    `served` what came last in the turns before. Each head has its own: else the jobs of a queue without lanes would
    begin everybody's rotation again, and who comes late in the alphabet would starve."""
    few = min(_LANES_AT_ONCE, 2 * limit + 8)
    turn, is_cut = _take_turns(db, by, kinds, limit, at_once, served, few)
    if is_cut and not turn.jobs and few < _LANES_AT_ONCE:
        first, (turn, is_cut) = (
            turn,
            _take_turns(db, by, kinds, limit, at_once, {**served, **turn.served}, _LANES_AT_ONCE),
        )
        turn = turn._replace(served=first.served | turn.served)
    if is_cut and len(turn.jobs) < limit:
        return turn._replace(again_in=0.0 if turn.jobs else _LANES_AGAIN)
    return turn


def _take_turns(
    db: Db,
    by: Claimant,
    kinds: Collection[str],
    limit: int,
    at_once: int,
    served: Mapping[Head, str],
    most_lanes: int,
) -> tuple[Turn, bool]:
    """And: may there be more lanes than these?"""
    asked = by.asks_for(kinds) | {"limit": limit, "lanes": most_lanes}
    seen = _run(db, _LANES, asked | _where_we_were(served))
    lanes = [Lane(*row[:7]) for row in seen]
    is_cut = any(row[7] for row in seen)
    keys = {key for lane in lanes for key in lane.keys}
    with together(db) if keys else nullcontext():
        rooms = _rooms(db, keys, asked | {"kept_for": asked["kinds"]})
        shares, last = shared_out(lanes, rooms, limit, at_once)
        rows = _run(db, _CLAIM_SHARES, asked | _columns(lanes, shares)) if any(shares) else []
        keys_of = {lane[:4]: lane.keys for lane in lanes}
        _spend(db, rooms, Counter(key for row in rows for key in keys_of[_lane_of(row)]))
    cut = {lane.head: lane.name for lane, row in zip(lanes, seen, strict=True) if row[7]}
    if len(rows) < sum(shares):
        again_in: float | None = _LANE_AGAIN  # others took what we had seen
    else:
        again_in = _again_in(lanes, shares, rooms) if len(rows) < limit else None
    rules = all(row[8] for row in seen)  # where nothing waits it does not matter
    suspects_wait = any(room.is_kept for room in rooms.values())
    # A head with more lanes than we looked at, none of which can give anything now, goes on with those after them.
    return Turn(_jobs(_in_turns(rows)), cut | last, again_in, rules, suspects_wait), is_cut


def _where_we_were(served: Mapping[Head, str]) -> dict[str, Any]:
    return {
        "after_queue": [head.queue for head in served],
        "after_kind": [head.kind for head in served],
        "after_priority": [head.priority for head in served],
        "after_lane": list(served.values()),
    }


def claim_suspect_by_rules(db: Db, by: Claimant, kinds: Collection[str]) -> Job | None:
    """As `claim_suspect`, within all limits."""
    asked = by.asks_for(kinds)
    with together(db):
        suspects = _run(db, _SUSPECTS, asked)
        rooms = _rooms(db, {key for _, keys in suspects for key in keys}, asked | {"kept_for": []})
        for job_id, keys in suspects:
            if all(key in rooms and rooms[key].jobs(1) for key in keys):
                rows = _run(db, _CLAIM_SUSPECT_SHARE, asked | {"id": job_id})
                if rows:
                    _spend(db, rooms, Counter(keys))
                    return _with_its_memory(db, _jobs(rows)[0])
    return None


def _rooms(db: Db, keys: Collection[str], asked: Mapping[str, Any]) -> dict[str, Room]:
    """Of the keys that we could lock; their locks last until the transaction ends, and so does what we count."""
    if not keys:
        return {}
    wanted = sorted(keys)
    locked = [row[0] for row in _run(db, _LOCK_KEYS, {"keys": wanted})]
    if len(locked) < len(wanted):
        locked += [row[0] for row in _run(db, _ADD_KEYS, {"keys": wanted})]
    return {key: Room(*room) for key, *room in _run(db, _ROOMS, {**asked, "keys": locked})}


def _spend(db: Db, rooms: Mapping[str, Room], started: Mapping[str, int]) -> None:
    spent = {key: jobs / rate for key, jobs in started.items() if (rate := rooms[key].rate)}
    if spent:
        _run(db, _SPEND, {"keys": list(spent), "seconds": list(spent.values())})


def shared_out(
    lanes: Sequence[Lane], rooms: Mapping[str, Room], limit: int, at_once: int
) -> tuple[list[int], dict[Head, str]]:
    """How many each lane gives: higher priorities first, within one the lanes in turns, a job each time. And which lane
    of each head came last."""
    last: dict[Head, str] = {}
    left = {key: room.jobs(at_once) for key, room in rooms.items()}
    shares = [0] * len(lanes)
    for priority in sorted({lane.priority for lane in lanes}, reverse=True):
        waiting = [place for place, lane in enumerate(lanes) if lane.priority == priority]
        while waiting:
            served = []
            for place in waiting:
                lane = lanes[place]
                if limit and shares[place] < lane.due and all(left.get(key) for key in lane.keys):
                    shares[place] += 1
                    limit -= 1
                    last[lane.head] = lane.name
                    for key in lane.keys:
                        left[key] -= 1
                    served.append(place)
            waiting = served
    return shares, last


def _again_in(lanes: Sequence[Lane], shares: Sequence[int], rooms: Mapping[str, Room]) -> float | None:
    """When to look again for what is due and was not taken, although nobody will tell us."""
    waits: list[float] = []
    for lane, share in zip(lanes, shares, strict=True):
        if share == lane.due:
            waits += [0.0] if lane.is_deeper else []
        elif any(key not in rooms for key in lane.keys):
            waits.append(random.uniform(0.5, 1.5) * _LANE_AGAIN)  # noqa: S311 - so that rivals do not meet again
        elif all(rooms[key].max_running != 0 for key in lane.keys):
            waits.append(max(rooms[key].again_in for key in lane.keys))
    return min(waits, default=None)


def _columns(lanes: Sequence[Lane], shares: Sequence[int]) -> dict[str, Any]:
    chosen = [(lane, share) for lane, share in zip(lanes, shares, strict=True) if share]
    return {
        "of_queue": [lane.queue for lane, _ in chosen],
        "of_kind": [lane.kind for lane, _ in chosen],
        "of_priority": [lane.priority for lane, _ in chosen],
        "of_lane": [lane.name for lane, _ in chosen],
        "jobs": [share for _, share in chosen],
    }


def _in_turns(rows: Rows) -> Rows:
    """The first of each lane, the second of each lane, …; higher priorities before."""
    rows = sorted(rows, key=lambda row: (row[13], row[0]))
    turns: Counter[tuple[Any, ...]] = Counter()
    placed = []
    for row in rows:
        turns[_lane_of(row)] += 1
        placed.append((-row[4], turns[_lane_of(row)], row))
    return [row for *_, row in sorted(placed, key=lambda it: it[:2])]


def _lane_of(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[2], row[1], row[4], row[14]


# --- beaten -----------------------------------------------------------------------------------------------------

# A locked row is just being settled or cancelled: skipping it costs one beat, waiting for it could cost all of them.
_BEAT = """
WITH free AS MATERIALIZED (
    SELECT job.id, held.ran_for
      FROM unnest(%(ids)s::bigint[], %(seqs)s::bigint[], %(ran_for)s::float8[]) AS held (id, lease_seq, ran_for)
      JOIN snap_processing_job AS job ON job.id = held.id AND job.lease_seq = held.lease_seq
     ORDER BY job.id FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE snap_processing_job AS job
   SET locked_at = clock_timestamp(), lock_expires_at = clock_timestamp() + %(lease_for)s,
       started_at = coalesce(job.started_at, clock_timestamp() - make_interval(secs => free.ran_for))
  FROM free WHERE job.id = free.id
RETURNING job.id, job.cancel_requested_at IS NOT NULL
"""

_STILL_HELD = """
SELECT job.id FROM unnest(%(ids)s::bigint[], %(seqs)s::bigint[]) AS held (id, lease_seq)
  JOIN snap_processing_job AS job ON job.id = held.id AND job.lease_seq = held.lease_seq
"""


class Beat(NamedTuple):
    cancelled: set[int]
    lost: set[int]


def beat(db: Db, leases: Sequence[Lease], ran_for: Sequence[float | None], lease_for: timedelta) -> Beat:
    """Extends these leases. Missing from a beat means lost only where the lease is another's."""
    ids, seqs = [lease.id for lease in leases], [lease.lease_seq for lease in leases]
    parameters = {"ids": ids, "seqs": seqs, "ran_for": list(ran_for), "lease_for": lease_for}
    beaten: dict[int, bool] = dict(cast("list[tuple[int, bool]]", _run(db, _BEAT, parameters)))
    missing = [lease for lease in leases if lease.id not in beaten]
    cancelled = {job_id for job_id, wished in beaten.items() if wished}
    return Beat(cancelled, lost(db, missing) if missing else set())


def lost(db: Db, leases: Sequence[Lease]) -> set[int]:
    """Which of these leases are no longer ours."""
    parameters = {"ids": [lease.id for lease in leases], "seqs": [lease.lease_seq for lease in leases]}
    held = {row[0] for row in _run(db, _STILL_HELD, parameters)}
    return {lease.id for lease in leases if lease.id not in held}


def start(db: Db, lease: Lease) -> bool:
    """Marks a suspect's start at once, so that a second loss can be laid at its door and at no other's."""
    rows = _run(
        db,
        "UPDATE snap_processing_job SET started_at = clock_timestamp()"
        " WHERE id = %(id)s AND lease_seq = %(lease_seq)s RETURNING id",
        lease._asdict(),
    )
    return bool(rows)


def progress(db: Db, notes: Mapping[Lease, str]) -> None:
    """Writes the last progress of each job, under its fence."""
    leases = sorted(notes)
    _run(
        db,
        "UPDATE snap_processing_job AS job SET progress = note.progress"
        "  FROM unnest(%(ids)s::bigint[], %(seqs)s::bigint[], %(notes)s::jsonb[]) AS note (id, lease_seq, progress)"
        " WHERE job.id = note.id AND job.lease_seq = note.lease_seq RETURNING job.id",
        {
            "ids": [lease.id for lease in leases],
            "seqs": [lease.lease_seq for lease in leases],
            "notes": [notes[lease] for lease in leases],
        },
    )


_LOG = """
WITH fenced AS MATERIALIZED (
    SELECT job.id, job.attempt_count, line.level, line.message, line.age, line.place
      FROM unnest(%(ids)s::bigint[], %(seqs)s::bigint[], %(levels)s::text[], %(messages)s::text[],
                  %(ages)s::float8[]) WITH ORDINALITY AS line (id, lease_seq, level, message, age, place)
      JOIN snap_processing_job AS job ON job.id = line.id AND job.lease_seq = line.lease_seq
     ORDER BY job.id FOR SHARE OF job
)
INSERT INTO job_log (job_id, attempt, level, message, at)
SELECT id, attempt_count, level, message, clock_timestamp() - make_interval(secs => age) FROM fenced ORDER BY place
RETURNING id
"""


class LogLine(NamedTuple):
    lease: Lease
    level: str
    message: str
    age: float  # seconds since it was said


def log(db: Db, lines: Sequence[LogLine]) -> None:
    """Writes log lines under their fences."""
    _run(
        db,
        _LOG,
        {
            "ids": [line.lease.id for line in lines],
            "seqs": [line.lease.lease_seq for line in lines],
            "levels": [line.level for line in lines],
            "messages": [line.message for line in lines],
            "ages": [line.age for line in lines],
        },
    )


# --- settled ----------------------------------------------------------------------------------------------------

# No settle mentions `status`: the partial index on the running rows would tempt the planner, and the fence says it
# all. The arrays are in the order of ids, so two settles never wait for each other in a circle.
_COMPLETE = """
UPDATE snap_processing_job AS job
   SET status = 'COMPLETED', result = done.result::jsonb, finished_at = clock_timestamp(),
       started_at = coalesce(job.started_at, clock_timestamp() - make_interval(secs => done.ran_for)),
       claimed_by = NULL, locked_at = NULL, lock_expires_at = NULL, lease_seq = job.lease_seq + 1, suspect = false
  FROM unnest(%(ids)s::bigint[], %(seqs)s::bigint[], %(results)s::text[], %(ran_for)s::float8[])
       AS done (id, lease_seq, result, ran_for)
 WHERE job.id = done.id AND job.lease_seq = done.lease_seq
RETURNING job.id
"""


def complete(db: Db, finished: Iterable[tuple[Lease, str | None, float]]) -> set[int]:
    """Completes (lease, result as JSON text, seconds it ran); returns the ids that landed."""
    done = sorted(finished, key=lambda one: one[0].id)
    parameters = {
        "ids": _array(lease.id for lease, _, _ in done),
        "seqs": _array(lease.lease_seq for lease, _, _ in done),
        "results": [result for _, result, _ in done],
        "ran_for": _array(round(ran_for, 6) for _, _, ran_for in done),
    }
    return {row[0] for row in _run(db, _COMPLETE, parameters)}


# Cancel is a wish: every end but a completion honours it.
_RETRY = """
UPDATE snap_processing_job AS job
   SET status = CASE WHEN cancel_requested_at IS NULL THEN 'RETRY_WAIT' ELSE 'CANCELLED' END,
       finished_at = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE clock_timestamp() END,
       next_retry_at = clock_timestamp() + %(delay)s, last_error = %(error)s,
       errors = jsonb_path_query_array(errors || %(entry)s::jsonb, '$[last - 19 to last]'),
       started_at = coalesce(started_at, clock_timestamp() - make_interval(secs => %(ran_for)s)),
       claimed_by = NULL, locked_at = NULL, lock_expires_at = NULL, lease_seq = lease_seq + 1,
       suspect = cancel_requested_at IS NULL AND coalesce(%(memory_mb)s::integer, memory_mb) IS NOT NULL,
       memory_mb = coalesce(%(memory_mb)s::integer, memory_mb)
 WHERE id = %(id)s AND lease_seq = %(lease_seq)s
RETURNING status
"""

_BURY = """
UPDATE snap_processing_job AS job
   SET status = CASE WHEN cancel_requested_at IS NULL THEN %(status)s ELSE 'CANCELLED' END,
       finished_at = clock_timestamp(), last_error = %(error)s, attempt_count = least(attempt_count, max_attempts),
       errors = jsonb_path_query_array(coalesce(errors || %(entry)s::jsonb, errors), '$[last - 19 to last]'),
       started_at = coalesce(started_at, clock_timestamp() - make_interval(secs => %(ran_for)s)),
       claimed_by = NULL, locked_at = NULL, lock_expires_at = NULL, lease_seq = lease_seq + 1, suspect = false
 WHERE id = %(id)s AND lease_seq = %(lease_seq)s
RETURNING status
"""

_SNOOZE = """
UPDATE snap_processing_job AS job
   SET status = CASE WHEN cancel_requested_at IS NULL THEN 'PENDING' ELSE 'CANCELLED' END,
       finished_at = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE clock_timestamp() END,
       next_retry_at = clock_timestamp() + %(delay)s, attempt_count = attempt_count - 1, started_at = NULL,
       claimed_by = NULL, locked_at = NULL, lock_expires_at = NULL, lease_seq = lease_seq + 1,
       suspect = cancel_requested_at IS NULL AND memory_mb IS NOT NULL
 WHERE id = %(id)s AND lease_seq = %(lease_seq)s
RETURNING status
"""


def retry(
    db: Db, job: Job, failure: Failure, delay: timedelta, ran_for: float | None, *, memory_mb: int | None = None
) -> Status | None:
    """A failed attempt comes again after `delay`; with a memory limit, it comes as a suspect. None: the lease was
    lost."""
    again = {"delay": delay, "memory_mb": memory_mb}
    return _status(_run(db, _RETRY, _ending(job, failure, ran_for) | again))


def bury(db: Db, job: Job, outcome: Buried | Stopped, ran_for: float | None) -> Status | None:
    """The job is over without success: FAILED, or CANCELLED where somebody stopped it."""
    status = Status.FAILED if isinstance(outcome, Buried) else Status.CANCELLED
    parameters = _ending(job, outcome.failure, ran_for) | {"status": status.value}
    if isinstance(outcome, Buried) and not outcome.ran:
        parameters["entry"] = None
    return _status(_run(db, _BURY, parameters))


def snooze(db: Db, job: Job, delay: timedelta) -> Status | None:
    """The job asked to come back later; the attempt is given back."""
    return _status(_run(db, _SNOOZE, job.lease._asdict() | {"delay": delay}))


def settle(db: Db, finished: Finished) -> Status | None:
    """Writes down how one attempt ended. None: the lease was lost, and nothing was written."""
    job, outcome, ran_for = finished
    match outcome:
        case Succeeded(result):
            landed = complete(db, [(job.lease, result, ran_for or 0.0)])
            return Status.COMPLETED if landed else None
        case Retried(failure, delay, memory_mb):
            return retry(db, job, failure, delay, ran_for, memory_mb=memory_mb)
        case Buried() | Stopped():
            return bury(db, job, outcome, ran_for)
        case Snoozed(delay):
            return snooze(db, job, delay)
        case _:
            raise TypeError(f"{outcome!r} is not written down by settle")


def landed_already(db: Db, lease: Lease) -> Status | None:
    """After a commit whose end is unknown: the status our settle wrote, or None if it did not land.

    Only the holder of a lease can complete it, and every change of status raises lease_seq by one.
    """
    rows = _run(
        db,
        "SELECT status FROM snap_processing_job WHERE id = %(id)s AND lease_seq = %(lease_seq)s + 1"
        "   AND (status = 'COMPLETED' OR last_error IS DISTINCT FROM 'worker lost')",
        lease._asdict(),
    )
    return _status(rows)


_HAND_BACK = """
WITH ours AS MATERIALIZED (
    SELECT job.id, back.started
      FROM unnest(%(ids)s::bigint[], %(seqs)s::bigint[], %(started)s::boolean[]) AS back (id, lease_seq, started)
      JOIN snap_processing_job AS job ON job.id = back.id AND job.lease_seq = back.lease_seq
     ORDER BY job.id FOR NO KEY UPDATE OF job
)
UPDATE snap_processing_job AS job
   SET status = CASE WHEN cancel_requested_at IS NULL THEN 'PENDING' ELSE 'CANCELLED' END,
       finished_at = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE clock_timestamp() END,
       attempt_count = attempt_count - CASE WHEN ours.started AND interruptions >= %(allowed)s THEN 0 ELSE 1 END,
       interruptions = interruptions + ours.started::integer,
       -- a job that no worker lives long enough to finish is settled where suspects are
       suspect = cancel_requested_at IS NULL AND (
           suspect OR (ours.started AND interruptions >= %(allowed)s AND attempt_count >= max_attempts)),
       started_at = NULL, claimed_by = NULL, locked_at = NULL, lock_expires_at = NULL, lease_seq = lease_seq + 1
  FROM ours WHERE job.id = ours.id
RETURNING job.id
"""


def hand_back(db: Db, leases: Sequence[tuple[Lease, bool]], *, interruptions_allowed: int) -> set[int]:
    """Gives jobs back with their attempt, for a shutdown or because they were too many. Each with: had it started?"""
    parameters = {
        "ids": [lease.id for lease, _ in leases],
        "seqs": [lease.lease_seq for lease, _ in leases],
        "started": [started for _, started in leases],
        "allowed": interruptions_allowed,
    }
    return {row[0] for row in _run(db, _HAND_BACK, parameters)}


# --- recovered --------------------------------------------------------------------------------------------------

# Recovery never buries: it may not know the kind. An exhausted job goes to RETRY_WAIT, and the next claim settles it.
# A lost attempt stays counted, with two exceptions: a suspect that was claimed but never started, and a last attempt
# that was not alone (its neighbour may be the culprit, so it is tried alone before it is judged).
_RECOVER = """
WITH lost AS MATERIALIZED (
    SELECT id FROM snap_processing_job
     WHERE status = 'RUNNING' AND lock_expires_at < clock_timestamp()
       -- a server that was away has made every lease look old: its holders get one beat to say that they live
       AND pg_postmaster_start_time() < clock_timestamp() - %(settled_for)s
     ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE snap_processing_job AS job
   SET status = CASE WHEN cancel_requested_at IS NULL THEN 'RETRY_WAIT' ELSE 'CANCELLED' END,
       finished_at = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE clock_timestamp() END,
       next_retry_at = clock_timestamp() + random() * %(spread)s, last_error = 'worker lost',
       errors = jsonb_path_query_array(errors || jsonb_build_object(
           'attempt', attempt_count, 'at', clock_timestamp(), 'error', 'worker lost', 'worker', claimed_by
       ), '$[last - 19 to last]'),
       attempt_count = CASE
           WHEN suspect AND started_at IS NULL THEN attempt_count - 1
           WHEN NOT suspect AND attempt_count >= max_attempts AND max_attempts > 1 THEN max_attempts - 1
           ELSE least(attempt_count, max_attempts) END,
       suspect = cancel_requested_at IS NULL,
       claimed_by = NULL, locked_at = NULL, lock_expires_at = NULL, lease_seq = lease_seq + 1
 WHERE id = ANY (ARRAY(SELECT id FROM lost))
RETURNING id
"""

# Where the end of a worker was seen, nothing is guessed: what it was running is known.
_RELEASE = """
WITH held AS MATERIALIZED (
    SELECT id, coalesce(id = ANY (%(running)s::bigint[]), true) AS ran FROM snap_processing_job
     WHERE status = 'RUNNING' AND claimed_by = %(worker)s AND id <> ALL (%(besides)s::bigint[])
     ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE snap_processing_job AS job
   SET status = CASE WHEN cancel_requested_at IS NOT NULL THEN 'CANCELLED'
                     WHEN held.ran THEN 'RETRY_WAIT' ELSE 'PENDING' END,
       finished_at = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE clock_timestamp() END,
       next_retry_at = CASE WHEN held.ran THEN clock_timestamp() + random() * %(spread)s ELSE next_retry_at END,
       last_error = CASE WHEN held.ran THEN 'worker lost' ELSE last_error END,
       errors = CASE WHEN held.ran THEN jsonb_path_query_array(errors || jsonb_build_object(
           'attempt', attempt_count, 'at', clock_timestamp(), 'error', 'worker lost', 'worker', claimed_by
       ), '$[last - 19 to last]') ELSE errors END,
       attempt_count = CASE
           WHEN NOT held.ran THEN attempt_count - 1
           WHEN %(running)s::bigint[] IS NULL AND suspect AND started_at IS NULL THEN attempt_count - 1
           WHEN NOT suspect AND attempt_count >= max_attempts AND max_attempts > 1 THEN max_attempts - 1
           ELSE least(attempt_count, max_attempts) END,
       suspect = cancel_requested_at IS NULL AND (held.ran OR suspect),
       started_at = CASE WHEN held.ran THEN started_at END,
       claimed_by = NULL, locked_at = NULL, lock_expires_at = NULL, lease_seq = lease_seq + 1
  FROM held WHERE job.id = held.id
RETURNING job.id
"""


def recover(
    db: Db,
    *,
    spread: timedelta = timedelta(seconds=2),
    settled_for: timedelta = timedelta(0),
    limit: int = 1000,
) -> list[int]:
    """Takes back jobs whose lease ended; `spread` keeps them from all coming back at once."""
    parameters = {"spread": spread, "settled_for": settled_for, "limit": limit}
    return [row[0] for row in _run(db, _RECOVER, parameters)]


def release(
    db: Db,
    worker: str,
    running: Collection[int] | None,
    *,
    besides: Collection[int] = (),
    spread: timedelta = timedelta(0),
) -> list[int]:
    """Takes back what a worker held that is known to be dead; `running` is what it was running (None: who knows)."""
    parameters = {
        "worker": worker,
        "running": None if running is None else list(running),
        "besides": list(besides),
        "spread": spread,
    }
    return [row[0] for row in _run(db, _RELEASE, parameters)]


def release_unheard(db: Db, worker: str, held: Collection[int]) -> list[int]:
    """After a claim whose answer was lost: gives back what we claimed and never heard of."""
    return release(db, worker, [], besides=held)


# --- pruned -----------------------------------------------------------------------------------------------------

_PRUNE = """
WITH page AS MATERIALIZED (
    SELECT id, created_at, finished_at FROM snap_processing_job WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
), gone AS (  -- by arrays: joined with a page, PostgreSQL 15 reads the whole table where nobody has analysed it
    DELETE FROM snap_processing_job
     WHERE id = ANY (ARRAY(SELECT id FROM page WHERE finished_at < now() - %(keep)s::interval))
       AND finished_at < now() - %(keep)s::interval AND unique_scope IS DISTINCT FROM 'ever'
    RETURNING id
), logs AS (
    DELETE FROM job_log WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
), costs AS (
    DELETE FROM job_cost WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
)
SELECT (SELECT count(*) FROM gone), (SELECT max(id) FROM page WHERE created_at < now() - %(keep)s::interval)
"""


def prune(db: Db, *, keep: timedelta, after: int = 0, limit: int = 1000) -> tuple[int, int | None]:
    """Deletes old finished jobs from one page of ids; returns how many, and where to go on (None: done). A key that is
    unique for ever stays with its job."""
    deleted, last = _run(db, _PRUNE, {"keep": keep, "after": after, "limit": limit})[0]
    return deleted, last


# --- what people do ---------------------------------------------------------------------------------------------


def retry_by_person(db: Db, job_id: int) -> None:
    """Runs a FAILED or CANCELLED job again, counting from zero. UnknownJob, IllegalTransition and DuplicateKey (its key
    is another's now) end the caller's transaction."""
    _ask(db, "SELECT retry_job(%(id)s)", {"id": job_id})


def replay(db: Db, job_id: int) -> int:
    """Inserts a copy and returns its id. UnknownJob ends the caller's transaction."""
    return cast(int, _ask(db, "SELECT replay_job(%(id)s)", {"id": job_id})[0][0])


def lock(db: Db, job_id: int) -> None:
    """For whoever goes on to lock rows that belong to it and then changes the job: a settlement locks the job first,
    and in the other order the two could wait for each other."""
    _run(db, "SELECT id FROM snap_processing_job WHERE id = %(id)s FOR UPDATE", {"id": job_id})


def cancel(db: Db, job_id: int) -> Status:
    """Returns the status that the job now has: CANCELLED at once when it waited (or was cancelled before: a second
    wish is no error), RUNNING while the wish travels. IllegalTransition, which leaves the caller's transaction as it
    is: the job COMPLETED or FAILED. UnknownJob ends that transaction."""
    status = Status(_ask(db, "SELECT cancel_job(%(id)s)", {"id": job_id})[0][0])
    if status in (Status.COMPLETED, Status.FAILED):
        raise IllegalTransition(f"job {job_id} is {status}: there is nothing to cancel")
    return status


def waiting(db: Db, kind: str, payload_holds: str) -> Rows:
    """The waiting jobs of a kind whose payload contains this JSON object."""
    return _run(
        db,
        "SELECT id FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND kind = %(kind)s"
        "   AND payload @> %(payload)s::jsonb ORDER BY id",
        {"kind": kind, "payload": payload_holds},
    )


def make_due(db: Db, job_id: int) -> bool:
    """A waiting job need not wait any longer."""
    rows = _run(
        db,
        "UPDATE snap_processing_job SET next_retry_at = now()"
        " WHERE id = %(id)s AND status IN ('PENDING', 'RETRY_WAIT') RETURNING id",
        {"id": job_id},
    )
    return bool(rows)


# --- refused ----------------------------------------------------------------------------------------------------

_REFUSALS: dict[str | None, type[JobsError]] = {"P0002": UnknownJob, "55000": IllegalTransition, "23505": DuplicateKey}


def _ask(db: Db, sql: str, parameters: Mapping[str, Any]) -> Rows:
    """Calls one of the SQL functions that may say no."""
    try:
        return _run(db, sql, parameters)
    except (psycopg.Error, DBAPIError) as error:
        refusal = _refusal(error.orig if isinstance(error, DBAPIError) else error)
        if refusal is None:
            raise
        raise refusal from error


def _refusal(error: BaseException | None) -> JobsError | None:
    """In the database's words. Not what a constraint says: our functions name none, so it is somebody's trigger."""
    if not isinstance(error, psycopg.Error) or error.diag.constraint_name:
        return None
    refusal = _REFUSALS.get(error.sqlstate)
    return refusal(error.diag.message_primary) if refusal else None


def together(db: Db) -> AbstractContextManager[object]:
    """All that is done within, or nothing: a savepoint in the caller's transaction; where each statement would commit
    by itself, a transaction."""
    if not isinstance(db, psycopg.Connection):
        driver = _driver(db)
        if not driver.autocommit:
            return db.begin_nested()
        db = driver  # SQLAlchemy sends no BEGIN there
    if not db.autocommit and db.info.transaction_status == TransactionStatus.IDLE:
        db.execute("SELECT")  # else psycopg takes the block for the caller's whole transaction, and commits it
    return db.transaction()


def _driver(db: sqlalchemy.Connection | Session) -> psycopg.Connection[Any]:
    connection = db.connection() if isinstance(db, Session) else db
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)


# --- small change -----------------------------------------------------------------------------------------------


def _status(rows: Rows) -> Status | None:
    return Status(rows[0][0]) if rows else None


def _array(values: Iterable[float]) -> str:
    """A number array as PostgreSQL reads it: a tenth of the time that adapting a list takes."""
    return "{" + ",".join(map(str, values)) + "}"


def _ending(job: Job, failure: Failure, ran_for: float | None) -> dict[str, Any]:
    entry = {"attempt": min(job.attempt, job.max_attempts), "error": failure.error, "trace": failure.trace}
    if ran_for is not None:
        entry["ran_ms"] = round(ran_for * 1000, 1)
    return {
        "id": job.id,
        "lease_seq": job.lease_seq,
        "error": failure.error,
        "entry": json.dumps(entry),
        "ran_for": ran_for,
    }

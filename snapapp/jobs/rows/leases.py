"""Leases: beats extend them, recovery takes them back from dead workers."""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, cast

import psycopg

from snapapp.jobs.model import Lease
from snapapp.jobs.rows.database import Db as Db  # part of this module's signatures
from snapapp.jobs.rows.database import is_away, row_by_row
from snapapp.jobs.rows.database import run as _run

Refused = Callable[[int, Exception], None]  # called for each job whose row PostgreSQL refuses to write

# A locked row is being settled or cancelled: skipping it costs this job one beat, waiting could cost all jobs theirs.
# The first beat of an attempt writes its start (coalesce): the claim cannot know it.
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
    """Extends these leases. A row that the statement skipped was locked, or its lease is lost: `lost` tells which."""
    ids, seqs = [lease.id for lease in leases], [lease.lease_seq for lease in leases]
    parameters = {"ids": ids, "seqs": seqs, "ran_for": list(ran_for), "lease_for": lease_for}
    beaten: dict[int, bool] = dict(cast("list[tuple[int, bool]]", _run(db, _BEAT, parameters)))
    missing = [lease for lease in leases if lease.id not in beaten]
    cancelled = {job_id for job_id, is_cancelled in beaten.items() if is_cancelled}
    return Beat(cancelled, lost(db, missing) if missing else set())


def lost(db: Db, leases: Sequence[Lease]) -> set[int]:
    """Returns the ids of the jobs whose lease has changed."""
    parameters = {"ids": [lease.id for lease in leases], "seqs": [lease.lease_seq for lease in leases]}
    held = {row[0] for row in _run(db, _STILL_HELD, parameters)}
    return {lease.id for lease in leases if lease.id not in held}


# Recovery never ends a job as FAILED, because only workers of its kind know the `failed` hook. A job without attempts
# left goes to RETRY_WAIT, and the next worker that claims it settles it as FAILED.
# `ran`: the job had started, so the attempt stays counted, and the job has one loss more. If that is unknown
# (coalesce), it counts as started: a job that kills its worker must end after its attempts.
# `is_pardoned`: the job lost its last attempt and gets another one, alone on a worker, because a neighbour may have
# killed the worker. Not pardoned are jobs that were alone already: suspects (two losses) and jobs that got more memory
# after running short of it (`memory_mb`).
# `gate`: a job under a limit ('held') waits for it again once it is due ('later'). A job with two losses is a suspect,
# and a suspect runs 'alone'.
_LOST = """
    SELECT id, coalesce(id = ANY (%(running)s::bigint[]), true) AS ran,
           losses < 2 AND memory_mb IS NULL AND attempt_count >= max_attempts AND max_attempts > 1 AS is_pardoned
      FROM snap_processing_job
     WHERE status = 'RUNNING' AND id <> ALL (%(besides)s::bigint[])
       AND (%(only)s::bigint[] IS NULL OR id = ANY (%(only)s))
       AND CASE WHEN %(worker)s::text IS NOT NULL THEN claimed_by = %(worker)s
                ELSE lock_expires_at < clock_timestamp()
                     -- after a restart of the server all leases look old: living workers first get time for a beat
                     AND pg_postmaster_start_time() < clock_timestamp() - %(settled_for)s
                     -- and after a step of its clock, by which the worker that recovers too was silent for too long
                     AND (%(silence)s::interval IS NULL OR EXISTS (
                          SELECT FROM job_worker
                           WHERE id = %(by)s AND beat_at > clock_timestamp() - %(silence)s::interval))
                END
     ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
"""
# The end of a cancelled job tells its children, and somebody may have locked one. A pooler loses the connection's own
# limit for such a wait, so the statement sets one.
_TAKE_BACK = f"""
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', coalesce(nullif(current_setting('lock_timeout'), '0'), '2s'), true)
), lost AS MATERIALIZED ({_LOST})
UPDATE snap_processing_job AS job
   SET status = CASE WHEN cancel_requested_at IS NOT NULL THEN 'CANCELLED'
                     WHEN lost.ran THEN 'RETRY_WAIT' ELSE 'PENDING' END,
       finished_at = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE clock_timestamp() END,
       -- a job that had not started keeps its place in the queue, its errors and its attempt
       next_retry_at = CASE WHEN lost.ran THEN clock_timestamp() + random() * %(spread)s ELSE next_retry_at END,
       last_error = CASE WHEN lost.ran THEN 'worker lost' ELSE last_error END,
       errors = CASE WHEN lost.ran THEN jsonb_path_query_array(errors || jsonb_build_object(
           'attempt', attempt_count, 'at', clock_timestamp(), 'error', 'worker lost', 'worker', claimed_by
       ), '$[last - 19 to last]') ELSE errors END,
       losses = CASE WHEN cancel_requested_at IS NOT NULL THEN 0
                     WHEN lost.ran AND is_pardoned THEN 2
                     ELSE losses + lost.ran::integer END,
       gate = CASE WHEN gate IN ('held', 'later') THEN 'later'
                   WHEN losses + lost.ran::integer >= 2 OR gate = 'alone' THEN 'alone'
                   WHEN lost.ran AND is_pardoned THEN 'alone'
                   ELSE 'open' END,
       attempt_count = CASE
           WHEN NOT lost.ran THEN attempt_count - 1
           WHEN is_pardoned THEN max_attempts - 1
           ELSE least(attempt_count, max_attempts) END,
       started_at = CASE WHEN lost.ran THEN started_at END,
       claimed_by = NULL, locked_at = NULL, lock_expires_at = NULL, lease_seq = lease_seq + 1
  FROM patience, lost WHERE job.id = lost.id
RETURNING job.id
"""  # noqa: S608 - made of two constants


def recover(
    db: Db,
    *,
    spread: timedelta = timedelta(seconds=2),
    settled_for: timedelta = timedelta(0),
    limit: int = 1000,
    refused: Refused | None = None,
    by: str | None = None,
    silence: timedelta | None = None,
) -> list[int]:
    """Takes back jobs whose lease has ended. They become due at random times within `spread`, not all at once.
    `silence`: for how long the worker `by`, which recovers, was silent at most. If the database says longer, its clock
    was set, and nothing is taken."""
    parameters: dict[str, Any] = {"worker": None, "running": None, "besides": [], "by": by, "silence": silence}
    return _take_back(db, parameters | {"spread": spread, "settled_for": settled_for, "limit": limit}, refused)


def release(
    db: Db,
    worker: str,
    running: Collection[int] | None,
    *,
    besides: Collection[int] = (),
    refused: Refused | None = None,
) -> list[int]:
    """Takes back the jobs of a worker that is known to be dead. `running`: the jobs it was running; None: unknown."""
    parameters = {
        "worker": worker,
        "running": None if running is None else list(running),
        "besides": list(besides),
        "spread": timedelta(0),
        "settled_for": timedelta(0),
        "limit": None,
        "by": None,
        "silence": None,
    }
    return _take_back(db, parameters, refused)


def _take_back(db: Db, parameters: dict[str, Any], refused: Refused | None) -> list[int]:
    def take_back(ids: Sequence[int] | None) -> list[int]:
        return [row[0] for row in _run(db, _TAKE_BACK, parameters | {"only": ids})]

    try:
        return take_back(None)
    except psycopg.Error as error:
        if refused is None or is_away(error):
            raise
    ids = [row[0] for row in _run(db, _LOST, parameters | {"only": None})]
    return row_by_row(take_back, ids, refused)


def release_unheard(db: Db, worker: str, held: Collection[int]) -> list[int]:
    """After a claim whose answer was lost: gives back the jobs that this worker claimed without learning of it. `held`
    are those it knows."""
    return release(db, worker, [], besides=held)

"""Leases: extended by beats, taken back from workers that are gone."""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, cast

import psycopg

from snapapp.jobs.model import Lease
from snapapp.jobs.rows.database import Db as Db  # part of this module's signatures
from snapapp.jobs.rows.database import is_away, row_by_row
from snapapp.jobs.rows.database import run as _run

Refused = Callable[[int, Exception], None]  # is told of a row that PostgreSQL lets nobody write

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


# Recovery never ends a job as FAILED: the kind's `failed` hook may be known to other workers only. A job without
# attempts left goes to RETRY_WAIT, and the next worker that claims it ends it.
# `ran`: the lost attempt stays counted and is one loss more. Where nobody knows whether it had begun, it counts as
# begun: a job that kills its worker must come to an end.
# `is_pardoned`: a last attempt is given once more, with nothing beside it: what killed the worker may have been a
# neighbour. Not where the job was a suspect already (two losses), nor where it has had a try with more memory
# (`memory_mb`), which had nothing beside it either.
# `gate`: what a limit lets in ('held') waits for it again, when it is due ('later'); two losses make a suspect, which
# runs 'alone'.
_LOST = """
    SELECT id, coalesce(id = ANY (%(running)s::bigint[]), true) AS ran,
           losses < 2 AND memory_mb IS NULL AND attempt_count >= max_attempts AND max_attempts > 1 AS is_pardoned
      FROM snap_processing_job
     WHERE status = 'RUNNING' AND id <> ALL (%(besides)s::bigint[])
       AND (%(only)s::bigint[] IS NULL OR id = ANY (%(only)s))
       AND CASE WHEN %(worker)s::text IS NOT NULL THEN claimed_by = %(worker)s
                ELSE lock_expires_at < clock_timestamp()
                     -- after a server was away every lease looks old: its holders get one beat to say that they live
                     AND pg_postmaster_start_time() < clock_timestamp() - %(settled_for)s END
     ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
"""
_TAKE_BACK = f"""
WITH lost AS MATERIALIZED ({_LOST})
UPDATE snap_processing_job AS job
   SET status = CASE WHEN cancel_requested_at IS NOT NULL THEN 'CANCELLED'
                     WHEN lost.ran THEN 'RETRY_WAIT' ELSE 'PENDING' END,
       finished_at = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE clock_timestamp() END,
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
  FROM lost WHERE job.id = lost.id
RETURNING job.id
"""  # noqa: S608 - made of two constants


def recover(
    db: Db,
    *,
    spread: timedelta = timedelta(seconds=2),
    settled_for: timedelta = timedelta(0),
    limit: int = 1000,
    refused: Refused | None = None,
) -> list[int]:
    """Takes back jobs whose lease ended; `spread` keeps them from all coming back at once."""
    whose: dict[str, Any] = {"worker": None, "running": None, "besides": []}
    return _take_back(db, whose | {"spread": spread, "settled_for": settled_for, "limit": limit}, refused)


def release(
    db: Db,
    worker: str,
    running: Collection[int] | None,
    *,
    besides: Collection[int] = (),
    refused: Refused | None = None,
) -> list[int]:
    """Takes back what a worker held that is known to be dead; `running` is what it was running (None: who knows)."""
    parameters = {
        "worker": worker,
        "running": None if running is None else list(running),
        "besides": list(besides),
        "spread": timedelta(0),
        "settled_for": timedelta(0),
        "limit": None,
    }
    return _take_back(db, parameters, refused)


def _take_back(db: Db, parameters: dict[str, Any], refused: Refused | None) -> list[int]:
    def taken(ids: Sequence[int] | None) -> list[int]:
        return [row[0] for row in _run(db, _TAKE_BACK, parameters | {"only": ids})]

    try:
        return taken(None)
    except psycopg.Error as error:
        if refused is None or is_away(error):
            raise
    ids = [row[0] for row in _run(db, _LOST, parameters | {"only": None})]
    return row_by_row(taken, ids, refused)


def release_unheard(db: Db, worker: str, held: Collection[int]) -> list[int]:
    """After a claim whose answer was lost: gives back what we claimed and never heard of."""
    return release(db, worker, [], besides=held)

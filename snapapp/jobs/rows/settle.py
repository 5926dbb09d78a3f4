"""The settle: writes down how an attempt ended, only where its lease still holds (the fence)."""

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from psycopg.errors import LockNotAvailable

from snapapp.jobs.model import (
    Buried,
    Failure,
    Finished,
    Interrupted,
    Lease,
    Retried,
    Snoozed,
    Status,
    Stopped,
    Succeeded,
)
from snapapp.jobs.rows.database import Db as Db  # part of this module's signatures
from snapapp.jobs.rows.database import array, together
from snapapp.jobs.rows.database import run as _run
from snapapp.jobs.rows.leases import lost

_PATIENCE = "50ms"  # how long a batch waits for a row that another transaction has locked

# No settle has `status` in its WHERE: the planner would choose the partial index on running rows, and the lease says
# enough. The arrays are sorted by id, so that two settles lock rows in the same order and cannot deadlock. The lock
# timeout is set inside the statement, because a pooler loses session settings; PostgreSQL reads it when a wait begins.
# coalesce(started_at, …): jobs that end before their first beat have no start on their row yet.
_COMPLETE = """
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', coalesce(%(patience)s, current_setting('lock_timeout')), true)
)
UPDATE snap_processing_job AS job
   SET status = 'COMPLETED', result = done.result::jsonb, finished_at = clock_timestamp(),
       started_at = coalesce(job.started_at, clock_timestamp() - make_interval(secs => done.ran_for)),
       claimed_by = NULL, locked_at = NULL, lock_expires_at = NULL, lease_seq = job.lease_seq + 1, losses = 0
  FROM patience, unnest(%(ids)s::bigint[], %(seqs)s::bigint[], %(results)s::text[], %(ran_for)s::float8[])
       AS done (id, lease_seq, result, ran_for)
 WHERE job.id = done.id AND job.lease_seq = done.lease_seq
RETURNING job.id
"""

# Every end but success. If a person asked to cancel the job while it ran, each of these ends makes it CANCELLED.
_END = """
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', coalesce(%(patience)s, current_setting('lock_timeout')), true)
)
UPDATE snap_processing_job AS job
   SET status = CASE WHEN cancel_requested_at IS NULL THEN its.status ELSE 'CANCELLED' END,
       finished_at = CASE WHEN cancel_requested_at IS NOT NULL OR its.status IN ('FAILED', 'CANCELLED')
                          THEN clock_timestamp() END,
       -- its.delay, its.error and its.entry are NULL where the end has none: the row keeps what it has
       next_retry_at = coalesce(clock_timestamp() + its.delay, job.next_retry_at),
       last_error = coalesce(its.error, job.last_error),
       errors = jsonb_path_query_array(coalesce(job.errors || its.entry, job.errors), '$[last - 19 to last]'),
       started_at = CASE WHEN its.status <> 'PENDING'
                         THEN coalesce(job.started_at, clock_timestamp() - make_interval(secs => its.ran_for)) END,
       -- PENDING: the attempt is given back, unless the job was interrupted too often
       attempt_count = CASE WHEN its.status <> 'PENDING' THEN least(job.attempt_count, job.max_attempts)
                            WHEN its.interrupted AND job.interruptions >= %(allowed)s THEN job.attempt_count
                            ELSE job.attempt_count - 1 END,
       interruptions = job.interruptions + its.interrupted::integer,
       -- only an attempt that ran to an end of its own proves that the job does not kill its worker
       losses = CASE WHEN cancel_requested_at IS NULL AND NOT its.ended THEN job.losses ELSE 0 END,
       -- 'held': a limit lets it in; 'later': likewise once it is due; 'alone': it needs a worker without other jobs
       gate = CASE WHEN job.gate IN ('held', 'later') THEN CASE WHEN its.delay IS NULL THEN 'held' ELSE 'later' END
                   WHEN num_nonnulls(its.memory_mb, job.memory_mb) > 0 THEN 'alone'
                   WHEN NOT its.ended THEN job.gate
                   ELSE 'open' END,
       memory_mb = coalesce(its.memory_mb, job.memory_mb),
       claimed_by = NULL, locked_at = NULL, lock_expires_at = NULL, lease_seq = job.lease_seq + 1
  FROM patience, unnest(
           %(id)s::bigint[], %(lease_seq)s::bigint[], %(status)s::text[], %(interrupted)s::boolean[],
           %(delay)s::interval[], %(error)s::text[], %(entry)s::jsonb[], %(ran_for)s::float8[],
           %(memory_mb)s::integer[], %(ended)s::boolean[])
       AS its (id, lease_seq, status, interrupted, delay, error, entry, ran_for, memory_mb, ended)
 WHERE job.id = its.id AND job.lease_seq = its.lease_seq
RETURNING job.id, job.status
"""


class _End(NamedTuple):
    """The parameters of _END for one job. With a delay the job waits again; PENDING without a delay it is due at once;
    otherwise it has ended."""

    id: int
    lease_seq: int
    status: str
    interrupted: bool = False  # the worker's shutdown ended it after it had started
    delay: timedelta | None = None
    error: str | None = None
    entry: str | None = None
    ran_for: float | None = None
    memory_mb: int | None = None
    ended: bool = True  # False: the attempt was interrupted, or had no place to run


class Settled(NamedTuple):
    """What became of a batch, by id. A job in neither field has lost its lease, and nothing was written."""

    landed: dict[int, Status]
    locked: set[int]  # their leases are ours, but another transaction has locked the rows: settle them later


def settle_batch(
    db: Db, batch: Sequence[Finished], *, interruptions_allowed: int, is_second_try: bool = False
) -> Settled:
    """Writes down how attempts ended, without waiting long for locked rows. Either all of them succeeded, or none. The
    first try just writes; a second try, and a first one that met a lock, first looks which rows are free."""
    if not is_second_try:
        try:
            return _result(db, batch, _write(db, batch, interruptions_allowed, patience=_PATIENCE))
        except LockNotAvailable:
            pass
    with together(db):
        free = _lock_free(db, [one.job.lease for one in batch])
        landed = _write(db, [one for one in batch if one.job.id in free], interruptions_allowed)
    return _result(db, batch, landed)


def settle(db: Db, finished: Finished) -> Status | None:
    """Writes down how one attempt ended by itself. None: its lease is lost, and nothing was written."""
    return _write(db, [finished], interruptions_allowed=0).get(finished.job.id)


def complete(db: Db, finished: Iterable[tuple[Lease, str | None, float]], *, patience: str | None = None) -> set[int]:
    """Completes jobs, each given as (lease, result as JSON text, seconds it ran). Returns the ids whose lease held."""
    completions = sorted(finished, key=lambda one: one[0].id)
    parameters = {
        "ids": array(lease.id for lease, _, _ in completions),
        "seqs": array(lease.lease_seq for lease, _, _ in completions),
        "results": [result for _, result, _ in completions],
        "ran_for": array(round(ran_for, 6) for _, _, ran_for in completions),
        "patience": patience,
    }
    return {row[0] for row in _run(db, _COMPLETE, parameters)}


def landed_already(db: Db, lease: Lease) -> Status | None:
    """After a COMMIT whose answer was lost: the status that our settle wrote, or None if it did not land.

    Every change of status raises lease_seq by one. So a row at our lease_seq + 1 was changed by us, or by a recovery,
    which writes 'worker lost'. last_error may be NULL, hence IS DISTINCT FROM.
    """
    rows = _run(
        db,
        "SELECT status FROM snap_processing_job WHERE id = %(id)s AND lease_seq = %(lease_seq)s + 1"
        "   AND (status = 'COMPLETED' OR last_error IS DISTINCT FROM 'worker lost')",
        lease._asdict(),
    )
    return Status(rows[0][0]) if rows else None


def _write(
    db: Db, batch: Sequence[Finished], interruptions_allowed: int, patience: str | None = None
) -> dict[int, Status]:
    if not batch:
        return {}
    if type(batch[0].outcome) is not Succeeded:
        return _end(db, map(_ending, batch), interruptions_allowed, patience)
    completions = [(one.job.lease, one.outcome.result, one.ran_for or 0.0) for one in batch]  # type: ignore[union-attr]
    return dict.fromkeys(complete(db, completions, patience=patience), Status.COMPLETED)


def _end(db: Db, ends: Iterable[_End], interruptions_allowed: int, patience: str | None = None) -> dict[int, Status]:
    columns = map(list, zip(*sorted(ends, key=lambda one: one.id), strict=True))
    parameters = dict(zip(_End._fields, columns, strict=True)) | {
        "allowed": interruptions_allowed,
        "patience": patience,
    }
    return {job_id: Status(status) for job_id, status in _run(db, _END, parameters)}


def _ending(finished: Finished) -> _End:
    job, outcome, ran_for = finished
    match outcome:
        case Retried(failure, delay, memory_mb, ran):
            retry = _End(*job.lease, "RETRY_WAIT", delay=delay, memory_mb=memory_mb, ran_for=ran_for, ended=ran)
            return retry._replace(error=failure.error, entry=_entry(finished, failure))
        case Buried(failure, ran):
            end = _End(*job.lease, "FAILED", error=failure.error, ran_for=ran_for)
            return end._replace(entry=_entry(finished, failure)) if ran else end
        case Stopped(failure):
            end = _End(*job.lease, "CANCELLED", error=failure.error, ran_for=ran_for)
            return end._replace(entry=_entry(finished, failure))
        case Snoozed(delay, ran):
            return _End(*job.lease, "PENDING", delay=delay, ended=ran)
        case Interrupted():
            return _End(*job.lease, "PENDING", interrupted=job.started_at is not None, ended=False)
        case _:
            raise TypeError(f"{outcome!r} is not written down by settle")


def _entry(finished: Finished, failure: Failure) -> str:
    job, ran_for = finished.job, finished.ran_for
    entry = {"attempt": min(job.attempt, job.max_attempts), "error": failure.error, "trace": failure.trace}
    return json.dumps(entry if ran_for is None else entry | {"ran_ms": round(ran_for * 1000, 1)})


_FREE = """
SELECT job.id FROM unnest(%(ids)s::bigint[], %(seqs)s::bigint[]) AS held (id, lease_seq)
  JOIN snap_processing_job AS job ON job.id = held.id AND job.lease_seq = held.lease_seq
 WHERE NOT job.has_children OR job_children_are_free(job.id)
 ORDER BY job.id FOR NO KEY UPDATE OF job SKIP LOCKED
"""


def _lock_free(db: Db, leases: Sequence[Lease]) -> set[int]:
    """Locks the rows whose lease is still ours, except those that another transaction has locked."""
    parameters = {"ids": [lease.id for lease in leases], "seqs": [lease.lease_seq for lease in leases]}
    return {row[0] for row in _run(db, _FREE, parameters)}


def _result(db: Db, batch: Sequence[Finished], landed: dict[int, Status]) -> Settled:
    missing = [one.job.lease for one in batch if one.job.id not in landed] if len(landed) < len(batch) else []
    lost_ids = lost(db, missing) if missing else set()
    return Settled(landed, {lease.id for lease in missing} - lost_ids)

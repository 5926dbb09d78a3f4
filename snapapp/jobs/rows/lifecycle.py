"""What people and callers do with a job: enqueue, cancel, retry, run now, replay, order anew.

A request that cannot be met raises UnknownJob, IllegalTransition or DuplicateKey, with the database's message. Where
the SQL function raised it, PostgreSQL has aborted the caller's transaction: roll back, or call within `together`.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

import psycopg
from psycopg.rows import tuple_row

from snapapp.jobs.errors import DuplicateKey, IllegalTransition, UnknownJob
from snapapp.jobs.model import TEXT_CAP, Job, Status
from snapapp.jobs.rows.database import Db as Db  # part of this module's signatures
from snapapp.jobs.rows.database import Refusals, Row, Rows, refusals
from snapapp.jobs.rows.database import run as _run

_ENQUEUE = "SELECT enqueue_jobs(%(jobs)s::jsonb)"


def enqueue(db: Db, jobs: str) -> list[int | None]:
    """Adds jobs in the caller's transaction. `jobs` is a JSON array of enqueue_job's arguments, because one jsonb
    parameter is twice as quick as arrays. Returns the ids in order; None where on_conflict='ignore' met another job
    with the unique key. DuplicateKey aborts the transaction: on_conflict='replace' met a job that does not wait."""
    return [row[0] for row in _ask(db, _ENQUEUE, {"jobs": jobs})]


async def enqueue_async(db: psycopg.AsyncConnection[Any], jobs: str) -> list[int | None]:
    with refusals(_REFUSALS):
        cursor = psycopg.AsyncCursor(db, row_factory=tuple_row)
        rows = await (await cursor.execute(_ENQUEUE, {"jobs": jobs})).fetchall()
    return [row[0] for row in rows]


_SPEC_KEYS = """
SELECT job_spec_key(job.kind, job.tenant, job.payload, job.snap_id)
  FROM jsonb_array_elements(%(jobs)s::jsonb) WITH ORDINALITY AS given (spec, place)
 CROSS JOIN LATERAL jsonb_to_record(given.spec) AS job (kind text, tenant text, payload jsonb, snap_id uuid)
 ORDER BY given.place
"""


def spec_keys(db: Db, jobs: str) -> list[str]:
    """The unique keys (spec:…) that describe the work of these jobs, in order."""
    return [row[0] for row in _run(db, _SPEC_KEYS, {"jobs": jobs})]


_DONE_BEFORE = """
SELECT id, result::text, finished_at FROM snap_processing_job WHERE id = (
    SELECT job_done_before(job.kind, job.payload, job.tenant, job.snap_id)
      FROM jsonb_to_record(%(job)s::jsonb) AS job (kind text, tenant text, payload jsonb, snap_id uuid))
"""


def done_before(db: Db, job: str) -> Row | None:
    """Id, result as JSON text and end of the newest job that completed the same work; None: there is none."""
    rows = _run(db, _DONE_BEFORE, {"job": job})
    return rows[0] if rows else None


def retry_by_person(db: Db, job_id: int) -> None:
    """Makes a FAILED or CANCELLED job PENDING, with no attempt counted. UnknownJob, IllegalTransition and DuplicateKey
    (another job has its unique key now) abort the caller's transaction."""
    _ask(db, "SELECT retry_job(%(id)s)", {"id": job_id})


def retry_all_by_person(db: Db, job_ids: list[int]) -> None:
    """Like `retry_by_person` for several jobs, in this order. The first refusal aborts the caller's transaction."""
    _ask(db, "SELECT retry_job(id) FROM unnest(%(ids)s::bigint[]) AS id", {"ids": job_ids})


def run_now(db: Db, job_id: int) -> Status:
    """Makes a waiting job due now, and returns its status, which stays. UnknownJob and IllegalTransition (it does not
    wait, or it waits for its parents) abort the caller's transaction."""
    its = "SELECT status FROM run_job_now(%(id)s) AS its (id) JOIN snap_processing_job USING (id)"
    return Status(_ask(db, its, {"id": job_id})[0][0])


def replay(db: Db, job_id: int) -> int:
    """Inserts a copy and returns its id. UnknownJob aborts the caller's transaction."""
    return cast(int, _ask(db, "SELECT replay_job(%(id)s)", {"id": job_id})[0][0])


def order_anew(db: Db, job_id: int, payload: Mapping[str, Any]) -> None:
    """Replaces the payload. An attempt that runs goes on with the old one; its hook can ask `is_still_ordered`."""
    order = {"id": job_id, "payload": json.dumps(payload)}
    _run(db, "UPDATE snap_processing_job SET payload = %(payload)s::jsonb WHERE id = %(id)s RETURNING id", order)


def is_still_ordered(db: Db, job: Job) -> bool:
    """Whether the row has the payload that this attempt was given."""
    given = "SELECT convert_to(payload::text, 'UTF8') FROM snap_processing_job WHERE id = %(id)s"
    [(payload,)] = _run(db, given, {"id": job.id})
    return bool(json.loads(payload) == job.payload)


def cancel(db: Db, job_id: int) -> Status:
    """Cancels a job and returns its status: CANCELLED if it was waiting (or cancelled before, which is no error),
    RUNNING if its worker has yet to stop it. IllegalTransition when it is COMPLETED or FAILED; that leaves the caller's
    transaction usable. UnknownJob aborts it."""
    status = Status(_ask(db, "SELECT cancel_job(%(id)s)", {"id": job_id})[0][0])
    if status in (Status.COMPLETED, Status.FAILED):
        raise IllegalTransition(f"job {job_id} is {status}: there is nothing to cancel")
    return status


_DISCARD = """
UPDATE snap_processing_job
   SET status = 'CANCELLED', lease_seq = lease_seq + 1, losses = 0, last_error = %(why)s,
       cancel_requested_at = clock_timestamp(), finished_at = coalesce(finished_at, clock_timestamp())
 WHERE id = %(id)s AND status IN ('PENDING', 'RETRY_WAIT', 'FAILED')
RETURNING id
"""


def discard(db: Db, job_id: int, why: str) -> Status:
    """Makes a waiting or FAILED job CANCELLED, because it is no longer wanted. UnknownJob and IllegalTransition leave
    the caller's transaction usable."""
    if _run(db, _DISCARD, {"id": job_id, "why": why[:TEXT_CAP]}):
        return Status.CANCELLED
    rows = _run(db, "SELECT status FROM snap_processing_job WHERE id = %(id)s", {"id": job_id})
    if not rows:
        raise UnknownJob(f"there is no job {job_id}")
    raise IllegalTransition(f"job {job_id} is {rows[0][0]}: only a waiting or FAILED job can be discarded")


def waiting(db: Db, kind: str, payload_holds: str) -> Rows:
    """The waiting jobs of a kind whose payload contains this JSON object."""
    return _run(
        db,
        "SELECT id FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND kind = %(kind)s"
        "   AND payload @> %(payload)s::jsonb ORDER BY id",
        {"kind": kind, "payload": payload_holds},
    )


_REFUSALS: Refusals = {"P0002": UnknownJob, "55000": IllegalTransition, "23505": DuplicateKey}


def _ask(db: Db, sql: str, parameters: Mapping[str, Any]) -> Rows:
    """Calls an SQL function whose refusals become our errors."""
    with refusals(_REFUSALS):
        return _run(db, sql, parameters)

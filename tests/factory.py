"""Rows in any state, made directly, and what became of them. Tests move rows, not time."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from psycopg import Connection, sql
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb, JsonbLoader

from snapapp.jobs.database import Row
from snapapp.jobs.model import Job, Lease

Db = Connection[Row]
T = TypeVar("T")

FINAL = ("COMPLETED", "FAILED", "CANCELLED")


def ago(**units: float) -> datetime:
    return datetime.now(UTC) - timedelta(**units)


def hence(**units: float) -> datetime:
    return datetime.now(UTC) + timedelta(**units)


def make_job(db: Db, status: str = "PENDING", **columns: Any) -> int:
    """Inserts a job that is legal in its status; any column can be given."""
    values: dict[str, Any] = {"kind": "test", "status": status}
    if status == "RUNNING":
        values |= {"claimed_by": "worker", "locked_at": ago(), "lock_expires_at": hence(minutes=1)}
        values |= {"attempt_count": 1, "lease_seq": 1}
    if status in FINAL:
        values |= {"finished_at": ago()}
    values |= columns
    statement = sql.SQL("INSERT INTO snap_processing_job ({}) VALUES ({}) RETURNING id").format(
        sql.SQL(", ").join(map(sql.Identifier, values)), sql.SQL(", ").join(sql.Placeholder() * len(values))
    )
    parameters = [Jsonb(value) if isinstance(value, dict | list) else value for value in values.values()]
    made = db.execute(statement, parameters).fetchone()
    assert made
    return int(made[0])


def make_jobs(db: Db, count: int, **columns: Any) -> list[int]:
    return [make_job(db, **columns) for _ in range(count)]


def running_job(db: Db, **columns: Any) -> Job:
    """A job that "worker" holds, as its claim returned it."""
    return job(db, make_job(db, "RUNNING", **columns))


def job(db: Db, job_id: int) -> Job:
    """The job as a claim would return it now."""
    it = row(db, job_id)
    return Job(
        id=job_id,
        kind=it.kind,
        queue=it.queue,
        tenant=it.tenant,
        priority=it.priority,
        payload_json=b"{}",
        snap_id=it.snap_id,
        attempt=it.attempt_count,
        max_attempts=it.max_attempts,
        lease_seq=it.lease_seq,
        timeout_ms=it.timeout_ms,
        request_id=it.request_id,
        suspect=it.suspect,
    )


def lease(db: Db, job_id: int) -> Lease:
    return Lease(job_id, row(db, job_id).lease_seq)


def row(db: Db, job_id: int) -> Any:
    """The whole row by column name, JSON decoded."""
    with db.cursor(row_factory=namedtuple_row) as cursor:
        cursor.adapters.register_loader("jsonb", JsonbLoader)
        # never prepared: the result of a prepared SELECT * must not change, and a test may add a column
        found = cursor.execute("SELECT * FROM snap_processing_job WHERE id = %s", [job_id], prepare=False).fetchone()
    assert found, f"there is no job {job_id}"
    return found


def statuses(db: Db) -> dict[int, str]:
    return dict(db.execute("SELECT id, status FROM snap_processing_job ORDER BY id").fetchall())


def move(db: Db, job_id: int, **columns: Any) -> None:
    """Changes columns of a row by hand: `move(db, job_id, lock_expires_at=ago(seconds=1))`."""
    changes = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder()) for name in columns)
    statement = sql.SQL("UPDATE snap_processing_job SET {} WHERE id = {}").format(changes, sql.Placeholder())
    parameters = [Jsonb(value) if isinstance(value, dict | list) else value for value in columns.values()]
    db.execute(statement, [*parameters, job_id])


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Runs the calls in threads that start together; raises what any of them raised."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait(timeout=10)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [future.result(timeout=60) for future in [threads.submit(run, call) for call in calls]]


def until_blocking(db: Db) -> None:
    """Returns when somebody waits for a lock that this connection holds."""
    deadline = time.monotonic() + 10
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    while not db.execute(waiting).fetchall():
        assert time.monotonic() < deadline, "nobody waits for us"

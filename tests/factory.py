"""Rows in any state, made directly, and what became of them; the queue's verbs with what most tests want of them. Tests
move rows, not time."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import sqlalchemy
from psycopg import Connection, connect, sql
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb, JsonbLoader
from sqlalchemy.orm import Session

from snapapp.jobs.model import (
    Buried,
    Failure,
    Finished,
    Interrupted,
    Job,
    Lease,
    Retried,
    Snoozed,
    Status,
    Stopped,
    to_json,
)
from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows import leases as leases_rows
from snapapp.jobs.rows import lifecycle, settle
from snapapp.jobs.rows.database import Db as AnyDb
from snapapp.jobs.rows.database import Row

Db = Connection[Row]
T = TypeVar("T")

FINAL = ("COMPLETED", "FAILED", "CANCELLED")
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
BY = claim_rows.ClaimingWorker("worker", MINUTE)
OTHER = claim_rows.ClaimingWorker("other", MINUTE)
OOPS = Failure("ValueError: oops", "in line 1")


def ago(**units: float) -> datetime:
    return datetime.now(UTC) - timedelta(**units)


def hence(**units: float) -> datetime:
    return datetime.now(UTC) + timedelta(**units)


def leased() -> dict[str, Any]:
    return {"claimed_by": "worker", "locked_at": ago(), "lock_expires_at": hence(minutes=1)}


def as_it_runs() -> dict[str, Any]:
    """What a claim makes of a row that waits."""
    return {"status": "RUNNING", "attempt_count": 1, **leased()}


def make_job(db: Db, status: str = "PENDING", **columns: Any) -> int:
    """Inserts a job that is legal in its status; any column can be given."""
    return make_jobs(db, 1, status, **columns)[0]


def make_jobs(db: Db, count: int, status: str = "PENDING", **columns: Any) -> list[int]:
    """So many of the same, in one statement: 250 take 3 ms, and one by one they took 45."""
    values: dict[str, Any] = {"kind": "test", "status": status}
    if status == "RUNNING":
        values |= leased()
        values |= {"attempt_count": 1, "lease_seq": 1}
    if status in FINAL:
        values |= {"finished_at": ago()}
    values |= columns
    names = sql.SQL(", ").join(map(sql.Identifier, values))
    its = sql.SQL(", ").join(sql.Placeholder() * len(values))
    statement = sql.SQL(
        "INSERT INTO snap_processing_job ({}) SELECT {} FROM generate_series(1, {}) RETURNING id"
    ).format(names, its, count)
    parameters = [Jsonb(value) if isinstance(value, dict | list) else value for value in values.values()]
    return [made for (made,) in db.execute(statement, parameters).fetchall()]


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
        traceparent=it.traceparent,
        memory_mb=it.memory_mb,
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


# --- the queue's verbs ------------------------------------------------------------------------------------------


def enqueue(db: AnyDb, kind: str = "test", payload: object = None, **given: Any) -> int | None:
    """By the SQL function, as people and other languages call it."""
    given = {"kind": kind, "payload": to_json({} if payload is None else payload)} | given
    named = ", ".join(f"{name} => %({name})s{'::jsonb' if name == 'payload' else ''}" for name in given)
    return cast("int | None", lifecycle._ask(db, f"SELECT enqueue_job({named})", given)[0][0])


def enqueue_many(db: AnyDb, *specs: dict[str, Any]) -> list[int | None]:
    return lifecycle.enqueue(db, json.dumps([{"kind": "test"} | one for one in specs]))


def lock_row(db: Db, job_id: int) -> None:
    db.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [job_id])


def claim(
    db: Db, limit: int = 100, *, kinds: Sequence[str] = ("test",), by: claim_rows.ClaimingWorker = BY
) -> list[int]:
    return sorted(one.id for one in claimed(db, limit, kinds=kinds, by=by).jobs)


def claimed(
    db: AnyDb,
    limit: int = 100,
    look: claim_rows.Look | None = None,
    *,
    kinds: Sequence[str] = ("test",),
    by: claim_rows.ClaimingWorker = BY,
) -> claim_rows.Claimed:
    """One claim for one executor whose slots are all free; nothing has to wait in memory."""
    wanted = [claim_rows.Wanted(kind, executor=0, at_most=limit, at_once=limit) for kind in kinds]
    return claim_rows.claim(db, by, wanted, look)


def beat(db: Db, *leases: Lease, ran_for: float | None = None) -> leases_rows.Beat:
    return leases_rows.beat(db, leases, [ran_for] * len(leases), MINUTE)


def complete(db: Db, *jobs: Job) -> set[int]:
    return settle.complete(db, [(one.lease, None, 0.1) for one in jobs])


def retry(db: AnyDb, held: Job, failure: Failure, delay: timedelta, ran_for: float | None) -> Status | None:
    return settle.settle(db, Finished(held, Retried(failure, delay), ran_for))


def bury(db: AnyDb, held: Job, outcome: Buried | Stopped, ran_for: float | None) -> Status | None:
    return settle.settle(db, Finished(held, outcome, ran_for))


def snooze(db: AnyDb, held: Job, delay: timedelta) -> Status | None:
    return settle.settle(db, Finished(held, Snoozed(delay), None))


def hand_back(db: AnyDb, *held: Job, started: bool = True, allowed: int = 9) -> set[int]:
    """As a worker does that stops. Returns the ids whose lease held."""
    back = [Finished(replace(job, started_at=0.0 if started else None), Interrupted(), None) for job in held]
    return set(settle.settle_batch(db, back, interruptions_allowed=allowed).landed)


def scalar(db: Db, statement: str, *parameters: object) -> Any:
    found = db.execute(statement, parameters).fetchone()
    assert found
    return found[0]


def take_suspect(db: Db) -> Job:
    [taken] = claimed(db, look=claim_rows.Look(takes_suspect=True)).jobs
    return taken


# --- carriers ---------------------------------------------------------------------------------------------------

# Those that commit by themselves come first; in the others the caller does.
BY_ITSELF = ["psycopg", "sqlalchemy, autocommit", "session, autocommit"]
CARRIERS = [*BY_ITSELF, "psycopg, transaction", "psycopg, not autocommit", "sqlalchemy", "session"]


@contextmanager
def carried(carrier: str, url: str, engine: sqlalchemy.Engine) -> Iterator[AnyDb]:
    """A connection of this sort, in which nothing was done yet."""
    if carrier.startswith("psycopg"):
        with connect(url, autocommit="not" not in carrier) as connection:
            if "transaction" in carrier:
                connection.execute("BEGIN")
            yield connection
        return
    engine = engine.execution_options(isolation_level="AUTOCOMMIT") if "autocommit" in carrier else engine
    with Session(engine) if carrier.startswith("session") else engine.connect() as alchemy:
        yield alchemy


# --- several at once --------------------------------------------------------------------------------------------


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
    deadline = time.monotonic() + 60
    # not pg_locks, which shows a lock as not granted some moments before the wait for it begins
    waiting = (
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    )
    while not db.execute(waiting).fetchall():
        assert time.monotonic() < deadline, "nobody waits for us"
        db.execute("SELECT pg_stat_clear_snapshot()")  # within a transaction, activity is read only once

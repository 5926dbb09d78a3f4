"""Hooks at the end of a job: `commit` in the transaction that completes it, `failed` when it is buried, each once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from sqlalchemy import Connection

from snapapp.jobs import Failure, Job, enqueue, enqueue_many, events
from snapapp.jobs.registry import Registry
from tests.factory import Db, ago, make_job, row
from tests.jobs.executors.test_executors import put
from tests.jobs.working import Gate, until, until_status, working


def make_effects(db: Db) -> None:
    db.execute("CREATE TABLE effect (job_id bigint, said text)")


def put_effect(connection: Connection, job: Job, result: Any) -> None:
    connection.execute(sqlalchemy.text("INSERT INTO effect VALUES (:job, :said)"), {"job": job.id, "said": str(result)})


def effects(db: Db) -> list[tuple[Any, ...]]:
    return db.execute("SELECT job_id, said FROM effect ORDER BY job_id").fetchall()


def test_commit_runs_in_the_transaction_that_completes_the_job(url: str, db: Db, registry: Registry) -> None:
    """Q31: what it writes lands once, with the end of its job."""
    make_effects(db)
    registry.processor("paint", commit=put_effect)(lambda job: ["red"])
    with working(url, registry):
        ids = enqueue_many(db, [{"kind": "paint"}] * 50)
        until(lambda: len(effects(db)) == 50)
    assert effects(db) == [(job_id, "['red']") for job_id in ids]


def test_a_result_waits_while_the_server_takes_no_writes(url: str, db: Db, registry: Registry) -> None:
    """Promise 7: it became a standby, or its disk is nearly full. That is not the job's fault."""
    make_effects(db)
    gate = Gate()
    registry.processor("paint", commit=put_effect, max_attempts=1)(gate)
    takes_no_writes = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
    database = sql.Identifier(db.info.dbname)
    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "paint", max_attempts=1)
        assert job_id
        gate.wait_until_entered()
        db.execute(takes_no_writes.format(database, "on"))
        gate.open.set()
        until(lambda: [event for event in heard.all(events.WORKER_ERROR) if "read-only" in event.facts["error"]])
        db.execute(takes_no_writes.format(database, "off"))
        done = until_status(db, job_id, "COMPLETED", "FAILED")
    assert (done.status, done.errors, effects(db)) == ("COMPLETED", [], [(job_id, "None")])


def test_a_job_in_its_hook_when_its_worker_stops_ends_once(url: str, db: Db, registry: Registry) -> None:
    """It was handed back as well, and counted as lost."""
    make_effects(db)
    entered, go_on = threading.Event(), threading.Event()

    def commit(connection: Connection, job: Job, result: Any) -> None:
        entered.set()
        go_on.wait(20)
        put_effect(connection, job, result)

    registry.processor("paint", commit=commit)(lambda job: "red")
    with working(url, registry) as (worker, heard):
        job_id = put(db, "paint")
        assert entered.wait(20)
        stopper = threading.Thread(target=worker.stop, args=(timedelta(milliseconds=200),))
        stopper.start()
        until(worker._settler._stopping.is_set)
        go_on.set()
        until_status(db, job_id, "COMPLETED")
        stopper.join(20)
        ends = [event.name for event in heard.all(events.JOB_COMPLETED) + heard.all(events.JOB_LOST)]
    assert effects(db) == [(job_id, "red")]
    assert ends == [events.JOB_COMPLETED]


def test_a_job_whose_hook_waits_for_another_try_goes_back_when_its_worker_stops(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_job: Job) -> Any:
        raise psycopg.OperationalError("the pool's server is away")

    registry.processor("paint", commit=put_effect)(lambda job: None)
    with working(url, registry) as (worker, heard):
        monkeypatch.setattr(worker._parts, "transaction", away)
        job_id = put(db, "paint")
        heard.wait_for(events.WORKER_ERROR)
        worker.stop(grace=timedelta(milliseconds=200))
        assert [event.name for event in heard.all(events.JOB_INTERRUPTED) + heard.all(events.JOB_LOST)] == [
            events.JOB_INTERRUPTED
        ]
    back = row(db, job_id)
    assert (back.status, back.attempt_count, back.interruptions) == ("PENDING", 0, 1)


def test_a_commit_that_raises_fails_the_attempt_and_leaves_nothing_behind(url: str, db: Db, registry: Registry) -> None:
    make_effects(db)

    def commit(connection: Connection, job: Job, result: Any) -> None:
        put_effect(connection, job, result)
        raise RuntimeError("second thoughts")

    registry.processor("paint", commit=commit, max_attempts=2)(lambda job: 1)
    with working(url, registry):
        job_id = enqueue(db, "paint", max_attempts=2)
        assert job_id
        dead = until_status(db, job_id, "FAILED")
    assert effects(db) == []
    assert dead.last_error == "RuntimeError: second thoughts"
    assert len(dead.errors) == 2


def test_a_commit_that_breaks_its_transaction_fails_the_attempt(url: str, db: Db, registry: Registry) -> None:
    def commit(connection: Connection, job: Job, result: Any) -> None:
        connection.execute(sqlalchemy.text("SELECT 1/0"))

    registry.processor("paint", commit=commit)(lambda job: 1)
    with working(url, registry):
        job_id = enqueue(db, "paint", max_attempts=1)
        assert job_id
        assert "division by zero" in until_status(db, job_id, "FAILED").last_error


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SET LOCAL statement_timeout = 50; SELECT pg_sleep(5)", "canceling statement due to statement timeout"),
        ("SET LOCAL lock_timeout = 50; SELECT FROM taken FOR UPDATE", "canceling statement due to lock timeout"),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "terminating connection"),
    ],
)
def test_a_hook_that_ends_its_own_statement_or_connection_each_time_fails_the_attempt(
    url: str, db: Db, registry: Registry, statement: str, said: str
) -> None:
    """That is no database that is away, for which one would wait for ever."""
    db.execute("CREATE TABLE taken AS SELECT 1 AS one")

    def commit(connection: Connection, job: Job, result: Any) -> None:
        for part in statement.split(";"):
            connection.execute(sqlalchemy.text(part))

    registry.processor("cut", commit=commit, failed=commit)(lambda job: 1)
    with working(url, registry), psycopg.connect(url) as other:
        other.execute("SELECT FROM taken FOR UPDATE")
        job_id = enqueue(db, "cut", max_attempts=1)
        assert job_id
        assert said in until_status(db, job_id, "FAILED").last_error


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("idle_in_transaction_session_timeout", "idle-in-transaction"),
        # the oldest PostgreSQL, which is behind the pooler, does not know it
        pytest.param("transaction_timeout", "transaction timeout", marks=pytest.mark.direct),
    ],
)
def test_a_hook_that_stands_still_each_time_until_the_server_ends_its_transaction_fails_the_attempt(
    url: str, db: Db, registry: Registry, limit: str, said: str
) -> None:
    """No database is away, though only the COMMIT finds out."""

    def commit(connection: Connection, job: Job, result: Any) -> None:
        backend = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        connection.exec_driver_sql(f"SET LOCAL {limit} = 20")
        until(lambda: not db.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [backend]).fetchall())

    registry.processor("slow", commit=commit)(lambda job: 1)
    with working(url, registry) as (_, heard):
        job_id = put(db, "slow", max_attempts=1)
        assert said in until_status(db, job_id, "FAILED").last_error
        assert [error.facts["doing"] for error in heard.all(events.WORKER_ERROR)] == ["settle with hook"] * 2


def test_failed_runs_once_with_the_reason_when_the_job_is_buried(url: str, db: Db, registry: Registry) -> None:
    make_effects(db)

    def failed(connection: Connection, job: Job, failure: Failure) -> None:
        put_effect(connection, job, failure.error)

    @registry.processor("doomed", failed=failed)
    def doomed(job: Job) -> None:
        raise ValueError("no")

    with working(url, registry):
        job_id = enqueue(db, "doomed", max_attempts=2)
        assert job_id
        until_status(db, job_id, "FAILED")
    assert effects(db) == [(job_id, "ValueError: no")]


def test_a_commit_that_raises_is_no_success_though_the_failed_hook_raises_as_well(
    url: str, db: Db, registry: Registry
) -> None:
    """Dropping the `failed` hook must not settle what the `commit` has refused."""

    def refuse(*_: Any) -> None:
        raise ValueError("no")

    registry.processor("refused", commit=refuse, failed=refuse)(lambda job: "a result")
    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "refused", max_attempts=1)
        assert job_id
        dead = until_status(db, job_id, "COMPLETED", "FAILED")
        heard.wait_for(events.HOOK_DROPPED)
    assert (dead.status, dead.result, dead.last_error) == ("FAILED", None, "ValueError: no")


def test_a_failed_hook_that_keeps_raising_is_dropped_with_an_event(url: str, db: Db, registry: Registry) -> None:
    def failed(connection: Connection, job: Job, failure: Failure) -> None:
        raise RuntimeError("the hook is broken too")

    @registry.processor("doomed", failed=failed)
    def doomed(job: Job) -> None:
        raise ValueError("no")

    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "doomed", max_attempts=1)
        assert job_id
        assert until_status(db, job_id, "FAILED").last_error == "ValueError: no"
        heard.wait_for(events.HOOK_DROPPED)


def test_an_exhausted_job_is_buried_by_a_worker_that_knows_it_without_running(
    url: str, db: Db, registry: Registry
) -> None:
    """States: recovery never buries."""
    make_effects(db)
    ran: list[int] = []

    def failed(connection: Connection, job: Job, failure: Failure) -> None:
        put_effect(connection, job, failure.error)

    registry.processor("pill", failed=failed)(lambda job: ran.append(job.id))
    job_id = make_job(
        db,
        "RETRY_WAIT",
        kind="pill",
        losses=2,
        gate="alone",
        attempt_count=3,
        last_error="worker lost",
        next_retry_at=ago(seconds=1),
    )
    with working(url, registry):
        dead = until_status(db, job_id, "FAILED")
    assert (ran, dead.attempt_count, dead.last_error) == ([], 3, "worker lost")
    assert effects(db) == [(job_id, "worker lost")]


@pytest.mark.at_length  # labs/chaos cuts connections in every run
@pytest.mark.direct
def test_broken_connections_in_the_middle_of_work_lose_nothing_and_double_nothing(
    url: str, db: Db, registry: Registry
) -> None:
    """Promise 7, FC10, FC13: every backend of the worker is terminated again and again."""
    make_effects(db)
    registry.processor("plain")(lambda job: threading.Event().wait(0.001))
    registry.processor("paint", commit=put_effect)(lambda job: 1)
    with working(url, registry) as (_, heard):
        enqueue_many(db, [{"kind": "plain"}, {"kind": "paint"}] * 500)
        for _ in range(10):
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'snapapp %%' AND datname = current_database()"
            )
            threading.Event().wait(0.1)
        until(lambda: db.execute("SELECT FROM snap_processing_job WHERE status <> 'COMPLETED'").fetchall() == [], 60)
    assert db.execute("SELECT count(*), count(DISTINCT job_id) FROM effect").fetchall() == [(500, 500)]
    assert heard.all(events.JOB_FAILED) == []


def test_the_application_can_wrap_every_hook(url: str, db: Db, registry: Registry) -> None:
    make_effects(db)

    @contextmanager
    def context(job: Job, connection: Connection | None) -> Iterator[str]:
        if connection is None:
            yield job.tenant
        else:
            setting = sqlalchemy.text("SELECT set_config('app.tenant', :tenant, true)")
            yield str(connection.execute(setting, {"tenant": job.tenant}).scalar())

    def commit(connection: Connection, job: Job, result: Any) -> None:
        put_effect(
            connection, job, connection.execute(sqlalchemy.text("SELECT current_setting('app.tenant')")).scalar()
        )

    registry.processor("mine", commit=commit)(lambda job: None)
    with working(url, registry, context=context):
        job_id = enqueue(db, "mine", tenant="fazenda")
        assert job_id
        until_status(db, job_id, "COMPLETED")
    assert effects(db) == [(job_id, "fazenda")]

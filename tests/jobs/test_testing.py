"""The helpers that users' tests are written with."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy.orm
from sqlalchemy import Connection, Engine, text

from snapapp.jobs import Job, Permanent, Snooze, enqueue
from snapapp.jobs.registry import Registry
from snapapp.jobs.testing import assert_enqueued, enqueued, make_due, run_due


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """As many test suites have it: one transaction a test, rolled back at the end."""
    with engine.connect() as connection:
        transaction = connection.begin()
        yield connection
        transaction.rollback()


def greet(job: Job) -> str:
    job.log("hello")
    job.update_progress(50)
    if job.payload.get("moody"):
        raise Permanent("not today")
    return f"hello {job.payload['name']}"


async def meet(job: Job) -> str:
    return "met"


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.processor("greet", commit=put)(greet)
    registry.processor("meet")(meet)
    return registry


def put(db: Connection, job: Job, result: Any) -> None:
    db.execute(text("CREATE TABLE IF NOT EXISTS said (what text)"))
    db.execute(text("INSERT INTO said VALUES (:what)"), {"what": result})
    if job.payload.get("regrets"):
        raise ValueError("second thoughts")


def test_due_jobs_run_inside_the_tests_transaction(engine: Engine, connection: Connection, registry: Registry) -> None:
    enqueue(connection, "greet", {"name": "Ana"})
    enqueue(connection, "meet")
    assert sorted(run_due(connection, registry)) == ["greet: COMPLETED", "meet: COMPLETED"]
    assert connection.execute(text("SELECT what FROM said")).scalars().all() == ["hello Ana"]
    with engine.connect() as other:
        assert other.execute(text("SELECT count(*) FROM snap_processing_job")).scalar() == 0


def test_failures_and_hooks_that_raise_are_told(connection: Connection, registry: Registry) -> None:
    enqueue(connection, "greet", {"moody": True})
    assert run_due(connection, registry) == ["greet: FAILED"]
    enqueue(connection, "greet", {"name": "Ana", "regrets": True})
    assert run_due(connection, registry) == ["greet: RETRY_WAIT"]
    assert connection.execute(text("SELECT to_regclass('said')")).scalar() is None


def test_jobs_for_later_wait_until_they_are_moved(connection: Connection, registry: Registry) -> None:
    job_id = enqueue(connection, "meet", delay=timedelta(days=1))
    assert job_id
    assert run_due(connection, registry) == []
    make_due(connection, job_id)
    assert run_due(connection, registry) == ["meet: COMPLETED"]


def test_a_snoozing_job_does_not_spin(connection: Connection) -> None:
    registry = Registry()

    @registry.processor("sleepy")
    def sleepy(job: Job) -> None:
        raise Snooze(timedelta(hours=1))

    enqueue(connection, "sleepy")
    assert run_due(connection, registry) == ["sleepy: PENDING"]


def test_what_was_enqueued_can_be_asked(connection: Connection) -> None:
    enqueue(connection, "mail.send", {"to": "ana", "subject": "hi"})
    assert_enqueued(connection, "mail.send", to="ana")
    assert enqueued(connection, "mail.send", to="bob") == []
    with pytest.raises(AssertionError, match=r"0 waiting jobs of kind mail.send with \{'to': 'bob'\}, not 1"):
        assert_enqueued(connection, "mail.send", to="bob")


def test_a_session_will_do(engine: Engine, registry: Registry) -> None:
    with sqlalchemy.orm.Session(engine) as session:
        enqueue(session, "meet")
        assert run_due(session, registry) == ["meet: COMPLETED"]

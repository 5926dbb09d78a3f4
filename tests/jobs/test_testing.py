"""The helpers that users' tests are written with."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy.orm
from sqlalchemy import Connection, Engine, text

from snapapp.jobs import Job, Permanent, Snooze, enqueue
from snapapp.jobs.errors import IllegalTransition
from snapapp.jobs.registry import Registry
from snapapp.jobs.testing import assert_enqueued, enqueued, make_due, run_due
from tests.jobs.kinds import crashing, tenancy
from tests.labs.executors import kinds


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


def test_only_what_waits_is_moved(connection: Connection, registry: Registry) -> None:
    job_id = enqueue(connection, "meet")
    run_due(connection, registry)
    with pytest.raises(IllegalTransition, match=f"job {job_id} is COMPLETED: only a waiting job"):
        make_due(connection, job_id or 0)


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


# --- each executor ----------------------------------------------------------------------------------------------


def column(connection: Connection, name: str, job_id: int | None) -> Any:
    statement = text(f"SELECT {name} FROM snap_processing_job WHERE id = :id")
    return connection.execute(statement, {"id": job_id}).scalar()


def test_a_program_really_runs_and_its_words_are_kept(connection: Connection) -> None:
    payload = {"camera": "Ñ 7", "frames": "x" * 200_000}  # more than a claim brings along
    job_id = enqueue(connection, "command.echo", payload, tenant="ana")
    assert run_due(connection, kinds.registry) == ["command.echo: COMPLETED"]
    assert column(connection, "result", job_id)["payload"] == payload
    lines = enqueue(connection, "command.lines")
    run_due(connection, kinds.registry)
    logged = connection.execute(text("SELECT count(*) FROM job_log WHERE job_id = :id"), {"id": lines}).scalar()
    assert logged == 1000


@pytest.mark.at_length  # executors/test_bad_jobs has it of a worker in every run
@pytest.mark.parametrize(
    ("kind", "reason"), [(kind, why) for kind, why in kinds.BAD.items() if kind.startswith("command.")][:8]
)
def test_what_a_program_does_wrong_fails_as_it_would_in_a_worker(
    connection: Connection, kind: str, reason: str
) -> None:
    job_id = enqueue(connection, kind, max_attempts=1)
    assert run_due(connection, kinds.registry) == [f"{kind}: FAILED"]
    assert reason in column(connection, "last_error", job_id)


def test_a_program_that_a_function_chooses_must_be_allowed_here_too(connection: Connection) -> None:
    refused = enqueue(connection, "who.command", tenant="ana")
    assert run_due(connection, tenancy.registry) == ["who.command: FAILED"]
    assert column(connection, "last_error", refused).startswith("CommandNotAllowed")
    allowed = enqueue(connection, "who.command", tenant="ana")
    assert run_due(connection, tenancy.registry, command_allow=[sys.executable]) == ["who.command: COMPLETED"]
    assert column(connection, "result", allowed) == "nobody"


def test_a_process_kind_is_called_here_or_runs_in_a_child(connection: Connection) -> None:
    here, there = enqueue(connection, "child.echo"), enqueue(connection, "child.echo", delay=timedelta(hours=1))
    assert run_due(connection, crashing.registry) == ["child.echo: COMPLETED"]
    make_due(connection, there or 0)
    assert run_due(connection, crashing.registry, in_children=True) == ["child.echo: COMPLETED"]
    assert column(connection, "result", here)["pid"] == os.getpid()
    assert column(connection, "result", there)["pid"] != os.getpid()
    assert column(connection, "progress", there) == {"percent": 50, "note": "half"}


@pytest.mark.at_length  # executors/test_bad_jobs has it of a worker in every run
def test_a_child_that_dies_or_never_ends_fails_its_job_and_not_the_test(connection: Connection) -> None:
    enqueue(connection, "child.segfault", max_attempts=1)
    enqueue(connection, "child.spin", max_attempts=1, timeout=timedelta(milliseconds=300))
    enqueue(connection, "child.echo")
    ended = run_due(connection, crashing.registry, in_children=True)
    assert sorted(ended) == ["child.echo: COMPLETED", "child.segfault: FAILED", "child.spin: FAILED"]


@pytest.mark.parametrize("in_children", [True, False])
def test_a_process_kind_is_refused_a_connection_wherever_it_runs(connection: Connection, in_children: bool) -> None:
    job_id = enqueue(connection, "child.borrow", max_attempts=1)
    assert run_due(connection, crashing.registry, in_children=in_children) == ["child.borrow: FAILED"]
    assert column(connection, "last_error", job_id).startswith("NoConnection: child.borrow job")


def test_a_scoped_session_will_do_and_what_will_not_is_named(connection: Connection, engine: Engine) -> None:
    registry = Registry()
    registry.processor("hello")(lambda job: None)
    session = sqlalchemy.orm.scoped_session(sqlalchemy.orm.sessionmaker(connection))
    enqueue(session, "hello")
    assert run_due(session, registry) == ["hello: COMPLETED"]
    with pytest.raises(TypeError, match=r"not sqlalchemy\.engine\.base\.Engine; with an AsyncSession"):
        run_due(engine, registry)  # type: ignore[arg-type]


def test_a_coroutine_borrows_a_connection_beside_the_loop_only(connection: Connection) -> None:
    registry = Registry()

    def borrow(job: Job) -> Any:
        with job.connection() as db:
            return db.execute(text("SELECT 7")).scalar_one()

    @registry.processor("beside")
    async def beside(job: Job) -> Any:
        return await asyncio.to_thread(borrow, job)

    @registry.processor("on.it")
    async def on_it(job: Job) -> Any:
        return borrow(job)

    beside_id, on_it_id = enqueue(connection, "beside"), enqueue(connection, "on.it", max_attempts=1)
    assert sorted(run_due(connection, registry)) == ["beside: COMPLETED", "on.it: FAILED"]
    assert column(connection, "result", beside_id) == 7
    assert column(connection, "last_error", on_it_id).startswith(f"NoConnection: on.it job {on_it_id} asks")


def test_a_coroutine_ends_at_its_time_limit(connection: Connection) -> None:
    registry = Registry()

    @registry.processor("slow", timeout=timedelta(milliseconds=50), max_attempts=1)
    async def slow(job: Job) -> None:
        await asyncio.sleep(3600)

    job_id = enqueue(connection, "slow", max_attempts=1)
    assert run_due(connection, registry) == ["slow: FAILED"]
    assert column(connection, "last_error", job_id) == "JobTimeout: slow ran longer than its 0.05 s"


def test_a_coroutine_runs_in_a_test_that_is_one(connection: Connection) -> None:
    registry = Registry()
    greeting = ContextVar[str]("greeting")

    @registry.processor("greet")
    async def greet(job: Job) -> str:
        job.log("hello")
        await asyncio.sleep(0)
        return greeting.get()

    async def test() -> list[str]:
        greeting.set("olá")
        return run_due(connection, registry)

    job_id = enqueue(connection, "greet")
    assert asyncio.run(test()) == ["greet: COMPLETED"]
    assert column(connection, "result", job_id) == "olá"


def test_what_a_job_borrows_is_the_tests_own_transaction(engine: Engine, connection: Connection) -> None:
    registry = Registry()

    @registry.processor("borrow")
    def borrow(job: Job) -> None:
        with job.connection() as db:
            db.execute(text("CREATE TABLE borrowed AS SELECT 1 AS it"))
        with pytest.raises(ZeroDivisionError), job.connection() as db:
            spoil(db)

    def spoil(db: Connection) -> None:
        db.execute(text("DELETE FROM borrowed"))
        raise ZeroDivisionError

    enqueue(connection, "borrow")
    assert run_due(connection, registry) == ["borrow: COMPLETED"]
    assert connection.execute(text("SELECT it FROM borrowed")).scalar() == 1
    with engine.connect() as other:
        assert other.execute(text("SELECT to_regclass('borrowed')")).scalar() is None


def test_the_applications_context_is_entered(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE noted (job bigint, tenant text)"))
    hooked = enqueue(connection, "hooked", tenant="ana")
    async_one = enqueue(connection, "who.async", tenant="bob")
    borrowed = enqueue(connection, "who.sql", tenant="eva")
    lying = enqueue(connection, "who.thread", {"breaks": "lie"}, max_attempts=1)
    run_due(connection, tenancy.registry, context=tenancy.context)
    assert connection.execute(text("SELECT * FROM noted")).all() == [(hooked, "ana")]
    assert column(connection, "result", async_one) == ["bob", "bob"]
    assert column(connection, "result", borrowed)[0] == "eva"
    assert "its context says 'another'" in column(connection, "last_error", lying)


def test_a_commit_that_raises_is_no_success_though_the_failed_hook_raises_too(connection: Connection) -> None:
    registry = Registry()

    def refuse(*_: Any) -> None:
        raise ValueError("no")

    registry.processor("refused", commit=refuse, failed=refuse)(lambda job: None)
    enqueue(connection, "refused", max_attempts=1)
    with pytest.raises(ValueError, match="no"):
        run_due(connection, registry)


# --- limits and turns -------------------------------------------------------------------------------------------


@pytest.fixture
def counting() -> Registry:
    registry = Registry()
    registry.processor("count")(lambda job: None)
    return registry


def limit(connection: Connection, pattern: str, **its: float) -> None:
    names = ", ".join(["key_pattern", *its])
    values = ", ".join([":pattern", *(f":{name}" for name in its)])
    connection.execute(text(f"INSERT INTO job_limit ({names}) VALUES ({values})"), {"pattern": pattern} | its)


def test_a_limit_of_one_at_a_time_lets_all_of_them_run_one_after_the_other(
    connection: Connection, counting: Registry
) -> None:
    limit(connection, "key:camera:*", max_running=1)
    for number in range(6):
        enqueue(connection, "count", concurrency_key=f"camera:{number % 2}")
    assert len(run_due(connection, counting)) == 6


def test_a_rate_lets_its_burst_run_and_the_rest_wait(connection: Connection, counting: Registry) -> None:
    limit(connection, "queue:default", rate=0.001, burst=3)
    for _ in range(5):
        enqueue(connection, "count")
    assert len(run_due(connection, counting)) == 3
    assert run_due(connection, counting) == []


def test_a_place_that_somebody_else_holds_is_not_taken(connection: Connection, counting: Registry) -> None:
    limit(connection, "queue:default", max_running=1)
    enqueue(connection, "count")
    connection.execute(
        text(
            "INSERT INTO snap_processing_job (kind, status, attempt_count, lease_seq, claimed_by, locked_at,"
            " lock_expires_at) VALUES ('count', 'RUNNING', 1, 1, 'other', now(), now() + interval '1 hour')"
        )
    )
    assert run_due(connection, counting) == []


@pytest.mark.at_length  # rows/limits has a backlog beside full lanes in every run
def test_what_is_shut_does_not_hide_what_is_open_behind_hundreds_of_lanes(
    connection: Connection, counting: Registry
) -> None:
    limit(connection, "key:shut:*", max_running=0)
    for number in range(250):
        enqueue(connection, "count", concurrency_key=f"shut:{number:03}")
    for name in ("a", "z"):
        enqueue(connection, "count", concurrency_key=name)
    assert len(run_due(connection, counting)) == 2


def test_tenants_of_a_fair_queue_take_turns(connection: Connection) -> None:
    registry, served = Registry(), []
    registry.processor("turn")(lambda job: served.append(job.tenant))
    connection.execute(text("INSERT INTO job_queue (name, fair) VALUES ('default', true)"))
    for tenant in "aaaaaabbbc":
        enqueue(connection, "turn", tenant=tenant)
    run_due(connection, registry)
    assert Counter(served[:6]) == Counter("aabbca")
    assert len(served) == 10


def test_a_suspect_runs_within_a_limit_too(connection: Connection, counting: Registry) -> None:
    limit(connection, "queue:default", max_running=1)
    job_id = enqueue(connection, "count")
    connection.execute(text("UPDATE snap_processing_job SET losses = 2 WHERE id = :id"), {"id": job_id})
    assert run_due(connection, counting) == ["count: COMPLETED"]


def test_at_most_stops_a_job_that_enqueues_itself(connection: Connection) -> None:
    registry = Registry()

    @registry.processor("again")
    def again(job: Job) -> None:
        with job.connection() as db:
            enqueue(db, "again")

    enqueue(connection, "again")
    assert run_due(connection, registry, at_most=7) == ["again: COMPLETED"] * 7

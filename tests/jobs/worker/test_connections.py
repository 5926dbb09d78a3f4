"""job.connection(): a transaction of the job's own, and statements that end when the attempt should."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from time import monotonic

import pytest
import sqlalchemy
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from snapapp.jobs import Job, JobCancelled, JobsError, enqueue
from snapapp.jobs.context import Within
from snapapp.jobs.errors import IllegalTransition, JobInterrupted, JobTimeout, LeaseLost, NoConnection
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.worker.connections import JobConnections, Loan
from snapapp.jobs.worker.engines import job_engine
from tests.factory import Db, move, row, scalar
from tests.jobs.executors.test_executors import put
from tests.jobs.kinds import crashing
from tests.jobs.test_model import make
from tests.jobs.working import quick_settings, until, until_status, working

FOR_EVER = text("SELECT pg_sleep(3600)")


class Stage:
    """Kinds that sleep in the database, and what they saw there."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.raised: list[BaseException] = []
        self.backends: list[int] = []
        self.registry.processor("sleep")(self.sleep)
        self.registry.processor("stubborn")(self.stubborn)
        self.registry.processor("async.sleep")(self.sleep_in_a_thread)

    def sleep(self, job: Job) -> None:
        try:
            with job.connection() as db:
                self.backends += job.backends
                db.execute(FOR_EVER)
        except BaseException as error:
            self.raised.append(error)
            raise

    def stubborn(self, job: Job) -> None:
        """Takes every error for one of the statement, and tries again."""
        with job.connection() as db:
            self.backends += job.backends
            for _ in range(1000):
                try:
                    with db.begin_nested():
                        db.execute(FOR_EVER)
                except JobsError as error:
                    self.raised.append(error)
                    raise
                except sqlalchemy.exc.DBAPIError:
                    continue

    async def sleep_in_a_thread(self, job: Job) -> None:
        await asyncio.to_thread(self.sleep, job)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def until_asleep(db: Db) -> int:
    """The pid of the backend that sleeps for a job."""
    asleep = "SELECT pid FROM pg_stat_activity WHERE application_name = 'snapapp job' AND wait_event = 'PgSleep'"
    until(lambda: db.execute(asleep).fetchall())
    return int(scalar(db, asleep))


def is_quiet(db: Db) -> bool:
    busy = "SELECT FROM pg_stat_activity WHERE application_name = 'snapapp job' AND state <> 'idle'"
    return not db.execute(busy).fetchall()


# --- a transaction of its own -----------------------------------------------------------------------------------


def test_what_a_job_does_on_its_connection_is_committed_at_the_end_of_the_block(
    url: str, db: Db, registry: Registry
) -> None:
    db.execute("CREATE TABLE seen (what text)")
    enqueued: list[int | None] = []

    @registry.processor("write")
    def write(job: Job) -> list[int]:
        with job.connection() as connection:
            connection.execute(text("INSERT INTO seen VALUES ('committed')"))
            enqueued.append(enqueue(connection, "other", {"from": job.id}))
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar()
            held = job.backends
        assert (held, len(job.backends)) == ((pid,), 0)
        with pytest.raises(IntegrityError), job.connection() as connection:
            write_twice(connection)
        return [pid or 0]

    def write_twice(connection: Connection) -> None:
        connection.execute(text("INSERT INTO seen VALUES ('rolled back')"))
        connection.execute(text("INSERT INTO job_queue VALUES (NULL)"))

    with working(url, registry):
        until_status(db, put(db, "write"), "COMPLETED")
    assert db.execute("SELECT what FROM seen").fetchall() == [("committed",)]
    assert row(db, enqueued[0] or 0).kind == "other"


@pytest.mark.direct
def test_what_one_job_leaves_on_a_connection_the_next_does_not_find(url: str, db: Db, registry: Registry) -> None:
    left = []

    @registry.processor("litter")
    def litter(job: Job) -> None:
        with job.connection() as connection:
            execute = connection.exec_driver_sql
            found = [
                execute("SELECT current_setting('app.who', true)").scalar(),
                execute("SELECT to_regclass('pg_temp.scratch')").scalar(),
                execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").scalar(),
                execute("SELECT current_user").scalar(),
            ]
            left.append((job.backends, found))
            for statement in (
                "SET app.who = 'ana'",
                "CREATE TEMPORARY TABLE scratch ()",
                "SELECT pg_advisory_lock(7)",
                "SET ROLE pg_monitor",
            ):
                execute(statement)

    with working(url, registry, concurrency=1, job_connections=1):
        for _ in range(3):
            until_status(db, put(db, "litter"), "COMPLETED")
    (first, found), *others = left
    assert [(backend, found[1:]) for backend, found in others] == [(first, found[1:])] * 2
    assert {found[0] or None for _, found in left} == {None}
    assert found[1:3] == [None, 0]


def test_connections_are_few_and_jobs_wait_for_them(url: str, db: Db, registry: Registry) -> None:
    at_once: list[int] = []

    @registry.processor("count")
    def count(job: Job) -> None:
        with job.connection() as connection:
            busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'snapapp job'"
            at_once.append(connection.execute(text(busy)).scalar_one())

    with working(url, registry, concurrency=8, job_connections=2) as (worker, _):
        for _ in range(40):
            put(db, "count")
        until(lambda: worker.counts.completed == 40)
    assert max(at_once) <= 2


def test_the_budget_counts_them(url: str) -> None:
    """FC11."""
    assert quick_settings(url, job_connections=5).connections - quick_settings(url, job_connections=0).connections == 5
    with pytest.raises(ValueError, match="job connections must not be negative: -1"):
        quick_settings(url, job_connections=-1)


@pytest.mark.direct
def test_a_worker_has_one_connection_for_each_duty_and_says_how_many(url: str, db: Db) -> None:
    """M48: a slow statement of one delays no other."""
    registry = Registry()
    registry.processor("says")(lambda job: job.log("something"))
    registry.scheduled(every=timedelta(days=1), name="daily")(lambda job: None)
    seen = """SELECT application_name FROM pg_stat_activity
               WHERE datname = current_database() AND application_name LIKE 'snapapp %'"""
    duties = {f"snapapp {duty}" for duty in ("claim", "settle", "beat", "keep", "notes", "listen", "schedules")}
    with working(url, registry, job_connections=0) as (worker, _):
        put(db, "says")
        until(lambda: {name for (name,) in db.execute(seen).fetchall()} >= duties)
        names = [name for (name,) in db.execute(seen).fetchall()]
        assert sorted(names) == sorted(duties)
        assert worker.settings.connections == len(duties) + worker.settings.hooks


# --- where there is none ----------------------------------------------------------------------------------------


def ask_on_the_loop(registry: Registry) -> str:
    @registry.processor("loop")
    async def loop(job: Job) -> None:
        job.connection().__enter__()

    return "loop"


def ask_where_there_are_none(registry: Registry) -> str:
    registry.processor("none")(lambda job: job.connection().__enter__())
    return "none"


def ask_in_a_fork(registry: Registry) -> str:
    @registry.processor("fork")
    def fork(job: Job) -> None:
        said, mouth = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                job.connection().__enter__()
            except NoConnection as error:
                os.write(mouth, str(error).encode())
            finally:
                os._exit(0)
        os.close(mouth)
        os.waitpid(pid, 0)
        with os.fdopen(said) as words:
            raise NoConnection(words.read())

    return "fork"


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (ask_in_a_fork, "in a process that it has forked, which would talk into its parent's"),
        (ask_on_the_loop, "would hold up all the others: use it in a function that is called with asyncio.to_thread"),
        (ask_where_there_are_none, "SNAPAPP_JOB_CONNECTIONS is 0"),
    ],
)
def test_where_a_job_can_have_no_connection_it_is_told_so(
    url: str, db: Db, registry: Registry, declare: Callable[[Registry], str], words: str
) -> None:
    kind = declare(registry)
    with working(url, registry, job_connections=0 if kind == "none" else 1):
        dead = until_status(db, put(db, kind, max_attempts=1), "FAILED")
    assert dead.last_error.startswith(f"NoConnection: {kind} job {dead.id} asks for a connection")
    assert words in dead.last_error


def test_a_child_process_has_no_database_and_says_so(url: str, db: Db) -> None:
    with working(url, crashing.registry):
        dead = until_status(db, put(db, "child.borrow", max_attempts=1), "FAILED")
        until_status(db, put(db, "child.echo"), "COMPLETED")
    assert dead.last_error.startswith(f"NoConnection: child.borrow job {dead.id} asks for a connection, and a child")


def test_a_job_that_does_not_run_has_no_connection() -> None:
    with pytest.raises(NoConnection, match="test job 1 does not run"):
        make().connection()
    assert make().backends == ()


# --- statements end when the attempt should ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sleep", "stubborn", "async.sleep"])
def test_a_cancel_reaches_the_statement(url: str, db: Db, stage: Stage, kind: str) -> None:
    """Engine: cancel that reaches the job's SQL."""
    with working(url, stage.registry):
        job_id = put(db, kind)
        backend = until_asleep(db)
        assert stage.backends == [backend]
        lifecycle.cancel(db, job_id)
        until_status(db, job_id, "CANCELLED")
        until(lambda: is_quiet(db))  # by itself it would sleep for an hour
        until(lambda: stage.raised)
    assert isinstance(stage.raised[0], JobCancelled)


@pytest.mark.parametrize("kind", ["sleep", "stubborn", "async.sleep"])
def test_the_time_limit_reaches_the_statement(url: str, db: Db, stage: Stage, kind: str) -> None:
    with working(url, stage.registry) as (worker, _):
        dead = until_status(db, put(db, kind, max_attempts=1, timeout=timedelta(milliseconds=300)), "FAILED")
        until(lambda: is_quiet(db))
        assert worker.vitals().stuck == 0
    assert dead.last_error == f"JobTimeout: {kind} ran longer than its 0.3 s"


@pytest.mark.direct
@pytest.mark.parametrize("kind", ["sleep", "async.sleep"])
def test_a_lost_lease_reaches_the_statement(url: str, db: Db, stage: Stage, kind: str) -> None:
    with working(url, stage.registry, concurrency=1) as (_, heard):
        job_id = put(db, kind)
        until_asleep(db)
        move(db, job_id, lease_seq=row(db, job_id).lease_seq + 1, claimed_by="somebody else")
        heard.wait_for("job.lease.lost")
        until(lambda: is_quiet(db))
        until(lambda: stage.raised)
    assert isinstance(stage.raised[0], LeaseLost)


@pytest.mark.parametrize("kind", ["sleep", "stubborn", "async.sleep"])
def test_a_shutdown_reaches_the_statement_and_the_job_goes_back(url: str, db: Db, stage: Stage, kind: str) -> None:
    with working(url, stage.registry) as (worker, _):
        job_id = put(db, kind)
        until_asleep(db)
        worker.stop(grace=timedelta(milliseconds=500))  # and does not wait for the hour to be over
        until(lambda: is_quiet(db))
        until(lambda: stage.raised)
    back = row(db, job_id)
    assert (back.status, back.attempt_count, back.interruptions) == ("PENDING", 0, 1)
    assert isinstance(stage.raised[0], JobInterrupted)


def test_a_job_that_waits_for_a_connection_can_be_cancelled(url: str, db: Db, stage: Stage) -> None:
    with working(url, stage.registry, concurrency=2, job_connections=1):
        put(db, "sleep")
        until_asleep(db)
        waiting = put(db, "sleep")
        until(lambda: row(db, waiting).status == "RUNNING")
        lifecycle.cancel(db, waiting)
        until_status(db, waiting, "CANCELLED", within=5)


def test_a_cancel_between_two_statements_meets_the_next_and_nothing_is_committed(
    url: str, db: Db, registry: Registry
) -> None:
    db.execute("CREATE TABLE seen (what int)")
    between, cancelled = threading.Event(), threading.Event()

    @registry.processor("two", timeout=timedelta(seconds=60))
    def two(job: Job) -> None:
        with job.connection() as connection:
            connection.execute(text("INSERT INTO seen VALUES (1)"))
            between.set()
            cancelled.wait(20)
            if job.payload["goes_on"]:
                connection.execute(FOR_EVER)

    with working(url, registry) as (worker, _):
        for goes_on in (True, False):
            between.clear()
            cancelled.clear()
            job_id = put(db, "two", payload={"goes_on": goes_on})
            assert between.wait(20)
            lifecycle.cancel(db, job_id)
            heard_of = worker._held_jobs.get(job_id)
            until(lambda heard_of=heard_of: heard_of and heard_of.stop)  # type: ignore[misc]
            cancelled.set()
            until_status(db, job_id, "CANCELLED", within=5)
    assert db.execute("SELECT FROM seen").fetchall() == []


def test_a_thread_that_an_attempt_left_behind_gets_no_connection_any_more(url: str, db: Db, registry: Registry) -> None:
    over, refused = threading.Event(), []

    @registry.processor("leave")
    async def leave(job: Job) -> None:
        def linger() -> None:
            over.wait(20)
            try:
                with job.connection():
                    pass
            except LeaseLost as error:
                refused.append(str(error))

        asyncio.get_running_loop().run_in_executor(None, linger)

    with working(url, registry):
        job_id = put(db, "leave")
        until_status(db, job_id, "COMPLETED")
        until(lambda: is_quiet(db))
        over.set()
        until(lambda: refused)
    assert refused == [f"the attempt at job {job_id} is over"]


@pytest.mark.direct
def test_a_cancelled_connection_is_not_lent_again(url: str, db: Db, stage: Stage) -> None:
    """A cancel that is late would hit the statement of the next job."""

    @stage.registry.processor("who")
    def who(job: Job) -> list[int]:
        with job.connection():
            return list(job.backends)

    with working(url, stage.registry, concurrency=1, job_connections=1):
        (first,) = until_status(db, put(db, "who"), "COMPLETED").result
        assert until_status(db, put(db, "who"), "COMPLETED").result == [first]
        cancelled = put(db, "sleep")
        until_asleep(db)
        lifecycle.cancel(db, cancelled)
        until_status(db, cancelled, "CANCELLED")
        (other,) = until_status(db, put(db, "who"), "COMPLETED").result
    assert other != first


def test_cancels_at_every_moment_hit_their_own_job_only(url: str, db: Db, registry: Registry) -> None:
    """Each job is either cancelled or sees all of its statements through."""
    gate = threading.Barrier(2)

    @registry.processor("steps")
    def steps(job: Job) -> str:
        if job.payload["victim"]:
            gate.wait(20)
        for _ in range(5):
            with job.connection() as connection:
                connection.execute(text("SELECT pg_sleep(0.002)"))
        return "all"

    with working(url, registry, concurrency=2, job_connections=1):
        for moment in range(12):
            bystander = put(db, "steps", payload={"victim": False}, max_attempts=1)
            victim = put(db, "steps", payload={"victim": True}, max_attempts=1)
            gate.wait(20)
            threading.Event().wait(moment * 0.003)
            with suppress(IllegalTransition):  # it was quicker
                lifecycle.cancel(db, victim)
            assert until_status(db, bystander, "COMPLETED", "FAILED", "CANCELLED").status == "COMPLETED"
            ended = until_status(db, victim, "COMPLETED", "FAILED", "CANCELLED")
            assert ended.status in ("COMPLETED", "CANCELLED"), ended.last_error


# --- the connections alone ----------------------------------------------------------------------------------------


@pytest.fixture
def connections(url: str) -> Iterator[JobConnections]:
    engine = job_engine(quick_settings(url))
    yield JobConnections(lambda: engine, 2, Within())
    engine.dispose()


def nothing(_job: Job) -> None:
    """Nobody wants it to end."""


def test_the_server_ends_what_a_frozen_process_left_behind(connections: JobConnections, db: Db) -> None:
    job = make(deadline=monotonic() - 4.2)  # 5 s after it, it is the server's turn: we must not stand still so long
    with (
        pytest.raises(sqlalchemy.exc.OperationalError, match="statement timeout"),
        connections.connection(job, nothing) as it,
    ):
        it.execute(FOR_EVER)
    assert job.backends == ()


def test_the_servers_own_time_limit_is_the_jobs(connections: JobConnections) -> None:
    job = make(deadline=monotonic() - 4.5)

    def late(_job: Job) -> None:
        if job.backends:
            raise JobTimeout("too late")

    with pytest.raises(JobTimeout, match="too late"), connections.connection(job, late) as connection:
        connection.execute(FOR_EVER)


def test_a_server_that_does_not_take_the_cancel_is_hung_up_on(
    connections: JobConnections, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands between may drop cancels: the job ends at once all the same."""
    monkeypatch.setattr(Loan, "_cancel", lambda self: False)
    job, ended = make(), []

    def work() -> None:
        try:
            with connections.connection(job, nothing) as connection:
                connection.execute(FOR_EVER)
        except JobCancelled as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    backend = until_asleep(db)
    assert job.backends == (backend,)
    reason = JobCancelled("away with it")
    connections.revoke(job, reason)
    thread.join(10)
    assert ended == [reason]
    db.execute("SELECT pg_terminate_backend(%s)", [backend])  # it sleeps on, and the test's database must go
    with connections.connection(make(), nothing) as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1


def test_a_processor_error_inside_the_block_stays_what_it_is(connections: JobConnections) -> None:
    with pytest.raises(KeyError, match="mine"), connections.connection(make(), nothing):
        raise KeyError("mine")


def test_two_connections_of_one_job_are_both_revoked(connections: JobConnections, db: Db) -> None:
    job = make()
    held: list[int] = []

    def work(outer: Connection, inner: Connection) -> None:
        held.extend(job.backends)
        connections.revoke(job, JobCancelled("both"))
        with pytest.raises(JobCancelled):
            inner.execute(FOR_EVER)
        outer.execute(FOR_EVER)

    with (
        pytest.raises(JobCancelled, match="both"),
        connections.connection(job, nothing) as outer,
        connections.connection(job, nothing) as inner,
    ):
        work(outer, inner)
    assert len(set(held)) == 2
    assert not connections.loans


def test_a_database_that_is_away_fails_the_attempt_and_gives_the_place_back(db: Db) -> None:
    engine = job_engine(quick_settings("postgresql://127.0.0.1:1/nowhere"))
    connections = JobConnections(lambda: engine, 1, Within())
    for _ in range(3):
        with pytest.raises(sqlalchemy.exc.OperationalError), connections.connection(make(), nothing):
            pass

"""Promise 11: no neighbour stalls another. Each test has one bad job and 200 that do nothing, and these are all
finished before the bad one may go on."""

import errno
import gc
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection

from snapapp.jobs import Job, enqueue, enqueue_many, events
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import settle
from snapapp.jobs.worker.claiming import claimer
from tests.factory import Db, ago, hence, make_job, make_jobs, move, row, scalar, statuses
from tests.jobs.executors.test_executors import put
from tests.jobs.rows.limits.limiting import limit
from tests.jobs.working import until, until_status, working

MANY = 200
LONG = timedelta(minutes=1)  # nobody beats for a row that is locked, and what is expired others may take


class Stage:
    """Kinds that wait until they may go on, beside one that does nothing."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.inside = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self.registry.processor("noop")(lambda job: None)

    def wait(self, _job: Job) -> None:
        self.inside.release()
        assert self.may_go_on.wait(60)

    def wait_in_hook(self, _db: Connection, job: Job, _result: Any) -> None:
        self.wait(job)

    def wait_until_inside(self) -> None:
        assert self.inside.acquire(timeout=20)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.may_go_on.set()


@contextmanager
def held_locked(other: Db, job_id: int) -> Iterator[None]:
    """As somebody does in psql who looks at the row FOR UPDATE and goes to lunch."""
    with other.transaction():
        other.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [job_id])
        yield


def all_others_end(db: Db) -> None:
    """A crowd, and then one after the other: who makes each batch wait a little is found out, too."""
    deadline = monotonic() + 30
    left = "SELECT count(*) FROM snap_processing_job WHERE kind = 'noop' AND status <> 'COMPLETED'"
    for count in [MANY, *[1] * 30]:
        enqueue_many(db, [{"kind": "noop"}] * count)
        until(lambda: not scalar(db, left), within=deadline - monotonic())


def fail(job: Job) -> None:
    raise ValueError("no")


@pytest.mark.parametrize(("fails", "ends"), [(False, "COMPLETED"), (True, "FAILED")])
@pytest.mark.both_servers_at_length
def test_a_finished_job_whose_row_is_locked_waits_alone(
    url: str, db: Db, other: Db, stage: Stage, fails: bool, ends: str
) -> None:
    @stage.registry.processor("locked")
    def locked(job: Job) -> None:
        stage.wait(job)
        if fails:
            fail(job)

    with working(url, stage.registry, lease_for=LONG) as (worker, _):
        job_id = put(db, "locked", max_attempts=1)
        stage.wait_until_inside()
        with held_locked(other, job_id):
            stage.may_go_on.set()
            all_others_end(db)
            assert row(db, job_id).status == "RUNNING"
            until(lambda: worker.vitals().held == 1)  # a row is settled a moment before its job is let go
        assert until_status(db, job_id, ends).attempt_count == 1


def test_a_job_with_a_hook_whose_row_is_locked_waits_alone(url: str, db: Db, other: Db, stage: Stage) -> None:
    stored: list[int] = []

    @stage.registry.processor("stored", commit=lambda db, job, result: stored.append(job.id))
    def locked(job: Job) -> None:
        stage.wait(job)
        job.update_progress(100)
        job.log("done")

    with working(url, stage.registry, lease_for=LONG):
        job_id = put(db, "stored")
        stage.wait_until_inside()
        with held_locked(other, job_id):
            stage.may_go_on.set()
            all_others_end(db)
            assert (row(db, job_id).status, stored) == ("RUNNING", [])
        until_status(db, job_id, "COMPLETED")
    assert stored == [job_id]


def test_a_waiting_job_whose_row_is_locked_takes_no_place_under_a_limit(
    url: str, db: Db, other: Db, stage: Stage
) -> None:
    """As the oldest it would be let in by each claim, and nobody in its place."""
    limit(db, "kind:noop", 1)
    locked = make_job(db, kind="noop")
    with held_locked(other, locked):
        others = make_jobs(db, 5, kind="noop")
        with working(url, stage.registry, poll_delay=LONG) as (worker, _):
            until(lambda: worker.counts.completed == len(others))
            assert row(db, locked).status == "PENDING"
            other.execute("COMMIT")
            until_status(db, locked, "COMPLETED")


def test_a_waiting_job_whose_row_is_locked_takes_no_slot(url: str, db: Db, other: Db, stage: Stage) -> None:
    locked = make_job(db, kind="noop", priority=9)
    with held_locked(other, locked), working(url, stage.registry, concurrency=1, poll_delay=LONG) as (worker, _):
        others = [put(db, "noop") for _ in range(3)]
        until(lambda: worker.counts.completed == len(others))
        assert row(db, locked).status == "PENDING"
        other.execute("COMMIT")
        until_status(db, locked, "COMPLETED")


def test_a_hook_that_takes_its_time_is_waited_for_by_nobody(url: str, db: Db, stage: Stage) -> None:
    """Neither what the job has said nor what others say meanwhile makes anybody wait."""

    def store(db: Connection, job: Job, result: Any) -> None:
        job.log("the hook begins")
        stage.wait(job)

    @stage.registry.processor("stored", commit=store)
    def talk(job: Job) -> None:
        job.update_progress(50)
        job.log("computed")

    @stage.registry.processor("says")
    def say(job: Job) -> None:
        job.log("hello")

    with working(url, stage.registry, lease_for=LONG):
        job_id = put(db, "stored")
        stage.wait_until_inside()
        until_status(db, put(db, "says"), "COMPLETED")
        all_others_end(db)
        assert row(db, job_id).status == "RUNNING"
        stage.may_go_on.set()
        until_status(db, job_id, "COMPLETED")


def test_a_hook_that_outlasts_a_stop_keeps_no_other_job_running(url: str, db: Db, stage: Stage) -> None:
    """Those that outlast it as well go back with their attempt, none of them is charged with a loss later. And the hook
    leaves no connection behind."""
    stage.registry.processor("stored", commit=stage.wait_in_hook)(lambda job: None)
    stage.registry.processor("long")(stage.wait)
    with working(url, stage.registry, concurrency=3) as (worker, _):
        stored, *others = put(db, "stored"), put(db, "long"), put(db, "long")
        for _ in range(3):
            stage.wait_until_inside()
        worker.stop(grace=timedelta(seconds=1))
        assert [row(db, one).status for one in (stored, *others)] == ["RUNNING", "PENDING", "PENDING"]
        assert [row(db, one).attempt_count for one in others] == [0, 0]
    gc.disable()  # some day it would close the connection, too
    try:
        stage.may_go_on.set()
        until_status(db, stored, "COMPLETED")
        left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'snapapp hooks' AND datname = %s"
        until(lambda: scalar(db, left, db.info.dbname) == 0)
    finally:
        gc.enable()


def refuse(db: Db, table: str, when: str, sqlstate: str = "'P0001'") -> None:
    """A trigger of somebody's, as good as a CHECK. `sqlstate`: an expression."""
    raising = f"RAISE 'not this' USING ERRCODE = {sqlstate}"
    db.execute(f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {raising}; END $$")
    db.execute(
        f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse()"
    )


def test_a_result_that_postgresql_refuses_is_said_on_the_row(url: str, db: Db, stage: Stage) -> None:
    refuse(db, "snap_processing_job", "NEW.kind = 'bad' AND NEW.result IS NOT NULL")
    stage.registry.processor("bad")(lambda job: "a result")
    with working(url, stage.registry):
        bad = [put(db, "bad") for _ in range(3)]
        all_others_end(db)
        for job_id in bad:
            said = until_status(db, job_id, "FAILED")
            assert (said.last_error, said.attempt_count) == ("its result could not be stored: RaiseException", 1)


def test_rows_that_raise_errors_of_the_system_are_told_from_a_server_that_is_away(
    url: str, db: Db, stage: Stage
) -> None:
    """No settle of the worker was written any more: it waited for the server."""
    raised = {
        "58030": "IoError",
        "55000": "ObjectNotInPrerequisiteState",
        "54000": "ProgramLimitExceeded",
        "42501": "InsufficientPrivilege",
        "40001": "SerializationFailure",
        "40P01": "DeadlockDetected",
    }
    of_the_kind = "split_part(NEW.kind, '.', 2)"
    refuse(db, "snap_processing_job", f"{of_the_kind} <> '' AND NEW.status = 'COMPLETED'", of_the_kind)
    for sqlstate in raised:
        stage.registry.processor(f"bad.{sqlstate}")(lambda job: None)
        stage.registry.processor(f"stored.{sqlstate}", commit=lambda db, job, result: None)(lambda job: None)
    with working(url, stage.registry):
        bad = {name: put(db, f"bad.{sqlstate}") for sqlstate, name in raised.items()}
        stored = {name: put(db, f"stored.{sqlstate}", max_attempts=2) for sqlstate, name in raised.items()}
        for name, job_id in bad.items():
            assert until_status(db, job_id, "FAILED").last_error == f"its result could not be stored: {name}"
        for name, job_id in stored.items():
            assert f"{name}) not this" in until_status(db, job_id, "FAILED").last_error
        all_others_end(db)


@pytest.mark.parametrize("sqlstate", ["40P01", "25P04"])
def test_a_deadlock_or_a_transaction_that_took_too_long_charges_no_attempt(
    url: str, db: Db, stage: Stage, sqlstate: str
) -> None:
    """It may end well the next time."""
    db.execute("CREATE SEQUENCE tries")  # a rollback leaves it as it is
    refuse(db, "snap_processing_job", "NEW.status = 'COMPLETED' AND nextval('tries') < 3", f"'{sqlstate}'")
    stage.registry.processor("plain")(lambda job: None)
    stage.registry.processor("stored", commit=lambda db, job, result: None)(lambda job: None)
    with working(url, stage.registry):
        for kind in ("plain", "stored"):
            db.execute("SELECT setval('tries', 1, false)")
            ended = until_status(db, put(db, kind, max_attempts=1), "COMPLETED", "FAILED")
            assert (ended.status, ended.errors) == ("COMPLETED", [])


def test_a_row_for_which_each_transaction_takes_too_long_holds_up_no_other(url: str, db: Db, stage: Stage) -> None:
    refuse(db, "snap_processing_job", "NEW.kind = 'bad' AND NEW.status = 'COMPLETED'", "'25P04'")
    stage.registry.processor("bad")(lambda job: None)
    with working(url, stage.registry):
        bad = put(db, "bad", max_attempts=1)
        all_others_end(db)
        db.execute("DROP TRIGGER refuse ON snap_processing_job")
        assert until_status(db, bad, "COMPLETED", "FAILED").status == "COMPLETED"


def test_an_error_that_postgresql_refuses_is_said_in_other_words(url: str, db: Db, stage: Stage) -> None:
    refuse(db, "snap_processing_job", "NEW.last_error LIKE 'ValueError%'")
    stage.registry.processor("bad")(fail)
    with working(url, stage.registry):
        said = until_status(db, put(db, "bad", max_attempts=2), "FAILED")
    assert said.last_error == "its error could not be stored: RaiseException"
    assert [error["attempt"] for error in said.errors] == [1, 2]


def test_a_job_of_which_no_end_can_be_written_is_given_up(url: str, db: Db, stage: Stage) -> None:
    """Its lease is extended no more, so it comes again when it ends; the others have not waited for it."""
    refuse(db, "snap_processing_job", "NEW.kind = 'bad' AND NEW.status IN ('COMPLETED', 'FAILED')")
    stage.registry.processor("bad")(lambda job: None)
    with working(url, stage.registry) as (worker, heard):
        bad = put(db, "bad", max_attempts=1000)
        given_up = heard.wait_for(events.SETTLE_DROPPED)
        assert (given_up.facts["job_id"], given_up.level) == (bad, logging.ERROR)
        assert "not this" in given_up.facts["error"]
        all_others_end(db)
        db.execute("DROP TRIGGER refuse ON snap_processing_job")
        until_status(db, bad, "COMPLETED")
        until(lambda: worker.vitals().held == 0)


def test_a_worker_that_cannot_settle_says_so_although_it_beats(
    url: str, db: Db, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health: nothing was written for a whole lease, and something waits."""
    is_cut = threading.Event()

    def connect(runtime: Runtime, purpose: str) -> Any:
        if purpose == "settle" and is_cut.is_set():
            raise psycopg.OperationalError("no connection for you")
        return usual(runtime, purpose)

    usual = Runtime.connect
    monkeypatch.setattr(Runtime, "connect", connect)
    is_cut.set()
    with working(url, stage.registry) as (worker, _):
        noop = put(db, "noop")
        assert worker.vitals().settles
        until(lambda: not worker.vitals().settles)
        assert worker.vitals().beats
        is_cut.clear()
        until_status(db, noop, "COMPLETED")
        until(lambda: worker.vitals().settles)


@pytest.mark.parametrize("hook", ["commit", "failed"])
def test_a_hook_that_exits_fails_its_attempt_and_waits_for_no_lease(url: str, db: Db, stage: Stage, hook: str) -> None:
    def leave(*_given: Any) -> None:
        sys.exit("bye")

    if hook == "commit":
        stage.registry.processor("leaves", commit=leave)(lambda job: None)
    else:
        stage.registry.processor("leaves", failed=leave)(fail)
    with working(url, stage.registry, lease_for=timedelta(hours=1)):
        ended = until_status(db, put(db, "leaves", max_attempts=1), "FAILED")
    assert ended.last_error == ("SystemExit: bye" if hook == "commit" else "ValueError: no")


def test_a_log_line_that_postgresql_refuses_costs_this_line_only(url: str, db: Db, stage: Stage) -> None:
    refuse(db, "job_log", "NEW.message = 'bad'")

    @stage.registry.processor("talks")
    def talk(job: Job) -> None:
        for word in ("good", "bad", "fine"):
            job.log(word)

    with working(url, stage.registry) as (_, heard):
        talks = put(db, "talks")
        until_status(db, talks, "COMPLETED")
        all_others_end(db)
        said = "SELECT array_agg(message ORDER BY id) FROM job_log"
        until(lambda: scalar(db, said) == ["good", "fine"])
        assert [event.facts["job_id"] for event in heard.all(events.NOTE_DROPPED)] == [talks]


def test_what_a_job_says_at_last_is_kept_whatever_its_end_is(url: str, db: Db, stage: Stage) -> None:
    """It is written when the end has landed, if that comes first; also where the worker stops at once."""

    @stage.registry.processor("talks")
    def talk(job: Job) -> None:
        job.update_progress(99)
        job.log("last words")
        if job.payload.get("fails"):
            fail(job)

    with working(url, stage.registry) as (worker, _):
        jobs = [put(db, "talks"), put(db, "talks", payload={"fails": True}, max_attempts=1)]
        for job_id in jobs:
            until_status(db, job_id, "COMPLETED", "FAILED")
        worker.stop()
    assert db.execute("SELECT job_id, attempt, message FROM job_log ORDER BY job_id").fetchall() == [
        (job_id, 1, "last words") for job_id in jobs
    ]
    assert [row(db, job_id).progress["percent"] for job_id in jobs] == [99, 99]


def refuse_row(db: Db, job_id: int) -> None:
    """As a CHECK does that somebody adds for what comes, and forgets what is there."""
    db.execute(f"ALTER TABLE snap_processing_job ADD CONSTRAINT nobody CHECK (id <> {job_id}) NOT VALID")


def test_a_job_that_nobody_can_claim_stops_no_other_and_runs_when_it_can_be(
    url: str, db: Db, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "_REFUSED_FOR", 0.5)
    stage.registry.processor("bad")(lambda job: None)
    bad = make_job(db, kind="bad", priority=5)
    refuse_row(db, bad)
    with working(url, stage.registry) as (_, heard):
        all_others_end(db)
        heard.wait_for(events.WORKER_ERROR)
        assert row(db, bad).status == "PENDING"
        db.execute("ALTER TABLE snap_processing_job DROP CONSTRAINT nobody")
        until_status(db, bad, "COMPLETED")


def test_a_job_whose_every_claim_is_a_conflict_stops_no_other(url: str, db: Db, stage: Stage) -> None:
    """Each claim waited for a server that was there."""
    refuse(
        db,
        "snap_processing_job",
        "NEW.kind = 'bad' AND (NEW.claimed_by <> 'worker' OR NEW.status = 'RETRY_WAIT')",
        "'40001'",
    )
    stage.registry.processor("bad")(lambda job: None)
    bad = make_job(db, kind="bad", priority=5)
    lost = make_job(db, "RUNNING", kind="bad", locked_at=ago(minutes=5), lock_expires_at=ago(minutes=4))
    free = make_job(db, "RUNNING", kind="noop", locked_at=ago(minutes=5), lock_expires_at=ago(minutes=4))
    with working(url, stage.registry):
        all_others_end(db)
        until_status(db, free, "COMPLETED")
        assert (row(db, bad).status, row(db, lost).status) == ("PENDING", "RUNNING")


@pytest.mark.at_length  # one such job stops no other, in every run
def test_a_job_that_nobody_can_claim_is_found_among_many_that_nobody_may_claim(url: str, db: Db, stage: Stage) -> None:
    """More than are tried at most, all of a higher priority."""
    limit(db, "key:full", 0)
    db.execute("SELECT pause_queue('paused')")
    make_jobs(db, 1001, kind="noop", priority=9, queue="paused")
    make_jobs(db, 1001, kind="noop", priority=9, concurrency_key="full")
    refuse_row(db, make_job(db, kind="noop"))
    good = make_job(db, kind="noop")
    with working(url, stage.registry):
        until_status(db, good, "COMPLETED")


def test_a_job_whose_payload_is_damaged_stops_no_other(url: str, db: Db, stage: Stage) -> None:
    """As a disk leaves it that has lost a page."""
    stage.registry.processor("bad")(lambda job: None)
    bad = make_job(db, kind="bad", priority=9, payload={"text": "x" * 10_000})
    chunks = "(SELECT reltoastrelid FROM pg_class WHERE oid = 'snap_processing_job'::regclass)"
    db.execute("SET allow_system_table_mods = on")
    db.execute(f"UPDATE pg_class SET relkind = 'r' WHERE oid = {chunks}")  # so that it can be changed
    db.execute(f"DELETE FROM {scalar(db, f'SELECT {chunks}::regclass')}")
    db.execute(f"UPDATE pg_class SET relkind = 't' WHERE oid = {chunks}")
    with working(url, stage.registry) as (_, heard):
        all_others_end(db)
        assert "DataCorrupted" in heard.wait_for(events.WORKER_ERROR).facts["error"]
    assert statuses(db)[bad] == "PENDING"


def test_a_job_that_nobody_can_label_stops_no_other(url: str, db: Db, stage: Stage) -> None:
    """Neither when it becomes due below a limit, nor when the limits change."""
    limit(db, "key:k", 9)
    bad = make_job(db, kind="noop", concurrency_key="k", next_retry_at=hence(hours=1))
    move(db, bad, next_retry_at=ago(seconds=1))
    refuse_row(db, bad)
    with working(url, stage.registry) as (_, heard):
        until_status(db, put(db, "noop"), "COMPLETED")
        until_status(db, put(db, "noop"), "COMPLETED")
        db.execute("DELETE FROM job_limit")
        until(lambda: any(event.facts["doing"] == "label jobs anew" for event in heard.all(events.WORKER_ERROR)))
        until_status(db, put(db, "noop"), "COMPLETED")


def test_a_lease_that_nobody_can_extend_stops_no_other_beat(url: str, db: Db, stage: Stage) -> None:
    stage.registry.processor("waits")(stage.wait)
    with working(url, stage.registry, concurrency=3, lease_for=LONG) as (_, heard):
        good, bad, fine = enqueue_many(db, [{"kind": "waits"}] * 3)
        for _ in range(3):
            stage.wait_until_inside()
        refuse_row(db, bad or 0)
        before = [row(db, job or 0).locked_at for job in (good, fine)]
        until(lambda: all(row(db, job or 0).locked_at > at for job, at in zip((good, fine), before, strict=True)))
        heard.wait_for(events.WORKER_ERROR)
        db.execute("ALTER TABLE snap_processing_job DROP CONSTRAINT nobody")
        stage.may_go_on.set()
        until_status(db, bad or 0, "COMPLETED")


def test_a_job_that_nobody_can_take_back_or_prune_stops_no_other(url: str, db: Db, stage: Stage) -> None:
    """FA18."""
    expired = {"locked_at": ago(minutes=5), "lock_expires_at": ago(minutes=4)}
    old = [make_job(db, "COMPLETED", created_at=ago(days=9), finished_at=ago(days=8)) for _ in range(3)]
    lost = make_jobs(db, 3, "RUNNING", kind="noop", **expired)
    db.execute(f"ALTER TABLE snap_processing_job ADD CHECK (id <> {lost[1]}) NOT VALID")
    db.execute(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it is evidence'; END $$;"
        f"CREATE TRIGGER no BEFORE DELETE ON snap_processing_job FOR EACH ROW WHEN (OLD.id = {old[1]})"
        " EXECUTE FUNCTION no()"
    )
    with working(url, stage.registry) as (worker, _):
        for job_id in (lost[0], lost[2]):
            until_status(db, job_id, "COMPLETED")
        assert worker.prune() == 2
    left = db.execute("SELECT id, status FROM snap_processing_job WHERE id = ANY (%s) ORDER BY id", [[lost[1], *old]])
    assert left.fetchall() == [(old[1], "COMPLETED"), (lost[1], "RUNNING")]


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "too many open files"), MemoryError(), RuntimeError("can't start new thread")]
)
def test_a_process_that_has_run_short_settles_later_and_loses_no_result(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """One such error made a dead letter of a job that had succeeded."""
    write, failures = settle.settle_batch, iter([error, error])

    def scarce(*given: Any, **named: Any) -> settle.Settled:
        for failure in failures:
            raise failure
        return write(*given, **named)

    monkeypatch.setattr(settle, "settle_batch", scarce)
    registry.processor("quick")(lambda _: "done")
    with working(url, registry):
        job_id = enqueue(db, "quick")
        assert job_id
        done = until_status(db, job_id, "COMPLETED", "FAILED")
    assert (done.status, done.result, done.attempt_count) == ("COMPLETED", "done", 1)

"""The SQL functions, views and announcements: what people, psql and other languages use."""

from collections.abc import Callable
from datetime import timedelta

import pytest
import sqlalchemy
from psycopg import errors as pg
from sqlalchemy.exc import InternalError
from sqlalchemy.orm import Session

from snapapp.jobs.errors import DuplicateKey, IllegalTransition, JobsError, UnknownJob
from snapapp.jobs.rows import database, lifecycle
from snapapp.jobs.rows.database import Db as AnyDb
from tests.factory import (
    SECOND,
    Db,
    ago,
    claim,
    enqueue,
    enqueue_many,
    hence,
    make_job,
    row,
    running_job,
    scalar,
    statuses,
    take_suspect,
)

pytestmark = pytest.mark.both_servers_at_length

# --- what people do ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED"])
def test_a_retry_by_a_person_starts_the_count_again_and_keeps_the_history(db: Db, status: str) -> None:
    """R38, R48, FA3."""
    wished = ago(hours=1)
    over = make_job(
        db, status, attempt_count=3, lease_seq=6, interruptions=2, errors=[{"error": "x"}], cancel_requested_at=wished
    )
    lifecycle.retry_by_person(db, over)
    now = row(db, over)
    assert (now.status, now.attempt_count, now.interruptions, now.lease_seq) == ("PENDING", 0, 0, 7)
    assert (now.errors, now.cancel_requested_at, now.finished_at) == ([{"error": "x"}], None, None)
    assert claim(db) == [over]


def test_a_job_that_a_unique_index_of_somebody_s_refuses_is_refused(db: Db) -> None:
    """No job holds its key, so there is none to wait for."""
    db.execute("CREATE UNIQUE INDEX ON snap_processing_job (kind, (payload ->> 'invoice'))")
    db.execute("SET statement_timeout = '10s'")
    enqueue(db, payload={"invoice": 7})
    with pytest.raises(DuplicateKey, match="a unique index that the queue does not know"):
        enqueue(db, payload={"invoice": 7}, unique_key="k")


def test_a_replay_is_a_copy_that_begins_anew(db: Db) -> None:
    """R36, R48, engine.md: no commit hook runs twice for one job."""
    given = {"queue": "media", "priority": 2, "max_attempts": 5, "tenant": "farm", "timeout_ms": 9, "request_id": "r"}
    given |= {"payload": {"n": 1}, "concurrency_key": "key", "snap_id": "7d1d9a6c-53a6-4b4e-9a51-8b9b6c2e7a11"}
    first = row(db, make_job(db, "COMPLETED", attempt_count=2, unique_key="k", unique_scope="ever", **given))
    copy = row(db, lifecycle.replay(db, first.id))
    for name in (*given, "kind", "lane", "gate"):
        assert getattr(copy, name) == getattr(first, name)
    assert (copy.status, copy.attempt_count, copy.replay_of, copy.unique_key) == ("PENDING", 0, first.id, None)


@pytest.mark.parametrize("status", ["PENDING", "RETRY_WAIT"])
def test_a_waiting_job_is_cancelled_at_once(db: Db, status: str) -> None:
    """R37, D17."""
    waiting = make_job(db, status, losses=2, gate="alone")
    assert lifecycle.cancel(db, waiting) == "CANCELLED"
    now = row(db, waiting)
    assert (now.status, now.losses, now.lease_seq) == ("CANCELLED", 0, 1)
    assert now.finished_at == pytest.approx(now.cancel_requested_at, abs=SECOND)


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_cancelling_what_is_over_changes_nothing(db: Db, status: str) -> None:
    over = make_job(db, status)
    before = row(db, over)
    with (
        db.transaction(),
        pytest.raises(IllegalTransition, match=f"job {over} is {status}: there is nothing to cancel"),
    ):
        lifecycle.cancel(db, over)
    assert row(db, over) == before
    assert scalar(db, "SELECT cancel_job(%s)", over) == status


def test_cancelling_twice_changes_nothing_the_second_time(db: Db) -> None:
    """Whoever asks again because an answer was lost hears what became of it."""
    waiting = make_job(db)
    lifecycle.cancel(db, waiting)
    before = row(db, waiting)
    assert lifecycle.cancel(db, waiting) == "CANCELLED"
    assert row(db, waiting) == before


def test_a_second_wish_keeps_the_hour_of_the_first(db: Db) -> None:
    held = running_job(db, cancel_requested_at=ago(minutes=1))
    lifecycle.cancel(db, held.id)
    assert row(db, held.id).cancel_requested_at < ago(seconds=50)


@pytest.mark.parametrize("function", ["retry_job", "run_job_now", "replay_job", "cancel_job"])
def test_an_unknown_id_is_named(db: Db, function: str) -> None:
    with pytest.raises(pg.NoDataFound, match="there is no job 404"):
        scalar(db, f"SELECT {function}(404)")


# What is asked in vain, of job 1, which runs and has the key that job 2 had.
REFUSED: dict[str, tuple[Callable[[AnyDb], object], type[JobsError], str]] = {
    "retry of none": (lambda db: lifecycle.retry_by_person(db, 404), UnknownJob, "there is no job 404"),
    "run now of none": (lambda db: lifecycle.run_now(db, 404), UnknownJob, "there is no job 404"),
    "run now while it runs": (
        lambda db: lifecycle.run_now(db, 1),
        IllegalTransition,
        "job 1 is RUNNING: only a waiting job can be run now",
    ),
    "replay of none": (lambda db: lifecycle.replay(db, 404), UnknownJob, "there is no job 404"),
    "cancel of none": (lambda db: lifecycle.cancel(db, 404), UnknownJob, "there is no job 404"),
    "retry while it runs": (
        lambda db: lifecycle.retry_by_person(db, 1),
        IllegalTransition,
        "job 1 is RUNNING: only a FAILED or CANCELLED job can be retried",
    ),
    "retry without its key": (
        lambda db: lifecycle.retry_by_person(db, 2),
        DuplicateKey,
        "job 2 cannot be retried: job 1 holds its unique key k",
    ),
    "replace while it runs": (
        lambda db: enqueue(db, unique_key="k", on_conflict="replace"),
        DuplicateKey,
        "job 1 holds the unique key k and is RUNNING: only a waiting job can be replaced",
    ),
    "replace in bulk": (
        lambda db: enqueue_many(db, {}, {"unique_key": "k", "on_conflict": "replace"}),
        DuplicateKey,
        "job 1 holds the unique key k and is RUNNING: only a waiting job can be replaced",
    ),
}


@pytest.mark.parametrize("carrier", ["psycopg", "connection", "session"])
@pytest.mark.parametrize("refused", REFUSED)
def test_a_refusal_is_ours_in_the_words_of_the_database(
    db: Db, engine: sqlalchemy.Engine, refused: str, carrier: str
) -> None:
    """R48: and what the caller did before can go on, if it was asked within `together`."""
    make_job(db, "RUNNING", unique_key="k", unique_scope="live")
    make_job(db, "FAILED", unique_key="k", unique_scope="live")
    ask, kind, words = REFUSED[refused]
    with db.transaction(), engine.begin() as connection, Session(connection) as session:
        carriers: dict[str, AnyDb] = {"psycopg": db, "connection": connection, "session": session}
        before = enqueue(carriers[carrier])
        with pytest.raises(kind) as error, database.together(carriers[carrier]):
            ask(carriers[carrier])
        assert str(error.value) == words
        after = enqueue(carriers[carrier])
    assert [*statuses(db)] == [1, 2, before, after]


@pytest.mark.parametrize("carrier", ["psycopg", "sqlalchemy"])
def test_a_refusal_by_the_database_ends_the_callers_transaction(
    db: Db, engine: sqlalchemy.Engine, carrier: str
) -> None:
    with db.transaction(force_rollback=True), engine.connect() as connection:
        caller = db if carrier == "psycopg" else connection
        with pytest.raises(UnknownJob):
            lifecycle.replay(caller, 404)
        with pytest.raises((pg.InFailedSqlTransaction, InternalError)):
            enqueue(caller)


def test_what_a_constraint_of_others_refuses_is_not_about_our_keys(db: Db) -> None:
    """A trigger of the application may fire within our statement."""
    db.execute("CREATE TABLE ledger (kind text UNIQUE)")
    db.execute(
        "CREATE FUNCTION write_it_down() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO ledger VALUES (NEW.kind); RETURN NULL; END $$"
    )
    db.execute(
        "CREATE TRIGGER later AFTER UPDATE ON snap_processing_job FOR EACH ROW WHEN (NEW.status = 'CANCELLED')"
        " EXECUTE FUNCTION write_it_down()"
    )
    first, second = make_job(db), make_job(db)
    lifecycle.cancel(db, first)
    with pytest.raises(pg.UniqueViolation, match="ledger_kind_key"):
        lifecycle.cancel(db, second)


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "RETRY_WAIT", "COMPLETED"])
def test_only_what_failed_or_was_cancelled_can_be_retried(db: Db, status: str) -> None:
    made = make_job(db, status)
    with pytest.raises(IllegalTransition, match=f"job {made} is {status}: only a FAILED or CANCELLED"):
        lifecycle.retry_by_person(db, made)


# --- a waiting job is run now ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["PENDING", "RETRY_WAIT"])
@pytest.mark.parametrize("due", ["infinity", hence(hours=1)])
def test_a_waiting_job_becomes_due_and_nothing_else_of_it_changes(db: Db, status: str, due: object) -> None:
    counted = {"attempt_count": 2, "lease_seq": 4, "interruptions": 1, "losses": 1, "priority": 7}
    waits = make_job(db, status, next_retry_at=due, last_error="x", errors=[{"error": "x"}], **counted)
    given = "to_jsonb(job) - 'next_retry_at'"
    before = scalar(db, f"SELECT {given} FROM snap_processing_job AS job")
    assert claim(db) == []
    assert lifecycle.run_now(db, waits) == status
    assert scalar(db, f"SELECT {given} FROM snap_processing_job AS job") == before
    assert claim(db) == [waits]


def test_a_job_that_is_due_keeps_its_place(db: Db) -> None:
    older, newer = make_job(db, next_retry_at=ago(hours=2)), make_job(db, next_retry_at=ago(hours=1))
    before = row(db, older)
    assert scalar(db, "SELECT run_job_now(%s)", older) == older
    assert row(db, older) == before
    assert claim(db) == [older, newer]


def test_a_suspect_that_is_run_now_still_runs_alone(db: Db) -> None:
    suspect = make_job(db, "RETRY_WAIT", losses=2, gate="alone", next_retry_at=hence(hours=1))
    lifecycle.run_now(db, suspect)
    assert claim(db) == []
    assert take_suspect(db).id == suspect


@pytest.mark.parametrize("status", ["RUNNING", "COMPLETED", "FAILED", "CANCELLED"])
def test_only_a_waiting_job_can_be_run_now(db: Db, status: str) -> None:
    made = make_job(db, status)
    before = row(db, made)
    with pytest.raises(pg.ObjectNotInPrerequisiteState, match=f"job {made} is {status}: only a waiting job can be"):
        db.execute("SELECT run_job_now(%s)", [made])
    assert row(db, made) == before


def test_a_job_that_waits_for_its_parents_cannot_be_run_now(db: Db) -> None:
    parent = make_job(db)
    child = enqueue(db, after=[parent], delay=timedelta(hours=1))
    assert child
    before = row(db, child)
    with pytest.raises(
        IllegalTransition, match=f"^job {child} waits for its parents: it can run when they have ended$"
    ):
        lifecycle.run_now(db, child)
    assert row(db, child) == before


def test_a_paused_queue_keeps_a_job_that_is_run_now(db: Db) -> None:
    waits = make_job(db, next_retry_at=hence(hours=1))
    db.execute("SELECT pause_queue('default')")
    lifecycle.run_now(db, waits)
    assert claim(db) == []
    db.execute("SELECT resume_queue('default')")
    assert claim(db) == [waits]


def test_the_workers_of_its_queue_hear_that_a_job_is_run_now(db: Db) -> None:
    waits = make_job(db, queue="mail", next_retry_at=hence(hours=1))
    db.execute("LISTEN snapapp_job")
    lifecycle.run_now(db, waits)
    assert [notice.payload for notice in db.notifies(timeout=5, stop_after=1)] == ["mail"]


# --- what else people do ----------------------------------------------------------------------------------------


def test_waiting_jobs_are_found_by_what_their_payload_holds(db: Db) -> None:
    wanted = make_job(db, payload={"to": "ana", "n": 1})
    for other in ({"payload": {"to": "bia"}}, {"kind": "other", "payload": {"to": "ana"}}):
        make_job(db, **other)
    make_job(db, "COMPLETED", payload={"to": "ana"})
    assert lifecycle.waiting(db, "test", '{"to":"ana"}') == [(wanted,)]


def test_people_see_the_queue_in_views(db: Db) -> None:
    """S8."""
    make_job(db, next_retry_at=ago(minutes=5))
    make_job(db, "RUNNING", lock_expires_at=ago(minutes=1))
    failed = make_job(db, "FAILED", started_at=ago(seconds=5))
    overview = db.execute("SELECT queue, pending, due, running, failed FROM queue_overview").fetchall()
    stuck = [why[:22] for (why,) in db.execute("SELECT why FROM queue_stuck ORDER BY id").fetchall()]
    assert overview == [("default", 1, 1, 1, 1)]
    assert stuck == ["no worker alive knows ", "its lease ended 00:01:"]
    assert db.execute("SELECT id FROM queue_dead_letters").fetchall() == [(failed,)]
    assert db.execute("SELECT failed FROM queue_throughput").fetchall() == [(1,)]
    assert db.execute("SELECT * FROM worker_overview").fetchall() == []


@pytest.mark.parametrize("time", ["infinity", "-infinity", "9999-12-31 23:59:59Z"])
def test_a_pause_since_no_moment_is_refused(db: Db, time: str) -> None:
    """Somebody means: for good. Nobody could list any queue beside it."""
    with pytest.raises(pg.CheckViolation, match="pauses_begin_at_a_moment"):
        db.execute("INSERT INTO job_queue (name, paused_at) VALUES ('mail', %s)", [time])


def test_pausing_twice_keeps_the_first_hour_and_the_last_reason(db: Db) -> None:
    db.execute(
        "INSERT INTO job_queue (name, fair, paused_at, paused_reason)"
        " VALUES ('default', true, now() - interval '1 hour', 'first')"
    )
    db.execute("SELECT pause_queue('default', 'second')")
    paused = db.execute("SELECT fair, paused_at < now() - interval '1 minute', paused_reason FROM job_queue").fetchone()
    assert paused == (True, True, "second")


@pytest.mark.parametrize(
    ("given", "constraint"),
    [
        (["", None, None], "names_are_short"),
        (["q" * 201, None, None], "names_are_short"),
        (["mail", "r" * 501, None], "reason_is_short"),
        (["mail", None, "b" * 201], "names_are_short"),
    ],
)
def test_a_pause_that_http_could_not_show_or_end_is_refused(db: Db, given: list[str], constraint: str) -> None:
    with pytest.raises(pg.CheckViolation) as refused:
        db.execute("SELECT pause_queue(%s, %s, %s)", given)
    assert refused.value.diag.constraint_name == constraint
    assert len(str(refused.value)) < 500
    db.execute("SELECT pause_queue(%s, %s, %s)", ["q" * 200, "ã" * 500, "b" * 200])


# --- announced --------------------------------------------------------------------------------------------------


@pytest.fixture
def listener(other: Db) -> Db:
    other.execute("LISTEN snapapp_job")
    other.execute("LISTEN snapapp_cancel")
    return other


def heard(listener: Db, db: Db) -> list[str]:
    """Everything announced so far."""
    db.execute("NOTIFY snapapp_job, 'that is all'")
    words = []
    for notify in listener.notifies(timeout=10):
        words.append(notify.payload)
        if notify.payload == "that is all":
            break
    return words[:-1]


@pytest.mark.direct
def test_a_commit_announces_each_queue_once(db: Db, listener: Db) -> None:
    """Promise 6, FC6."""
    with db.transaction():
        enqueue_many(db, {}, {}, {"queue": "media"})
        enqueue(db, queue="media")
        enqueue(db, unique_key="k")
        enqueue(db, unique_key="k")
    assert sorted(heard(listener, db)) == ["default", "media"]


def test_a_rollback_announces_nothing(db: Db, listener: Db) -> None:
    with db.transaction(force_rollback=True):
        enqueue(db)
    assert heard(listener, db) == []


@pytest.mark.direct
def test_plain_sql_announces_too(db: Db, listener: Db) -> None:
    db.execute("INSERT INTO snap_processing_job (kind, queue) VALUES ('test', 'media'), ('test', 'media')")
    assert heard(listener, db) == ["media"]


@pytest.mark.direct
def test_meeting_a_holder_announces_nothing_but_a_replacement(db: Db, listener: Db) -> None:
    make_job(db, unique_key="k", unique_scope="live")
    heard(listener, db)
    enqueue(db, unique_key="k")
    enqueue(db, unique_key="k", on_conflict="ignore")
    assert heard(listener, db) == []
    enqueue(db, unique_key="k", on_conflict="replace", queue="media")
    assert heard(listener, db) == ["media"]


@pytest.mark.direct
def test_retry_resume_and_a_wish_to_cancel_are_announced(db: Db, listener: Db) -> None:
    failed = make_job(db, "FAILED", queue="media")
    held = make_job(db, "RUNNING", claimed_by="worker 7")
    heard(listener, db)
    lifecycle.retry_by_person(db, failed)
    db.execute("SELECT resume_queue('slow')")
    lifecycle.cancel(db, held)
    assert heard(listener, db) == ["media", "slow", "worker 7"]

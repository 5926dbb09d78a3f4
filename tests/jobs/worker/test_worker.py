"""A worker as its users meet it: it runs what is due, once, and says what became of it."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Connection

from snapapp.jobs import Failure, Job, Permanent, Snooze, enqueue, enqueue_many, events
from snapapp.jobs.errors import LeaseLost
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import leases, lifecycle
from tests.factory import Db, ago, make_job, row, scalar
from tests.jobs.working import quick_settings, until, until_status, working


@pytest.fixture
def registry() -> Registry:
    return Registry()


class Gate:
    """A job that waits in here until the test lets it go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, _job: Job) -> None:
        self.entered.release()
        assert self.open.wait(20)

    def wait_until_entered(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.entered.acquire(timeout=20)


def test_a_job_that_is_enqueued_runs_and_keeps_its_result(url: str, db: Db, registry: Registry) -> None:
    """W1, W4, W5, S4: the processor gets the whole job; what it returns is on the row."""

    @registry.processor("greet")
    def greet(job: Job) -> dict[str, Any]:
        return {"said": f"hello {job.payload['name']}", "attempt": job.attempt}

    with working(url, registry) as (worker, _):
        job_id = enqueue(db, "greet", {"name": "Ana"}, request_id="r-1")
        assert job_id
        done = until_status(db, job_id, "COMPLETED")
    assert done.result == {"said": "hello Ana", "attempt": 1}
    assert (done.attempt_count, done.claimed_by, done.locked_at) == (1, None, None)
    assert done.created_at <= done.started_at <= done.finished_at
    assert worker.counts.completed == 1


def test_a_notify_wakes_the_worker_long_before_its_poll(url: str, db: Db, registry: Registry) -> None:
    """M20: promise 6, waking is fast; an idle worker does not sleep through what comes."""
    registry.processor("quick")(lambda job: None)
    with working(url, registry, poll_delay=timedelta(hours=1)) as (_, heard):
        heard.wait_for(events.WORKER_STARTED)
        until(
            lambda: db.execute(
                "SELECT FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' OR application_name = 'snapapp listen'"
            ).fetchall()
        )
        first = enqueue(db, "quick")
        assert first
        until_status(db, first, "COMPLETED")
        second = enqueue(db, "quick")
        assert second
        until_status(db, second, "COMPLETED", within=5)


def test_the_poll_finds_what_no_notify_announced(url: str, db: Db, registry: Registry) -> None:
    """W3, W13, R12, R13, S3: Promise 6: waking is never needed."""
    registry.processor("quiet")(lambda job: None)
    with working(url, registry) as (worker, _):
        until(lambda: worker.vitals().listens and worker.counts.claims)  # what it looks at first is over
        db.execute("SET session_replication_role = replica")  # no trigger, so no NOTIFY
        for _ in range(4):  # an end may wake the worker, but not before there is one
            job_id = make_job(db, kind="quiet")
            until_status(db, job_id, "COMPLETED", within=10)


@pytest.mark.parametrize(("poll_delay", "rests"), [(timedelta(milliseconds=100), False), (None, True)])
def test_only_an_interval_that_nobody_has_set_is_stretched_while_listen_lives(
    url: str, registry: Registry, monkeypatch: pytest.MonkeyPatch, poll_delay: timedelta | None, *, rests: bool
) -> None:
    """Promise 13: the interval of the claim is the one that people set."""
    ticks: list[float | None] = []
    with working(url, registry, poll_delay=poll_delay) as (worker, _):
        tick = worker.tick
        monkeypatch.setattr(worker, "tick", lambda: ticks.append(tick()))
        until(lambda: worker.vitals().listens and len(ticks) >= 2)

        def claims_each_time() -> bool:
            before = len(ticks)
            for _ in range(20):
                worker.claim()
            return len(ticks) >= before + 20

        until(lambda: claims_each_time() is not rests)
        assert claims_each_time() is not rests


def test_a_delayed_job_runs_when_it_is_due_without_another_wake(url: str, db: Db, registry: Registry) -> None:
    registry.processor("later")(lambda job: None)
    with working(
        url, registry, poll_delay=timedelta(hours=1), beat_every=timedelta(seconds=1), lease_for=timedelta(seconds=9)
    ):
        job_id = enqueue(db, "later", delay=timedelta(milliseconds=400))
        assert job_id
        done = until_status(db, job_id, "COMPLETED")
    late = done.started_at - done.next_retry_at
    assert timedelta(0) <= late < timedelta(milliseconds=900)


def test_a_failing_job_comes_again_after_its_delay_and_ends_in_the_dead_letters(
    url: str, db: Db, registry: Registry
) -> None:
    """W6, Q24, Q28, Q29, R27, R28, S6, D3, D4, D8, M24: attempts count at the claim, backoff is applied."""

    @registry.processor("broken")
    def broken(job: Job) -> None:
        raise ValueError(f"attempt {job.attempt}")

    with working(url, registry) as (worker, heard):
        job_id = enqueue(db, "broken", max_attempts=3)
        assert job_id
        dead = until_status(db, job_id, "FAILED")
        heard.wait_for(events.JOB_FAILED)
    assert dead.attempt_count == 3
    assert dead.last_error == "ValueError: attempt 3"
    assert [entry["attempt"] for entry in dead.errors] == [1, 2, 3]
    assert "raise ValueError" in dead.errors[0]["trace"]
    assert (worker.counts.retried, worker.counts.failed) == (2, 1)


def test_permanent_errors_are_not_tried_again(url: str, db: Db, registry: Registry) -> None:
    """S16."""

    @registry.processor("hopeless")
    def hopeless(job: Job) -> None:
        raise Permanent("no video stream")

    with working(url, registry):
        job_id = enqueue(db, "hopeless")
        assert job_id
        dead = until_status(db, job_id, "FAILED")
    assert (dead.attempt_count, dead.last_error) == (1, "Permanent: no video stream")


def test_a_snooze_gives_the_attempt_back(url: str, db: Db, registry: Registry) -> None:
    """W53."""
    calls: list[int] = []

    @registry.processor("sleepy")
    def sleepy(job: Job) -> None:
        calls.append(job.attempt)
        if len(calls) < 3:
            raise Snooze(timedelta(milliseconds=20))

    with working(url, registry):
        job_id = enqueue(db, "sleepy", max_attempts=1)
        assert job_id
        done = until_status(db, job_id, "COMPLETED")
    assert calls == [1, 1, 1]
    assert done.attempt_count == 1


@pytest.mark.parametrize("bad", [object(), {"a": float("nan")}, "\0", "\ud800", {"x": "y" * 1_100_000}])
def test_a_result_that_is_not_json_fails_the_job_with_a_reason(
    url: str, db: Db, registry: Registry, bad: object
) -> None:
    """Promise 9."""
    registry.processor("odd")(lambda job: bad)
    registry.processor("fine")(lambda job: None)
    with working(url, registry):
        odd, fine = enqueue(db, "odd"), enqueue(db, "fine")
        assert odd
        assert fine
        dead = until_status(db, odd, "FAILED")
        until_status(db, fine, "COMPLETED")
    assert dead.last_error.startswith("InvalidJob: the result ")


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


@pytest.mark.parametrize(
    "error",
    [Hostile(), ValueError("x" * 50_000_000), ValueError("nul \0 and \ud800"), SystemExit(3), KeyboardInterrupt()],
    ids=["str raises", "50 MB", "unstorable", "SystemExit", "KeyboardInterrupt"],
)
def test_a_hostile_exception_fails_its_job_and_nothing_else(
    url: str, db: Db, registry: Registry, error: BaseException
) -> None:
    """Promise 9, FD12, FD13, FC21."""

    @registry.processor("hostile")
    def hostile(job: Job) -> None:
        raise error

    registry.processor("fine")(lambda job: None)
    with working(url, registry):
        bad = enqueue(db, "hostile", max_attempts=1)
        assert bad
        dead = until_status(db, bad, "FAILED")
        fine = enqueue(db, "fine")
        assert fine
        until_status(db, fine, "COMPLETED")
    assert type(error).__name__ in dead.last_error
    assert len(dead.last_error) <= 4000


def test_kinds_that_this_worker_does_not_know_stay_pending(url: str, db: Db, registry: Registry) -> None:
    """FD11: a rolling deploy must not fail them."""
    registry.processor("known")(lambda job: None)
    with working(url, registry):
        unknown, known = enqueue(db, "from.the.future", priority=9), enqueue(db, "known")
        assert unknown
        assert known
        until_status(db, known, "COMPLETED")
    assert (row(db, unknown).status, row(db, unknown).attempt_count) == ("PENDING", 0)


def test_progress_and_log_lines_are_on_the_row_while_the_job_runs(url: str, db: Db, registry: Registry) -> None:
    """S8, W16, W17, W19, W21."""
    gate = Gate()

    @registry.processor("chatty")
    def chatty(job: Job) -> None:
        job.update_progress(40, "frames")
        job.log("12 frames at 5 fps")
        gate(job)
        job.update_progress({"step": "clip"})
        job.log("done", level="WARNING")

    with working(url, registry):
        job_id = enqueue(db, "chatty")
        assert job_id
        gate.wait_until_entered()
        until(lambda: row(db, job_id).progress == {"percent": 40, "note": "frames"})
        until(lambda: db.execute("SELECT FROM job_log WHERE job_id = %s", [job_id]).fetchall())
        gate.open.set()
        until_status(db, job_id, "COMPLETED")
    assert row(db, job_id).progress == {"step": "clip"}  # a note may come a moment after the settle
    lines = db.execute("SELECT attempt, level, message FROM job_log WHERE job_id = %s ORDER BY id", [job_id]).fetchall()
    assert lines == [(1, "INFO", "12 frames at 5 fps"), (1, "WARNING", "done")]


def test_a_flood_of_log_lines_is_cut_with_a_word(url: str, db: Db, registry: Registry) -> None:
    @registry.processor("flood")
    def flood(job: Job) -> None:
        for number in range(5000):
            job.log(f"line {number}")

    with working(url, registry):
        job_id = enqueue(db, "flood")
        assert job_id
        until_status(db, job_id, "COMPLETED")
    [(lines, last)] = db.execute(
        "SELECT count(*), (array_agg(message ORDER BY id DESC))[1] FROM job_log WHERE job_id = %s", [job_id]
    ).fetchall()
    assert lines == 1000
    assert "dropped" in last


def make_effects(db: Db) -> None:
    db.execute("CREATE TABLE effect (job_id bigint, said text)")


def put_effect(connection: Connection, job: Job, result: Any) -> None:
    connection.execute(sqlalchemy.text("INSERT INTO effect VALUES (:job, :said)"), {"job": job.id, "said": str(result)})


def effects(db: Db) -> list[tuple[Any, ...]]:
    return db.execute("SELECT job_id, said FROM effect ORDER BY job_id").fetchall()


def test_commit_runs_in_the_transaction_that_completes_the_job(url: str, db: Db, registry: Registry) -> None:
    make_effects(db)
    registry.processor("paint", commit=put_effect)(lambda job: ["red"])
    with working(url, registry):
        ids = enqueue_many(db, [{"kind": "paint"}] * 50)
        until(lambda: len(effects(db)) == 50)
    assert effects(db) == [(job_id, "['red']") for job_id in ids]


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


def test_a_worker_that_lost_its_lease_cannot_complete(url: str, db: Db, registry: Registry) -> None:
    """D11, W25, promise 2: the late result is dropped, its commit with it."""
    make_effects(db)
    gate = Gate()
    registry.processor("slow", commit=put_effect)(gate)
    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "slow")
        assert job_id
        gate.wait_until_entered()
        db.execute("UPDATE snap_processing_job SET lease_seq = lease_seq + 2 WHERE id = %s", [job_id])
        gate.open.set()
        heard.wait_for(events.JOB_LOST)
    assert effects(db) == []
    assert row(db, job_id).status == "RUNNING"


def test_the_beat_tells_a_job_that_its_lease_is_gone(url: str, db: Db, registry: Registry) -> None:
    stopped = threading.Event()

    @registry.processor("patient")
    def patient(job: Job) -> None:
        while not stopped.wait(0.01):
            try:
                job.raise_if_cancelled()
            except LeaseLost:
                stopped.set()
                raise

    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "patient")
        assert job_id
        until_status(db, job_id, "RUNNING")
        heard.wait_for(events.JOB_ACTIVE)
        db.execute("UPDATE snap_processing_job SET lease_seq = lease_seq + 2 WHERE id = %s", [job_id])
        assert stopped.wait(10)
        heard.wait_for(events.JOB_LOST)


def test_what_runs_is_seen_with_its_worker_and_since_when(url: str, db: Db, registry: Registry) -> None:
    """M44: of every host, in psql."""
    gate = Gate()
    registry.processor("long")(gate)
    running = """
        SELECT job.id, job.kind, job.queue, job.tenant, host, pid, job.started_at <= now()
          FROM snap_processing_job AS job
          JOIN job_worker ON job_worker.id = job.claimed_by AND job.id = ANY (current_jobs)
         WHERE job.status = 'RUNNING'
    """
    with working(url, registry):
        job_id = make_job(db, kind="long", queue="mail", tenant="ana")
        gate.wait_until_entered()
        until(lambda: scalar(db, "SELECT count(*) FROM job_worker WHERE current_jobs <> '{}'") == 1)
        seen = db.execute(running).fetchall()
        assert seen == [(job_id, "long", "mail", "ana", os.uname().nodename, os.getpid(), True)]
        gate.open.set()
        until(lambda: db.execute(running).fetchall() == [])


def test_a_long_job_keeps_its_lease_by_beats(url: str, db: Db, registry: Registry) -> None:
    """W26, Q44, M40, FA12: though the job holds a transaction of its own all the time."""
    gate = Gate()
    registry.processor("long")(gate)
    with working(url, registry) as (worker, _):
        job_id = enqueue(db, "long")
        assert job_id
        gate.wait_until_entered()
        first = row(db, job_id).lock_expires_at
        until(lambda: row(db, job_id).lock_expires_at > first)
        assert row(db, job_id).started_at is not None
        assert leases.recover(db) == []
        gate.open.set()
        until_status(db, job_id, "COMPLETED")
    assert worker.counts.recovered == 0


def test_a_job_that_runs_for_longer_than_a_lease_keeps_it(url: str, db: Db, registry: Registry) -> None:
    """W23, W25, R16, Q22, D9, D2: beats go on beside it; a neighbour who looks for ended leases finds none."""
    registry.processor("long")(lambda job: threading.Event().wait(5))
    brief: dict[str, Any] = {"lease_for": timedelta(seconds=1.5), "recover_every": timedelta(milliseconds=300)}
    with working(url, registry, **brief), working(url, registry, **brief):
        job_id = enqueue(db, "long")
        assert job_id
        done = until_status(db, job_id, "COMPLETED")
    assert (done.attempt_count, done.errors) == (1, [])


def test_at_its_end_a_jobs_lease_is_not_extended_any_more(url: str, db: Db, registry: Registry) -> None:
    """W24, R29: those of others are."""
    gate, short_gate = Gate(), Gate()
    registry.processor("long")(gate)
    registry.processor("short")(short_gate)
    with working(url, registry) as (_, heard):
        long, short = enqueue(db, "long"), enqueue(db, "short")
        assert short
        until(lambda: any(short in event.facts["job_ids"] for event in heard.all(events.LEASES_EXTENDED)))
        short_gate.open.set()
        until_status(db, short, "COMPLETED")
        until(lambda: heard.all(events.LEASES_EXTENDED)[-1].facts["job_ids"] == [long])
        gate.open.set()


def test_what_a_job_leaves_behind_says_nothing_after_its_end(url: str, db: Db, registry: Registry) -> None:
    """W18, W22."""
    left: list[Job] = []

    @registry.processor("leaves")
    def leave(job: Job) -> None:
        job.update_progress(99)
        left.append(job)

    @registry.processor("says")
    def say(job: Job) -> None:
        job.log("something")

    with working(url, registry):
        job_id = enqueue(db, "leaves")
        assert job_id
        until_status(db, job_id, "COMPLETED")
        until(lambda: row(db, job_id).progress)
        left[0].update_progress(1)
        left[0].log("too late")
        enqueue(db, "says")  # whose words are written after those
        until(lambda: db.execute("SELECT FROM job_log WHERE message = 'something'").fetchall())
    assert row(db, job_id).progress == {"percent": 99, "note": None}
    assert db.execute("SELECT message FROM job_log").fetchall() == [("something",)]


def test_words_that_cannot_be_written_are_the_workers_trouble_and_come_later(
    url: str, db: Db, registry: Registry
) -> None:
    """W20, W31."""
    gate = Gate()

    @registry.processor("chatty")
    def chatty(job: Job) -> None:
        job.log("before")
        gate(job)
        job.log("after")

    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "chatty")
        assert job_id
        until(lambda: db.execute("SELECT FROM job_log").fetchall())
        writers = "application_name = 'snapapp notes' AND datname = current_database()"
        db.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {writers}")
        gate.open.set()
        assert until_status(db, job_id, "COMPLETED").errors == []
        until(lambda: db.execute("SELECT message FROM job_log ORDER BY id").fetchall() == [("before",), ("after",)])
        until(lambda: "write notes" in [event.facts["doing"] for event in heard.all("worker.error")])


def test_a_row_of_the_roster_lasts_as_long_as_a_lease(url: str, db: Db, registry: Registry) -> None:
    """M43."""
    registry.processor("any")(lambda job: None)
    with working(url, registry, lease_for=timedelta(seconds=7)):
        lasts = "SELECT expires_at - beat_at FROM job_worker"
        until(lambda: db.execute(lasts).fetchall())
        assert scalar(db, lasts) == timedelta(seconds=7)
        first = scalar(db, "SELECT beat_at FROM job_worker")
        until(lambda: scalar(db, "SELECT beat_at FROM job_worker") > first)
        assert scalar(db, lasts) == timedelta(seconds=7)


def test_cancelling_a_running_job_reaches_it_at_once(url: str, db: Db, registry: Registry) -> None:
    """R37 without its wait: a NOTIFY carries the wish, not the next beat."""
    entered = threading.Event()

    @registry.processor("patient")
    def patient(job: Job) -> None:
        entered.set()
        for _ in range(2000):
            job.raise_if_cancelled()
            threading.Event().wait(0.01)

    with working(url, registry, beat_every=timedelta(seconds=10), lease_for=timedelta(seconds=60)):
        job_id = enqueue(db, "patient")
        assert job_id
        assert entered.wait(20)
        assert lifecycle.cancel(db, job_id) == "RUNNING"
        stopped = until_status(db, job_id, "CANCELLED", within=5)
    assert stopped.last_error == f"JobCancelled: job {job_id} was cancelled by a person"


def test_a_completion_that_arrives_before_the_cancel_wins(url: str, db: Db, registry: Registry) -> None:
    gate = Gate()
    registry.processor("deaf")(gate)
    with working(url, registry):
        job_id = enqueue(db, "deaf")
        assert job_id
        gate.wait_until_entered()
        lifecycle.cancel(db, job_id)
        gate.open.set()
        assert until_status(db, job_id, "COMPLETED", "CANCELLED").status == "COMPLETED"


def test_a_job_that_ignores_its_cancel_and_fails_is_cancelled(url: str, db: Db, registry: Registry) -> None:
    gate = Gate()

    @registry.processor("stubborn")
    def stubborn(job: Job) -> None:
        gate(job)
        raise ValueError("it does not even look")

    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "stubborn")
        assert job_id
        gate.wait_until_entered()
        lifecycle.cancel(db, job_id)
        gate.open.set()
        until_status(db, job_id, "CANCELLED")
        heard.wait_for(events.JOB_CANCELLED)


def test_a_stop_lets_running_jobs_end_and_hands_waiting_ones_back(url: str, db: Db, registry: Registry) -> None:
    """W40, R30, W38, W39, W41, D17, D18, FA6: nobody is charged for a deploy."""
    gate = Gate()
    registry.processor("slow")(gate)
    with working(url, registry, concurrency=2) as (worker, _):
        ids = [job_id for job_id in enqueue_many(db, [{"kind": "slow"}] * 2) if job_id]
        gate.wait_until_entered(2)
        waiting = enqueue(db, "slow")
        assert waiting
        stopper = threading.Thread(target=worker.stop, args=[timedelta(seconds=20)])
        stopper.start()
        until(lambda: db.execute("SELECT FROM job_worker WHERE status = 'DRAINING'").fetchall())
        gate.open.set()
        stopper.join(20)
        assert not stopper.is_alive()
    assert [row(db, job_id).status for job_id in ids] == ["COMPLETED", "COMPLETED"]
    assert (row(db, waiting).status, row(db, waiting).attempt_count) == ("PENDING", 0)
    assert db.execute("SELECT reason, jobs_completed FROM job_worker_exit").fetchall() == [("stopped", 2)]
    assert db.execute("SELECT count(*) FROM job_worker").fetchall() == [(0,)]


def test_jobs_that_outlast_the_grace_go_back_with_their_attempt(url: str, db: Db, registry: Registry) -> None:
    gate = Gate()
    registry.processor("endless")(gate)
    with working(url, registry) as (worker, _):
        job_id = enqueue(db, "endless")
        assert job_id
        gate.wait_until_entered()
        worker.stop(grace=timedelta(milliseconds=200))
        back = row(db, job_id)
        gate.open.set()
    assert (back.status, back.attempt_count, back.interruptions) == ("PENDING", 0, 1)


def test_stopping_twice_or_before_the_start_is_fine(url: str, registry: Registry) -> None:
    """W8, W41: and so is starting twice."""
    registry.processor("any")(lambda job: None)
    runtime = Runtime(quick_settings(url), registry=registry)
    worker = runtime.worker()
    worker.stop()
    worker.start()
    worker.start()
    worker.stop()
    worker.stop()
    runtime.close()


def test_a_job_with_a_single_attempt_never_waits_in_memory(url: str, db: Db, registry: Registry) -> None:
    """Promise 3: what waits in a worker that dies has not run, but with one attempt it would never run again."""
    gate = Gate()

    @registry.processor("quick")
    def quick(job: Job) -> None:
        if job.payload.get("hang"):
            gate(job)

    with working(url, registry, concurrency=2) as (worker, _):
        enqueue_many(db, [{"kind": "quick"}] * 2000)
        until(lambda: worker.counts.completed >= 2000)
        hanging = {"kind": "quick", "payload": {"hang": True}, "priority": 9}
        enqueue_many(db, [hanging] * 2 + [{"kind": "quick", "max_attempts": 1}] * 40 + [{"kind": "quick"}] * 40)
        gate.wait_until_entered(2)
        waiting = "SELECT max_attempts FROM snap_processing_job WHERE status = 'RUNNING' AND priority = 0"
        beside = db.execute(waiting).fetchall()
        assert beside, "nothing waits: this proves nothing"
        assert all(max_attempts > 1 for (max_attempts,) in beside)
        gate.open.set()
        until(lambda: worker.counts.completed == 2082)


def test_a_dead_neighbours_jobs_come_back_at_once_and_only_the_running_one_is_charged(
    url: str, db: Db, registry: Registry
) -> None:
    """Promise 4 and 3, D2, D10, Q25: its end is seen, and the marks it left say what it was running."""
    registry.processor("any")(lambda job: None)
    with working(url, registry) as (worker, _):
        until(lambda: db.execute("SELECT FROM job_worker").fetchall())
        with db.transaction():  # a sweep between the two would find a dead worker without jobs
            job_id = make_job(db, "RUNNING", kind="any", claimed_by="dead", lock_expires_at=ago(hours=-1))
            db.execute(
                "INSERT INTO job_worker"
                " (id, name, host, machine, pid, pid_started, queues, kinds, slots, traces, expires_at)"
                " SELECT 'dead', 'dead', host, machine, 2147483, 1, '{}', '{}', 4, NULL, now() + interval '1 hour'"
                "   FROM job_worker"
            )
        done = until_status(db, job_id, "COMPLETED", within=5)
        assert db.execute("SELECT reason FROM job_worker_exit WHERE worker_id = 'dead'").fetchall() == [
            ("lost: its process is gone",)
        ]
    assert done.attempt_count == 2
    assert done.errors[0]["error"] == "worker lost"
    assert worker.counts.recovered == 1


def test_a_suspect_begins_with_nothing_beside_it_and_keeps_nobody_away(url: str, db: Db, registry: Registry) -> None:
    """Promise 3: so that another loss names the culprit. It waits for an empty worker; others do not wait for it."""
    gate = Gate()
    beside: list[int] = []

    @registry.processor("suspect")
    def suspect(job: Job) -> None:
        beside.append(len(running) if (running := held()) else 0)

    registry.processor("other")(gate)

    def held() -> list[tuple[Any, ...]]:
        with runtime.connect("look") as look:
            return look.execute("SELECT id FROM snap_processing_job WHERE status = 'RUNNING'").fetchall()

    runtime = Runtime(quick_settings(url), registry=registry)
    with working(url, registry, concurrency=4):
        enqueue_many(db, [{"kind": "other"}] * 3)
        gate.wait_until_entered(3)
        job_id = make_job(
            db, "RETRY_WAIT", kind="suspect", losses=2, gate="alone", attempt_count=1, next_retry_at=ago(seconds=1)
        )
        enqueue_many(db, [{"kind": "other"}] * 3)
        gate.wait_until_entered()
        assert row(db, job_id).status == "RETRY_WAIT"
        gate.open.set()
        until_status(db, job_id, "COMPLETED")
        until(lambda: db.execute("SELECT FROM snap_processing_job WHERE status <> 'COMPLETED'").fetchall() == [])
    runtime.close()
    assert beside == [1]


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


def test_a_large_payload_reaches_the_processor_whole(url: str, db: Db, registry: Registry) -> None:
    sizes: list[int] = []
    registry.processor("big")(lambda job: sizes.append(len(job.payload["text"])))
    with working(url, registry):
        text = "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=900_000))  # it must not compress away
        job_id = enqueue(db, "big", {"text": text})
        assert job_id
        until_status(db, job_id, "COMPLETED")
    assert sizes == [900_000]


def test_broken_connections_in_the_middle_of_work_lose_nothing_and_double_nothing(
    url: str, db: Db, registry: Registry
) -> None:
    """Promise 7, FC10, FC13: every backend of the worker is terminated again and again."""
    make_effects(db)
    registry.processor("plain")(lambda job: threading.Event().wait(0.001))
    registry.processor("paint", commit=put_effect)(lambda job: 1)
    with working(url, registry) as (_, heard):
        enqueue_many(db, [{"kind": "plain"}, {"kind": "paint"}] * 1000)
        for _ in range(10):
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'snapapp %%' AND datname = current_database()"
            )
            threading.Event().wait(0.1)
        until(lambda: db.execute("SELECT FROM snap_processing_job WHERE status <> 'COMPLETED'").fetchall() == [], 60)
    assert db.execute("SELECT count(*), count(DISTINCT job_id) FROM effect").fetchall() == [(1000, 1000)]
    assert heard.all(events.JOB_FAILED) == []


def test_a_worker_survives_a_database_without_a_free_connection(url: str, db: Db, registry: Registry) -> None:
    """Full connection pool: it complains, waits, and works when there is room."""
    registry.processor("any")(lambda job: None)
    name = db.execute("SELECT current_database()").fetchall()[0][0]
    job_id = enqueue(db, "any")
    assert job_id
    db.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
    db.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO crowded")
    try:
        crowded = sqlalchemy.make_url(url).set(username="crowded").render_as_string(hide_password=False)
        with working(crowded, registry) as (_, heard):
            assert "too many connections" in heard.wait_for(events.WORKER_ERROR).facts["error"]
            db.execute("ALTER ROLE crowded CONNECTION LIMIT 20")
            until_status(db, job_id, "COMPLETED")
    finally:
        db.execute("DROP OWNED BY crowded")
        db.execute("DROP ROLE crowded")
    assert name


@pytest.mark.both_servers_at_length
@pytest.mark.parametrize("run_at", ["9000-01-01Z", "infinity", "-infinity"])
def test_a_job_beyond_the_calendar_stops_no_worker(url: str, db: Db, registry: Registry, run_at: str) -> None:
    """No thread can wait for 7,000 years, and `infinity` is at no distance from now."""
    registry.processor("work")(lambda job: None)
    db.execute("SELECT enqueue_job('work', queue => 'later', run_at => %s)", [run_at])
    if run_at == "-infinity":
        db.execute("SELECT pause_queue('later')")
    with working(url, registry) as (worker, heard):
        for expected in (1, 2, 3):
            assert enqueue(db, "work")
            heard.wait_for("job.completed", times=expected)
            worker.beat()


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


def test_the_roster_counts_the_slots_that_can_run_something(url: str, db: Db) -> None:
    """Else two running jobs of a worker without coroutines are 2 of 106."""
    registry = Registry()
    registry.processor("quick")(lambda job: None)
    with working(url, registry, concurrency=3):
        until(lambda: db.execute("SELECT slots FROM job_worker").fetchall() == [(3,)])

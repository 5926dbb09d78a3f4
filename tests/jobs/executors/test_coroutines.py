"""Coroutines under fire: what they hold up or leave hanging costs themselves, and somebody is told."""

import asyncio
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy
import uvloop

from snapapp.jobs import Job, enqueue
from snapapp.jobs.errors import LeaseLost
from snapapp.jobs.model import Lease
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import claim, lifecycle
from snapapp.jobs.rows.database import Db as AnyDb
from snapapp.jobs.rows.database import sqlalchemy_url
from snapapp.jobs.worker import begin, hooks, watchdog
from tests.factory import Db, move, row, scalar
from tests.jobs.working import put_effect, until, until_status, working

SOON = timedelta(milliseconds=50)
LARGE = {"frames": os.urandom(100_000).hex()}  # so that it is fetched when its job begins


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_PATIENCE_WITH_COROUTINES", 0.3)
    monkeypatch.setattr(begin, "_HAND_BACK_AFTER", 0.05)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Lets go, in the end, what hangs."""
    released = threading.Event()
    yield released
    released.set()


def put(db: Db, kind: str, **options: Any) -> int:
    job_id = enqueue(db, kind, **options)
    assert job_id
    return job_id


def test_threads_that_hang_in_jobs_keep_no_other_coroutine_from_its_commit(
    url: str, db: Db, released: threading.Event
) -> None:
    registry = Registry()

    @registry.processor("fill", timeout=SOON)
    async def fill(job: Job) -> None:
        await asyncio.gather(*[asyncio.to_thread(released.wait, 60) for _ in range(40)])

    @registry.processor("write", commit=put_effect)
    async def write(job: Job) -> None: ...

    db.execute("CREATE TABLE effect (job_id bigint)")
    with working(url, registry):
        until_status(db, put(db, "fill", max_attempts=1), "FAILED")
        written = until_status(db, put(db, "write", payload=LARGE), "COMPLETED")
        assert scalar(db, "SELECT job_id FROM effect") == written.id
        released.set()


def test_a_coroutine_that_holds_up_its_loop_is_given_up_and_a_restart_is_wanted(
    url: str, db: Db, released: threading.Event
) -> None:
    registry = Registry()

    @registry.processor("block", timeout=SOON)
    async def block(job: Job) -> None:
        released.wait(60)

    with working(url, registry, max_stuck=9) as (worker, heard):
        dead = until_status(db, put(db, "block", max_attempts=1), "FAILED")
        assert "ran longer than its 0.05 s and did not stop; its coroutine was given up" in dead.last_error
        assert worker.vitals().note == f"threads that ignore their deadline: 1 (block {dead.id}); it wants a restart"
        released.set()
        assert "its result was dropped" in heard.wait_for("worker.error", times=2).facts["error"]
        until(lambda: worker.vitals().wants_restart is None)


def test_coroutines_start_programs_also_where_the_application_has_installed_uvloop(
    url: str, db: Db, registry: Registry
) -> None:
    """NotImplementedError: its policy knows only of its own loops how the programs of coroutines end."""

    @registry.processor("program")
    async def program(job: Job) -> int:
        return await (await asyncio.create_subprocess_exec("true")).wait()

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    try:
        with working(url, registry):
            assert until_status(db, enqueue(db, "program", max_attempts=1) or 0, "COMPLETED", "FAILED").result == 0
    finally:
        asyncio.set_event_loop_policy(None)


def test_a_worker_whose_loop_is_held_up_leaves_as_any_other(url: str, db: Db, released: threading.Event) -> None:
    registry = Registry()
    entered = threading.Event()

    @registry.processor("block")
    async def block(job: Job) -> None:
        entered.set()
        released.wait(60)

    with working(url, registry) as (worker, heard):
        job_id = put(db, "block")
        assert entered.wait(20)
        worker.stop(grace=timedelta(milliseconds=300))
        assert heard.all("worker.closed")
        released.set()
        worker._executors._watchdog.coroutines._thread.join(20)
        worker._executors._watchdog.coroutines.stop()
    assert row(db, job_id).status == "PENDING"
    assert scalar(db, "SELECT count(*) FROM job_worker_exit") == 1


def test_a_coroutine_that_swallows_its_cancel_is_given_up(url: str, db: Db) -> None:
    registry = Registry()
    let_go = asyncio.Event()

    @registry.processor("deaf", timeout=SOON)
    async def deaf(job: Job) -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                job.log("not now")
        return "late"

    with working(url, registry, max_stuck=9) as (worker, _):
        dead = until_status(db, put(db, "deaf", max_attempts=1), "FAILED")
        assert "its coroutine was given up" in dead.last_error
        assert (worker.vitals().stuck, worker.vitals().wants_restart) == (1, None)
        worker._executors._watchdog.coroutines._loop.call_soon_threadsafe(let_go.set)
        until(lambda: worker.vitals().stuck == 0)
    assert row(db, dead.id) == dead


class Fetching:
    """Payloads are fetched as ever, or once not at all, or not before somebody says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fetch = claim.payload
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.fails = False
        monkeypatch.setattr(claim, "payload", self)

    def __call__(self, db: AnyDb, lease: Lease) -> bytes | None:
        self.begun.set()
        assert self.go_on.wait(20)
        if self.fails:
            self.fails = False
            raise psycopg.OperationalError("the line is cut")
        return self._fetch(db, lease)


def two_kinds() -> Registry:
    registry = Registry()

    @registry.processor("thread")
    def on_a_thread(job: Job) -> int:
        return len(job.payload["frames"])

    @registry.processor("async")
    async def on_the_loop(job: Job) -> int:
        return len(job.payload["frames"])

    return registry


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_job_that_could_not_begin_has_not_used_an_attempt(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fetching = Fetching(monkeypatch)
    fetching.fails = True
    fetching.go_on.set()
    with working(url, two_kinds()) as (_, heard):
        done = until_status(db, put(db, kind, payload=LARGE, max_attempts=1), "COMPLETED", "FAILED")
    assert (done.status, done.result, done.attempt_count, done.interruptions) == ("COMPLETED", 200_000, 1, 0)
    assert "the line is cut" in heard.wait_for("worker.error").facts["error"]


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_job_that_is_cancelled_while_it_begins_is_cancelled(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fetching = Fetching(monkeypatch)
    with working(url, two_kinds()) as (worker, _):
        job_id = put(db, kind, payload=LARGE, max_attempts=1)
        assert fetching.begun.wait(20)
        lifecycle.cancel(db, job_id)
        until(lambda: (held := worker._held_jobs.get(job_id)) and held.stop)
        fetching.go_on.set()
        assert until_status(db, job_id, "CANCELLED").progress is None


def test_a_stop_while_a_coroutine_begins_hands_it_back(url: str, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    fetching = Fetching(monkeypatch)
    with working(url, two_kinds()) as (worker, _):
        job_id = put(db, "async", payload=LARGE, max_attempts=1)
        assert fetching.begun.wait(20)
        held = worker._held_jobs.get(job_id)
        assert held
        stopping = threading.Thread(target=worker.stop, args=[timedelta(milliseconds=300)])
        stopping.start()
        until(lambda: held.stop)
        fetching.go_on.set()
        stopping.join(20)
    assert (row(db, job_id).status, row(db, job_id).attempt_count) == ("PENDING", 0)


def test_a_pool_without_a_free_connection_is_a_database_that_is_away(url: str) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), pool_size=1, max_overflow=0, pool_timeout=0.01)
    with engine.connect(), pytest.raises(sqlalchemy.exc.TimeoutError) as refused:
        engine.connect()
    engine.dispose()
    assert hooks.is_worth_another_try(refused.value)


def test_an_attempt_whose_job_is_claimed_again_by_the_same_worker_is_told_to_stop(url: str, db: Db) -> None:
    """After a freeze longer than the lease; its beat would ask for the new lease only."""
    registry, stopped = Registry(), list[object]()
    begun = threading.Event()

    @registry.processor("wait")
    async def wait(job: Job) -> str:
        is_first = not begun.is_set()
        try:
            begun.set()
            await asyncio.sleep(3600 if is_first else 0)
        finally:
            stopped.append(job.stop)
        return "again"

    with working(url, registry, beat_every=timedelta(minutes=1), lease_for=timedelta(minutes=9)) as (worker, _):
        job_id = put(db, "wait")
        assert begun.wait(20)
        move(db, job_id, status="PENDING", claimed_by=None, locked_at=None, lock_expires_at=None, lease_seq=7)
        worker.wake()
        assert until_status(db, job_id, "COMPLETED").result == "again"
        until(lambda: len(stopped) == 2)
    assert [type(why) for why in stopped if why] == [LeaseLost]

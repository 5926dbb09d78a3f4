"""Threads that ignore their deadline: the job ends without them, the slot goes on, and somebody is told."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from snapapp.jobs import Failure, Job, enqueue_many
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.worker import watchdog
from snapapp.jobs.worker.worker import Worker
from tests.factory import Db, row, scalar
from tests.jobs.executors.test_executors import put
from tests.jobs.working import until, until_status, working

SOON = timedelta(milliseconds=50)


class Stage:
    """A kind that hangs until it is released, and one that does not."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.released = threading.Event()
        self.hanging = threading.Semaphore(0)
        self.failed: list[tuple[int, str]] = []
        self.registry.processor("hang", timeout=SOON, failed=self.note)(self.hang)
        self.registry.processor("good")(self.good)

    def hang(self, job: Job) -> int:
        self.hanging.release()
        if job.attempt == 1 or job.payload.get("always"):
            self.released.wait(60)
        return job.attempt

    def good(self, job: Job) -> str:
        return "well"

    def note(self, db: Connection, job: Job, failure: Failure) -> None:
        self.failed.append((job.id, failure.error))


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.released.set()


def hang_one(db: Db, worker: Worker, stuck: int, **options: Any) -> Any:
    ended = until_status(db, put(db, "hang", max_attempts=1, **options), "FAILED", within=10)
    assert worker.vitals().stuck == stuck
    return ended


@pytest.mark.direct
def test_a_thread_that_ignores_its_deadline_gives_up_its_slot_and_is_reported(url: str, db: Db, stage: Stage) -> None:
    """FD1, W31."""
    with working(url, stage.registry, concurrency=1, max_stuck=2) as (worker, heard):
        dead = hang_one(db, worker, stuck=1)
        assert "ran longer than its 0.05 s and did not stop; its thread was given up" in dead.last_error
        until_status(db, put(db, "good"), "COMPLETED")
        assert worker.vitals().note == f"threads that ignore their deadline: 1 (hang {dead.id})"
        assert worker.vitals().wants_restart is None
        until(lambda: "ignore their deadline" in (scalar(db, "SELECT note FROM job_worker") or ""))
        assert "its thread was given up" in heard.wait_for("worker.error").facts["error"]
    assert stage.failed == [(dead.id, dead.last_error)]  # its hook has run, once


@pytest.mark.direct
def test_what_such_a_thread_brings_in_the_end_is_dropped(url: str, db: Db, stage: Stage) -> None:
    with working(url, stage.registry, concurrency=1) as (worker, heard):
        done = until_status(db, put(db, "hang", max_attempts=2), "COMPLETED")
        assert (done.result, worker.vitals().stuck) == (2, 1)
        stage.released.set()
        assert "its result was dropped" in heard.wait_for("worker.error", times=2).facts["error"]
        until(lambda: worker.vitals().stuck == 0)
        assert row(db, done.id) == done


def test_a_cancelled_thread_that_does_not_look_is_given_up_at_its_deadline(url: str, db: Db, stage: Stage) -> None:
    with working(url, stage.registry, concurrency=1):
        job_id = put(db, "hang", timeout=timedelta(seconds=1))
        assert stage.hanging.acquire(timeout=20)
        lifecycle.cancel(db, job_id)
        until_status(db, job_id, "CANCELLED")
        until_status(db, put(db, "good"), "COMPLETED")


def test_a_thread_that_is_only_a_little_late_keeps_its_result(url: str, db: Db, stage: Stage) -> None:
    @stage.registry.processor("late", timeout=SOON)
    def late(job: Job) -> str:
        stage.released.wait(0.3)
        return "here"

    with working(url, stage.registry) as (worker, _):
        assert until_status(db, put(db, "late"), "COMPLETED").result == "here"
        assert worker.vitals().stuck == 0


def test_with_too_many_such_threads_a_restart_is_wanted_until_they_come_back(url: str, db: Db, stage: Stage) -> None:
    with working(url, stage.registry, concurrency=1, max_stuck=1) as (worker, _):
        hang_one(db, worker, stuck=1)
        assert worker.vitals().wants_restart == "1 threads hang in jobs that ignore their deadline"
        until_status(db, put(db, "good"), "COMPLETED")  # the first one's slot has got another thread
        hang_one(db, worker, stuck=2)
        waiting = put(db, "good")
        worker.tick()
        assert row(db, waiting).status == "PENDING"  # the second one's has not, and there is no other
        stage.released.set()
        until_status(db, waiting, "COMPLETED")
        assert (worker.vitals().stuck, worker.vitals().wants_restart) == (0, None)


def test_a_job_that_comes_back_while_it_is_given_up_is_settled_once(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_PATIENCE", 0.0)
    monkeypatch.setattr(watchdog, "_LOOK_EVERY", 600)  # the looks are ours, and two at a time would give up a job twice
    registry = Registry()
    together = threading.Barrier(4)

    @registry.processor("close", timeout=timedelta(milliseconds=4))
    def close(job: Job) -> None:
        threading.Event().wait(0.003 + job.id % 5 / 2000)

    @registry.processor("meet")
    def meet(job: Job) -> None:
        together.wait(20)

    with working(url, registry, concurrency=4, max_stuck=1000) as (worker, heard):
        enqueue_many(db, [{"kind": "close", "max_attempts": 1}] * 400)

        def ended() -> list[int]:
            worker._executors._watchdog.look_for_overdue()
            return [event.facts["job_id"] for name in ("completed", "failed") for event in heard.all(f"job.{name}")]

        until(lambda: len(ended()) >= 400)
        assert heard.all("job.completed")
        assert heard.all("job.failed")
        assert not heard.all("job.lease.lost")
        enqueue_many(db, [{"kind": "meet"}] * 4)  # there are still four slots
        until(lambda: len(ended()) >= 404 and worker.vitals().stuck == 0)
        assert len(ended()) == len(set(ended())) == 404


def test_a_slot_that_does_not_come_back_from_a_hook_is_reported_until_it_does(
    url: str, db: Db, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_PATIENCE_WITH_SLOTS", 0.2)

    def store(db: Connection, job: Job, result: object) -> None:
        stage.released.wait(60)

    stage.registry.processor("store", commit=store)(stage.good)
    with working(url, stage.registry, max_stuck=1) as (worker, heard):
        job_id = put(db, "store")
        until(lambda: worker.vitals().wants_restart)
        assert f"(store {job_id})" in (worker.vitals().note or "")
        assert f"the slot of store job {job_id} hangs" in heard.wait_for("worker.error").facts["error"]
        stage.released.set()
        until_status(db, job_id, "COMPLETED")
        until(lambda: worker.vitals().stuck == 0)


def test_a_slot_that_does_not_find_out_what_to_run_is_reported_until_it_does(
    url: str, db: Db, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_PATIENCE_WITH_SLOTS", 0.2)
    registry = Registry()

    @registry.processor("tool", executor="command", timeout=SOON)
    def tool(job: Job) -> list[str]:
        stage.released.wait(60)
        return ["/bin/true"]

    with working(url, registry, max_stuck=1) as (worker, _):
        job_id = put(db, "tool", max_attempts=1)
        until(lambda: worker.vitals().wants_restart)
        stage.released.set()
        until_status(db, job_id, "FAILED")
        until(lambda: worker.vitals().stuck == 0)

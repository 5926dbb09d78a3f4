"""Jobs of quick kinds wait in memory for a slot, and none waits where no slot comes free."""

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from snapapp.jobs import Job, enqueue, events
from snapapp.jobs.registry import Registry
from tests.factory import Db, make_job, make_jobs, row, statuses
from tests.jobs.working import until, until_status, working

LEARNED = 60  # jobs after which a worker knows that a kind is quick


@pytest.fixture
def released() -> Iterator[threading.Event]:
    released = threading.Event()
    yield released
    released.set()


@pytest.fixture
def registry(released: threading.Event) -> Registry:
    registry = Registry()

    @registry.processor("quick", timeout=timedelta(minutes=1))
    def quick(job: Job) -> None:
        if job.payload.get("hang"):
            released.wait(30)

    @registry.processor("slow", timeout=timedelta(minutes=1))
    def slow(job: Job) -> None:
        released.wait(30)

    @registry.processor("coroutine")
    async def coroutine(job: Job) -> None:
        return

    return registry


def teach(db: Db, kind: str = "quick") -> None:
    make_jobs(db, LEARNED, kind=kind)
    until(lambda: set(statuses(db).values()) == {"COMPLETED"})


def test_nothing_waits_behind_a_slow_job(url: str, db: Db, registry: Registry) -> None:
    """Another worker may have a slot for it."""
    with working(url, registry, concurrency=1) as (worker, _):
        teach(db)
        slow = make_job(db, kind="slow")
        until(lambda: row(db, slow).started_at is not None)
        waiting = make_jobs(db, 20, kind="quick")
        for _ in range(3):
            worker.tick()
        assert {row(db, each).status for each in waiting} == {"PENDING"}


def test_what_waits_behind_a_job_that_hangs_goes_back_with_its_attempt(
    url: str, db: Db, registry: Registry, released: threading.Event
) -> None:
    with working(url, registry, concurrency=1) as (worker, heard):
        teach(db)
        hangs = make_job(db, kind="quick", payload={"hang": True})
        others = make_jobs(db, 20, kind="quick")
        until(lambda: {row(db, each).status for each in others} <= {"PENDING", "COMPLETED"} and _is_running(db, hangs))
        with working(url, registry, concurrency=1):
            until(lambda: {row(db, each).status for each in others} == {"COMPLETED"}, within=10)
        assert {row(db, each).attempt_count for each in others} == {1}
        assert _is_running(db, hangs)
        went_back = heard.all("worker.job.interrupted")
        assert went_back
        assert {event.level for event in went_back} == {logging.DEBUG}, "no worker stops, and no attempt was cut off"
        assert worker.counts.interrupted == 0
        released.set()
        until_status(db, hangs, "COMPLETED")


def test_a_slot_that_a_hook_kept_is_filled_at_once(url: str, db: Db, registry: Registry) -> None:
    """The settle of a job with a hook comes before its slot is free: then nobody may have been told."""

    @registry.processor("hooked", commit=lambda db, job, result: None)
    def hooked(job: Job) -> None:
        threading.Event().wait(0.12)  # too slow to wait in memory

    with working(url, registry, concurrency=1, poll_delay=timedelta(minutes=1)):
        ids = [enqueue(db, "hooked") for _ in range(20)]
        assert all(ids)
        until(lambda: set(statuses(db).values()) == {"COMPLETED"}, within=15)


def test_coroutines_wait_in_memory_too(url: str, db: Db, registry: Registry) -> None:
    with working(url, registry, async_concurrency=4) as (worker, _):
        teach(db, "coroutine")
        sizes: list[int] = []
        worker.events.on(events.JOBS_CLAIMED, lambda event: sizes.append(event.facts["jobs"]))
        make_jobs(db, 300, kind="coroutine")
        worker.wake()
        until(lambda: set(statuses(db).values()) == {"COMPLETED"})
        assert max(sizes) > 4, "never more than slots were claimed"


def _is_running(db: Db, job_id: int) -> bool:
    return bool(row(db, job_id).status == "RUNNING" and row(db, job_id).started_at)

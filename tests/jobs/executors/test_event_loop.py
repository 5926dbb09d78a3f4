"""The executor of coroutines by itself: whatever happens to a job, its slot comes back."""

import asyncio
import os
import resource
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from snapapp.jobs import Job
from snapapp.jobs.errors import JobCancelled
from snapapp.jobs.executors.event_loop import AsyncExecutor
from tests.jobs.working import until


def a_job(**given: Any) -> Job:
    about: dict[str, Any] = {"id": 1, "kind": "wait", "queue": "default", "tenant": "", "priority": 0}
    about |= {"payload_json": b"{}", "snap_id": None, "attempt": 1, "max_attempts": 3, "lease_seq": 1}
    return Job(**(about | {"timeout_ms": None, "request_id": None} | given))


class Stage:
    """An executor whose jobs wait until they are told to go on."""

    def __init__(self) -> None:
        self.executor = AsyncExecutor(10, self.work, lambda: None)
        self.begun: list[Job] = []
        self.cancelled: list[Job] = []
        self.may_end = asyncio.Event()

    async def work(self, job: Job, _task: asyncio.Task[None]) -> None:
        self.begun.append(job)
        job.started_at = monotonic()
        try:
            if not job.stop:
                await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled.append(job)

    def hold_up_the_loop(self) -> threading.Event:
        held, go_on = threading.Event(), threading.Event()
        self.executor._loop.call_soon_threadsafe(held.set)
        self.executor._loop.call_soon_threadsafe(go_on.wait, 20)
        assert held.wait(20)
        return go_on


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    stage.executor.start()
    yield stage
    stage.executor.stop()


def test_a_cancel_that_comes_before_a_jobs_first_step_costs_no_slot(stage: Stage) -> None:
    job = a_job()
    go_on = stage.hold_up_the_loop()
    stage.executor.put([job])
    stage.executor.interrupt(job, JobCancelled("a person"))
    go_on.set()
    until(lambda: stage.executor.load() == 0)
    assert stage.begun == [job]  # it was asked, and found its stop


def test_a_cancel_of_an_attempt_that_is_over_does_not_reach_the_next_one_at_the_same_job(stage: Stage) -> None:
    first, second = a_job(), a_job(attempt=2, lease_seq=3)
    stage.executor.put([first, second])
    until(lambda: len(stage.begun) == 2)
    stage.executor.interrupt(first, JobCancelled("a person"))
    until(lambda: stage.executor.load() == 1)
    assert stage.cancelled == [first]


def test_an_executor_whose_loop_is_held_up_stops_all_the_same(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    join = stage.executor._thread.join
    monkeypatch.setattr(stage.executor._thread, "join", lambda timeout: join(0.1))
    go_on = stage.hold_up_the_loop()
    stage.executor.stop()
    go_on.set()
    join(20)  # and its loop is closed by the next stop


@pytest.fixture
def many_files() -> Iterator[None]:
    """So many are open that the next one gets a number that `select` refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= 1200:
        pytest.skip(f"a process may have {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < 1024:
        held.append(os.dup(held[0]))
    yield
    for each in held:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_where_many_files_are_open_a_coroutine_sleeps_all_the_same(many_files: None) -> None:
    rested = threading.Event()

    async def rest(_job: Job, _task: asyncio.Task[None]) -> None:
        await asyncio.sleep(0.001)
        rested.set()

    executor = AsyncExecutor(1, rest, lambda: None)
    executor.start()
    executor.put([a_job()])
    assert rested.wait(20)
    until(lambda: executor.load() == 0)
    executor.stop()

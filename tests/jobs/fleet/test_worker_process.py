"""A worker process of a pool, from the inside."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy

from snapapp.jobs import Job
from snapapp.jobs.fleet import worker_process
from snapapp.jobs.fleet.worker_process import MainThread, PoolWorker
from snapapp.jobs.os.signals import Signals
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.settings import Membership
from tests.factory import Db, enqueue
from tests.jobs.working import quick_settings, until


@pytest.fixture
def hook() -> Iterator[tuple[threading.Event, threading.Event]]:
    """It has begun; it may end."""
    begun, may_end = threading.Event(), threading.Event()
    yield begun, may_end
    may_end.set()


def test_a_hook_that_hangs_keeps_no_worker_from_leaving_by_itself(
    url: str, db: Db, hook: tuple[threading.Event, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not left to the supervisor, which kills only what does not move."""
    monkeypatch.setattr(worker_process, "_LONGEST_END", 0.2)
    begun, may_end = hook
    registry = Registry()

    def hang(_db: sqlalchemy.Connection, _job: Job, _result: Any) -> None:
        begun.set()
        may_end.wait()

    @registry.processor("hang.in.hook", commit=hang)
    def quick(job: Job) -> None: ...

    enqueue(db, "hang.in.hook", timeout_ms=100)
    runtime = Runtime(quick_settings(url, membership=Membership(pool="it", master="m")), registry=registry)
    with Signals() as signals:
        worker = PoolWorker(runtime, registry, signals)
        worker.start()
        assert begun.wait(20)
        until(lambda: worker.vitals().beats)
        stop = worker.stop

        def let_it_end(*given: Any, **named: Any) -> None:
            may_end.set()
            stop(*given, **named)

        monkeypatch.setattr(worker, "stop", let_it_end)
        MainThread(worker, signals, os.getppid())._retire("restarted")
    assert db.execute("SELECT reason FROM job_worker_exit").fetchall() == [("restarted",)]
    runtime.close()

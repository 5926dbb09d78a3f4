"""A worker process of a pool, from the inside."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy

from snapapp.jobs import Job
from snapapp.jobs.events import Events
from snapapp.jobs.fleet import worker_process
from snapapp.jobs.fleet.launcher import WorkerProcess
from snapapp.jobs.fleet.plan import Pool as Planned
from snapapp.jobs.fleet.pool import Pool
from snapapp.jobs.fleet.worker_process import STEERING, MainThread, PoolWorker
from snapapp.jobs.os.signals import ENDING, Signals
from snapapp.jobs.os.state_file import StateFile
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.settings import Membership
from tests.factory import Db, enqueue, row
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


@contextmanager
def pool_worker(url: str, registry: Registry, **changes: Any) -> Iterator[tuple[PoolWorker, Signals, StateFile]]:
    """A worker of a pool within this process, and its state file as its supervisor has it. Signals wait until `work`,
    as at a process that is busy."""
    state = StateFile.make()
    membership = Membership(pool="it", master="m", state_file=state.path)
    runtime = Runtime(quick_settings(url, membership=membership, **changes), registry=registry)
    with Signals(*STEERING) as signals, pytest.MonkeyPatch.context() as patch:
        main = threading.main_thread().ident
        assert main
        patch.setattr(os, "kill", lambda _pid, number: signal.pthread_kill(main, number))  # not to any other thread
        worker = PoolWorker(runtime, registry, signals)
        worker.start()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, *STEERING))
        yield worker, signals, state
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        worker.stop()
    runtime.close()
    state.close()


def work(worker: PoolWorker, signals: Signals, supervisor: int) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*ENDING, *STEERING))
    MainThread(worker, signals, supervisor).work()


@pytest.mark.parametrize("last", ["paused", "resumed"])
def test_a_pool_that_is_paused_and_resumed_in_one_moment_ends_as_the_last_one_says(url: str, db: Db, last: str) -> None:
    """Signals that wait together arrive by their numbers, and those that are sent twice arrive once."""
    with pool_worker(url, Registry()) as (worker, signals, state):
        child = WorkerProcess(os.getpid(), "it", state)
        pool = Pool(Planned(name="it"), lambda *_: child, Events(), grace=1.0)
        pool.look()
        for step in (pool.pause, pool.resume) if last == "resumed" else (pool.pause, pool.resume, pool.pause):
            step()
        work(worker, signals, supervisor=os.getpid())  # which is not its parent, so it leaves after that
        assert ("paused by its supervisor" in (worker._note() or "")) == (last == "paused")


def test_a_worker_that_is_asked_to_finish_and_then_to_stop_hands_its_job_back_within_the_grace(
    url: str, db: Db
) -> None:
    """Both signals may wait together: the second one was lost, and the supervisor killed the worker with its job."""
    begun, may_end = threading.Event(), threading.Event()
    registry = Registry()

    @registry.processor("long")
    def long(job: Job) -> None:
        begun.set()
        may_end.wait(5)

    job = enqueue(db, "long")
    assert job
    with pool_worker(url, registry, shutdown_grace=timedelta(milliseconds=200)) as (worker, signals, _):
        assert begun.wait(20)
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGTERM)
        work(worker, signals, supervisor=os.getppid())
        may_end.set()
    assert (row(db, job).status, row(db, job).attempt_count) == ("PENDING", 0)

"""Workers in a process of the application's own, and what it does once in each process."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from fastapi import FastAPI

from snapapp.jobs import Job, JobsSettings, Worker, enqueue, lifespan, process_hooks
from snapapp.jobs.errors import CannotStart
from snapapp.jobs.registry import ExecutorName, Processor, Registry
from snapapp.jobs.rows.people import overviews
from tests import ROOT
from tests.factory import Db
from tests.jobs.working import PATIENCE, QUICK, until, until_status, working


@pytest.fixture
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests have imported."""
    for name in ("_starts", "_stops"):
        monkeypatch.setattr(process_hooks, name, {})


@pytest.fixture
def application(url: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", f"from tests.jobs.kinds import embedded; embedded.main({url!r})"]
    environment = os.environ | {"SAID": str(tmp_path / "said")}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, cwd=ROOT, env=environment) as process:
        yield process
        process.kill()


def test_two_workers_of_one_process_keep_to_their_own_options(
    url: str, db: Db, application: subprocess.Popen[bytes]
) -> None:
    until(lambda: len(overviews.workers(db)) == 2)
    jobs = [enqueue(db, "embedded.thread", queue=queue) for queue in ("quick", "slow", "nobody's")]
    ran_in = [until_status(db, job or 0, "COMPLETED").result for job in jobs[:2]]
    assert ran_in == [application.pid, application.pid]
    told = db.execute("SELECT name, queues, slots FROM job_worker ORDER BY name").fetchall()
    assert told == [("quick", ["quick"], 1 + 1), ("slow", ["slow"], 3 + 1)]  # threads and a child
    application.communicate()
    assert application.returncode == 0
    left = db.execute("SELECT name, reason FROM job_worker_exit ORDER BY name").fetchall()
    assert left == [("quick", "stopped"), ("slow", "stopped")]
    assert db.execute("SELECT status FROM snap_processing_job WHERE id = %s", [jobs[2]]).fetchone() == ("PENDING",)


def test_each_process_runs_its_hooks_once_around_its_jobs(
    url: str, db: Db, application: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    kinds = ["embedded.thread", "embedded.child", "embedded.child"]
    ids = [enqueue(db, kind, queue="quick") or 0 for kind in kinds]
    here, child, same = (until_status(db, job, "COMPLETED").result for job in ids)
    application.communicate()
    assert here == application.pid
    assert child == same != here
    said: dict[int, list[str]] = {}
    for line in (tmp_path / "said").read_text().splitlines():
        pid, what = line.split()
        said.setdefault(int(pid), []).append(what)
    assert said[here] == ["start", "job", "stop"]
    assert said[child] == ["start", "job", "job", "stop"]


def test_a_worker_starts_only_in_the_process_that_made_it(url: str, db: Db) -> None:
    """As with gunicorn --preload: its processes would share an id, and the jobs of one that dies would go unnoticed."""
    worker = Worker(url, registry=Registry(), **QUICK)
    said, mouth = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            worker.start()
            worker.stop()
        except CannotStart as error:
            os.write(mouth, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(mouth)
    with os.fdopen(said) as answer:
        assert f"was made in process {os.getpid()} and would start in process {child}" in answer.read()
    assert db.execute("SELECT FROM job_worker_exit").fetchall() == []


@pytest.mark.parametrize("executor", ["thread", "process", "command"])
def test_where_nobody_learns_how_children_end_a_worker_that_needs_some_does_not_start(
    url: str, executor: ExecutorName
) -> None:
    """Each child that ended took its slot with it, and its job stayed RUNNING."""
    registry = Registry()
    registry.add(Processor("any", print, executor=executor))
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        worker = Worker(url, registry=registry, **QUICK)
        with nullcontext() if executor == "thread" else pytest.raises(CannotStart, match="ignores SIGCHLD"), worker:
            pass
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_applications_log_says_why_a_worker_does_nothing(empty_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Here nobody has called `migrate`."""
    with Worker(empty_url, registry=Registry(), **QUICK) as worker:
        until(lambda: "doing=claim" in caplog.text)
        assert (worker.id in caplog.text, "WARNING" in caplog.text) == (True, True)
        for _ in range(10):
            worker.events.complain(worker.id, "claim", OSError("away"))
        assert caplog.text.count("OSError: away") == 1, "it is told once a minute"


def test_options_hold_beside_settings_too_and_one_queue_is_no_list(url: str) -> None:
    given = JobsSettings(database_url=url, queues=("mail",))
    assert Worker(given, registry=Registry(), concurrency=1).settings == replace(given, concurrency=1)
    with pytest.raises(ValueError, match="queues must be a tuple of names, not the text 'mail'"):
        Worker(url, registry=Registry(), queues="mail")


def test_a_fork_of_its_process_leaves_a_worker_alone(url: str, db: Db) -> None:
    """As where an atexit hook of the application stops its worker: each process that it forked calls it too."""
    known = Registry()
    said, mouth = os.pipe()

    @known.processor("soon")
    async def _soon(job: Job) -> None: ...

    with Worker(url, registry=known, **QUICK) as worker:
        until(lambda: len(overviews.workers(db)) == 1)
        child = os.fork()
        if child == 0:
            try:
                worker.stop(grace=timedelta(0))
                os.write(mouth, b"left alone")
            finally:
                os._exit(0)
        os.close(mouth)
        with os.fdopen(said) as answer:
            assert answer.read() == "left alone"
        os.waitpid(child, 0)
        assert db.execute("SELECT FROM job_worker_exit").fetchall() == []


@pytest.mark.usefixtures("nothing_declared")
def test_a_worker_that_was_stopped_says_that_a_new_one_is_needed(url: str) -> None:
    started: list[str] = []
    process_hooks.on_start(lambda: started.append("pool"))
    worker = Worker(url, registry=Registry(), **QUICK)
    worker.start()
    worker.stop()
    with pytest.raises(CannotStart, match="starts only once: make a new Worker"):
        worker.start()
    worker.stop()
    assert started == ["pool"]


def test_a_web_application_works_the_queue_while_it_serves(url: str, db: Db) -> None:
    registry = Registry()

    @registry.processor("greet")
    def greet(job: Job) -> str:
        return f"Hello, {job.payload['name']}"

    app = FastAPI(lifespan=lifespan(url, registry=registry, **QUICK))

    async def serve() -> None:
        async with app.router.lifespan_context(app) as state:
            done = await asyncio.to_thread(until_status, db, enqueue(db, "greet", {"name": "Ana"}) or 0, "COMPLETED")
            assert done.result == "Hello, Ana"
            assert state is not None
            assert [one.id for one in overviews.workers(db)] == [state["worker"].id]

    asyncio.run(serve())
    assert overviews.workers(db) == []


@pytest.mark.usefixtures("nothing_declared")
def test_an_application_whose_start_is_given_up_leaves_no_worker_behind(url: str, db: Db) -> None:
    """As where a framework starts its lifespan with a time limit: the start went on alone, and nobody stopped it."""
    starts, may_start, stopped = (threading.Event() for _ in range(3))

    @process_hooks.on_start
    def open_pool() -> None:
        starts.set()
        may_start.wait(PATIENCE)

    process_hooks.on_stop(stopped.set)

    async def serve() -> None:
        async with lifespan(url, registry=Registry(), **QUICK)(None):
            pytest.fail("it serves")

    async def give_up() -> None:
        serving = asyncio.create_task(serve())
        await asyncio.to_thread(starts.wait, PATIENCE)
        serving.cancel()
        may_start.set()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(give_up())
    assert stopped.is_set()
    assert overviews.workers(db) == []


@pytest.mark.usefixtures("nothing_declared")
def test_hooks_run_in_order_and_are_undone_in_the_other(url: str, db: Db) -> None:
    done: list[str] = []

    def hook(what: str) -> process_hooks.Hook:
        def run() -> None:
            done.append(what)

        run.__qualname__ = what
        return run

    def fail() -> None:
        raise OSError("it is closed already")

    for what in ("one", "two"):
        process_hooks.on_start(hook(f"open {what}"))
        process_hooks.on_stop(hook(f"close {what}"))
        process_hooks.on_stop(fail)
    with Worker(url, registry=Registry()), Worker(url, registry=Registry()):
        assert done == ["open one", "open two"]
        until(lambda: len(overviews.workers(db)) == 2)
    assert done == ["open one", "open two", "close two", "close one"]


@pytest.mark.parametrize("missing", ["slot-1", "duty heartbeat", "APScheduler"])
@pytest.mark.usefixtures("nothing_declared")
def test_a_worker_whose_threads_cannot_all_be_started_leaves_none_behind(
    url: str, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """As in a container with a limit of processes: whoever tries again would leave more of them at each try."""
    start, before, closed = threading.Thread.start, threading.active_count(), threading.Event()
    process_hooks.on_stop(closed.set)

    def refuse(thread: threading.Thread) -> None:
        if thread.name == missing:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    registry = Registry()
    registry.add(Processor("any", print))
    worker = Worker(url, registry=registry, concurrency=2)
    with pytest.raises(RuntimeError, match="can't start new thread"), worker:
        pytest.fail("it started")
    until(lambda: threading.active_count() == before)
    assert closed.is_set()
    with pytest.raises(CannotStart, match="make a new Worker"):
        worker.start()


class Pool:
    def __init__(self, number: int, done: list[str]) -> None:
        self.number = number
        self.done = done

    def open(self) -> None:
        self.done.append(f"open {self.number}")

    def close(self) -> None:
        self.done.append(f"close {self.number}")


@pytest.mark.usefixtures("nothing_declared")
def test_whoever_stops_a_worker_finds_it_stopped(url: str) -> None:
    """Also while another thread starts or stops it."""
    starts, may_start, stops, may_stop = (threading.Event() for _ in range(4))
    closed: list[bool] = []

    @process_hooks.on_start
    def open_pool() -> None:
        starts.set()
        may_start.wait(PATIENCE)

    @process_hooks.on_stop
    def close_pool() -> None:
        stops.set()
        may_stop.wait(PATIENCE)
        closed.append(True)

    worker = Worker(url, registry=Registry(), **QUICK)

    def stop() -> list[bool]:
        worker.stop()
        return [*closed]

    with ThreadPoolExecutor() as threads:
        threads.submit(worker.start)
        starts.wait(PATIENCE)
        while_it_starts = threads.submit(stop)
        may_start.set()
        assert stops.wait(PATIENCE)
        while_it_stops = threads.submit(stop)
        may_stop.set()
        assert (while_it_starts.result(), while_it_stops.result()) == ([True], [True])


@pytest.mark.usefixtures("nothing_declared")
def test_hooks_that_share_a_name_all_run(url: str, db: Db) -> None:
    done: list[str] = []
    for pool in (Pool(1, done), Pool(2, done)):
        for _ in range(2):  # as by a module that is loaded twice
            process_hooks.on_start(pool.open)
            process_hooks.on_stop(pool.close)
    process_hooks.on_start(lambda: done.append("one"))
    process_hooks.on_start(lambda: done.append("two"))
    process_hooks.on_start(partial(done.append, "three"))
    with Worker(url, registry=Registry()):
        assert done == ["open 1", "open 2", "one", "two", "three"]
    assert done[5:] == ["close 2", "close 1"]


@pytest.mark.parametrize("declare", [process_hooks.on_start, process_hooks.on_stop])
def test_a_hook_that_nobody_would_await_is_refused(declare: Callable[[object], object]) -> None:
    async def open_pool() -> None: ...

    with pytest.raises(ValueError, match="open_pool: a hook is a plain function, not `async def`"):
        declare(open_pool)


@pytest.mark.usefixtures("nothing_declared")
def test_a_worker_whose_hook_fails_does_not_start(url: str, db: Db) -> None:
    @process_hooks.on_start
    def fail() -> None:
        raise ConnectionError("no such pool")

    with pytest.raises(ConnectionError, match="no such pool"), Worker(url, registry=Registry()):
        pytest.fail("it started")
    assert overviews.workers(db) == []


@pytest.mark.usefixtures("nothing_declared")
def test_a_start_that_fails_is_undone_before_the_next(url: str) -> None:
    done: list[str] = []
    failures = [ConnectionError("no such pool")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    process_hooks.on_start(lambda: done.append("open"))
    process_hooks.on_start(fail_once)
    process_hooks.on_stop(lambda: done.append("close"))
    with pytest.raises(ConnectionError, match="no such pool"):
        Worker(url, registry=Registry()).start()
    assert done == ["open", "close"]
    with Worker(url, registry=Registry()):
        assert done == ["open", "close", "open"]


@pytest.mark.usefixtures("nothing_declared")
def test_a_child_whose_hook_fails_says_so_to_its_job(url: str, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.jobs.kinds import hookless

    monkeypatch.setattr(process_hooks, "_starts", {})  # this process has imported it, too
    with working(url, hookless.registry):
        dead = until_status(db, enqueue(db, "hookless", max_attempts=1) or 0, "FAILED")
    assert "no such pool" in dead.last_error

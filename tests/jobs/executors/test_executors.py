"""The executors in which jobs run: what each promises about deadlines, cancels and crashes."""

import asyncio
import os
import signal
import threading
from datetime import timedelta
from pathlib import Path

from snapapp.jobs import Job, enqueue, enqueue_many
from snapapp.jobs.errors import JobTimeout
from snapapp.jobs.os.processes import children, started
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.people import failures
from tests.factory import Db, row
from tests.jobs.kinds import crashing
from tests.jobs.working import until, until_status, working


def put(db: Db, kind: str, **options: object) -> int:
    job_id = enqueue(db, kind, **options)  # type: ignore[arg-type]
    assert job_id
    return job_id


def test_what_ran_too_long_is_one_line_for_each_kind_among_the_failures(url: str, db: Db, registry: Registry) -> None:
    """/ops and the doctor group dead letters by the first line of their errors."""
    limit = timedelta(milliseconds=200)

    @registry.processor("thread", timeout=limit)
    def in_thread(job: Job) -> None:
        while True:
            job.raise_if_cancelled()
            threading.Event().wait(0.01)

    @registry.processor("async", timeout=limit)
    async def on_loop(job: Job) -> None:
        await asyncio.sleep(3600)

    @registry.processor("command", timeout=limit, executor="command", command=["sleep", "3600"])
    def command(job: Job) -> None: ...

    registry.processor("process", timeout=limit, executor="process")(crashing.spin)
    kinds = ["thread", "async", "command", "process"]
    with working(url, registry):
        ids = [put(db, kind, max_attempts=1) for kind in kinds for _ in range(2)]
        for job_id in ids:
            until_status(db, job_id, "FAILED")
    assert {group.kind: group.jobs for group in failures.groups(db).groups} == dict.fromkeys(kinds, 2)


# --- async ------------------------------------------------------------------------------------------------------


def test_coroutines_wait_side_by_side(url: str, db: Db, registry: Registry) -> None:
    """W30."""
    together = asyncio.Barrier(20)

    @registry.processor("meet")
    async def meet(job: Job) -> str:
        await together.wait()
        return "met"

    with working(url, registry, async_concurrency=20) as (worker, _):
        enqueue_many(db, [{"kind": "meet"}] * 20)
        until(lambda: worker.counts.completed == 20)


def test_a_coroutine_is_stopped_at_its_time_limit(url: str, db: Db, registry: Registry) -> None:
    @registry.processor("slow", timeout=timedelta(milliseconds=100))
    async def slow(job: Job) -> None:
        await asyncio.sleep(3600)

    with working(url, registry):
        dead = until_status(db, put(db, "slow", max_attempts=1), "FAILED")
    assert dead.last_error.startswith("JobTimeout: slow ran ")


def test_a_coroutines_own_timeout_error_is_an_ordinary_failure(url: str, db: Db, registry: Registry) -> None:
    @registry.processor("own")
    async def own(job: Job) -> None:
        raise TimeoutError("the camera does not answer")

    with working(url, registry):
        dead = until_status(db, put(db, "own", max_attempts=1), "FAILED")
    assert dead.last_error == "TimeoutError: the camera does not answer"


def test_cancelling_a_coroutine_raises_in_it(url: str, db: Db, registry: Registry) -> None:
    entered, cleaned = threading.Event(), threading.Event()

    @registry.processor("wait")
    async def wait(job: Job) -> None:
        entered.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.set()

    with working(url, registry):
        job_id = put(db, "wait")
        assert entered.wait(20)
        lifecycle.cancel(db, job_id)
        until_status(db, job_id, "CANCELLED", within=5)
    assert cleaned.is_set()


def test_a_stop_hands_a_coroutine_back(url: str, db: Db, registry: Registry) -> None:
    entered = threading.Event()

    @registry.processor("wait")
    async def wait(job: Job) -> None:
        entered.set()
        await asyncio.sleep(3600)

    with working(url, registry) as (worker, _):
        job_id = put(db, "wait")
        assert entered.wait(20)
        worker.stop(grace=timedelta(milliseconds=300))
        back = row(db, job_id)
    assert (back.status, back.attempt_count, back.interruptions) == ("PENDING", 0, 1)


# --- threads ----------------------------------------------------------------------------------------------------


def test_a_thread_sees_its_time_limit_where_it_asks(url: str, db: Db, registry: Registry) -> None:
    @registry.processor("slow")
    def slow(job: Job) -> None:
        for _ in range(2000):
            job.raise_if_cancelled()
            threading.Event().wait(0.01)

    with working(url, registry):
        dead = until_status(db, put(db, "slow", max_attempts=1, timeout=timedelta(milliseconds=50)), "FAILED")
    assert dead.last_error.startswith(JobTimeout.__name__)


# --- children ---------------------------------------------------------------------------------------------------


def test_a_child_runs_jobs_one_after_the_other_and_its_words_arrive(url: str, db: Db) -> None:
    with working(url, crashing.registry):
        first = until_status(db, put(db, "child.echo", payload={"camera": "Ñ 7"}), "COMPLETED")
        second = until_status(db, put(db, "child.echo"), "COMPLETED")
    assert first.result["payload"] == {"camera": "Ñ 7"}
    assert first.result["pid"] == second.result["pid"] != os.getpid()
    assert row(db, first.id).progress == {"percent": 50, "note": "half"}
    assert db.execute("SELECT message FROM job_log WHERE job_id = %s", [first.id]).fetchall() == [("from the child",)]


def test_a_child_that_prints_a_lot_is_not_blocked_by_it(url: str, db: Db) -> None:
    with working(url, crashing.registry):
        assert until_status(db, put(db, "child.print"), "COMPLETED").result == "done"


def test_a_child_is_killed_at_its_time_limit(url: str, db: Db) -> None:
    """R20, M40, D13, FD1."""
    with working(url, crashing.registry):
        dead = until_status(db, put(db, "child.spin", max_attempts=1, timeout=timedelta(milliseconds=300)), "FAILED")
        until_status(db, put(db, "child.echo"), "COMPLETED")
    assert "was killed at its time limit" in dead.last_error


def test_cancelling_kills_the_child_and_its_children(url: str, db: Db) -> None:
    with working(url, crashing.registry):
        job_id = put(db, "child.grandchild")
        until(lambda: db.execute("SELECT FROM job_log WHERE job_id = %s", [job_id]).fetchall())
        [(line,)] = db.execute("SELECT message FROM job_log WHERE job_id = %s", [job_id]).fetchall()
        grandchild = int(line.split()[-1])
        assert started(grandchild)
        lifecycle.cancel(db, job_id)
        until_status(db, job_id, "CANCELLED", within=5)
        until(lambda: started(grandchild) is None)


def test_a_stop_kills_the_child_and_hands_its_job_back(url: str, db: Db) -> None:
    with working(url, crashing.registry) as (worker, heard):
        job_id = put(db, "child.spin")
        heard.wait_for("worker.job.active")
        assert children_of(os.getpid())
        worker.stop(grace=timedelta(milliseconds=300))
        back = row(db, job_id)
    assert (back.status, back.attempt_count, back.interruptions) == ("PENDING", 0, 1)
    until(lambda: not children_of(os.getpid()))


def test_a_killed_child_costs_its_own_attempt_only(url: str, db: Db) -> None:
    with working(url, crashing.registry):
        pid = until_status(db, put(db, "child.echo"), "COMPLETED").result["pid"]
        spinning = put(db, "child.spin", max_attempts=1)
        until(lambda: db.execute("SELECT FROM job_log WHERE job_id = %s", [spinning]).fetchall())
        os.kill(pid, signal.SIGKILL)
        assert "was killed by SIGKILL" in until_status(db, spinning, "FAILED").last_error


def children_of(pid: int) -> list[int]:
    """The warm children of a worker."""
    program = b"snapapp.jobs.executors.child"
    return [child for child in children(pid) if program in read(Path(f"/proc/{child}/cmdline"))]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""

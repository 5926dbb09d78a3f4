"""The black box: what a job was doing when most of its time had passed stands in its log, whatever it was stuck in."""

import asyncio
import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import psycopg
import pytest

from snapapp.jobs import Job
from snapapp.jobs.executors import late_report
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import backends
from tests.factory import Db, make_job, running_job, until_blocking
from tests.jobs.executors.test_executors import put
from tests.jobs.kinds import spending
from tests.jobs.working import until, until_status, working

TWO_SECONDS = timedelta(seconds=2)


def boxes(db: Db, job_id: int) -> list[str]:
    rows = db.execute(
        "SELECT message FROM job_log"
        " WHERE job_id = %s AND level = 'WARNING' AND message LIKE 'black box%%' ORDER BY id",
        [job_id],
    )
    return [message for (message,) in rows.fetchall()]


def box_of(db: Db, job_id: int) -> str:
    until(lambda: boxes(db, job_id))
    [box] = boxes(db, job_id)
    return box


# --- children ---------------------------------------------------------------------------------------------------


@pytest.mark.at_length  # processing/test_decoder has a decoder's in every run
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        pytest.param("hang.python", "in hang_in_python", marks=pytest.mark.at_length),
        ("hang.regex", "in hang_in_a_regex"),  # in C, and nothing else in its process can run
        pytest.param("hang.hash", "in hang_in_a_hash", marks=pytest.mark.at_length),  # in C, too
        pytest.param("hang.sleep", "in hang_asleep", marks=pytest.mark.at_length),
    ],
)
def test_a_child_that_hangs_has_its_stack_in_the_log(url: str, db: Db, kind: str, place: str) -> None:
    """FD1."""
    with working(url, spending.registry):
        job_id = put(db, kind, max_attempts=1)
        dead = until_status(db, job_id, "FAILED")
        box = box_of(db, job_id)
    assert box.startswith("black box, after 1.")
    assert " s of 2 s: the child's stack\nin its main thread, the innermost call first:\n" in box
    assert place in box
    assert "executors/child.py" not in box
    assert "was killed at its time limit" in dead.last_error  # looking at it has not ended it


def test_a_child_that_cannot_answer_is_said_to_be_silent(url: str, db: Db) -> None:
    with working(url, spending.registry):
        job_id = put(db, "hang.sleep", max_attempts=1)
        until(lambda: db.execute("SELECT FROM job_log WHERE job_id = %s", [job_id]).fetchall())
        [(pid,)] = db.execute("SELECT message FROM job_log WHERE job_id = %s", [job_id]).fetchall()
        os.kill(int(pid), signal.SIGSTOP)
        until_status(db, job_id, "FAILED")
        assert "the child does not say where it is within 0.4 s" in box_of(db, job_id)


def test_a_job_that_has_said_too_much_still_has_its_black_box(url: str, db: Db) -> None:
    with working(url, spending.registry):
        job_id = put(db, "hang.words", max_attempts=1)
        until_status(db, job_id, "FAILED")
        assert "in hang_after_many_words" in box_of(db, job_id)


def test_each_attempt_has_one_and_a_quick_one_has_none(url: str, db: Db) -> None:
    with working(url, spending.registry):
        twice = put(db, "hang.sleep", max_attempts=2, timeout=timedelta(seconds=1))
        quick = put(db, "spend.child")
        until_status(db, twice, "FAILED")
        until_status(db, quick, "COMPLETED")
        until(lambda: len(boxes(db, twice)) == 2)
    attempts = db.execute("SELECT attempt FROM job_log WHERE message LIKE 'black box%' ORDER BY id").fetchall()
    assert attempts == [(1,), (2,)]
    assert boxes(db, quick) == []


def test_a_child_that_was_asked_goes_on_with_its_job(url: str, db: Db) -> None:
    with working(url, spending.registry):
        job_id = put(db, "spend.child", payload={"rest": 1.7}, timeout=TWO_SECONDS)
        pid = until_status(db, job_id, "COMPLETED").result
        assert "in spend" in box_of(db, job_id)
        assert until_status(db, put(db, "spend.child"), "COMPLETED").result == pid


# --- programs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "words"), [("hang.command", "step 7"), ("hang.mute", "it has written nothing")])
def test_a_program_that_hangs_has_its_last_words_in_the_log(url: str, db: Db, kind: str, words: str) -> None:
    with working(url, spending.registry):
        job_id = put(db, kind, max_attempts=1)
        until_status(db, job_id, "FAILED")
        assert box_of(db, job_id).endswith(f"the end of its standard error\n{words}")


# --- threads and tasks ------------------------------------------------------------------------------------------


def test_a_thread_that_waits_has_its_stack_in_the_log(url: str, db: Db, registry: Registry) -> None:
    released = threading.Event()

    @registry.processor("wait", timeout=TWO_SECONDS)
    def wait_for_nothing(job: Job) -> None:
        released.wait(60)

    with working(url, registry):
        job_id = put(db, "wait", max_attempts=1)
        box = box_of(db, job_id)
        released.set()
    assert ": its stack\n" in box
    assert "released.wait(60)" in box
    assert "snapapp/jobs/worker/slots.py" not in box


@pytest.mark.at_length  # a child that hangs in C has it in every run
def test_a_thread_in_c_has_its_stack_in_the_log(url: str, db: Db, registry: Registry) -> None:
    @registry.processor("hash", timeout=timedelta(seconds=1))
    def hash_for_long(job: Job) -> None:
        began = time.monotonic()
        while time.monotonic() - began < 1.3:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000)

    with working(url, registry):
        job_id = put(db, "hash", max_attempts=1)
        assert "in hash_for_long" in box_of(db, job_id)


def test_a_task_that_waits_has_its_awaits_in_the_log(url: str, db: Db, registry: Registry) -> None:
    async def ask_the_camera() -> None:
        await asyncio.get_running_loop().create_future()

    @registry.processor("await", timeout=TWO_SECONDS)
    async def process(job: Job) -> None:
        await ask_the_camera()

    with working(url, registry):
        job_id = put(db, "await", max_attempts=1)
        box = box_of(db, job_id)
    assert "await ask_the_camera()" in box
    assert "in ask_the_camera" in box
    assert "waiting for <Future pending" in box
    assert "run_async" not in box


def test_a_task_that_blocks_its_loop_is_caught_at_it(url: str, db: Db, registry: Registry) -> None:
    released = threading.Event()

    @registry.processor("block", timeout=timedelta(seconds=1))
    async def block(job: Job) -> None:
        released.wait(60)

    with working(url, registry):
        job_id = put(db, "block", max_attempts=1)
        box = box_of(db, job_id)
        released.set()
    assert "it keeps its event loop from everything else" in box
    assert "released.wait(60)" in box


def test_a_deep_stack_is_cut_to_its_innermost_calls(url: str, db: Db, registry: Registry) -> None:
    released = threading.Event()

    def dig(depth: int) -> None:
        if depth:
            dig(depth - 1)
        else:
            released.wait(60)

    registry.processor("dig", timeout=timedelta(seconds=1))(lambda job: dig(400))
    with working(url, registry):
        job_id = put(db, "dig", max_attempts=1)
        box = box_of(db, job_id)
        released.set()
    assert len(box) <= 4000
    assert "released.wait(60)" in box


# --- SQL --------------------------------------------------------------------------------------------------------


@contextmanager
def blocked(url: str, db: Db) -> Iterator[tuple[int, int]]:
    """A backend that waits for a row which another one, idle in its transaction, has locked."""
    job_id = make_job(db)
    with closing(psycopg.connect(url)) as holder, closing(psycopg.connect(url)) as waiter:
        holder.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [job_id])
        update = threading.Thread(
            target=waiter.execute, args=("UPDATE snap_processing_job SET priority = 7 WHERE id = %s", [job_id])
        )
        update.start()
        until_blocking(holder)
        yield waiter.info.backend_pid, holder.info.backend_pid
        holder.rollback()
        update.join(timeout=20)


def test_a_statement_that_waits_is_told_with_what_it_waits_for_and_who_blocks_it(url: str, db: Db) -> None:
    with blocked(url, db) as (waiter, holder):
        told = backends.report(db, [waiter])
    first, statement, by = told.splitlines()
    assert first.startswith(f"backend {waiter} is active for ")
    assert ", waits for Lock: " in first
    assert statement == "  its statement: UPDATE snap_processing_job SET priority = 7 WHERE id = $1"
    assert by.startswith(f"  blocked by backend {holder} (idle in transaction for ")


def test_backends_that_are_gone_are_not_told(db: Db) -> None:
    assert backends.report(db, [2**31 - 1]) == ""
    assert backends.report(db, []) == ""


def test_the_statements_of_a_job_that_takes_too_long_are_in_its_log(url: str, db: Db, registry: Registry) -> None:
    held = make_job(db, kind="held")

    @registry.processor("sql", timeout=timedelta(seconds=2))
    def sql(job: Job) -> None:
        with job.connection() as connection:
            connection.exec_driver_sql("UPDATE snap_processing_job SET priority = 7 WHERE id = %s", (held,))

    with closing(psycopg.connect(url)) as holder:
        holder.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [held])
        pid = holder.info.backend_pid
        with working(url, registry):
            job_id = put(db, "sql", max_attempts=1)
            until(lambda: len(boxes(db, job_id)) == 2)
            stack, told = boxes(db, job_id)
            holder.rollback()
    assert "exec_driver_sql" in stack
    assert f"blocked by backend {pid}" in told


# --- pure -------------------------------------------------------------------------------------------------------


def test_a_box_opens_after_four_fifths_of_the_time(db: Db) -> None:
    job = running_job(db)
    assert late_report.opens_at(job) == float("inf")  # it has not begun
    job.started_at, job.deadline = 100.0, 200.0
    assert late_report.opens_at(job) == 180.0


def test_the_thread_of_the_job_comes_first_in_a_dump() -> None:
    package = os.path.dirname(os.path.dirname(late_report.__file__))  # noqa: PTH120
    dump = (
        'Thread 0x1 (most recent call first):\n  File "lib.py", line 3 in poll\n\n'
        f'Current thread 0x2 (most recent call first):\n  File "cut.py", line 7 in cut\n'
        f'  File "{package}/executors/child.py", line 60 in main\n  File "<frozen runpy>", line 88 in _run_code\n'
    )
    assert late_report.of_dump(dump) == (
        'in its main thread, the innermost call first:\n  File "cut.py", line 7 in cut\n\n'
        'in another thread, the innermost call first:\n  File "lib.py", line 3 in poll\n'
    )

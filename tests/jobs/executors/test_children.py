"""Children under fire: each ends its own attempt only, with its own reason, and leaves nothing behind."""

import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from snapapp.jobs import Failure, Job
from snapapp.jobs.context import Within
from snapapp.jobs.errors import NoPlace
from snapapp.jobs.executors import children, process_group
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.os import processes
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.people import overviews
from tests import ROOT
from tests.factory import Db, hence, row, scalar
from tests.jobs.executors.test_executors import children_of, put, read
from tests.jobs.kinds import crashing
from tests.jobs.working import quick_settings, until, until_status, working
from tests.labs.executors import kinds


def test_a_child_that_lets_go_and_stays_is_ended_and_told_as_such(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a SIGKILL that somebody else has sent."""
    monkeypatch.setattr(children, "_ENDS_IN", 0.2)
    with working(url, crashing.registry):
        dead = until_status(db, put(db, "child.lingers", max_attempts=1), "FAILED")
    assert "the child process let go of its pipes, did not end within 0.2 s and was killed" in dead.last_error


def test_a_flood_of_prints_or_of_words_blocks_nobody(url: str, db: Db) -> None:
    with working(url, kinds.registry):
        for kind in ("process.flood", "process.chatter"):
            assert until_status(db, put(db, kind), "COMPLETED").result == "done"


def test_a_child_is_started_by_the_first_job_that_needs_one(url: str, db: Db) -> None:
    with working(url, crashing.registry, children=2):
        until(lambda: overviews.workers(db))
        assert not children_of(os.getpid())
        until_status(db, put(db, "child.echo"), "COMPLETED")
        assert children_of(os.getpid())


def test_a_child_is_replaced_after_so_many_jobs(url: str, db: Db) -> None:
    """FD16."""
    with working(url, kinds.registry, child_max_jobs=2):
        pids = [until_status(db, put(db, "process.good"), "COMPLETED").result for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


def test_a_child_that_has_grown_is_replaced_between_two_jobs(url: str, db: Db) -> None:
    """FD16."""
    with working(url, kinds.registry, child_max_rss_mb=60):
        small = [until_status(db, put(db, "process.good"), "COMPLETED").result for _ in range(3)]
        big = until_status(db, put(db, "process.fat"), "COMPLETED").result
        after = until_status(db, put(db, "process.good"), "COMPLETED").result
        until(lambda: processes.started(big) is None)
    assert set(small) == {big}
    assert after != big


def test_what_a_job_leaves_running_is_gone_before_the_next_one(url: str, db: Db) -> None:
    with working(url, kinds.registry):
        left_behind = until_status(db, put(db, "process.litter"), "COMPLETED").result
        until_status(db, put(db, "process.good"), "COMPLETED")
        assert processes.started(left_behind) is None


def test_what_a_job_leaves_running_is_seen_also_when_its_own_parent_has_ended(url: str, db: Db) -> None:
    with working(url, crashing.registry):
        child, left_behind = until_status(db, put(db, "child.orphan"), "COMPLETED").result
        assert until_status(db, put(db, "child.echo"), "COMPLETED").result["pid"] != child
        assert processes.started(left_behind) is None


def test_a_child_cannot_be_told_to_come_back_later_than_in_ten_years(url: str, db: Db) -> None:
    with working(url, crashing.registry):
        job_id = put(db, "child.snooze")
        until(lambda: row(db, job_id).next_retry_at > hence(days=3000))
    assert row(db, job_id).next_retry_at < hence(days=3651)
    assert row(db, job_id).status == "PENDING"


def test_nothing_that_a_job_starts_gets_the_childs_own_pipes(url: str, db: Db) -> None:
    with working(url, crashing.registry):
        inherited = until_status(db, put(db, "child.pipes"), "COMPLETED").result
    assert inherited == 4  # the standard three and the folder that it lists


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_program_that_cannot_be_watched_is_ended_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard()
    guard.watch(2**22)  # which opens what it keeps open
    guard.forget(2**22)

    def refuse(pid: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    before = open_files()
    with pytest.raises(OSError, match="too many open files"):
        process_group.Group(["sleep", "600"], guard, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert open_files() == before
    assert not [pid for pid in processes.children("self") if b"sleep" in read(Path(f"/proc/{pid}/cmdline"))]
    assert not guard._line_of
    guard.stop()


@pytest.mark.parametrize("kind", ["process.good", "command.good"])
def test_a_machine_that_starts_no_more_processes_costs_a_job_no_attempt(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def refuse(*_argv: object, **_how: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with working(url, kinds.registry):
        job_id = put(db, kind)
        until(lambda: scalar(db, "SELECT count(*) FROM job_log WHERE job_id = %s", job_id) == 1)
        waiting = until_status(db, job_id, "PENDING")
    assert (waiting.attempt_count, waiting.losses, waiting.errors) == (0, 0, [])
    assert "this machine starts no more processes" in scalar(db, "SELECT message FROM job_log")


@pytest.mark.parametrize("fails_at", range(1, 7))
def test_a_child_that_cannot_be_started_leaves_no_open_file(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, fails_at: int
) -> None:
    guard, made = Guard(), itertools.count(1)
    request.addfinalizer(guard.stop)
    guard.watch(2**22)
    guard.forget(2**22)
    pipe = os.pipe

    def scarce(*_given: object, **_named: object) -> tuple[int, int]:
        if next(made) >= fails_at:
            raise OSError(errno.EMFILE, "too many open files")
        return pipe()

    monkeypatch.setattr(os, "pipe", scarce)
    monkeypatch.setattr(children, "_Pipes", scarce)
    child = children.Child(("tests.jobs.kinds.crashing",), quick_settings("postgresql:///none"), guard, Within())
    before = open_files()
    with pytest.raises(NoPlace, match="too many open files"):
        child.warm_up()
    child.close()
    assert open_files() == before


def test_a_thread_that_a_job_left_behind_does_not_speak_for_the_next_one(url: str, db: Db) -> None:
    with working(url, kinds.registry):
        pid = until_status(db, put(db, "process.whisper"), "COMPLETED").result
        for _ in range(5):
            later = until_status(db, put(db, "process.good"), "COMPLETED")
            assert later.result == pid
            assert not db.execute("SELECT FROM job_log WHERE job_id = %s", [later.id]).fetchall()


def test_a_child_killed_while_it_waits_costs_no_attempt(url: str, db: Db) -> None:
    """FD3."""
    with working(url, kinds.registry):
        for _ in range(5):
            before = until_status(db, put(db, "process.good", max_attempts=1), "COMPLETED")
            os.kill(before.result, signal.SIGKILL)
            after = until_status(db, put(db, "process.good", max_attempts=1), "COMPLETED")
            assert after.result != before.result


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_has_no_connection_of_its_worker(url: str, db: Db) -> None:
    """FD4: two that speak on one connection garble it for both."""
    with working(url, crashing.registry):
        until_status(db, put(db, "child.sockets"), "COMPLETED")
        of_the_worker = crashing.kept(os.getpid())
        assert of_the_worker
        of_the_child = until_status(db, put(db, "child.sockets"), "COMPLETED").result
    assert of_the_worker.isdisjoint(of_the_child)


# After its LISTENs it sends itself a ping. That one may come before a worker that has just begun looks for it, and then
# the worker knows only from its next beat.
IS_LISTENING = """SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()
    AND application_name = 'snapapp listen' AND query LIKE '%%pg_notify%%'"""


def test_a_cancel_kills_the_group_before_the_next_beat(url: str, db: Db) -> None:
    """R37, FD1: how soon is measured by the lab."""
    with working(url, kinds.registry, beat_every=timedelta(minutes=2), lease_for=timedelta(minutes=9)):
        job_id = put(db, "process.brooding")
        pids = said_pids(db, job_id)
        until(lambda: scalar(db, IS_LISTENING))
        lifecycle.cancel(db, job_id)
        until(lambda: not any(map(processes.started, pids)))
        until_status(db, job_id, "CANCELLED")


def test_children_stand_behind_the_web(url: str, db: Db) -> None:
    with working(url, kinds.registry, child_nice=7):
        pid = until_status(db, put(db, "process.good"), "COMPLETED").result
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
        assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "500"


def test_a_worker_killed_at_once_leaves_no_process_behind(url: str, db: Db) -> None:
    """FD2: children, what they started, programs of commands and what those started."""
    parent = subprocess.Popen([sys.executable, "-m", "tests.labs.executors.worker", url], cwd=ROOT)
    try:
        pids = [*said_pids(db, put(db, "process.brooding")), *said_pids(db, put(db, "command.brooding"))]
        pids += processes.children(parent.pid)  # the guard among them
        assert len(set(pids)) >= 5
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not any(map(processes.started, pids)), within=5)


def test_a_guard_that_was_killed_is_replaced_and_told_everything() -> None:
    guard = Guard()
    sleepers = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
    try:
        guard.watch(sleepers[0].pid)
        until(guards)  # a program that has just been started has no name for a moment
        [shell] = guards()
        os.kill(shell, signal.SIGKILL)
        until(lambda: processes.started(shell) is None)
        guard.watch(sleepers[1].pid)
        guard.stop()  # which is how its input ends when we die, too
        assert [sleeper.wait(timeout=10) for sleeper in sleepers] == [-signal.SIGKILL] * 2
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def test_a_guard_forgets_what_has_ended() -> None:
    guard = Guard()
    kept, forgotten = (subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2))
    try:
        for group in (forgotten, kept):
            guard.watch(group.pid)
        guard.forget(forgotten.pid)
        guard.stop()
        assert kept.wait(timeout=10) == -signal.SIGKILL
        assert forgotten.poll() is None
    finally:
        for sleeper in (kept, forgotten):
            sleeper.kill()
            sleeper.wait()


@contextmanager
def forked() -> Iterator[None]:
    """While a process lives on that the application has forked, as multiprocessing does."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # which ends it, also where the tests are killed
        while True:
            signal.pause()
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_guard_notices_our_end_although_a_process_that_was_forked_from_us_lives_on() -> None:
    """A stop waited for that process, and after a kill of the worker its groups lived as long as that process."""
    guard = Guard()
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as sleeper:
        try:
            guard.watch(sleeper.pid)
            with forked():
                threading.Thread(target=guard.stop, daemon=True).start()
                assert sleeper.wait(timeout=10) == -signal.SIGKILL
        finally:
            sleeper.kill()


def test_a_child_runs_its_stop_hooks_although_a_process_that_was_forked_from_us_lives_on(tmp_path: Path) -> None:
    said, guard = tmp_path / "said", Guard()
    settings = quick_settings("postgresql:///none", child_environment={"SAID": str(said)})
    child = children.Child(("tests.jobs.kinds.embedded",), settings, guard, Within())
    child.warm_up()
    with forked():
        child.close()
    guard.stop()
    assert [line.split()[1] for line in said.read_text().splitlines()] == ["start", "stop"]


def test_no_child_starts_while_the_worker_stops(url: str, db: Db) -> None:
    for _ in range(5):
        put(db, "process.good")
        with working(url, kinds.registry, children=2):
            pass
        assert not children_of(os.getpid())


def test_even_an_error_that_hides_its_name_and_its_cause_is_described() -> None:
    """FD12."""

    class Hiding(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise RuntimeError("nobody may know")

    class Hidden(Exception, metaclass=Hiding):
        @property
        def __cause__(self) -> None:  # type: ignore[override]
            raise RuntimeError("nor why")

    failure = Failure.of(Hidden("x" * 100_000_000))
    assert failure.error.startswith("an error without a name: xxx")
    assert len(failure.error) == 4000
    assert failure.trace == "its traceback cannot be read\n"


def said_pids(db: Db, job_id: int) -> list[int]:
    def said() -> list[tuple[str]]:
        return db.execute("SELECT message FROM job_log WHERE job_id = %s", [job_id]).fetchall()

    until(said)
    return [int(word) for word in said()[0][0].split()]


def guards() -> list[int]:
    begins = b"/bin/sh\0-c\0\ntrap"
    return [pid for pid in processes.children("self") if read(Path(f"/proc/{pid}/cmdline")).startswith(begins)]


def test_what_a_child_keeps_is_accounted_to_the_attempt_that_has_started_it(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[frozenset[int]] = []
    used = process_group.Group.used

    def noted(group: process_group.Group, job: Job, seen: int) -> None:
        asked.append(group.kept)
        used(group, job, seen)

    monkeypatch.setattr(process_group.Group, "used", noted)
    with working(url, crashing.registry):
        server = until_status(db, put(db, "child.server"), "COMPLETED").result
    assert asked[0] == {server}

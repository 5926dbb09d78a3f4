"""`snapapp jobs tail`, as people and programs use it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from snapapp.jobs.adding import enqueue_many
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.people.changes import IDS_MAX
from tests.commands import Call
from tests.factory import Db, ago, hence, leased, make_job, make_jobs, move
from tests.jobs.working import until

WITHIN = 20.0
FREE = {"claimed_by": None, "locked_at": None, "lock_expires_at": None}


class Tailing:
    """The command in a process of its own, and what it has said so far."""

    def __init__(self, url: str, folder: Path, *arguments: object) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SNAPAPP_")}
        clean.pop("PYTHONUNBUFFERED", None)  # it must flush by itself
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "snapapp", "jobs", "tail", *map(str, arguments)],
                env=clean | {"SNAPAPP_DATABASE_URL": url},
                stdout=out,
                stderr=err,
            )

    @property
    def lines(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def errors(self) -> str:
        return self._err.read_text()

    @property
    def values(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def hear(self, words: str) -> None:
        until(lambda: any(words in line for line in self.lines) or self._ended(words))

    def end(self) -> int:
        return self.process.wait(WITHIN)

    def _ended(self, words: str) -> bool:
        assert self.process.poll() is None, f"ended without {words!r}: {self.lines} {self.errors}"
        return False


@pytest.fixture
def tail(url: str, tmp_path: Path) -> Iterator[Callable[..., Tailing]]:
    started: list[Tailing] = []

    def begin(*arguments: object) -> Tailing:
        started.append(Tailing(url, tmp_path, *arguments))
        return started[-1]

    yield begin
    for each in started:
        each.process.kill()
        each.process.wait()


def begin_to_run(db: Db, job_id: int) -> None:
    lease = leased()
    move(db, job_id, status="RUNNING", attempt_count=1, **lease)


def complete(db: Db, job_id: int) -> None:
    move(db, job_id, status="COMPLETED", finished_at=ago(), **FREE)


def test_what_happens_is_shown_as_it_happens_until_ctrl_c(db: Db, tail: Callable[..., Tailing]) -> None:
    there = make_job(db, kind="there")
    tailing = tail()
    tailing.hear("there")
    job_id = make_job(db, kind="new")
    tailing.hear("new")
    begin_to_run(db, job_id)
    tailing.hear("claimed")
    move(db, job_id, progress={"percent": 40, "note": "frames"}, started_at=ago(seconds=3))
    tailing.hear("40 % frames")
    move(db, job_id, status="RETRY_WAIT", next_retry_at=hence(hours=5), last_error="no such file", **FREE)
    tailing.hear("no such file")
    lifecycle.cancel(db, job_id)
    tailing.hear("CANCELLED")
    tailing.process.send_signal(signal.SIGINT)
    assert tailing.end() == 130
    assert tailing.errors == ""
    shown = [line.split()[1:4] for line in tailing.lines]
    states = ["PENDING", "RUNNING", "RUNNING", "RETRY_WAIT", "CANCELLED"]
    assert shown == [[str(there), "PENDING", "there"], *([str(job_id), state, "new"] for state in states)]


def test_only_what_matches_is_shown(db: Db, tail: Callable[..., Tailing]) -> None:
    make_job(db, kind="other")
    mine = make_job(db, kind="mine", queue="q", tenant="t")
    tailing = tail("--kind", "mine", "--queue", "q", "--tenant", "t")
    tailing.hear("mine")
    make_job(db, kind="mine")
    begin_to_run(db, mine)
    tailing.hear("claimed")
    assert {line.split()[1] for line in tailing.lines} == {str(mine)}


def test_programs_get_a_json_object_a_line(db: Db, tail: Callable[..., Tailing]) -> None:
    """R49: logs --tail."""
    job_id = make_job(db)
    tailing = tail("--json", job_id)
    tailing.hear("present")
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, E'two\\nlines')", [job_id])
    tailing.hear("two")
    complete(db, job_id)
    assert tailing.end() == 0
    assert [value["what"] for value in tailing.values] == ["present", "log", "completed"]
    assert [value["job"]["status"] for value in tailing.values if "job" in value] == ["PENDING", "COMPLETED"]
    assert tailing.values[1]["log"]["message"] == "two\nlines"
    assert tailing.values[1]["job_id"] == job_id


@pytest.mark.at_length  # jobs that are over already end it below, in every run
@pytest.mark.parametrize(("end", "code"), [("COMPLETED", 0), ("FAILED", 1), ("CANCELLED", 1)])
def test_with_ids_it_ends_when_all_of_them_have(db: Db, tail: Callable[..., Tailing], end: str, code: int) -> None:
    done, last = make_job(db, "COMPLETED"), make_job(db)
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, E'said\\x1b[2J')", [last])
    tailing = tail(done, last)
    tailing.hear("PENDING")
    move(db, last, status=end, finished_at=ago())
    assert tailing.end() == code
    assert "said\\x1b[2J" in "".join(tailing.lines)
    assert tailing.lines[-1].split()[1:3] == [str(last), end]


def test_jobs_that_are_over_already_end_it_at_once(db: Db, tail: Callable[..., Tailing]) -> None:
    assert tail(make_job(db, "COMPLETED")).end() == 0


def test_a_job_that_does_not_exist_is_an_error(tail: Callable[..., Tailing]) -> None:
    tailing = tail(7)
    assert (tailing.end(), tailing.lines, tailing.errors) == (1, [], "snapapp: there is no job 7\n")


@pytest.mark.parametrize(
    "typed", [["0"], ["x"], ["1", "--kind", "test"], [str(number) for number in range(1, IDS_MAX + 2)]]
)
def test_what_cannot_be_watched_is_refused(call: Call, typed: list[str]) -> None:
    answer = call("jobs", "tail", *typed)
    assert (answer.code, answer.out) == (2, "")


def test_a_reader_that_has_gone_ends_it_without_complaint(db: Db, url: str) -> None:
    make_jobs(db, 3)
    with piped(url) as (process, out):
        assert "PENDING" in out.readline()
        out.close()
        until(lambda: make_job(db) and process.poll() is not None)
        assert (process.returncode, process.stderr and process.stderr.read()) == (0, "")


@contextmanager
def piped(url: str) -> Iterator[tuple["subprocess.Popen[str]", Any]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SNAPAPP_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "snapapp", "jobs", "tail"],
        env=clean | {"SNAPAPP_DATABASE_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, process.stdout
    finally:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def test_a_flood_is_counted_and_does_not_stop_it(db: Db, tail: Callable[..., Tailing]) -> None:
    make_job(db)
    tailing = tail()
    tailing.hear("PENDING")
    enqueue_many(db, [{"kind": "flood"}] * 5000)
    until(lambda: "Too many at once" in tailing.errors)
    make_job(db, kind="after")
    tailing.hear("after")

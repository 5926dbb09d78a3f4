"""`snapapp jobs logs`: what a job said, as a file has it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapapp.jobs.cli.jobs import logs
from tests.commands import Call, enqueued
from tests.factory import Db, ago, make_job, move
from tests.running import Running

AT = datetime(2030, 1, 31, 8, 0, 0, 250_000, tzinfo=UTC)
FREE = {"claimed_by": None, "locked_at": None, "lock_expires_at": None}


def say(db: Db, job: int, attempt: int, *messages: str) -> None:
    insert = "INSERT INTO job_log (job_id, attempt, message, at) VALUES (%s, %s, %s, %s)"
    with db.cursor() as cursor:
        cursor.executemany(insert, [(job, attempt, message, AT) for message in messages])


def test_each_attempt_of_a_real_job_can_be_had_as_a_file(call: Call, db: Db, tmp_path: Path) -> None:
    """R25: the rows stay; the file is made of them."""
    job = enqueued(call("jobs", "enqueue", "demo.hello", '{"name": "Ana"}'))
    say(db, job, 7, "of another attempt")
    assert call("worker", "--drain").code == 0
    file = tmp_path / "attempt-1.log"
    assert call("jobs", "logs", job, "--attempt", "1", "-o", file) == (0, "", "")
    kept = db.execute("SELECT message FROM job_log WHERE job_id = %s AND attempt = 1 ORDER BY id", [job]).fetchall()
    assert kept
    assert [line.split(" ", 3)[3] for line in file.read_text().splitlines()] == [message for (message,) in kept]


def test_lines_are_whole_in_order_and_do_not_steer_the_terminal(
    call: Call, db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R25."""
    monkeypatch.setattr(logs, "_PAGE", 2)
    job, other = make_job(db, "COMPLETED"), make_job(db)
    say(db, other, 1, "not ours")
    say(db, job, 1, "one", "two\nand a half", "\x1b[2Jthree")
    say(db, job, 2, "four")
    shown = call("jobs", "logs", job)
    assert shown.out.splitlines() == [
        "2030-01-31T08:00:00.250Z #1 INFO one",
        "2030-01-31T08:00:00.250Z #1 INFO two",
        "    and a half",
        "2030-01-31T08:00:00.250Z #1 INFO \\x1b[2Jthree",
        "2030-01-31T08:00:00.250Z #2 INFO four",
    ]
    assert call("jobs", "logs", job, "--attempt", "2").out == "2030-01-31T08:00:00.250Z #2 INFO four\n"
    told = [json.loads(line) for line in call("jobs", "logs", job, "--json").out.splitlines()]
    assert [(line["attempt"], line["message"]) for line in told][1:3] == [(1, "two\nand a half"), (1, "\x1b[2Jthree")]
    file = tmp_path / "all.log"
    call("jobs", "logs", job, "--output", file)
    assert "\x1b[2Jthree" in file.read_text()


def test_what_cannot_be_done_is_said(call: Call, db: Db, tmp_path: Path) -> None:
    job = make_job(db)
    assert call("jobs", "logs", job) == (0, "", "")
    assert call("jobs", "logs", job + 1).err == f"snapapp: there is no job {job + 1}\n"
    refused = call("jobs", "logs", job, "-o", tmp_path / "nowhere" / "file")
    assert (refused.code, "cannot be written: No such file" in refused.err) == (1, True)
    assert call("jobs", "logs", job, "-o", "file", "--follow").code == 2


@pytest.mark.parametrize(("status", "code"), [("COMPLETED", 0), ("FAILED", 1)])
def test_a_job_is_followed_until_it_is_over(
    url: str, db: Db, run: Callable[..., Running], status: str, code: int
) -> None:
    job = make_job(db, "RUNNING")
    say(db, job, 1, "begun")
    following = run("jobs", "logs", str(job), "--follow", SNAPAPP_DATABASE_URL=url)
    following.hear("INFO begun")
    say(db, job, 1, "half of it")
    following.hear("INFO half of it")
    with db.transaction():
        move(db, job, status=status, finished_at=ago(), **FREE)
        say(db, job, 1, "last words")
    assert following.end() == code
    assert [line.split(" ", 3)[3] for line in following.said().splitlines()] == ["begun", "half of it", "last words"]

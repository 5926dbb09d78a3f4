"""`snapapp fleet …` and `snapapp supervisor`, as people type them."""

from pathlib import Path
from typing import Any

import pytest

from snapapp.jobs.fleet import commands
from snapapp.jobs.fleet.pool import State
from snapapp.jobs.fleet.store import Master
from tests.commands import Call
from tests.factory import Db, scalar
from tests.jobs.fleet import standing
from tests.jobs.fleet.standing import POOL

PLAN = """\
[environments.dev.mail]
max_processes = 4
balance = "auto"
"""


@pytest.fixture
def master(db: Db) -> Master:
    now: dict[str, Any] = {"fixed_at": 2, "wanted": 2, "present": 1, "leaving": 1, "note": "one is starting"}
    return standing.master(db, state=State.PAUSED, state_reason="lunch", **now)


def test_pools_are_listed(call: Call, master: Master) -> None:
    """M62, M63."""
    answer = call("fleet", "list")
    assert (answer.code, answer.err) == (0, "")
    assert f"box   {POOL}  PAUSED  1+1      2!     4   0/0" in answer.out
    assert answer.out.rstrip().endswith("lunch; one is starting")
    [shown] = call("fleet", "list", "--json").json
    assert (shown["pool"], shown["fixed_at"], shown["master"]) == (POOL, 2, "ACTIVE")


def test_an_empty_fleet_says_what_to_do(call: Call) -> None:
    assert call("fleet", "list").out == "No supervisor has been seen; `snapapp supervisor` starts one.\n"
    assert call("fleet", "commands").out == "No supervisor has been told anything yet.\n"
    assert call("fleet", "decisions").out == "No pool has been scaled yet.\n"


def test_a_command_is_sent_and_need_not_be_waited_for(call: Call, db: Db, master: Master) -> None:
    """M32."""
    answer = call("fleet", "scale", POOL, 3, "--reason", "spike", "--no-wait")
    assert (answer.code, answer.out.startswith("box: command 1 waits until ")) == (0, True), answer
    [order] = commands.take(db, "box", master.id)
    assert (order.action, order.pool, order.amount, order.reason, order.source) == ("scale", POOL, 3, "spike", "cli")
    assert scalar(db, "SELECT subject FROM job_audit") == "host box"
    commands.answer(db, order.id, master.id, f"{POOL}: 2 -> 3")
    assert f"scale {POOL} 3  cli  EXECUTED  {POOL}: 2 -> 3" in call("fleet", "commands").out


def test_a_host_that_does_not_answer_is_no_reason_to_wait(call: Call, db: Db, master: Master) -> None:
    """M33, D19."""
    db.execute("UPDATE job_master SET beat_at = now() - interval '9 min', expires_at = now() - interval '8 min'")
    answer = call("fleet", "pause")
    assert (answer.code, answer.out.rstrip().endswith("the host box does not answer: last heard of 9 min ago")) == (
        1,
        True,
    )


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        (["scale", POOL, "many"], 2, "'many' is not a whole number from 0 to 1000"),
        (["scale"], 2, "the following arguments are required: POOL"),
        (["dance"], 2, "invalid choice: 'dance'"),
        (["pause", "nobody's"], 1, "there is no pool nobody's on the host box; there are mail-supervisor"),
        (["restart", "--host", "elsewhere"], 1, "no supervisor has been seen on the host elsewhere; there are box"),
    ],
)
def test_what_cannot_be_done_is_said(call: Call, master: Master, typed: list[str], code: int, said: str) -> None:
    answer = call("fleet", *typed)
    assert (answer.code, said in answer.err) == (code, True), answer


def test_a_plan_is_checked_and_printed_without_a_database(bare_call: Call, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    answer = bare_call("supervisor", "--plan", file, "--check")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"From {file}, environment dev: 1 pool; scaling leaves 200 MB of memory free.")
    assert "\n  max_processes          4 " in answer.out


def test_a_wrong_plan_is_refused_with_every_mistake_and_its_line(bare_call: Call, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN + "nice = 99\nmax_shift = 0\n")
    answer = bare_call("supervisor", "--plan", file, "--check")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.splitlines()[0] == "snapapp: Wrong plan:"
    assert [line.split(": ")[0] for line in answer.err.splitlines()[1:]] == [f"  - {file} line {n}" for n in (4, 5)]


def test_a_plan_without_this_environment_is_refused_in_the_words_of_the_file(bare_call: Call, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN.replace("dev", "prod"))
    answer = bare_call("supervisor", "--plan", file, "--check")
    assert answer.err.splitlines()[1:] == [f"  - {file} line 1: there is no environment 'dev', but prod"]


def test_the_setting_names_the_plan(
    bare_call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SNAPAPP_FLEET_PLAN", str(tmp_path / "missing.toml"))
    answer = bare_call("supervisor", "--check")
    assert answer.code == 1
    assert f"{tmp_path}/missing.toml cannot be read: No such file or directory" in answer.err


def test_a_fleet_that_needs_more_connections_than_there_are_is_refused(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN.replace("4", "1000"))
    answer = call("supervisor", "--plan", file)
    assert (answer.code, "connections and the server allows" in answer.err) == (1, True), answer

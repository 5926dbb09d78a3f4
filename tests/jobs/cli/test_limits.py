"""`snapapp limits …` as people type it."""

import pytest

from tests.commands import Call
from tests.factory import Db, make_jobs


@pytest.mark.parametrize(
    "typed",
    [
        "limits set",
        "limits set camera --max-running 1",
        "limits set key: --max-running 1",
        "limits set key:camera",
        "limits set key:camera --max-running -1",
        "limits set key:camera --max-running 1 --burst 2",
        "limits set key:camera --rate 0",
        "limits set key:camera --rate nan",
        "limits set key:camera --rate 1 --burst 0",
        "limits remove camera",
    ],
)
def test_what_cannot_be_understood_exits_with_2(call: Call, typed: str) -> None:
    answer = call(*typed.split())
    assert (answer.code, answer.out) == (2, "")
    assert "usage: snapapp limits" in answer.err


def test_without_limits_that_is_said(call: Call) -> None:
    assert call("limits", "list").out == "There is no limit.\n"
    assert call("limits", "list", "--json").json == []


def test_a_limit_is_set_listed_changed_and_removed(call: Call, db: Db) -> None:
    """R40, R42: of kinds, too."""
    make_jobs(db, 2, status="RUNNING", concurrency_key="camera:1")
    for pattern in ("kind:snap.process", "kind:*"):
        assert call("limits", "set", pattern, "--max-running", "1").code == 0
        assert call("limits", "remove", pattern).code == 0
    said = call("limits", "set", "key:camera:*", "--max-running", "2").out
    assert said == "The limit key:camera:* holds; what runs goes on.\n"
    call("limits", "set", "queue:mail", "--rate", "0.5", "--burst", "9")
    db.execute("SELECT job_relabel()")  # what a worker does at once
    lines = [line.split() for line in call("limits", "list").out.splitlines()]
    assert lines == [
        ["LIMIT", "AT", "ONCE", "A", "SECOND", "BURST", "RUNNING", "KEYS", "FULL"],
        ["key:camera:*", "2", "2", "1", "1"],
        ["queue:mail", "0.5", "9", "0", "0", "0"],
    ]
    call("limits", "set", "queue:mail", "--max-running", "0")
    [_, mail] = call("limits", "list", "--json").json
    assert (mail["max_running"], mail["rate"], mail["burst"], mail["running"]) == (0, None, None, 0)
    assert call("limits", "remove", "queue:mail", "--json").json == {"pattern": "queue:mail", "removed": True}
    assert len(call("limits", "list", "--json").json) == 1


def test_a_limit_that_is_not_there_is_one_line(call: Call) -> None:
    answer = call("limits", "remove", "key:nothing")
    assert (answer.code, answer.out, answer.err) == (1, "", "snapapp: there is no limit key:nothing\n")

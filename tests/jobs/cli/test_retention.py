"""`snapapp retention …` as people type it."""

import pytest

from tests.commands import Call
from tests.factory import Db


@pytest.mark.parametrize(
    "typed",
    [
        "retention set failed",
        "retention set pending --keep 1d",
        "retention set failed --keep 1d --for-ever",
        "retention set failed --keep soon",
        "retention set failed --for-ever --newest -1",
        "retention set failed --keep 365001d",
        "retention remove",
    ],
)
def test_what_cannot_be_understood_exits_with_2(call: Call, typed: str) -> None:
    answer = call(*typed.split())
    assert (answer.code, answer.out) == (2, "")
    assert "usage: snapapp retention" in answer.err


def test_a_rule_is_set_listed_changed_and_removed(call: Call, db: Db) -> None:
    """W47, M61."""
    assert call("retention", "list").out.startswith("There is no rule")
    assert call("retention", "set", "failed", "--keep", "30d").out.startswith("The rule holds")
    call("retention", "set", "completed", "--kind", "report", "--keep", "1d")
    call("retention", "set", "completed", "--kind", "report", "--for-ever", "--newest", "1000")
    assert [line.split() for line in call("retention", "list").out.splitlines()] == [
        ["KIND", "STATUS", "KEPT", "FOR", "NEWEST"],
        ["(every", "other)", "FAILED", "30", "d"],
        ["report", "COMPLETED", "ever", "1000"],
    ]
    assert call("retention", "list", "--json").json[1] == {
        "kind": "report",
        "status": "COMPLETED",
        "keep": None,
        "newest": 1000,
    }
    assert call("retention", "remove", "failed", "--json").json == {"kind": "", "status": "FAILED"}
    gone = call("retention", "remove", "failed")
    assert (gone.code, gone.err) == (1, "snapapp: there is no rule for FAILED jobs of every kind\n")
    assert db.execute("SELECT count(*) FROM job_retention").fetchone() == (1,)

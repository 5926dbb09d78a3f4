"""`snapapp simulate` as people type it."""

from pathlib import Path

import pytest

from tests.commands import Call
from tests.factory import Db
from tests.jobs.simulation.test_load import STREAM, ended


@pytest.fixture
def described(tmp_path: Path) -> str:
    file = tmp_path / "load.toml"
    file.write_text(STREAM)
    return str(file)


def test_a_table_says_what_each_size_would_do(call: Call, described: str) -> None:
    typed = ("simulate", described, "--processes", "1,4", "--slots", "1", "--goal", "5s", "--price", "2")
    answer = call(*typed)
    head, _, titles, one, four, _, by_kind, _, mail, report = answer.out.splitlines()
    assert head.endswith("cores busy.")
    assert " jobs of 2 kinds in 2 h: on average " in head
    assert titles.split()[:2] + titles.split()[-2:] == ["BOXES", "PROCESSES", "COST", "GOAL"]
    assert (one.split()[-1], four.split()[-1], answer.code) == ("missed", "kept", 0)
    assert by_kind == "By kind, with 4 processes on 1 box:"
    assert (mail.split()[0], report.split()[0]) == ("mail", "report")
    told = call(*typed, "--json").json
    assert [each["keeps_goal"] for each in told["variants"]] == [False, True]
    assert told["variants"][1]["by_kind"]["report"]["jobs"] == 10
    assert told["variants"][0]["waits"]["p99"] > 5 > told["variants"][1]["waits"]["p99"]


def test_a_goal_that_nothing_keeps_is_an_exit_code(call: Call, described: str) -> None:
    assert call("simulate", described, "--processes", "1", "--slots", "1", "--goal", "5s").code == 1
    assert call("simulate", described, "--processes", "1", "--slots", "1").code == 0


def test_what_was_recorded_stands_beside_what_would_be(call: Call, db: Db) -> None:
    for place in range(10):
        ended(db, "mail", due=place, waits=2 * place, runs=3)
    lines = call("simulate", "--processes", "1,2", "--slots", "1", "--cores", "1").out.splitlines()
    assert lines[3].split()[:3] == ["as", "it", "was"]
    told = call("simulate", "--processes", "1", "--slots", "1", "--json").json
    assert told["as_it_was"]["longest"] == pytest.approx(18)
    assert told["variants"][0]["waits"]["longest"] == pytest.approx(18), "one slot is what it was recorded with"
    held = call("simulate", "--processes", "8", "--limit", "kind:mail=1", "--json").json
    assert held["variants"][0]["waits"]["longest"] == pytest.approx(18)


def test_a_plan_of_a_fleet_is_simulated(call: Call, described: str, tmp_path: Path) -> None:
    plan = tmp_path / "fleet.toml"
    plan.write_text(
        '[environments.prod.mail]\nmax_processes = 3\nbalance = "auto"\n'
        "[environments.prod.default]\nmax_processes = 2\n"
    )
    told = call("simulate", described, "--plan", str(plan), "--slots", "1", "--json").json
    [variant] = told["variants"]
    assert variant["never_began"] == 0
    assert 3 < variant["processes"] < 5, "two that are always there, and as many more as mail needs"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("simulate --processes 0", "not a whole number from 1 to 1000"),
        ("simulate --processes 1,", "not a whole number"),
        ("simulate --processes 1 --plan x.toml", "not allowed with"),
        ("simulate --limit report=2", "is not PATTERN=N"),
        ("simulate --limit kind:report", "is not PATTERN=N"),
        ("simulate --cores nan", "is not a number from 0.1"),
        ("simulate --goal soon", "is not a duration"),
    ],
)
def test_what_cannot_be_understood_exits_with_2(call: Call, typed: str, says: str) -> None:
    answer = call(*typed.split())
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err


def test_files_that_are_no_load_are_named(call: Call, tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    (tmp_path / "large.toml").write_bytes(b"#" * 1_048_577)
    for name, says in (("none.toml", "No such file"), ("bytes.toml", "can't decode"), ("large.toml", "larger than")):
        answer = call("simulate", str(tmp_path / name))
        assert answer.code == 1
        assert says in answer.err
        assert "Traceback" not in answer.err
    answer = call("simulate")
    assert (answer.code, answer.err.startswith("snapapp: no job that is still kept has finished")) == (1, True)


def test_more_than_a_machine_can_bear_is_refused_before_it_begins(call: Call, described: str) -> None:
    crowd = call("simulate", described, "--processes", "1000", "--boxes", "11")
    assert (crowd.code, crowd.err) == (1, "snapapp: 11,000 processes are too many to simulate, the most is 10,000\n")
    flood = call("simulate", described, "--grow", "1000")
    assert flood.code == 1
    assert "jobs are too many to simulate, the most is 2,000,000" in flood.err


def test_a_plan_that_is_looked_at_for_ever_is_refused_before_it_begins(call: Call, tmp_path: Path) -> None:
    (tmp_path / "load.toml").write_text("hours = 8784\n[jobs.a]\nevery_s = 1e6\nrun_s = 1\n")
    (tmp_path / "fleet.toml").write_text(
        '[environments.prod.all]\nmin_processes = 1\nmax_processes = 2\nbalance = "auto"\n'
    )
    answer = call("simulate", str(tmp_path / "load.toml"), "--plan", str(tmp_path / "fleet.toml"))
    assert answer.code == 1
    assert "the pools would be looked at 10,540,800 times, the most is 2,000,000" in answer.err

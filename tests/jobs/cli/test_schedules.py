"""`snapapp schedules …` as people type it."""

from datetime import timedelta
from typing import Any

import pytest

from snapapp.jobs import Job, registry
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.roster import Report
from snapapp.jobs.schedules import ledger, views
from snapapp.jobs.schedules.declared import a_schedule
from snapapp.jobs.schedules.ledger import Declaration
from tests.commands import MEMBER, Call
from tests.factory import Db, row, statuses

HOUR = timedelta(hours=1)
MONTH = timedelta(days=30)


def declare(db: Db, name: str = "nightly", **options: Any) -> None:
    """As a worker does that starts."""
    known = Registry()

    @known.scheduled(name=name, **{"cron": "30 2 * * *", "tz": "Europe/Berlin"} | options)
    def work(job: Job) -> None: ...

    roster.beat(db, MEMBER, Report(), lives_for=HOUR)
    [schedule] = known.schedules()
    ledger.declare(db, Declaration(schedule, known.get(name).queue, 3, MEMBER.id))


@pytest.mark.parametrize(
    "typed",
    [
        "schedules nonsense",
        "schedules show",
        "schedules preview",
        "schedules preview nightly --count 0",
        "schedules preview nightly --from 2026-03-28",
        "schedules preview nightly --from tomorrow",
        "schedules pause",
        "schedules run",
    ],
)
def test_what_cannot_be_understood_exits_with_2(call: Call, typed: str) -> None:
    answer = call(*typed.split())
    assert (answer.code, answer.out) == (2, "")
    assert "usage: snapapp schedules" in answer.err


def test_no_schedule_is_said_to_be_there(call: Call) -> None:
    assert call("schedules", "list").out == "No worker has declared a schedule.\n"
    assert call("schedules", "list", "--json").json == []


@pytest.mark.parametrize("act", ["show", "preview", "pause", "resume", "run"])
def test_a_schedule_that_is_not_there_is_one_line(call: Call, act: str) -> None:
    answer = call("schedules", act, "nothing")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("snapapp: there is no schedule nothing")
    assert answer.err.count("\n") == 1


def test_schedules_are_listed_with_their_next_slot(call: Call, db: Db) -> None:
    """R41."""
    declare(db)
    [line] = call("schedules", "list").out.splitlines()[1:]
    assert line.split()[:7] == ["nightly", "30", "2", "*", "*", "*", "Europe/Berlin"]
    assert "none yet" in line
    [it] = call("schedules", "list", "--json").json
    assert (it["name"], it["workers"], it["paused_at"]) == ("nightly", 1, None)
    assert it["next_slot"]


def test_a_schedule_that_nobody_alive_declares_is_shown_so(call: Call, db: Db) -> None:
    declare(db)
    roster.leave(db, MEMBER.id, "done")
    assert "no worker alive declares it: nothing fires" in call("schedules", "list").out
    assert "by no worker that is alive: nothing fires" in call("schedules", "show", "nightly").out


def test_a_preview_crosses_the_night_when_clocks_go_forward(call: Call, db: Db) -> None:
    """FB3."""
    declare(db)
    answer = call("schedules", "preview", "nightly", "--count", 3, "--from", "2026-03-28T00:00:00Z")
    assert [" ".join(line.split()) for line in answer.out.splitlines()] == [
        "IN EUROPE/BERLIN IN UTC NOTE",
        "Sat 2026-03-28 02:30:00 +01:00 2026-03-28 01:30:00",
        "Sun 2026-03-29 03:30:00 +02:00 2026-03-29 01:30:00 02:30 does not exist that day: it runs at 03:30",
        "Mon 2026-03-30 02:30:00 +02:00 2026-03-30 00:30:00",
    ]


def test_a_preview_crosses_the_night_when_clocks_go_back(call: Call, db: Db) -> None:
    """FB3."""
    declare(db)
    slots = call("schedules", "preview", "nightly", "--count", 2, "--from", "2026-10-25T00:00:00Z", "--json").json
    assert slots == [
        {
            "at": "2026-10-25T00:30:00+00:00",
            "local": "2026-10-25T02:30:00+02:00",
            "note": "02:30 comes twice: only the first runs",
        },
        {"at": "2026-10-26T01:30:00+00:00", "local": "2026-10-26T02:30:00+01:00", "note": ""},
    ]


def test_a_preview_has_twenty_slots_from_now_on(call: Call, db: Db) -> None:
    declare(db, "hourly", cron="0 * * * *", tz="UTC")
    assert len(call("schedules", "preview", "hourly").out.splitlines()) == 21


def test_a_schedule_is_paused_with_a_reason_and_resumed(call: Call, db: Db) -> None:
    declare(db)
    assert call("schedules", "pause", "nightly", "--reason", "the printer burns").out.startswith(
        "The schedule nightly is"
    )
    assert "the printer burns" in call("schedules", "list").out
    assert "paused since" in call("schedules", "preview", "nightly").err
    assert call("schedules", "resume", "nightly", "--json").json == {"schedule": "nightly", "paused": False}
    assert views.schedule(db, "nightly").paused_at is None


def test_a_run_is_a_job_now_and_stands_in_the_ledger(call: Call, db: Db) -> None:
    """R41: run now."""
    declare(db, queue="media", payload={"a": 1})
    answer = call("schedules", "run", "nightly")
    [job_id] = statuses(db)
    assert (answer.code, answer.out, answer.err) == (0, f"Job {job_id}\n", "")
    its = row(db, job_id)
    assert (its.kind, its.queue, its.payload["a"], its.payload["schedule"]) == ("nightly", "media", 1, "nightly")
    shown = call("schedules", "show", "nightly").out
    assert f"{job_id} PENDING" in shown
    assert "a person wanted it now" in shown
    [slot] = call("schedules", "show", "nightly", "--json").json["slots"]
    assert (slot["outcome"], slot["job_id"], slot["worker"]) == ("fired", job_id, None)


def test_a_run_that_nobody_would_run_says_so(call: Call, db: Db) -> None:
    declare(db)
    roster.leave(db, MEMBER.id, "done")
    answer = call("schedules", "run", "nightly", "--json")
    assert answer.code == 0
    assert "No worker that is alive declares it" in answer.err


def test_what_is_due_is_fired_once_however_many_do_it(call: Call, db: Db, url: str) -> None:
    """R35, FB5: people by command, beside workers."""
    declare(db, "monthly", cron=None, tz=None, every=MONTH)
    declare(db, "paused", cron=None, tz=None, every=MONTH)
    views.pause(db, "paused", "stocktaking")
    assert call("schedules", "fire").out == "Nothing is due.\n"
    db.execute("UPDATE job_schedule SET settled_until = now() - interval '30 days'")
    [monthly, paused] = ledger.look(db, None, MEMBER.id)
    told = call("schedules", "fire", "--json").json
    late = "no worker was there for it in time"
    assert [(each["schedule"], each["outcome"], each["why"]) for each in told] == [
        ("monthly", "late", late),
        ("paused", "skipped", "paused: stocktaking"),
    ]
    assert row(db, told[0]["job_id"]).kind == "monthly"
    for before in (monthly, paused):  # as a worker has seen them that is a moment too late
        assert ledger.settle_due(db, before, MEMBER.id) == []
    assert call("schedules", "fire").out == "Nothing is due.\n"
    assert len(statuses(db)) == 1
    assert "a person" in call("schedules", "show", "monthly").out


def test_a_fire_says_what_it_fired(call: Call, db: Db) -> None:
    declare(db, "monthly", cron=None, tz=None, every=MONTH)
    db.execute("UPDATE job_schedule SET settled_until = now() - interval '30 days'")
    lines = call("schedules", "fire").out.splitlines()
    assert lines[0].split() == ["SCHEDULE", "SLOT", "BECAME", "JOB", "WHY"]
    assert lines[-1].startswith("monthly ")
    assert str(*statuses(db)) in lines[-1]


def test_what_nobody_declares_any_more_is_left_alone(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """R35: unless the code here does."""
    declare(db, "gone", cron=None, tz=None, every=MONTH)
    db.execute("UPDATE job_schedule SET settled_until = now() - interval '30 days'")
    db.execute("UPDATE job_worker SET expires_at = now()")
    answer = call("schedules", "fire")
    assert (answer.code, answer.out) == (0, "Nothing is due.\n")
    assert answer.err == "gone: no worker that is alive declares it, nor does the code here.\n"
    monkeypatch.setattr(registry.default, "_schedules", {})
    registry.default._schedules["gone"] = a_schedule("gone", None, MONTH, None)
    assert call("schedules", "fire", "--json").json[-1]["schedule"] == "gone"
    assert len(statuses(db)) == 1

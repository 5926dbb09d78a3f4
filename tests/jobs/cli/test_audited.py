"""What is typed stands in the audit: who, what, to what, how many; and not where nothing was done."""

import json
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.commands import Call
from tests.factory import Db, ago, make_job, make_jobs, scalar, statuses


@pytest.fixture(autouse=True)
def ana(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ana")


def deeds(db: Db) -> list[tuple[Any, ...]]:
    """Who and by which door is the same for all of them."""
    assert {tuple(row) for row in db.execute("SELECT who, door FROM job_audit")} <= {("ana", "terminal")}
    rows = db.execute("SELECT action, subject, jobs, detail::text FROM job_audit ORDER BY id").fetchall()
    return [(*row[:3], json.loads(row[3])) for row in rows]


@pytest.mark.parametrize(
    ("verb", "status", "options", "detail"),
    [
        ("retry", "FAILED", (), {}),
        ("now", "RETRY_WAIT", (), {}),
        ("cancel", "PENDING", (), {}),
        ("discard", "FAILED", ("--reason", "of no use"), {"reason": "of no use"}),
    ],
)
def test_each_job_that_was_named_has_its_row_and_a_refused_one_has_none(
    call: Call, db: Db, verb: str, status: str, options: tuple[str, ...], detail: dict[str, Any]
) -> None:
    one, other, refused = make_job(db, status), make_job(db, status), make_job(db, "COMPLETED")
    assert call("jobs", verb, one, other, refused, *options).code == 1
    assert deeds(db) == [(f"job.{verb}", f"job {job_id}", 1, detail) for job_id in (one, other)]
    assert f"job.{verb}" in call("jobs", "show", one).out


@pytest.mark.parametrize(
    ("typed", "status", "detail"),
    [
        ("retry --failed", "FAILED", {}),
        ("cancel --waiting", "PENDING", {}),
        ("discard --failed --reason no", "FAILED", {"reason": "no"}),
        ("replay --ended", "COMPLETED", {}),
    ],
)
def test_all_that_match_are_one_row_with_the_filter(
    call: Call, db: Db, typed: str, status: str, detail: dict[str, Any]
) -> None:
    make_jobs(db, 120, status, kind="mail")
    make_job(db, status, kind="other")
    verb = typed.split()[0]
    call("jobs", *typed.split(), "--kind", "mail", "--yes")
    assert deeds(db) == [(f"jobs.{verb}", "jobs", 120, {"kind": "mail"} | detail)]


def test_all_without_a_filter_are_said_to_be_all(call: Call, db: Db) -> None:
    make_jobs(db, 2, "FAILED")
    call("jobs", "retry", "--failed", "--yes")
    assert deeds(db) == [("jobs.retry", "jobs", 2, {"all": True})]


def test_a_copy_a_sweep_and_a_rescue_stand_there_too(call: Call, db: Db) -> None:
    done = make_job(db, "COMPLETED", created_at=ago(days=40), finished_at=ago(days=35))
    copy = call("jobs", "replay", done, "--json").json["id"]
    make_job(db, "RUNNING", lock_expires_at=ago(hours=1))
    db.execute("SELECT pg_sleep_until(pg_postmaster_start_time() + interval '16 s')")  # its leases are believed then
    call("jobs", "reclaim")
    call("jobs", "reclaim")
    call("jobs", "prune", "--older-than", "30d", "--yes")
    assert deeds(db) == [
        ("job.replay", f"job {done}", 1, {"copy": copy}),
        ("jobs.reclaim", "jobs", 1, {}),
        ("jobs.prune", "jobs", 1, {"olderThanMs": 30 * 86_400_000}),
    ]


def test_switches_rules_and_limits_stand_there(call: Call, db: Db) -> None:
    for typed in (
        "queues pause mail --reason lunch",
        "queues resume mail",
        "limits set kind:mail --max-running 3",
        "limits remove kind:mail",
        "retention set failed --kind mail --keep 1h",
        "retention remove failed --kind mail",
    ):
        assert call(*typed.split()).code == 0
    assert [deed[:2] for deed in deeds(db)] == [
        ("queue.pause", "queue mail"),
        ("queue.resume", "queue mail"),
        ("limit.set", "limit kind:mail"),
        ("limit.remove", "limit kind:mail"),
        ("retention.set", "retention FAILED mail"),
        ("retention.remove", "retention FAILED mail"),
    ]
    assert deeds(db)[0][3] == {"reason": "lunch"}
    assert call("limits", "remove", "kind:mail").code != 0
    assert len(deeds(db)) == 6


def test_what_cannot_be_written_down_is_not_done(call: Call, db: Db) -> None:
    """One transaction: the other way round somebody could act unseen by letting the audit fail."""
    failed, waiting = make_job(db, "FAILED"), make_job(db)
    db.execute("ALTER TABLE job_audit ADD CONSTRAINT closed CHECK (false) NOT VALID")
    try:
        for typed in (
            ("jobs", "retry", failed),
            ("jobs", "replay", failed),
            ("jobs", "cancel", waiting),
            ("jobs", "discard", failed, "--reason", "no"),
            ("jobs", "cancel", "--waiting", "--yes"),
            ("queues", "pause", "mail"),
        ):
            with suppress(psycopg.errors.CheckViolation):
                assert call(*typed).code != 0
    finally:
        db.execute("ALTER TABLE job_audit DROP CONSTRAINT closed")
    assert statuses(db) == {failed: "FAILED", waiting: "PENDING"}
    assert scalar(db, "SELECT count(*) FROM job_queue WHERE paused_at IS NOT NULL") == 0

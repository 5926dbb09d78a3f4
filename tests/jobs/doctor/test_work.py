"""What the doctor finds among workers, jobs, queues and schedules, and what --fix does not dare."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from snapapp.jobs import doctor
from snapapp.jobs.doctor import Severity, work
from snapapp.jobs.os import processes
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import leases
from snapapp.jobs.rows.database import Row
from tests.factory import Db, ago, lease, make_job, row, scalar, statuses
from tests.jobs.doctor.examining import BY, declare, enlist, examine, facts, ids, member, the, until_found
from tests.jobs.working import quick_settings, until, working


def test_no_worker_is_critical_only_while_something_is_due(url: str, db: Db) -> None:
    """Q49."""
    assert the(examine(url, "workers"), "NO_WORKER").severity is Severity.NOTICE
    make_job(db, next_retry_at=ago(seconds=-3600))
    assert the(examine(url, "workers"), "NO_WORKER").severity is Severity.NOTICE
    db.execute(
        "INSERT INTO snap_processing_job (kind, next_retry_at)"
        " SELECT 'a.later', now() + interval '1 day' FROM generate_series(1, 1500)"
    )
    make_job(db)
    assert the(examine(url, "workers"), "NO_WORKER").severity is Severity.CRITICAL
    enlist(db)
    assert ids(examine(url, "workers")) == ["WORKERS"]


def test_a_dead_worker_of_this_machine_is_cleared_away_and_its_jobs_run_again(url: str, db: Db) -> None:
    """R39, W31: whether its lease has ended or not."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = processes.started(process.pid)
        assert started
        dead = member(machine=processes.machine(), pid=process.pid, pid_started=started)
        enlist(db, dead)
        held = make_job(db, "RUNNING", claimed_by=dead.id)
        assert ids(examine(url, "workers")) == ["WORKERS"]
        process.kill()
    found = the(examine(url, "workers"), "WORKER_OVERDUE")
    assert "its process is gone; it holds 1 job." in found.saw
    [deed] = doctor.mend(url, [found], facts(url), BY)
    assert (deed.said, deed.has_worked) == ("Took 1 worker off the roster, and 1 job back.", True)
    assert row(db, held).status == "RETRY_WAIT"
    assert scalar(db, "SELECT reason FROM job_worker_exit") == "lost: its process is gone"
    assert "WORKER_OVERDUE" not in ids(examine(url, "workers"))


def test_a_silent_worker_of_another_machine_is_cleared_away_after_ten_leases_only(url: str, db: Db) -> None:
    """Its jobs are not touched: they come back by their own leases."""
    for worker, silent_for in (("old", timedelta(hours=1)), ("young", timedelta(seconds=1))):
        enlist(db, member(worker))
        move = "UPDATE job_worker SET beat_at = now() - %(for)s, expires_at = now() - %(for)s WHERE id = %(id)s"
        db.execute(move, {"for": silent_for, "id": worker})
    held = make_job(db, "RUNNING", claimed_by="old")
    findings = examine(url, "workers")
    assert ids(findings) == ["WORKER_OVERDUE", "WORKER_OVERDUE", "NO_WORKER"]
    [deed] = doctor.mend(url, findings, facts(url), BY)
    assert deed.said.startswith("Took 1 worker off the roster, and 0 jobs")
    assert db.execute("SELECT id FROM job_worker").fetchall() == [("young",)]
    assert row(db, held).status == "RUNNING"


def test_workers_of_the_same_queues_that_know_different_kinds_are_told(url: str, db: Db) -> None:
    enlist(db, member("a", name="new", kinds=["test", "mail.send"]))
    enlist(db, member("b", name="old"))
    enlist(db, member("c", name="elsewhere", queues=["media"], kinds=[]))
    found = the(examine(url, "workers"), "WORKERS_DIFFER")
    assert found.severity is Severity.NOTICE
    assert found.numbers["lacking"] == {"old": ["mail.send"]}


class Deaf(Runtime):
    """A process behind a pooler that refuses LISTEN."""

    def connect(self, purpose: str) -> psycopg.Connection[Row]:
        if purpose == "listen":
            raise psycopg.OperationalError("LISTEN is not for you")
        return super().connect(purpose)


def test_a_worker_that_does_not_hear_is_told(url: str, db: Db) -> None:
    """FC7, FC8: as it says itself on the roster."""
    runtime = Deaf(quick_settings(url), registry=Registry())
    worker = runtime.worker()
    worker.start()
    try:
        until(lambda: scalar(db, "SELECT count(*) FROM job_worker WHERE note LIKE '%%LISTEN is not proven%%'"))
        assert ids(examine(url, "listen")) == ["LISTEN"]  # it has just started, and may hear in a moment
        db.execute("UPDATE job_worker SET started_at = now() - interval '1 min'")
        assert until_found(url, "listen", "LISTEN_NOT_PROVEN").severity is Severity.NOTICE
    finally:
        worker.stop(grace=timedelta(seconds=1))
        runtime.close()
    with working(url, Registry()):
        until(lambda: ids(examine(url, "listen")) == ["LISTEN"])


def test_kinds_that_nobody_knows_are_told_once_they_are_due_for_a_minute(url: str, db: Db) -> None:
    """R41: they stay where they are."""
    enlist(db, member(kinds=["known"], queues=["default"]))
    make_job(db, kind="known", next_retry_at=ago(minutes=2))
    make_job(db, kind="known", queue="media", next_retry_at=ago(minutes=2))
    make_job(db, kind="young", next_retry_at=ago(seconds=5))
    make_job(db, kind="unknown", next_retry_at=ago(minutes=2))
    make_job(db, kind="suspected", next_retry_at=ago(minutes=2), losses=2, gate="alone")
    make_job(db, kind="paused", queue="paused", next_retry_at=ago(minutes=2))
    db.execute("SELECT pause_queue('paused')")
    found = {finding.numbers["kind"]: finding for finding in examine(url, "kinds")}
    assert {kind: finding.id for kind, finding in found.items()} == {
        "unknown": "KIND_UNKNOWN",
        "suspected": "KIND_UNKNOWN",
        "known": "QUEUE_UNSERVED",
    }
    assert "Jobs of the kind unknown wait in default: 1, the oldest due for 2 min" in found["unknown"].saw


def test_a_job_due_for_long_is_told_however_many_lanes_there_are(url: str, db: Db) -> None:
    """M61, FE1: the oldest of all counts, not the first that is met."""
    enlist(db)
    db.execute("INSERT INTO job_limit VALUES ('key:*', 1)")
    lanes = "INSERT INTO snap_processing_job (kind, concurrency_key) SELECT 'test', 'lane ' || i % 300"
    db.execute(lanes + " FROM generate_series(1, 1500) AS i")
    assert ids(examine(url, "kinds")) == ["KINDS"]
    make_job(db, concurrency_key="lane 7", priority=5, next_retry_at=ago(minutes=20))
    found = the(examine(url, "kinds"), "DUE_FOR_LONG")
    assert (found.numbers["jobs"], round(found.numbers["oldestDueSeconds"] / 60)) == (1001, 20)


def test_what_to_type_about_a_long_wait_asks_the_oldest_whatever_its_status_and_priority(url: str, db: Db) -> None:
    enlist(db)
    make_job(db, priority=-9, next_retry_at=ago(minutes=6))
    oldest = make_job(db, "RETRY_WAIT", next_retry_at=ago(minutes=20))
    make_job(db, priority=9, next_retry_at=ago(minutes=6))
    assert the(examine(url, "kinds"), "DUE_FOR_LONG").paste == f"snapapp jobs explain {oldest}"


def test_a_queue_says_for_itself_what_a_long_wait_is(url: str, db: Db) -> None:
    """M61, M63."""
    enlist(db)
    db.execute("INSERT INTO job_queue (name, long_wait) VALUES ('quick', '2 min'), ('silent', '9 years')")
    for queue, minutes in (("default", 4), ("quick", 3), ("silent", 600)):
        make_job(db, queue=queue, next_retry_at=ago(minutes=minutes))
    assert the(examine(url, "kinds"), "DUE_FOR_LONG").numbers["queue"] == "quick"


def test_a_kind_that_nobody_knows_is_told_behind_any_number_that_a_limit_holds(url: str, db: Db) -> None:
    enlist(db)
    db.execute("INSERT INTO job_limit VALUES ('queue:*', 1)")
    db.execute("INSERT INTO snap_processing_job (kind) SELECT 'test' FROM generate_series(1, 1500)")
    make_job(db, kind="unknown", next_retry_at=ago(minutes=2))
    assert the(examine(url, "kinds"), "KIND_UNKNOWN").numbers["kind"] == "unknown"


def test_stuck_jobs_are_taken_back(url: str, db: Db) -> None:
    """Q23, Q49."""
    stuck = make_job(db, "RUNNING", lock_expires_at=ago(minutes=3))
    make_job(db, "RUNNING")
    found = the(examine(url, "stuck"), "QUEUE_STUCK_JOBS")
    assert (found.numbers["jobs"], found.numbers["oldest"]) == (1, stuck)
    until(lambda: doctor.mend(url, [found], facts(url), BY) and statuses(db)[stuck] == "RETRY_WAIT")
    assert ids(examine(url, "stuck")) == ["STUCK"]


def test_after_a_step_of_the_databases_clock_the_living_are_given_one_beat(url: str, db: Db) -> None:
    """FB1, FC10: as after a restart of the server, all look dead until then."""
    dead, living = member("dead"), member("living")
    lost, held = (make_job(db, "RUNNING", claimed_by=one.id, lock_expires_at=ago(hours=1)) for one in (dead, living))
    for one in (dead, living):
        enlist(db, one)
    db.execute("UPDATE job_worker SET beat_at = now() - interval '1 day', expires_at = now() - interval '1 day'")
    findings = examine(url, "workers", "stuck")
    assert {"WORKER_OVERDUE", "QUEUE_STUCK_JOBS"} <= {*ids(findings)}
    with ThreadPoolExecutor() as beside:
        deeds = beside.submit(doctor.mend, url, findings, facts(url), BY)
        until(lambda: scalar(db, "SELECT count(*) FROM job_audit"))
        enlist(db, living)
        leases.beat(db, [lease(db, held)], [None], timedelta(hours=1))
        assert [deed.said for deed in deeds.result()] == [
            "Took 1 worker off the roster, and 0 jobs back.",
            "Took 1 job back whose lease had ended; it runs again.",
        ]
    assert db.execute("SELECT id FROM job_worker").fetchall() == [("living",)]
    assert (row(db, lost).status, row(db, held).status) == ("RETRY_WAIT", "RUNNING")


def test_a_paused_queue_is_told_with_its_reason_and_stays_paused(url: str, db: Db) -> None:
    """R45, W48."""
    db.execute("SELECT pause_queue('mail', 'the mail server is away')")
    make_job(db, queue="mail")
    found = the(examine(url, "queues"), "QUEUE_PAUSED")
    assert "(the mail server is away); 1 job waits in it" in found.saw
    assert (found.severity, found.can_fix) == (Severity.NOTICE, False)
    assert found.paste == "snapapp queues resume mail"
    db.execute("UPDATE job_queue SET paused_at = now() - interval '2 days'")
    assert the(examine(url, "queues"), "QUEUE_PAUSED").severity is Severity.WARNING
    assert doctor.mend(url, examine(url, "queues"), facts(url), BY) == []


def test_schedules_are_told_that_nobody_declares_or_two_declare_otherwise(url: str, db: Db) -> None:
    old, new = member("a", name="old", kinds=["nightly"]), member("b", name="new", kinds=["nightly"])
    declare(db, old, cron="0 3 * * *")
    assert ids(examine(url, "schedules")) == ["SCHEDULES"]
    declare(db, new, cron="0 4 * * *")
    superseded = the(examine(url, "schedules"), "SCHEDULE_SUPERSEDED")
    assert (superseded.numbers["superseded"], superseded.severity) == (["old"], Severity.NOTICE)
    db.execute("DELETE FROM job_worker")
    gone = the(examine(url, "schedules"), "SCHEDULE_UNDECLARED")
    assert gone.severity is Severity.WARNING
    assert "nightly (0 4 * * *, UTC) does not fire: no worker is alive that has it" in gone.saw
    enlist(db, member("c", name="other", kinds=["mail"]))
    assert "none of the workers alive (other) has it" in the(examine(url, "schedules"), "SCHEDULE_UNDECLARED").saw
    db.execute(gone.paste or "")
    assert ids(examine(url, "schedules")) == ["SCHEDULES"]


def test_a_paused_schedule_is_told_with_its_reason(url: str, db: Db) -> None:
    declare(db, member(kinds=["nightly"]), cron="0 3 * * *")
    db.execute("SELECT pause_schedule('nightly', 'the audit')")
    assert "(the audit)" in the(examine(url, "schedules"), "SCHEDULE_PAUSED").saw


def test_dead_letters_are_told_by_kind_with_the_commonest_error(url: str, db: Db) -> None:
    """Q49."""
    for error in ("KeyError: 'a'\nin line 1", "KeyError: 'a'\nin line 2", "ValueError: b"):
        make_job(db, "FAILED", kind="mail.send", last_error=error)
    make_job(db, "FAILED", kind="old", last_error="oops", finished_at=ago(days=3))
    mail, old = examine(url, "dead")
    assert (mail.numbers["kind"], mail.numbers["jobs"], mail.numbers["mostly"]) == ("mail.send", 3, "KeyError: 'a'")
    assert (mail.severity, old.severity) == (Severity.WARNING, Severity.NOTICE)
    assert mail.paste == "snapapp jobs retry --failed --kind=mail.send"


def test_dead_letters_beyond_those_that_were_counted_are_told(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        make_job(db, "FAILED", kind="mail.send")
    assert "of the kind mail.send: 3, 3 of them since" in the(examine(url, "dead"), "DEAD_LETTERS").saw
    monkeypatch.setattr(work, "_NEWEST_DEAD", 2)
    assert "of the kind mail.send: 2 of the newest 2, 2 of them since" in the(examine(url, "dead"), "DEAD_LETTERS").saw

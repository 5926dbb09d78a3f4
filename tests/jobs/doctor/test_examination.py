"""An examination as a whole: what it says when all is well, when it is not answered, and as a command."""

import os
import signal
import threading
from datetime import timedelta

import psycopg
import pytest

from snapapp.jobs import doctor
from snapapp.jobs.cli import audited
from snapapp.jobs.doctor import CHECKS, Finding, Limits, Severity
from snapapp.jobs.rows.people import audit
from snapapp.postgres.migrate import migrate
from tests import conftest
from tests.commands import NOWHERE, Call
from tests.conftest import embedded_server
from tests.factory import Db, ago, make_job, scalar
from tests.jobs.doctor.examining import enlist, examine, ids, the
from tests.jobs.working import until


@pytest.mark.both_servers_at_length
def test_every_check_says_what_it_saw(url: str) -> None:
    findings = examine(url)
    assert list(dict.fromkeys(finding.check for finding in findings)) == list(CHECKS)
    assert [finding for finding in findings if finding.id in ("CHECK_FAILED", "NOT_VISIBLE")] == []
    assert all(finding.saw.endswith(".") and finding.id for finding in findings)
    assert [each for each in findings if each.severity is not Severity.OK and not (each.why and each.do)] == []


def test_without_a_schema_every_check_still_says_something(empty_url: str) -> None:
    findings = examine(empty_url, schema={"job_version": "0005"})
    assert {*CHECKS} == {finding.check for finding in findings}
    assert the(findings, "SCHEMA_NOT_CURRENT").severity is Severity.CRITICAL
    missing = [finding for finding in findings if finding.id == "CHECK_FAILED"]
    assert {finding.paste for finding in missing} == {"snapapp migrate"}
    assert not doctor.saw_nothing(findings)


def test_a_check_that_is_not_answered_in_time_is_a_finding_and_the_others_go_on(url: str, other: Db) -> None:
    """FC12."""
    with other.transaction():
        other.execute("LOCK TABLE job_queue")
        findings = examine(url, "queues", "dead", limits=Limits(answer_within=timedelta(seconds=1)))
    assert ids(findings) == ["CHECK_FAILED", "DEAD"]
    assert findings[0].saw.startswith("No answer within 1 s: canceling statement due to lock timeout")


def test_a_server_that_falls_silent_in_the_middle_is_cut_off(url: str, db: Db, other: Db) -> None:
    """FC9, FC12: it can then not even keep its own deadline."""
    backend = "SELECT pid FROM pg_stat_activity WHERE application_name = 'snapapp doctor' AND wait_event_type = 'Lock'"
    found: list[Finding] = []
    limits = Limits(answer_within=timedelta(seconds=2))
    examining = threading.Thread(target=lambda: found.extend(examine(url, "queues", "dead", limits=limits)))
    with other.transaction():
        other.execute("LOCK TABLE job_queue")
        examining.start()
        until(lambda: db.execute(backend).fetchall())
        pid = scalar(db, backend)
        os.kill(pid, signal.SIGSTOP)
        try:
            examining.join(timeout=20)
        finally:
            os.kill(pid, signal.SIGCONT)
    assert ids(found) == ["CHECK_FAILED", "DEAD"]
    assert found[0].saw.startswith("No answer within 2 s")


def test_a_database_that_cannot_be_reached_is_an_error(url: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        examine(NOWHERE)


@pytest.mark.timeout(180)
def test_a_fresh_installation_is_well(bare_call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0 with nothing left out: the embedded server as people get it, its settings included."""
    monkeypatch.setattr(conftest, "SETTINGS", {})
    with embedded_server() as url:
        migrate(url)
        monkeypatch.setenv("SNAPAPP_DATABASE_URL", url)
        answer = bare_call("doctor")
    assert (answer.code, answer.err) == (0, ""), answer.out
    assert answer.out.splitlines()[-1].startswith("All is well: ")
    assert "warning" not in answer.out


def test_what_needs_a_person_exits_with_1_and_says_what_to_do(call: Call, db: Db) -> None:
    make_job(db, "RUNNING", claimed_by="w\x1b[2J", lock_expires_at=ago(minutes=3))
    answer = call("doctor", "--only", "stuck,queues")
    assert (answer.code, answer.err) == (1, "")
    first, *_, last = answer.out.splitlines()
    assert first.startswith("warning   stuck: 1 running job has lost the lease")
    assert "\x1b" not in answer.out
    assert "(--fix does it.)" in answer.out
    assert last == "Something needs a person: 1 warning, 1 ok."


@pytest.mark.leaves_nothing
def test_where_nothing_was_looked_at_nothing_is_called_well(call: Call) -> None:
    answer = call("doctor", "--only", "bucket")  # the files are in a folder
    assert (answer.code, answer.out.strip()) == (2, "Nothing was looked at: these checks have nothing to look at here.")


def test_a_fix_is_told_and_what_it_mended_needs_nobody(call: Call, url: str, db: Db) -> None:
    enlist(db)
    db.execute("UPDATE job_worker SET beat_at = now() - interval '1 day', expires_at = now() - interval '1 day'")
    answer = call("doctor", "--fix", "--only", "workers", "--json")
    assert answer.json["deeds"] == [
        {
            "check": "workers",
            "said": "Took 1 worker off the roster, and 0 jobs back.",
            "has_worked": True,
        }
    ]
    assert [finding["id"] for finding in answer.json["findings"]] == ["NO_WORKER"]
    [deed] = audit.deeds(db)
    assert (deed.who, deed.door, deed.action) == (audited.person(), "terminal", "doctor.fix")
    assert (deed.subject, deed.detail) == ("finding WORKER_OVERDUE", {"check": "workers", "findings": 1})
    assert call("doctor", "--fix", "--only", "workers").code == 0
    assert audit.deeds(db) == [deed]  # there was nothing left to do


def test_a_program_reads_every_finding(call: Call, db: Db) -> None:
    db.execute("SELECT pause_queue('mail', 'lunch')")
    said = call("doctor", "--json", "--only", "queues").json
    [finding] = said["findings"]
    assert (said["worst"], said["deeds"]) == ("notice", [])
    assert {*finding} == {"check", "id", "severity", "saw", "numbers", "why", "do", "paste", "can_fix"}
    assert (finding["check"], finding["numbers"]["reason"], finding["can_fix"]) == ("queues", "lunch", False)


def test_who_cannot_look_exits_with_2(bare_call: Call, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("doctor", "--only", "xmin,nonsense").code == 2
    assert call("doctor", "--only", ",").code == 2
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", NOWHERE)
    answer = bare_call("doctor")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("snapapp: The database cannot be reached: ")


def test_a_check_cannot_write(url: str) -> None:
    """Even if somebody adds one that tries."""
    with doctor.consulting(url) as line, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        line.execute("SELECT pause_queue('mail')")


def test_nothing_is_changed_by_looking(url: str, db: Db) -> None:
    """Every check runs in a transaction that can only read."""
    make_job(db, "RUNNING", lock_expires_at=ago(minutes=3))
    before = [db.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES]
    examine(url)
    assert [db.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES] == before


TABLES = ["snap_processing_job", "job_worker", "job_worker_exit", "job_queue", "job_schedule"]

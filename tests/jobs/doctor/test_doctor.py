"""The doctor: every finding provoked for real, what --fix does about it, and what it does not dare."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.types.json import Jsonb

from snapapp.jobs import Job, doctor
from snapapp.jobs.doctor import CHECKS, Finding, House, Limits, Severity
from snapapp.jobs.doctor.server import harmful, skew
from snapapp.jobs.os import processes
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.database import Row
from snapapp.jobs.rows.roster import Member, Report
from snapapp.jobs.schedules import ledger
from snapapp.jobs.schedules.ledger import Declaration
from snapapp.postgres.migrate import migrate
from tests import conftest
from tests.commands import NOWHERE, Call
from tests.conftest import OLDEST, PROGRAMS, embedded_server, system_server
from tests.factory import Db, ago, make_job, row, scalar, statuses
from tests.jobs.working import quick_settings, until, working

DAY = timedelta(days=1)
AT_ONCE = timedelta(0)


def house(url: str, **changes: Any) -> House:
    known: dict[str, Any] = {"connections": 10, "disk_free_min_mb": 0, "schema": {}}
    return House(jobs=quick_settings(url), **known | changes)


def examine(url: str, *only: str, limits: Limits | None = None, **changes: Any) -> list[Finding]:
    return doctor.examine(url, house(url, **changes), only=only, limits=limits)


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id for finding in findings]


def the(findings: list[Finding], wanted: str) -> Finding:
    found = [finding for finding in findings if finding.id == wanted]
    assert len(found) == 1, findings
    return found[0]


def until_found(url: str, check: str, wanted: str, **options: Any) -> Finding:
    """Numbers that the server gathers beside the work come a moment later."""
    until(lambda: wanted in ids(examine(url, check, **options)))
    return the(examine(url, check, **options), wanted)


def member(worker: str = "a" * 32, **changes: Any) -> Member:
    """A worker of another machine, unless it is said otherwise."""
    known: dict[str, Any] = {"name": "box-1", "host": "box", "machine": "boot", "pid": 1, "pid_started": 1}
    known |= {"queues": [], "kinds": ["test"], "slots": 4}
    return Member(id=worker, **known | changes)


def enlist(db: Db, who: Member | None = None) -> None:
    roster.beat(db, who or member(), Report(), lives_for=timedelta(hours=1))


# --- the examination --------------------------------------------------------------------------------------------


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
        findings = examine(url, "queues", "dead", limits=Limits(answer_within=timedelta(milliseconds=200)))
    assert ids(findings) == ["CHECK_FAILED", "DEAD"]
    assert findings[0].saw.startswith("No answer within 0.2 s: canceling statement due to lock timeout")


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


# --- the horizon and locks --------------------------------------------------------------------------------------


@contextmanager
def transaction(url: str, name: str = "forgotten") -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(url, application_name=name)) as connection:
        yield connection


@pytest.mark.both_servers_at_length
@pytest.mark.parametrize("held_by", ["its snapshot", "having written"])
def test_an_idle_transaction_that_pins_xmin_is_named_at_once(url: str, held_by: str) -> None:
    """FC1."""
    with transaction(url) as idle:
        if held_by == "its snapshot":
            idle.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            idle.execute("SELECT count(*) FROM snap_processing_job")
        else:
            idle.execute("INSERT INTO job_queue (name) VALUES ('mail')")
        pid = idle.info.backend_pid
        young = until_found(url, "xmin", "XMIN_HELD")
        old = the(examine(url, "xmin", limits=Limits(xmin_idle=AT_ONCE)), "XMIN_HELD")
    assert (young.severity, old.severity) == (Severity.NOTICE, Severity.WARNING)
    assert f"pid {pid} (forgotten, role postgres)" in old.saw
    assert "idle in transaction" in old.saw
    assert old.paste == f"SELECT pg_terminate_backend({pid});"
    assert (old.numbers["pid"], old.can_fix) == (pid, False)
    assert ids(examine(url, "xmin")) == ["XMIN"]


def sleep(busy: psycopg.Connection[Any]) -> None:
    with suppress(psycopg.errors.QueryCanceled):
        busy.execute("SELECT pg_sleep(60)")


def test_a_statement_that_runs_for_long_is_named_too(url: str, db: Db) -> None:
    """FC1."""
    with transaction(url, "report") as busy:
        pid = busy.info.backend_pid
        running = threading.Thread(target=sleep, args=[busy])
        running.start()
        found = until_found(url, "xmin", "XMIN_HELD", limits=Limits(xmin_noticed=AT_ONCE, xmin_held=AT_ONCE))
        db.execute("SELECT pg_cancel_backend(%s)", [pid])
        running.join()
    assert (found.numbers["pid"], found.severity) == (pid, Severity.WARNING)
    assert "SELECT pg_sleep(60)" in found.saw


@pytest.fixture
def plain_url(url: str, db: Db) -> Iterator[str]:
    """The same database for a role that may read our tables and sees nothing of others."""
    db.execute("CREATE ROLE plain LOGIN")
    db.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain")
    yield sqlalchemy.make_url(url).set(username="plain").render_as_string(hide_password=False)
    db.execute("DROP OWNED BY plain")
    db.execute("DROP ROLE plain")


@pytest.mark.both_servers_at_length
def test_a_role_that_may_not_look_into_others_is_told_so(url: str, plain_url: str) -> None:
    with transaction(url) as idle:
        idle.execute("INSERT INTO job_queue (name) VALUES ('mail')")
        findings = examine(plain_url)
        held = the(findings, "XMIN_HELD")
        assert held.numbers["pid"] == idle.info.backend_pid
    assert "this role may not see (GRANT pg_monitor shows it)" in held.saw
    assert "CHECK_FAILED" not in ids(findings)
    hidden = the(findings, "DISK_HIDDEN")
    assert hidden.severity is Severity.NOTICE
    assert "pg_monitor" in (hidden.paste or "")


@pytest.mark.both_servers_at_length
def test_who_waits_for_a_lock_and_who_holds_it_are_named(url: str, db: Db) -> None:
    job_id = make_job(db)
    update = "UPDATE snap_processing_job SET priority = 1 WHERE id = %s"
    with transaction(url, "holder") as holder, transaction(url, "waiter") as waiter:
        holder.execute(update, [job_id])
        waiting = threading.Thread(target=waiter.execute, args=[update, [job_id]])
        waiting.start()
        found = until_found(url, "locks", "LOCK_WAITED_FOR", limits=Limits(lock_waited=AT_ONCE))
        pids = (waiter.info.backend_pid, holder.info.backend_pid)
        holder.rollback()
        waiting.join()
    assert found.numbers["pid"] == pids[0]
    assert found.numbers["blockedBy"] == [pids[1]]
    assert f"pid {pids[1]} (holder, idle in transaction" in found.saw
    assert "snap_processing_job" in found.numbers["tables"]
    assert ids(examine(url, "locks")) == ["LOCKS"]


def test_a_lock_on_somebody_elses_table_is_no_affair_of_ours(url: str, db: Db) -> None:
    db.execute("CREATE TABLE theirs ()")
    with transaction(url) as holder, transaction(url) as waiter:
        holder.execute("LOCK TABLE theirs")
        waiting = threading.Thread(target=waiter.execute, args=["LOCK TABLE theirs"])
        waiting.start()
        until(lambda: scalar(db, "SELECT count(*) FROM pg_locks WHERE NOT granted"))
        assert ids(examine(url, "locks", limits=Limits(lock_waited=AT_ONCE))) == ["LOCKS"]
        holder.rollback()
        waiting.join()


@pytest.fixture(scope="module")
def equipped_url() -> Iterator[str]:
    """A server with what ours do not have: prepared transactions, replication slots, counted statements."""
    if not OLDEST:
        pytest.skip("there is no PostgreSQL below /usr/lib/postgresql")
    equipment = {"max_prepared_transactions": "2", "wal_level": "replica", "max_wal_senders": "1"}
    equipment |= {"shared_preload_libraries": "pg_stat_statements"}
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:  # over once it has started: the embedded one may start later
            for name, value in equipment.items():
                patch.setitem(conftest.SETTINGS, name, value)
            url = stack.enter_context(system_server(PROGRAMS[OLDEST]))
        migrate(url)
        yield url


def test_a_prepared_transaction_that_was_forgotten_is_named(equipped_url: str) -> None:
    """FC1."""
    with closing(psycopg.connect(equipped_url)) as manager:
        manager.execute("INSERT INTO job_queue (name) VALUES ('mail')")
        manager.execute("PREPARE TRANSACTION 'it''s mine'")
    found = the(examine(equipped_url, "xmin", limits=Limits(xmin_idle=AT_ONCE)), "XMIN_PREPARED")
    assert found.severity is Severity.WARNING
    assert found.paste == "ROLLBACK PREPARED 'it''s mine';"
    with closing(psycopg.connect(equipped_url, autocommit=True)) as db:
        db.execute(found.paste)
    assert ids(examine(equipped_url, "xmin")) == ["XMIN"]


def test_a_replication_slot_that_nobody_reads_is_named(equipped_url: str) -> None:
    """FC16: it keeps WAL until the disk is full."""
    with closing(psycopg.connect(equipped_url, autocommit=True)) as db:
        db.execute("SELECT pg_create_physical_replication_slot('left', true)")
        try:
            assert ids(examine(equipped_url, "xmin")) == ["XMIN"]
            found = the(examine(equipped_url, "xmin", limits=Limits(wal_kept=0)), "XMIN_SLOT")
        finally:
            db.execute("SELECT pg_drop_replication_slot('left')")
    assert found.paste == "SELECT pg_drop_replication_slot('left');"
    assert "which nobody reads" in found.saw


def test_statements_a_minute_are_told_where_somebody_counts_them(equipped_url: str, url: str) -> None:
    with closing(psycopg.connect(equipped_url, autocommit=True)) as db:
        assert "is not there" in the(examine(equipped_url, "cost"), "COST_UNKNOWN").saw
        db.execute("CREATE EXTENSION pg_stat_statements VERSION '1.8'")  # as an upgrade of the server leaves it
        old = the(examine(equipped_url, "cost"), "COST_UNKNOWN")
        assert "older than 1.9" in old.saw
        db.execute(str(old.paste).encode())
        assert the(examine(equipped_url, "cost"), "COST").numbers["statementsPerMinute"] > 0
    assert ids(examine(url, "cost")) == ["COST_UNKNOWN"]


# --- tables and indexes -----------------------------------------------------------------------------------------


# On connections of their own: a backend tells the server's statistics all that it did when it ends.


def fill(url: str, rows: int) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as db:
        lines = "INSERT INTO job_log (job_id, attempt, message) SELECT i, 1, 'x' FROM generate_series(1, %s) AS i"
        db.execute(lines, [rows])


def empty(url: str) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as db:
        db.execute("DELETE FROM job_log")


@pytest.mark.both_servers_at_length
def test_dead_tuples_are_counted_and_swept(url: str, db: Db) -> None:
    """FC1: autovacuum is off, so that it does not get there first."""
    db.execute("ALTER TABLE job_log SET (autovacuum_enabled = false)")
    fill(url, 20_000)
    empty(url)
    dead = until_found(url, "tables", "DEAD_TUPLES")
    assert dead.numbers["deadTuples"] == 20_000
    assert "no autovacuum comes" in dead.saw
    findings = examine(url, "tables")
    assert (the(findings, "AUTOVACUUM_OFF").can_fix, dead.can_fix) == (False, True)
    deeds = doctor.mend(url, findings, house(url))
    assert "Swept and analyzed job_log." in [deed.said for deed in deeds]
    after = examine(url, "tables")
    assert "DEAD_TUPLES" not in ids(after)
    assert "AUTOVACUUM_OFF" in ids(after)


@pytest.mark.both_servers_at_length
def test_a_table_that_was_filled_and_never_analyzed_is_analyzed(url: str, db: Db) -> None:
    """FC3."""
    db.execute("ALTER TABLE job_log SET (autovacuum_enabled = false)")
    fill(url, 11_000)
    found = until_found(url, "tables", "NOT_ANALYZED")
    assert "job_log was analyzed never; 11,000 rows have changed since" in found.saw
    assert [deed.said for deed in doctor.mend(url, [found], house(url))] == ["Analyzed job_log."]
    assert "NOT_ANALYZED" not in ids(examine(url, "tables"))


def test_the_next_autovacuum_of_the_jobs_is_told(url: str, db: Db) -> None:
    """It is the table's own settings that count: 1,000 and 2 %, where the server has 50 and 20 %."""
    db.execute("INSERT INTO snap_processing_job (kind) SELECT 'test' FROM generate_series(1, 10000)")
    db.execute("ANALYZE snap_processing_job")
    [jobs, *_] = examine(url, "tables")
    assert (jobs.numbers["table"], jobs.numbers["autovacuumAt"]) == ("snap_processing_job", 1200)


def test_an_index_that_guards_nothing_is_critical(url: str, db: Db) -> None:
    """FC19."""
    make_job(db, unique_key="a", unique_scope="ever")
    make_job(db)
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute("CREATE UNIQUE INDEX CONCURRENTLY once ON snap_processing_job (kind)")
    found = the(examine(url, "indexes"), "INDEX_INVALID")
    assert (found.severity, found.paste) == (Severity.CRITICAL, "REINDEX INDEX CONCURRENTLY once;")
    broken = the(examine(url, "invariants"), "INVARIANT_BROKEN")
    assert "the unique index once is not valid" in broken.saw


def test_an_index_much_larger_than_its_entries_is_told(url: str, db: Db) -> None:
    """FC23."""
    fill(url, 5_000)
    empty(url)
    db.execute("VACUUM job_log")
    found = [each for each in examine(url, "indexes", limits=Limits(index_bytes=50_000)) if each.id == "INDEX_BLOAT"]
    assert [each.numbers["index"] for each in found] == ["job_log_pkey"]
    assert ids(examine(url, "indexes")) == ["INDEXES"]


# --- the server -------------------------------------------------------------------------------------------------


@pytest.mark.both_servers_at_length
def test_settings_that_hurt_are_named_with_the_better_value(url: str, db: Db) -> None:
    """The tests' servers run without fsync; the others are set for this database."""
    name = db.info.dbname
    for setting in ("synchronous_commit = off", "jit = on", "idle_in_transaction_session_timeout = 0"):
        db.execute(f"ALTER DATABASE {name} SET {setting}")
    found = {finding.id: finding for finding in examine(url, "settings")}
    assert found["SETTING_FSYNC"].severity is Severity.CRITICAL
    assert found["SETTING_FULL_PAGE_WRITES"].severity is Severity.CRITICAL
    assert found["SETTING_SYNCHRONOUS_COMMIT"].severity is Severity.WARNING
    assert found["SETTING_JIT"].severity is Severity.NOTICE
    assert found["SETTING_IDLE_IN_TRANSACTION_SESSION_TIMEOUT"].severity is Severity.NOTICE
    assert found["SETTING_FSYNC"].paste == "ALTER SYSTEM SET fsync = 'on'; SELECT pg_reload_conf();"
    assert not any(finding.can_fix for finding in found.values())


WELL = {"server_version": "18.1", "server_version_num": "180001", "shared_buffers": "16384", "max_connections": "60"}


@pytest.mark.parametrize(
    ("changes", "database", "wanted"),
    [
        ({}, 0, []),
        ({"server_version": "13.9", "server_version_num": "130009"}, 0, ["SERVER_TOO_OLD"]),
        ({"autovacuum": "off", "track_counts": "off"}, 0, ["SETTING_AUTOVACUUM", "SETTING_TRACK_COUNTS"]),
        ({}, 2**31, ["SETTING_SHARED_BUFFERS"]),
        ({"shared_buffers": "65536"}, 2**31, []),
        ({"max_connections": "1000"}, 0, ["SETTING_MAX_CONNECTIONS"]),
    ],
)
def test_what_cannot_be_set_in_a_test_is_judged_all_the_same(
    changes: dict[str, str], database: int, wanted: list[str]
) -> None:
    assert ids(list(harmful(WELL | changes, database, Limits()))) == wanted


def test_connections_are_counted_against_those_allowed(url: str, db: Db) -> None:
    """FC11."""
    fine = the(examine(url, "connections"), "CONNECTIONS")
    assert fine.numbers["allowed"] == 57
    assert fine.numbers["used"] >= 2
    short = the(examine(url, "connections", limits=Limits(connections_used=0.01)), "CONNECTIONS_SHORT")
    assert short.severity is Severity.WARNING
    enlist(db)
    budget = the(examine(url, "connections", connections=58), "CONNECTION_BUDGET")
    assert budget.numbers["workersNeed"] == 58


@pytest.mark.parametrize(
    ("ahead", "wanted", "said"),
    [
        (0.5, Severity.OK, "agree: +0.500 s"),
        (-1.2, Severity.OK, "agree"),
        (-2.0, Severity.NOTICE, "2 s behind this host's"),
        (3600.0, Severity.WARNING, "60 min ahead of this host's"),
    ],
)
def test_a_clock_that_is_wrong_is_told_as_far_as_the_way_there_allows(
    ahead: float, wanted: Severity, said: str
) -> None:
    """FB1: nothing of the queue depends on it."""
    found = skew(ahead, 0.3, Limits())
    assert found.severity is wanted
    assert said in found.saw


def test_the_clock_of_this_very_host_is_right(url: str) -> None:
    found = the(examine(url, "clock"), "CLOCK")
    assert abs(found.numbers["aheadSeconds"]) < 0.5


def test_a_disk_below_the_floor_is_critical(url: str) -> None:
    """FC16."""
    assert the(examine(url, "disk"), "DISK").numbers["freeMb"] > 0
    low = the(examine(url, "disk", disk_free_min_mb=2**40), "DISK_LOW")
    assert (low.severity, low.can_fix) == (Severity.CRITICAL, False)


def test_transaction_numbers_that_run_out_are_critical(url: str) -> None:
    assert ids(examine(url, "numbers")) == ["TRANSACTION_NUMBERS"]
    short = the(examine(url, "numbers", limits=Limits(transactions_left=2_000_000_000)), "TRANSACTION_NUMBERS_SHORT")
    assert short.severity is Severity.CRITICAL


def test_a_schema_that_is_not_the_codes_is_critical(url: str, db: Db) -> None:
    revision = scalar(db, "SELECT version_num FROM job_version")
    assert ids(examine(url, "schema", schema={"job_version": revision})) == ["SCHEMA"]
    assert the(examine(url, "schema", schema={"job_version": "9999"}), "SCHEMA_NOT_CURRENT").paste == "snapapp migrate"


# --- workers ----------------------------------------------------------------------------------------------------


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
    assert "its process is gone; it holds 1 jobs" in found.saw
    [deed] = doctor.mend(url, [found], house(url))
    assert (deed.said, deed.has_worked) == ("Took 1 workers off the roster and 1 jobs back that they held.", True)
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
    [deed] = doctor.mend(url, findings, house(url))
    assert deed.said.startswith("Took 1 workers off the roster and 0 jobs")
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


def test_a_worker_that_does_not_hear_is_told(url: str) -> None:
    """FC7, FC8: as it says itself on the roster."""
    runtime = Deaf(quick_settings(url), registry=Registry())
    worker = runtime.worker()
    worker.start()
    try:
        assert until_found(url, "listen", "LISTEN_NOT_PROVEN").severity is Severity.NOTICE
    finally:
        worker.stop(grace=timedelta(seconds=1))
        runtime.close()
    with working(url, Registry()):
        until(lambda: ids(examine(url, "listen")) == ["LISTEN"])


# --- the work ---------------------------------------------------------------------------------------------------


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
    until(lambda: doctor.mend(url, [found], house(url)) and statuses(db)[stuck] == "RETRY_WAIT")
    assert ids(examine(url, "stuck")) == ["STUCK"]


def test_no_job_is_taken_back_from_holders_that_a_fresh_server_has_not_heard_yet(url: str, db: Db) -> None:
    """FC10: they get one beat; here one is longer than the server has been up."""
    stuck = make_job(db, "RUNNING", lock_expires_at=ago(minutes=3))
    patient = quick_settings(url, beat_every=timedelta(days=1), lease_for=timedelta(days=4))
    [deed] = doctor.mend(url, examine(url, "stuck"), replace(house(url), jobs=patient))
    assert deed.said == "Took no job back: others did so meanwhile, or the server has just started."
    assert row(db, stuck).status == "RUNNING"


def test_a_paused_queue_is_told_with_its_reason_and_stays_paused(url: str, db: Db) -> None:
    """R45, W48."""
    db.execute("SELECT pause_queue('mail', 'the mail server is away')")
    make_job(db, queue="mail")
    found = the(examine(url, "queues"), "QUEUE_PAUSED")
    assert "(the mail server is away); 1 jobs wait in it" in found.saw
    assert (found.severity, found.can_fix) == (Severity.NOTICE, False)
    assert found.paste == "snapapp queues resume mail"
    db.execute("UPDATE job_queue SET paused_at = now() - interval '2 days'")
    assert the(examine(url, "queues"), "QUEUE_PAUSED").severity is Severity.WARNING
    assert doctor.mend(url, examine(url, "queues"), house(url)) == []


def declare(db: Db, who: Member, **options: Any) -> None:
    """As a worker does that started an hour ago."""
    known = Registry()

    @known.scheduled(name="nightly", **options)
    def work(job: Job) -> None: ...

    enlist(db, who)
    db.execute("UPDATE job_worker SET started_at = now() - interval '1 hour' WHERE id = %s", [who.id])
    [schedule] = known.schedules()
    ledger.declare(db, Declaration(schedule, "default", 3, who.id))


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
    assert "nightly (0 4 * * *, UTC)" in gone.saw
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
    assert mail.paste == "snapapp jobs retry --failed --kind mail.send"


# --- what must never be -----------------------------------------------------------------------------------------

UNTOUCHED: dict[str, Any] = {"lease_seq": 2, "attempt_count": 1}
BROKEN: list[tuple[str, str, dict[str, Any], str]] = [
    ("I3", "PENDING", {"cancel_requested_at": ago(minutes=1)}, "it waits though somebody cancelled it"),
    ("I3", "COMPLETED", UNTOUCHED | {"losses": 1}, "it is COMPLETED and still counts losses"),
    ("I3", "COMPLETED", UNTOUCHED | {"started_at": ago(minutes=-600)}, "it ended before it began"),
    ("I4", "RUNNING", {"lease_seq": 1, "attempt_count": 2}, "it runs its attempt 2 under lease 1"),
    ("I4", "COMPLETED", {"lease_seq": 1, "attempt_count": 1}, "nobody held it"),
    ("I4", "COMPLETED", {"lease_seq": 2, "attempt_count": 0}, "nobody held it"),
    ("I7", "RETRY_WAIT", {"lease_seq": 9, "attempt_count": 4}, "it is RETRY_WAIT with 4 of 3 attempts"),
    ("I7", "RUNNING", {"lease_seq": 9, "attempt_count": 5}, "it is RUNNING with 5 of 3 attempts"),
    ("I7", "FAILED", UNTOUCHED, "it is a dead letter without a reason"),
    ("I8", "RUNNING", {"started_at": ago(minutes=5), "next_retry_at": ago(minutes=1)}, "it began before it was due"),
    ("I9", "CANCELLED", UNTOUCHED | {"result": Jsonb(1)}, "it is CANCELLED and has a result"),
]


@pytest.mark.both_servers_at_length
@pytest.mark.parametrize(("invariant", "status", "columns", "what"), BROKEN)
def test_a_row_that_must_not_be_is_named(
    url: str, db: Db, invariant: str, status: str, columns: dict[str, Any], what: str
) -> None:
    """No CHECK can say it, or it would say no to what is on its way."""
    job_id = make_job(db, status, **columns)
    [(named, subject, said)] = db.execute("SELECT * FROM queue_invariants").fetchall()
    assert (named, subject) == (invariant, job_id)
    assert what in said
    found = the(examine(url, "invariants"), "INVARIANT_BROKEN")
    assert (found.severity, found.paste) == (Severity.CRITICAL, f"snapapp jobs show {job_id}")


@pytest.mark.both_servers_at_length
def test_what_surrounds_the_jobs_must_hold_too(url: str, db: Db) -> None:
    declare(db, member("a", kinds=["nightly"], pid_started=1), cron="0 3 * * *")
    enlist(db, member("b", kinds=["nightly"], pid_started=2))
    db.execute("UPDATE job_worker SET started_at = now() - interval '30 minutes' WHERE id = 'b'")
    nightly, test = make_job(db, kind="nightly"), make_job(db)
    fire = "INSERT INTO job_schedule_slot (schedule, slot, outcome, job_id, worker)"
    fire += " VALUES ('nightly', %s, 'fired', %s, %s)"
    for minutes, job_id in ((3, nightly), (2, nightly), (1, test)):
        db.execute(fire, [ago(minutes=minutes), job_id, None])
    db.execute("UPDATE job_schedule SET settled_until = now() - interval '1 hour'")
    ahead = make_job(db, kind="nightly")
    db.execute(fire, [ago(seconds=1), ahead, "a"])
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (4711, 1, 'hello'), (4711, 1, 'again')")
    db.execute("ALTER TABLE snap_processing_job DISABLE TRIGGER job_after_insert")
    wanted = [
        ("I10", None, "the workers a and b say they are process 1 of one machine"),
        ("I10", 4711, "there are lines in job_log of a job that is not there"),
        ("I13", nightly, "it is the job of 2 slots, of nightly"),
        ("I13", test, "has a job of the kind test"),
        ("I13", ahead, "of nightly was fired ahead of settled_until"),
        ("I3", None, "the trigger job_after_insert is disabled"),
    ]
    found = sorted(invariants(db), key=lambda broken: (broken[0], broken[1] or 0))
    assert [broken[:2] for broken in found] == [broken[:2] for broken in wanted]
    assert all(said in broken[2] for broken, (_, _, said) in zip(found, wanted, strict=True))


def invariants(db: Db) -> list[tuple[Any, ...]]:
    return db.execute("SELECT invariant, job_id, what FROM queue_invariants").fetchall()


@pytest.mark.both_servers_at_length
def test_an_honest_life_breaks_no_invariant(url: str, db: Db) -> None:
    """Claimed, failed, retried, cancelled, recovered, completed, fired: looked at after each step."""
    registry = Registry()

    @registry.processor("good")
    def good(job: Job) -> str:
        job.log("here")
        return "done"

    @registry.processor("bad", max_attempts=2)
    def bad(job: Job) -> None:
        raise ValueError("bad")

    @registry.scheduled(name="often", every=timedelta(seconds=1), missed="all")
    def often(job: Job) -> None: ...

    good_ones = [make_job(db, kind="good") for _ in range(50)]
    bad_ones = [make_job(db, kind="bad", max_attempts=2) for _ in range(5)]
    lost = make_job(db, "RUNNING", kind="good", lock_expires_at=ago(minutes=1))
    with working(url, registry):
        until(lambda: {statuses(db)[job_id] for job_id in [*good_ones, lost]} == {"COMPLETED"} and not invariants(db))
        until(lambda: {statuses(db)[job_id] for job_id in bad_ones} == {"FAILED"} and not invariants(db))
        until(lambda: scalar(db, "SELECT count(*) FROM job_schedule_slot WHERE job_id IS NOT NULL") > 1)
        db.execute("SELECT retry_job(%s)", [bad_ones[0]])
        db.execute("SELECT replay_job(%s)", [good_ones[0]])
        db.execute("SELECT run_schedule('often')")
        assert invariants(db) == []
        until(lambda: "PENDING" not in {*statuses(db).values()} and "RUNNING" not in {*statuses(db).values()})
    assert invariants(db) == []
    assert ids(examine(url, "invariants")) == ["INVARIANTS"]


@pytest.mark.both_servers_at_length
def test_the_view_costs_the_same_beside_many_finished_jobs(url: str, db: Db) -> None:
    """It reads the newest 20,000 rows, whatever lies below them."""
    db.execute(
        "INSERT INTO snap_processing_job (kind, status, finished_at, lease_seq, attempt_count, losses)"
        " SELECT 'test', 'COMPLETED', now(), 2, 1, (i < 50000)::integer FROM generate_series(1, 100000) AS i"
    )
    assert invariants(db) == []
    [(plan,)] = db.execute("EXPLAIN (FORMAT JSON) SELECT * FROM queue_invariants").fetchall()
    whole = [each for each in nodes(plan[0]["Plan"]) if each["Node Type"] == "Seq Scan"]
    assert "snap_processing_job" not in [each["Relation Name"] for each in whole]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


# --- the command ------------------------------------------------------------------------------------------------


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
    assert first.startswith("warning   stuck: The leases of 1 running jobs have ended")
    assert "\x1b" not in answer.out
    assert "(--fix does it.)" in answer.out
    assert last == "Something needs a person: 1 warning, 1 ok."


def test_a_fix_is_told_and_what_it_mended_needs_nobody(call: Call, url: str, db: Db) -> None:
    enlist(db)
    db.execute("UPDATE job_worker SET beat_at = now() - interval '1 day', expires_at = now() - interval '1 day'")
    answer = call("doctor", "--fix", "--only", "workers", "--json")
    assert answer.json["deeds"] == [
        {
            "check": "workers",
            "said": "Took 1 workers off the roster and 0 jobs back that they held.",
            "has_worked": True,
        }
    ]
    assert [finding["id"] for finding in answer.json["findings"]] == ["NO_WORKER"]
    assert call("doctor", "--fix", "--only", "workers").code == 0


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

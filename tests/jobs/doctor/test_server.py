"""What the doctor finds in the server: transactions and locks that hold others up, settings, connections, the clock."""

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy

from snapapp.jobs.doctor import Limits, Severity
from snapapp.jobs.doctor.server import _where_it_stands, harmful, skew
from snapapp.postgres.migrate import migrate
from tests import conftest
from tests.conftest import NO_OLDEST, OLDEST, PROGRAMS, system_server
from tests.factory import Db, make_job, scalar
from tests.jobs.doctor.examining import AT_ONCE, enlist, examine, ids, the, until_found
from tests.jobs.working import until


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
    assert f"pid {pid} (forgotten, role postgres) holds back vacuum: " in old.saw
    assert "idle in transaction" in old.saw
    assert "wants idle_in_transaction_session_timeout" in old.do
    assert old.paste == f"SELECT pg_terminate_backend({pid});"
    assert (old.numbers["pid"], old.can_fix) == (pid, False)
    until(lambda: ids(examine(url, "xmin")) == ["XMIN"])  # its backend may still be ending


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
    assert "wants statement_timeout" in found.do


@pytest.fixture
def plain_url(url: str, db: Db) -> Iterator[str]:
    """The same database for a role that may read our tables and sees nothing of others."""
    db.execute('CREATE ROLE "plain-one" LOGIN')
    db.execute('GRANT SELECT ON ALL TABLES IN SCHEMA public TO "plain-one"')
    yield sqlalchemy.make_url(url).set(username="plain-one").render_as_string(hide_password=False)
    db.execute('DROP OWNED BY "plain-one"')
    db.execute('DROP ROLE "plain-one"')


@pytest.mark.both_servers_at_length
def test_a_role_that_may_not_look_into_others_is_told_so_and_what_cures_it(url: str, db: Db, plain_url: str) -> None:
    with transaction(url) as idle:
        idle.execute("INSERT INTO job_queue (name) VALUES ('mail')")
        findings = examine(plain_url)
        held = the(findings, "XMIN_HELD")
        assert held.numbers["pid"] == idle.info.backend_pid
    assert "this role may not see (GRANT pg_monitor shows it)" in held.saw
    assert "CHECK_FAILED" not in ids(findings)
    hidden = the(findings, "DISK_HIDDEN")
    assert hidden.severity is Severity.NOTICE
    assert hidden.paste
    db.execute(hidden.paste)
    assert "DISK_HIDDEN" not in ids(examine(plain_url))


def test_a_right_that_workers_lack_is_told_and_given_back(url: str, db: Db, plain_url: str) -> None:
    """Nobody asks that of a role that only looks."""
    assert ids(examine(plain_url, "rights")) == ["RIGHTS"]
    db.execute('GRANT ALL ON ALL TABLES IN SCHEMA public TO "plain-one"')
    with psycopg.connect(plain_url, application_name="snapapp beat"):
        assert ids(examine(url, "rights")) == ["RIGHTS"]
        db.execute('REVOKE UPDATE ON snap_processing_job, job_worker FROM "plain-one"')
        db.execute("REVOKE EXECUTE ON FUNCTION job_has_rules, job_children_are_free FROM PUBLIC")
        tables, functions = examine(url, "rights")
        assert (tables.id, tables.severity) == ("RIGHTS_MISSING", Severity.CRITICAL)
        assert "plain-one may not UPDATE job_worker, snap_processing_job; 1 worker is connected" in tables.saw
        assert "EXECUTE job_children_are_free, job_has_rules" in functions.saw
        for each in (tables, functions):
            assert each.paste
            db.execute(each.paste.encode())
        assert ids(examine(url, "rights")) == ["RIGHTS"]


def test_a_role_that_may_not_read_the_queue_is_not_told_that_all_is_well(db: Db, plain_url: str) -> None:
    db.execute('REVOKE SELECT ON ALL TABLES IN SCHEMA public FROM "plain-one"')
    hidden = examine(plain_url, "kinds", "dead")
    assert [(each.id, each.severity) for each in hidden] == [("NOT_VISIBLE", Severity.WARNING)] * 2
    db.execute(str(hidden[0].paste).encode())
    assert ids(examine(plain_url, "kinds", "dead")) == ["KINDS", "DEAD"]


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


def test_commits_that_wait_for_a_standby_are_told(equipped_url: str) -> None:
    is_over = threading.Event()

    def commit_until_one_waits() -> None:  # the first may not: it is the checkpointer that has commits wait, and when?
        while not is_over.is_set():
            waiter.execute("INSERT INTO mine DEFAULT VALUES")
            waiter.commit()

    with psycopg.connect(equipped_url, autocommit=True) as db, transaction(equipped_url) as waiter:
        waiter.execute("SET synchronous_commit = on")
        db.execute("CREATE TABLE mine ()")
        db.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        db.execute("SELECT pg_reload_conf()")
        waiting = threading.Thread(target=commit_until_one_waits)
        waiting.start()
        try:
            found = until_found(equipped_url, "locks", "COMMITS_WAIT", limits=Limits(lock_waited=AT_ONCE))
        finally:
            is_over.set()
            db.execute("ALTER SYSTEM RESET synchronous_standby_names")
            db.execute("SELECT pg_reload_conf()")
            waiting.join()
        db.execute("DROP TABLE mine")
    assert found.severity is Severity.CRITICAL
    assert found.saw.startswith("1 commit waits for a synchronous standby (nobody)")


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
        pytest.skip(NO_OLDEST)
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


def test_what_is_pasted_cures_a_setting_where_its_value_stands(url: str, db: Db) -> None:
    """ALTER SYSTEM has no power over a database, a role, an address and the server's own command."""
    name = db.info.dbname
    db.execute(f"ALTER DATABASE {name} SET jit = on")
    db.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    db.execute(f"ALTER ROLE {db.info.user} IN DATABASE {name} SET idle_in_transaction_session_timeout = 0")
    found = [each for each in examine(url, "settings") if each.id.startswith("SETTING_")]
    for each in found:
        if each.paste and "ALTER SYSTEM" not in each.paste:
            db.execute(each.paste)
    cured = {
        "SETTING_JIT",
        "SETTING_SYNCHRONOUS_COMMIT",
        "SETTING_IDLE_IN_TRANSACTION_SESSION_TIMEOUT",
    }
    assert cured.isdisjoint(ids(examine(url, "settings")))
    typed = examine(f"{url}{'&' if '?' in url else '?'}options=-csynchronous_commit%3Doff", "settings")
    assert "It stands in the address" in the(typed, "SETTING_SYNCHRONOUS_COMMIT").do


def test_what_is_pasted_lets_a_read_only_database_write_again(url: str, db: Db) -> None:
    db.execute(f"ALTER DATABASE {db.info.dbname} SET default_transaction_read_only = on")
    found = the(examine(url, "settings"), "SETTING_DEFAULT_TRANSACTION_READ_ONLY")
    assert found.severity is Severity.CRITICAL
    assert found.paste
    with psycopg.connect(url, autocommit=True) as person:  # whose session is read-only, too
        person.execute(found.paste.encode())
    assert found.id not in ids(examine(url, "settings"))


def test_a_standby_is_told_to_be_one(url: str, db: Db) -> None:
    """A function in front of PostgreSQL's own stands for a server that another one feeds."""
    db.execute("CREATE SCHEMA fed")
    db.execute("CREATE FUNCTION fed.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
    db.execute(f"ALTER DATABASE {db.info.dbname} SET search_path = fed, pg_catalog, public")
    found = examine(url, "settings")
    assert the(found, "STANDBY").severity is Severity.CRITICAL
    assert "SETTINGS" not in ids(found)


def test_a_setting_in_the_servers_command_is_to_be_taken_away_there(db: Db) -> None:
    [fsync] = harmful(WELL | {"fsync": "off"}, 0, Limits())
    told = _where_it_stands(db, fsync, {"fsync": "command line"})
    assert (told.paste, told.do.partition(":")[0]) == (None, "It stands in the command that starts the server")


WELL = {"server_version": "18.1", "server_version_num": "180001", "shared_buffers": "16384", "max_connections": "60"}


@pytest.mark.parametrize(
    ("changes", "database", "wanted"),
    [
        ({}, 0, []),
        ({"server_version": "13.9", "server_version_num": "130009"}, 0, ["SERVER_TOO_OLD"]),
        ({"default_transaction_read_only": "on"}, 0, ["SETTING_DEFAULT_TRANSACTION_READ_ONLY"]),
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


def just_below_the_limit(url: str) -> list[str]:
    numbers = the(examine(url, "connections", limits=Limits(connections_used=0.0)), "CONNECTIONS_SHORT").numbers
    most = (numbers["used"] + 0.1) / numbers["allowed"]
    return [f"{each.id}: {each.severity}" for each in examine(url, "connections", limits=Limits(connections_used=most))]


def test_connections_are_counted_against_those_allowed(url: str, db: Db) -> None:
    """FC11."""
    fine = the(examine(url, "connections"), "CONNECTIONS")
    assert fine.numbers["allowed"] == 57
    assert fine.numbers["used"] >= 2
    short = the(examine(url, "connections", limits=Limits(connections_used=0.01)), "CONNECTIONS_SHORT")
    assert short.severity is Severity.WARNING
    until(lambda: just_below_the_limit(url) == ["CONNECTIONS_SHORT: notice"])  # over only when some more are free
    enlist(db)
    budget = the(examine(url, "connections", connections=58), "CONNECTION_BUDGET")
    assert budget.numbers["workersNeed"] == 58
    both = examine(url, "connections", limits=Limits(connections_used=0.01), connections=58)
    assert ids(both) == ["CONNECTIONS_SHORT", "CONNECTION_BUDGET"], "neither is over while the other begins"


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
    assert re.search(r"\d GB are free at .*, less than the floor of \d+\.\d GB", low.saw)


def test_transaction_numbers_that_run_out_are_critical(url: str) -> None:
    assert ids(examine(url, "numbers")) == ["TRANSACTION_NUMBERS"]
    short = the(examine(url, "numbers", limits=Limits(transactions_left=2_000_000_000)), "TRANSACTION_NUMBERS_SHORT")
    assert short.severity is Severity.CRITICAL


def test_a_schema_that_is_not_the_codes_is_critical(url: str, db: Db) -> None:
    revision = scalar(db, "SELECT version_num FROM job_version")
    assert ids(examine(url, "schema", schema={"job_version": revision})) == ["SCHEMA"]
    assert the(examine(url, "schema", schema={"job_version": "9999"}), "SCHEMA_NOT_CURRENT").paste == "snapapp migrate"
    older = the(examine(url, "schema", schema={"job_version": "0000"}), "SCHEMA_NOT_CURRENT")
    assert (older.paste, older.do) == (None, "Run the release that has migrated it: this one is older.")

"""Runs the checks one after the other, each in a read-only transaction and with a deadline that holds even if the
server stops answering. A check that fails becomes a finding too."""

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import psycopg

from snapapp.jobs.doctor import fleet, held_up, server, tables, work
from snapapp.jobs.doctor.finding import (
    CHECK_FAILED,
    Check,
    ExaminedDatabase,
    Facts,
    Finding,
    Limits,
    Severity,
    one_line,
    role_of,
)
from snapapp.jobs.rows.database import Database, Row, cut, open_connection

_log = logging.getLogger(__name__)

CHECKS: Mapping[str, Check] = {
    "schema": server.schema,
    "settings": server.settings,
    "connections": server.connections,
    "rights": server.rights,
    "clock": server.clock,
    "disk": server.disk,
    "numbers": server.transaction_numbers,
    "xmin": tables.xmin,
    "locks": tables.locks,
    "tables": tables.sweeping,
    "indexes": tables.indexes,
    "sequences": tables.sequences,
    "cost": server.cost,
    "workers": work.workers,
    "fleet": fleet.fleet,
    "listen": work.listening,
    "kinds": work.kinds,
    "limits": held_up.limits,
    "slots": held_up.slots,
    "suspects": held_up.suspects,
    "repeated": held_up.repeated,
    "stuck": work.stuck,
    "queues": work.queues,
    "schedules": work.schedules,
    "dead": work.dead_letters,
    "invariants": work.invariants,
}

# Set for the transaction only, because settings of a session would stay behind in a pooler.
_SET_TIMEOUTS = """
SELECT set_config('statement_timeout', %(most)s, true), set_config('lock_timeout', %(lock)s, true),
       set_config('jit', 'off', true)
"""


def examine(url: str, facts: Facts, *, only: Collection[str] = (), limits: Limits | None = None) -> list[Finding]:
    """Runs the checks of the queue and of the application in order, or those in `only`. Raises psycopg.Error if the
    database cannot be reached at all."""
    limits = limits or Limits()
    database = Database(lambda: _connect(url, limits.answer_within))
    try:
        with database.connection():
            pass
        findings: list[Finding] = []
        for name, check in {**CHECKS, **facts.checks}.items():
            if not only or name in only:
                findings += [replace(finding, check=name) for finding in _run(check, database, facts, limits)]
        return findings
    finally:
        database.close()


@contextmanager
def consulting(url: str) -> Iterator[psycopg.Connection[Row]]:
    """A read-only connection for several questions; the server ends a statement that takes too long."""
    with _connect(url, Limits().answer_within) as db, db.transaction():
        _set_timeouts(db, 5 * Limits().answer_within)
        yield db


def _connect(url: str, within: timedelta) -> psycopg.Connection[Row]:
    connection = open_connection(
        url,
        settings={},
        autocommit=True,
        application_name="snapapp doctor",
        connect_timeout=max(2, int(within.total_seconds())),
    )
    connection.prepare_threshold = None  # a pooler in between may not support prepared statements
    connection.read_only = True
    return connection


def _set_timeouts(db: psycopg.Connection[Row], within: timedelta) -> None:
    """Sets the timeouts of the transaction. The one for locks is shorter, so that its error names the lock as the
    cause."""
    most = within.total_seconds() * 1000
    db.execute(_SET_TIMEOUTS, {"most": str(int(most)), "lock": str(int(most * 0.9))})


def _run(check: Check, database: Database, facts: Facts, limits: Limits) -> list[Finding]:
    within = limits.answer_within.total_seconds()
    began, role = monotonic(), ""
    try:
        with database.connection() as db, _cut_after(db, within + 0.5), db.transaction():
            role = role_of(db)
            _set_timeouts(db, limits.answer_within)
            return list(check(ExaminedDatabase(db, facts, limits)))
    except psycopg.errors.InsufficientPrivilege as error:
        return [_not_visible(error, role)]
    except (psycopg.Error, OSError) as error:
        return [_check_failed(error, took=monotonic() - began, within=within)]
    except Exception as error:  # noqa: BLE001 - a check's outermost edge: the other checks must run
        _log.exception("A check of the doctor's failed.")
        return [_check_failed(error, took=monotonic() - began, within=within)]


@contextmanager
def _cut_after(db: psycopg.Connection[Row], seconds: float) -> Iterator[None]:
    """Closes the connection from this side after the deadline, in case the server hangs and does not keep its own."""
    timer = threading.Timer(seconds, cut, [db])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _not_visible(error: psycopg.Error, role: str) -> Finding:
    return Finding(
        id="NOT_VISIBLE",
        severity=Severity.WARNING,
        saw=f"This role may not see it: {_message(error)}",
        why="What cannot be seen cannot be judged.",
        do="Let the role see what monitors see, and read the tables.",
        paste=f"GRANT pg_monitor, pg_read_all_data TO {role};  -- as a superuser",
    )


def _check_failed(error: BaseException, *, took: float, within: float) -> Finding:
    is_late = isinstance(error, psycopg.errors.QueryCanceled | psycopg.errors.LockNotAvailable) or took >= within
    saw = f"No answer within {within:g} s: {_message(error)}" if is_late else f"It could not look: {_message(error)}"
    schema = isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn)
    return Finding(
        id=CHECK_FAILED,
        severity=Severity.WARNING,
        saw=saw,
        why="Whatever keeps it from being answered may keep the workers waiting too." if is_late else "",
        do="Bring the schema up to date." if schema else "Look at the check `locks`, at the server's load and its log.",
        paste="snapapp migrate" if schema else None,
        numbers={"seconds": round(took, 3)},
    )


def _message(error: BaseException) -> str:
    return one_line(str(error)) or type(error).__name__

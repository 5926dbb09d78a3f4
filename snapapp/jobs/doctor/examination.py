"""Runs the checks one after the other, each in a transaction that can only read and with a deadline that holds even
if the server falls silent. A check that fails is a finding too."""

import logging
import os
import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import psycopg

from snapapp.jobs.doctor import fleet, held_up, server, tables, work
from snapapp.jobs.doctor.finding import CHECK_FAILED, Check, Finding, House, Limits, Patient, Severity, one_line
from snapapp.jobs.rows.database import Line, Row

_log = logging.getLogger(__name__)

CHECKS: Mapping[str, Check] = {
    "schema": server.schema,
    "settings": server.settings,
    "connections": server.connections,
    "clock": server.clock,
    "disk": server.disk,
    "numbers": server.transaction_numbers,
    "xmin": tables.xmin,
    "locks": tables.locks,
    "tables": tables.sweeping,
    "indexes": tables.indexes,
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

# In the transaction: a session's settings would stay behind in a pooler. The walks over the index of waiting jobs must
# follow it even before the statistics know of the rows in it.
_WITH_CARE = """
SELECT set_config('statement_timeout', %(most)s, true), set_config('lock_timeout', %(lock)s, true),
       set_config('jit', 'off', true)
"""


def examine(url: str, house: House, *, only: Collection[str] = (), limits: Limits | None = None) -> list[Finding]:
    """Every check, the application's too (or these), in order. Raises psycopg.Error where the database cannot be
    reached at all."""
    limits = limits or Limits()
    line = Line(lambda: _connect(url, limits.answer_within))
    try:
        with line.connection():
            pass
        findings: list[Finding] = []
        for name, check in {**CHECKS, **house.checks}.items():
            if not only or name in only:
                findings += [replace(found, check=name) for found in _run(check, line, house, limits)]
        return findings
    finally:
        line.close()


@contextmanager
def consulting(url: str) -> Iterator[psycopg.Connection[Row]]:
    """A connection that can only read, for one question after the other; the server ends what takes too long."""
    with _connect(url, Limits().answer_within) as db, db.transaction():
        _take_care(db, 5 * Limits().answer_within)
        yield db


def _connect(url: str, within: timedelta) -> psycopg.Connection[Row]:
    connection = psycopg.connect(
        url, autocommit=True, application_name="snapapp doctor", connect_timeout=max(2, int(within.total_seconds()))
    )
    connection.prepare_threshold = None  # a pooler may sit in between
    connection.read_only = True
    return connection


def _take_care(db: psycopg.Connection[Row], within: timedelta) -> None:
    """The wait for a lock ends first: then the answer says that it was one."""
    most = within.total_seconds() * 1000
    db.execute(_WITH_CARE, {"most": str(int(most)), "lock": str(int(most * 0.9))})


def _run(check: Check, line: Line, house: House, limits: Limits) -> list[Finding]:
    within = limits.answer_within.total_seconds()
    began = monotonic()
    try:
        with line.connection() as db, _cut_after(db, within + 0.5), db.transaction():
            _take_care(db, limits.answer_within)
            return list(check(Patient(db, house, limits)))
    except psycopg.errors.InsufficientPrivilege as error:
        return [_hidden(error)]
    except (psycopg.Error, OSError) as error:
        return [_failed(error, took=monotonic() - began, within=within)]
    except Exception as error:  # noqa: BLE001 - a check's outermost edge: the others still have something to say
        _log.exception("A check of the doctor's failed.")
        return [_failed(error, took=monotonic() - began, within=within)]


@contextmanager
def _cut_after(db: psycopg.Connection[Row], seconds: float) -> Iterator[None]:
    """The server keeps its own deadline, unless it hangs: then the connection is cut from this side."""
    handle = socket.socket(fileno=os.dup(db.fileno()))
    timer = threading.Timer(seconds, _cut, [handle])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        handle.close()


def _cut(handle: socket.socket) -> None:
    with suppress(OSError):
        handle.shutdown(socket.SHUT_RDWR)


def _hidden(error: psycopg.Error) -> Finding:
    return Finding(
        id="NOT_VISIBLE",
        severity=Severity.NOTICE,
        saw=f"This role may not see it: {_said(error)}",
        why="What cannot be seen cannot be judged.",
        do="Let the role see what monitors see.",
        paste="GRANT pg_monitor TO CURRENT_USER;  -- as a superuser, with the role's name",
    )


def _failed(error: BaseException, *, took: float, within: float) -> Finding:
    is_late = isinstance(error, psycopg.errors.QueryCanceled | psycopg.errors.LockNotAvailable) or took >= within
    saw = f"No answer within {within:g} s: {_said(error)}" if is_late else f"It could not look: {_said(error)}"
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


def _said(error: BaseException) -> str:
    return one_line(str(error)) or type(error).__name__

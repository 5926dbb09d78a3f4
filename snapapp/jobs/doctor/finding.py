"""The values of the doctor: a finding, what the application tells of itself, and the limits that the checks judge
by."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

import psycopg
from psycopg import sql

from snapapp.jobs.amounts import about
from snapapp.jobs.rows.database import Row, Rows, run
from snapapp.jobs.rows.people.overviews import LONG_WAIT
from snapapp.jobs.settings import JobsSettings

CHECK_FAILED = "CHECK_FAILED"


class Severity(StrEnum):
    OK = "ok"
    NOTICE = "notice"  # good to know
    WARNING = "warning"  # somebody should act soon
    CRITICAL = "critical"  # somebody should act now


class Act(StrEnum):
    """The remedies that --fix can apply."""

    VACUUM = "vacuum"  # needs a table
    ANALYZE = "analyze"  # needs a table
    CLEAR_ROSTER = "clear the roster"
    RECOVER = "recover jobs"


@dataclass(frozen=True, slots=True)
class Remedy:
    act: Act
    table: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check saw. The examination fills in `check`."""

    id: str
    saw: str
    severity: Severity = Severity.OK
    why: str = ""
    do: str = ""
    paste: str | None = None  # a command or a statement
    numbers: Mapping[str, Any] = field(default_factory=dict)
    remedy: Remedy | None = None
    check: str = ""

    @property
    def can_fix(self) -> bool:
        return self.remedy is not None

    def as_json(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in ("check", "id", "severity", "saw", "numbers", "why", "do")}
        return shown | {"paste": self.paste, "can_fix": self.can_fix}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the application tells the doctor about itself."""

    jobs: JobsSettings
    connections: int  # that one process of the application takes at most
    disk_free_min_mb: int
    schema: Mapping[str, str]  # the newest revision in the code, by the table that holds the database's revision
    checks: Mapping[str, "Check"] = field(default_factory=dict)  # the application's own, run after the queue's


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The values from which on the checks report something. Only tests set other ones than the defaults."""

    answer_within: timedelta = timedelta(seconds=2)  # each check
    xmin_noticed: timedelta = timedelta(seconds=5)
    xmin_idle: timedelta = timedelta(minutes=1)  # in a transaction that does nothing
    xmin_held: timedelta = timedelta(minutes=5)  # by a statement that runs
    xmin_held_back: int = 1_000_000  # transactions
    transactions_left: int = 500_000_000  # of the 2 billion until the transaction numbers run out
    lock_waited: timedelta = timedelta(seconds=1)
    dead_tuples: int = 10_000  # and more than three times the threshold of autovacuum
    unanalyzed: int = 10_000  # rows
    index_bytes: int = 64 * 2**20  # smaller indexes are never reported
    wal_kept: int = 2**30  # bytes, for a replication slot that nobody reads
    connections_used: float = 0.8  # of those allowed
    clock_noticed: timedelta = timedelta(seconds=1)
    clock_wrong: timedelta = timedelta(seconds=30)
    shared_buffers_for: int = 2**30  # bytes; a larger database needs more than the default of shared_buffers
    notify_queue_full: float = 0.1
    unknown_for: timedelta = timedelta(minutes=1)  # as in the view queue_stuck
    due_for: timedelta = LONG_WAIT
    paused_for: timedelta = timedelta(days=1)
    dead_lately: timedelta = timedelta(days=1)
    repeated_lately: timedelta = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class ExaminedDatabase:
    """The database that a check examines, in a read-only transaction with a deadline, with the application's facts and
    the limits."""

    db: psycopg.Connection[Row]
    facts: Facts
    limits: Limits

    def ask(self, sql: str, **parameters: Any) -> Rows:
        return run(self.db, sql, parameters)


Check = Callable[[ExaminedDatabase], Iterator[Finding]]


def worst(findings: Iterable[Finding]) -> Severity:
    order = list(Severity)
    return max((finding.severity for finding in findings), key=order.index, default=Severity.OK)


def needs_a_person(findings: Iterable[Finding]) -> bool:
    return worst(findings) in (Severity.WARNING, Severity.CRITICAL)


def saw_nothing(findings: Iterable[Finding]) -> bool:
    """Whether every check failed, so that there is no diagnosis."""
    return all(finding.id == CHECK_FAILED for finding in findings)


# --- texts ------------------------------------------------------------------------------------------------------


def span(seconds: float | None) -> str:
    return "an unknown time" if seconds is None else about(timedelta(seconds=seconds))


def ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{span(seconds)} ago"


def one_line(text: str, longest: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def role_of(db: psycopg.Connection[Row]) -> str:
    """The role that looks, as SQL has it: whoever pastes a GRANT is another one, so CURRENT_USER would be that."""
    return sql.Identifier(db.info.user).as_string()


def quoted(text: str) -> str:
    """The text as a literal of SQL, for a statement that a person pastes into psql."""
    return "'" + text.replace("'", "''") + "'"


def typed(name: str) -> str:
    """The name as the last argument of a command that a person pastes. Behind `--` it may begin with a dash."""
    return f"{'-- ' if name.startswith('-') else ''}{shlex.quote(name)}"

"""What the checker reads: the lines of the processes, the rows of the database, and what was promised."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from snapapp.jobs.rows.database import Row

FINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED"})

Line = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One change of a job, as the database wrote it down in the same transaction. Times are seconds since 1970."""

    job: int
    becomes: str
    seq_new: int
    at: float
    was: str | None = None
    seq_old: int | None = None
    attempt_old: int = 0
    attempt_new: int = 0
    actor: str | None = None  # a worker's id; empty for the lab itself
    holder_old: str | None = None
    holder_new: str | None = None
    losses_old: int = 0
    started_old: bool = False
    beaten_old: float | None = None
    expires_old: float | None = None
    error: str | None = None
    server_since: float = 0.0

    @property
    def ends_a_claim(self) -> bool:
        return self.was == "RUNNING" and self.becomes != "RUNNING"

    @property
    def is_by_another(self) -> bool:
        """Who acts is not who holds the lease."""
        return self.was == "RUNNING" and self.actor != self.holder_old

    @property
    def is_a_takeover(self) -> bool:
        """Taken back from its holder: the only thing that another may do to a running job."""
        if not (self.ends_a_claim and self.is_by_another):
            return False
        if self.becomes == "CANCELLED":  # recovery honours the wish too; a holder would say JobCancelled
            return not (self.error or "").startswith("JobCancelled")
        return self.becomes == "PENDING" or (self.becomes == "RETRY_WAIT" and self.error == "worker lost")

    def __str__(self) -> str:
        change = f"{self.was or 'nothing'} -> {self.becomes}, lease {self.seq_old} -> {self.seq_new}"
        attempts = f"attempt {self.attempt_old} -> {self.attempt_new}"
        return f"{self.at:.3f} {change}, {attempts}, held by {self.holder_old}, done by {self.actor} ({self.error})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """A job's row in the end."""

    id: int
    kind: str
    status: str
    max_attempts: int = 3
    reasons: int = 0  # entries in `errors`
    last_error: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """Seconds, of the profile that the workers ran with."""

    sweep: float = 1.0
    beat: float = 0.5
    grace: float = 2.0
    longest: float = 30.0  # how long one claim may last, whatever was broken meanwhile

    @property
    def settled_for(self) -> float:
        """How long after the server's own start nobody is taken for dead."""
        return self.beat + 1.0

    @property
    def overdue(self) -> float:
        """How long after its end a lease may at most be found unrecovered."""
        return self.sweep + self.beat + self.grace


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    lines: Sequence[Line] = ()
    events: Sequence[Event] = ()
    jobs: Sequence[Final] = ()
    effects: Sequence[tuple[int, int]] = ()  # (job, lease_seq) of every row that a commit hook left
    burials: Sequence[tuple[int, int]] = ()
    hooked: frozenset[str] = frozenset()  # kinds whose completion must leave an effect
    deadly: frozenset[str] = frozenset()  # kinds that end their worker: they must end as FAILED
    promises: Promises = field(default_factory=Promises)


_EVENTS = """
SELECT job_id, becomes, seq_new, extract(epoch FROM at)::float8, was, seq_old, coalesce(attempt_old, 0), attempt_new,
       nullif(actor, ''), holder_old, holder_new, coalesce(losses_old, 0), coalesce(started_old, false),
       extract(epoch FROM beaten_old)::float8, extract(epoch FROM expires_old)::float8, error,
       extract(epoch FROM server_since)::float8
  FROM chaos_event ORDER BY id
"""
_FIELDS = (
    *("job", "becomes", "seq_new", "at", "was", "seq_old", "attempt_old", "attempt_new", "actor", "holder_old"),
    *("holder_new", "losses_old", "started_old", "beaten_old", "expires_old", "error", "server_since"),
)
_JOBS = """
SELECT id, kind, status, max_attempts, jsonb_array_length(errors), last_error, request_id
  FROM snap_processing_job ORDER BY id
"""


def read_events(db: psycopg.Connection[Row]) -> list[Event]:
    return [Event(**dict(zip(_FIELDS, row, strict=True))) for row in db.execute(_EVENTS)]


def read_jobs(db: psycopg.Connection[Row]) -> list[Final]:
    names = ("id", "kind", "status", "max_attempts", "reasons", "last_error", "key")
    return [Final(**dict(zip(names, row, strict=True))) for row in db.execute(_JOBS)]


def read_marks(db: psycopg.Connection[Row], table: str) -> list[tuple[int, int]]:
    """The rows that hooks left in chaos_effect or chaos_burial."""
    sql = {"chaos_effect": "SELECT job_id, lease_seq FROM chaos_effect"}
    return db.execute(sql.get(table, "SELECT job_id, lease_seq FROM chaos_burial")).fetchall()

"""The roster (table job_worker): the workers that live, and how each of the others ended."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg

from snapapp.jobs.model import Finished, Interrupted, Status
from snapapp.jobs.settings import Membership

Db = psycopg.Connection[Any]


class Declared(NamedTuple):
    """The defaults of a kind, for enqueues that name no queue or number of attempts."""

    kind: str
    queue: str
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Member:
    """A worker's row on the roster: what stays the same from beat to beat."""

    id: str
    name: str
    host: str
    machine: str
    pid: int
    pid_started: int
    queues: Sequence[str]
    kinds: Sequence[str]
    slots: int
    state_file: str | None = None
    executors: Mapping[str, Any] = field(default_factory=dict)  # name -> its slots, and the kinds that run there
    membership: Membership | None = None
    declared: Sequence[Declared] = ()


@dataclass(slots=True)
class Ended:
    """How many jobs of one kind ended in this worker, and how long their last attempts ran."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0  # attempts that failed and did not end their job
    ran: int = 0  # jobs that ended after an attempt had started
    ran_ms: float = 0.0
    longest_ms: float = 0.0


@dataclass(slots=True)
class Counts:
    """What a worker has done since it started. Any thread may call `add`; one thread writes each other number."""

    claimed: int = 0  # written by the claimer, like the next two
    claims: int = 0
    claim_seconds: float = 0.0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    snoozed: int = 0
    interrupted: int = 0
    lost: int = 0  # attempts whose lease was lost by the time they ended
    recovered: int = 0  # written by the duty "recover"
    context_switches: int = 0  # how often the application's context was entered for a job
    context_failures: int = 0
    busy_ms: float = 0.0  # total run time of attempts that completed or failed a job
    by_kind: dict[str, Ended] = field(default_factory=dict)
    # the settler adds whole batches, slots add jobs settled with a hook: a lock once for each batch costs little
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, status: Status | None, batch: Sequence[Finished]) -> None:
        """Adds attempts that all ended with the same status; None: their leases were lost. This is on the hot path."""
        with self._turn:
            match status:
                case Status.COMPLETED:
                    self.completed += len(batch)
                    self.busy_ms += self._count(batch, completed=1)
                case Status.FAILED:
                    self.failed += len(batch)
                    self.busy_ms += self._count(batch, failed=1)
                case Status.CANCELLED:
                    self.cancelled += len(batch)
                    self._count(batch, cancelled=1)
                case None:
                    self.lost += len(batch)
                case _:
                    self._count_returns(status, batch)

    def add_context(self, *, entered: bool, failed: bool) -> None:
        with self._turn:
            self.context_switches += entered
            self.context_failures += failed

    def _count(self, batch: Sequence[Finished], *, completed: int = 0, failed: int = 0, cancelled: int = 0) -> float:
        by_kind, total = self.by_kind, 0.0
        for job, _, ran_for in batch:
            ended = by_kind.get(job.kind)
            if ended is None:
                ended = by_kind[job.kind] = Ended()
            ended.completed += completed
            ended.failed += failed
            ended.cancelled += cancelled
            if ran_for is not None:
                ran_ms = ran_for * 1000
                total += ran_ms
                ended.ran += 1
                ended.ran_ms += ran_ms
                if ran_ms > ended.longest_ms:
                    ended.longest_ms = ran_ms
        return total

    def _count_returns(self, status: Status, batch: Sequence[Finished]) -> None:
        for job, outcome, _ in batch:
            if isinstance(outcome, Interrupted):
                self.interrupted += job.started_at is not None
            elif status is Status.RETRY_WAIT:
                self.retried += 1
                self.by_kind.setdefault(job.kind, Ended()).retried += 1
            else:
                self.snoozed += 1


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker reports with each beat."""

    counts: Counts = field(default_factory=Counts)
    current_jobs: Sequence[int] = ()
    memory_mb: int = 0
    status: str = "ACTIVE"
    note: str | None = None
    free_mb: int | None = None
    held_kinds: Mapping[str, str] = field(default_factory=dict)  # kind short of memory -> why


class BeatAnswer(NamedTuple):
    """What the database answers to a beat."""

    suspects_wait: bool  # is a job due that must run alone, of our kinds?
    has_rules: bool  # is there a limit, or a fair queue?
    rules_change: bool  # are there waiting jobs with labels of older rules?
    paused: frozenset[str]  # names of paused queues
    silent_for: timedelta | None  # since our last beat, by the database's clock; None: it has no row of ours


NO_ANSWER = BeatAnswer(False, False, False, frozenset(), None)


# One statement for all, so that an idle worker costs nearly nothing. It inserts our row again if another worker took us
# for dead and removed it, pings our own channel (so that the listener notices when LISTEN has died), and returns what
# an idle worker needs to know.
_BEAT = """
WITH before AS MATERIALIZED (
    SELECT now() - beat_at AS silent_for FROM job_worker WHERE id = %(id)s
), beaten AS (
    INSERT INTO job_worker AS member (
        id, name, host, machine, pid, pid_started, queues, kinds, slots, state_file, status, note, memory_mb,
        current_jobs, jobs_claimed, jobs_completed, jobs_failed, jobs_retried, jobs_recovered, busy_ms,
        executors, context_switches, context_failures, free_mb, held_kinds, pool, master, max_jobs, max_seconds,
        max_memory_mb, expires_at)
    VALUES (
        %(id)s, %(name)s, %(host)s, %(machine)s, %(pid)s, %(pid_started)s, %(queues)s, %(kinds)s, %(slots)s,
        %(state_file)s, %(status)s, %(note)s, %(memory_mb)s, %(current_jobs)s, %(claimed)s, %(completed)s, %(failed)s,
        %(retried)s, %(recovered)s, %(busy_ms)s, %(executors)s::jsonb, %(context_switches)s, %(context_failures)s,
        %(free_mb)s, %(held_kinds)s::jsonb,
        %(pool)s, %(master)s, %(max_jobs)s, %(max_seconds)s, %(max_memory_mb)s, now() + %(lives_for)s)
    ON CONFLICT (id) DO UPDATE
       SET status = excluded.status, note = excluded.note, memory_mb = excluded.memory_mb,
           current_jobs = excluded.current_jobs, jobs_claimed = excluded.jobs_claimed,
           jobs_completed = excluded.jobs_completed, jobs_failed = excluded.jobs_failed,
           jobs_retried = excluded.jobs_retried, jobs_recovered = excluded.jobs_recovered,
           busy_ms = excluded.busy_ms, context_switches = excluded.context_switches,
           context_failures = excluded.context_failures, free_mb = excluded.free_mb, held_kinds = excluded.held_kinds,
           beat_at = now(), expires_at = excluded.expires_at
    RETURNING id
)
SELECT EXISTS (SELECT FROM snap_processing_job
                WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone' AND next_retry_at <= now()
                  AND kind = ANY (%(kinds)s)),
       job_has_rules(), EXISTS (SELECT FROM job_rule_change),
       ARRAY(SELECT name FROM job_queue WHERE paused_at IS NOT NULL), (SELECT silent_for FROM before),
       pg_notify(%(channel)s, 'ping')
  FROM beaten
"""

LOST = "lost: its process is gone"

_LEAVE = """
WITH gone AS (DELETE FROM job_worker WHERE id = %(id)s RETURNING *)
INSERT INTO job_worker_exit (
    worker_id, name, host, pid, pool, queues, reason, jobs_completed, jobs_failed, started_at)
SELECT id, name, host, pid, pool, queues, %(reason)s, jobs_completed, jobs_failed, started_at FROM gone
RETURNING id
"""


def channel_of(worker: str) -> str:
    """The channel on which a worker hears its own pings."""
    return f"snapapp_worker_{worker}"


def beat(db: Db, member: Member, report: Report, *, lives_for: timedelta) -> BeatAnswer:
    counts, its = report.counts, member.membership
    parameters = asdict(member) | {
        "queues": list(member.queues),
        "kinds": list(member.kinds),
        "executors": json.dumps(member.executors),
        "status": report.status,
        "note": report.note,
        "memory_mb": report.memory_mb,
        "current_jobs": list(report.current_jobs),
        "claimed": counts.claimed,
        "completed": counts.completed,
        "failed": counts.failed,
        "retried": counts.retried,
        "recovered": counts.recovered,
        "busy_ms": int(counts.busy_ms),
        "free_mb": report.free_mb,
        "held_kinds": json.dumps(dict(report.held_kinds)),
        "pool": its and its.pool,
        "master": its and its.master,
        "max_jobs": its and its.max_jobs,
        "max_seconds": its and its.max_time and int(its.max_time.total_seconds()),
        "max_memory_mb": its and its.max_memory_mb,
        "lives_for": lives_for,
        "context_switches": counts.context_switches,
        "context_failures": counts.context_failures,
        "channel": channel_of(member.id),
    }
    suspects_wait, has_rules, rules_change, paused, silent_for, _ = db.execute(_BEAT, parameters).fetchall()[0]
    return BeatAnswer(suspects_wait, has_rules, rules_change, frozenset(paused), silent_for)


# ORDER BY: workers that start together lock the rows in the same order, so they cannot deadlock. WHERE: a row that
# would not change is not written.
_DECLARE = """
INSERT INTO job_kind AS its (name, queue, max_attempts)
SELECT * FROM unnest(%(kinds)s::text[], %(queues)s::text[], %(max_attempts)s::integer[]) AS new (name, queue, attempts)
 ORDER BY name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, max_attempts = excluded.max_attempts, declared_at = now()
 WHERE (its.queue, its.max_attempts) <> (excluded.queue, excluded.max_attempts) AND NOT %(only_missing)s
RETURNING name
"""


def declare(db: Db, kinds: Sequence[Declared], *, only_missing: bool = False) -> None:
    """Stores the defaults of our kinds, for those who enqueue by SQL. The worker that starts last wins, so one that
    started earlier adds only those that are missing."""
    parameters = {
        "kinds": [its.kind for its in kinds],
        "queues": [its.queue for its in kinds],
        "max_attempts": [its.max_attempts for its in kinds],
        "only_missing": only_missing,
    }
    db.execute(_DECLARE, parameters)


def leave(db: Db, worker: str, reason: str) -> bool:
    """Moves a worker from the roster to the exits, with the reason. False: it was not on the roster."""
    return bool(db.execute(_LEAVE, {"id": worker, "reason": reason}).fetchall())


class Other(NamedTuple):
    """Another worker that may be dead: on this machine, where its process can be looked up, or silent for long."""

    id: str
    pid: int
    pid_started: int
    state_file: str | None
    is_here: bool
    is_overdue: bool


# After a step of the database's clock all look silent, also `besides`, the worker that asks: then nobody is overdue.
_OTHERS = """
SELECT id, pid, pid_started, state_file, machine = %(machine)s, is_overdue
  FROM job_worker, LATERAL (
       SELECT expires_at < now() - %(overdue)s::interval
          AND (%(silence)s::interval IS NULL OR EXISTS (
               SELECT FROM job_worker AS its WHERE its.id = %(besides)s AND its.beat_at > now() - %(silence)s::interval)
          ) AS is_overdue) AS seen
 WHERE id <> %(besides)s AND (machine = %(machine)s OR is_overdue)
"""


def others(db: Db, machine: str, *, besides: str, overdue: timedelta, silence: timedelta | None) -> list[Other]:
    """All workers but `besides` that are on this machine, or whose row expired longer than `overdue` ago. If `besides`
    was silent for longer than `silence`, by the database's clock, that was set, and no other row counts as expired."""
    parameters = {"machine": machine, "besides": besides, "overdue": overdue, "silence": silence}
    rows = db.execute(_OTHERS, parameters).fetchall()
    return [Other(*row) for row in rows]

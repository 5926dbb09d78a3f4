"""Every statement on the roster: who works the queue, since when, and how each of them ended."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg

from snapapp.jobs.model import Finished, Interrupted, Status
from snapapp.jobs.settings import Membership

Db = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Member:
    """A process that works the queue, as it introduces itself."""

    id: str
    name: str
    host: str
    machine: str
    pid: int
    pid_started: int
    queues: Sequence[str]
    kinds: Sequence[str]
    slots: int
    traces: str | None = None
    rooms: Mapping[str, Any] = field(default_factory=dict)  # name -> its slots, and the kinds that run there
    membership: Membership | None = None


@dataclass(slots=True)
class Ended:
    """The jobs of one kind that came to their end here, and how long the attempts ran that ended them."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0  # attempts that did not end their job
    ran: int = 0  # of those that ended, how many had begun
    ran_ms: float = 0.0
    longest_ms: float = 0.0


@dataclass(slots=True)
class Counts:
    """What a worker has done since it started. `add` may be called from anywhere; each other number has one writer."""

    claimed: int = 0  # written by the claimer
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    snoozed: int = 0
    interrupted: int = 0
    lost: int = 0  # leases that were somebody else's by the time the result came
    recovered: int = 0  # written by the keeper
    context_switches: int = 0  # how often the application's context was entered for a job
    context_failures: int = 0
    busy_ms: float = 0.0  # of those that completed or failed
    by_kind: dict[str, Ended] = field(default_factory=dict)
    # the settler adds whole batches, the slots those that they settle with a hook: once a batch costs nothing
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, status: Status | None, batch: Sequence[Finished]) -> None:
        """Attempts that all ended alike; None: their leases were lost. The hot path: all that it does a job is here."""
        with self._turn:
            match status:
                case Status.COMPLETED:
                    self.completed += len(batch)
                    self.busy_ms += self._end(batch, completed=1)
                case Status.FAILED:
                    self.failed += len(batch)
                    self.busy_ms += self._end(batch, failed=1)
                case Status.CANCELLED:
                    self.cancelled += len(batch)
                    self._end(batch, cancelled=1)
                case None:
                    self.lost += len(batch)
                case _:
                    self._come_back(status, batch)

    def add_context(self, *, entered: bool, failed: bool) -> None:
        with self._turn:
            self.context_switches += entered
            self.context_failures += failed

    def _end(self, batch: Sequence[Finished], *, completed: int = 0, failed: int = 0, cancelled: int = 0) -> float:
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

    def _come_back(self, status: Status, batch: Sequence[Finished]) -> None:
        for job, outcome, _ in batch:
            if isinstance(outcome, Interrupted):
                self.interrupted += 1
            elif status is Status.RETRY_WAIT:
                self.retried += 1
                self.by_kind.setdefault(job.kind, Ended()).retried += 1
            else:
                self.snoozed += 1


@dataclass(frozen=True, slots=True)
class Report:
    """What changes from beat to beat."""

    counts: Counts = field(default_factory=Counts)
    current_jobs: Sequence[int] = ()
    memory_mb: int = 0
    status: str = "ACTIVE"
    note: str | None = None
    free_mb: int | None = None
    held_kinds: Mapping[str, str] = field(default_factory=dict)  # for want of memory, each with the reason


class Pulse(NamedTuple):
    """What the database says back."""

    next_due_in: float | None
    suspects_wait: bool
    has_rules: bool  # is there a limit, or a fair queue?


NO_PULSE = Pulse(None, suspects_wait=False, has_rules=False)


# One statement: it introduces us again if somebody took us for dead, pings our own channel (so that a LISTEN that
# died in silence is noticed), and returns what an idle worker needs to know. Idle must stay nearly free.
_BEAT = """
WITH beaten AS (
    INSERT INTO job_worker AS member (
        id, name, host, machine, pid, pid_started, queues, kinds, slots, traces, status, note, memory_mb,
        current_jobs, jobs_claimed, jobs_completed, jobs_failed, jobs_retried, jobs_recovered, busy_ms,
        rooms, context_switches, context_failures, free_mb, held_kinds, pool, master, max_jobs, max_seconds,
        max_memory_mb, expires_at)
    VALUES (
        %(id)s, %(name)s, %(host)s, %(machine)s, %(pid)s, %(pid_started)s, %(queues)s, %(kinds)s, %(slots)s,
        %(traces)s, %(status)s, %(note)s, %(memory_mb)s, %(current_jobs)s, %(claimed)s, %(completed)s, %(failed)s,
        %(retried)s, %(recovered)s, %(busy_ms)s, %(rooms)s::jsonb, %(context_switches)s, %(context_failures)s,
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
SELECT job_next_due_in(%(kinds)s, %(only_queues)s),
       EXISTS (SELECT FROM snap_processing_job
                WHERE suspect AND status IN ('PENDING', 'RETRY_WAIT') AND next_retry_at <= now()
                  AND kind = ANY (%(kinds)s)),
       EXISTS (SELECT FROM job_limit) OR EXISTS (SELECT FROM job_queue WHERE fair),
       pg_notify(%(channel)s, 'ping')
  FROM beaten
"""

_LEAVE = """
WITH gone AS (DELETE FROM job_worker WHERE id = %(id)s RETURNING *)
INSERT INTO job_worker_exit (
    worker_id, name, host, pid, pool, queues, reason, jobs_completed, jobs_failed, started_at)
SELECT id, name, host, pid, pool, queues, %(reason)s, jobs_completed, jobs_failed, started_at FROM gone
RETURNING id
"""


def channel_of(worker: str) -> str:
    """The worker's own channel: pings, and later its commands."""
    return f"snapapp_worker_{worker}"


def beat(db: Db, member: Member, report: Report, *, lives_for: timedelta) -> Pulse:
    counts, its = report.counts, member.membership
    parameters = {
        "id": member.id,
        "name": member.name,
        "host": member.host,
        "machine": member.machine,
        "pid": member.pid,
        "pid_started": member.pid_started,
        "queues": list(member.queues),
        "only_queues": list(member.queues) or None,
        "kinds": list(member.kinds),
        "slots": member.slots,
        "traces": member.traces,
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
        "rooms": json.dumps(member.rooms),
        "context_switches": counts.context_switches,
        "context_failures": counts.context_failures,
        "channel": channel_of(member.id),
    }
    next_due_in, suspects_wait, has_rules, _ = db.execute(_BEAT, parameters).fetchall()[0]
    return Pulse(next_due_in, suspects_wait, has_rules)


def leave(db: Db, worker: str, reason: str) -> bool:
    """Takes a worker off the roster and writes down how it ended; False: it was gone already."""
    return bool(db.execute(_LEAVE, {"id": worker, "reason": reason}).fetchall())


_SWITCHED = """
INSERT INTO job_tenant_switch AS known (worker_id, from_tenant, to_tenant, switches)
SELECT %(worker)s, pair.* FROM unnest(%(since)s::text[], %(to)s::text[], %(times)s::bigint[]) AS pair
ON CONFLICT (worker_id, from_tenant, to_tenant) DO UPDATE
   SET switches = known.switches + excluded.switches, last_at = now()
"""


def switched(db: Db, worker: str, switches: Mapping[tuple[str, str], int]) -> None:
    """Adds up how often a worker went from one tenant's jobs to another's."""
    since, to = zip(*switches, strict=True)
    given = {"worker": worker, "since": list(since), "to": list(to), "times": list(switches.values())}
    db.execute(_SWITCHED, given)


class Other(NamedTuple):
    """Another worker: of the same machine, so that whether it lives can be seen, or one not heard of for long."""

    id: str
    pid: int
    pid_started: int
    traces: str | None
    is_here: bool
    is_overdue: bool


_OTHERS = """
SELECT id, pid, pid_started, traces, machine = %(machine)s, expires_at < now() - %(overdue)s::interval
  FROM job_worker
 WHERE id <> %(besides)s AND (machine = %(machine)s OR expires_at < now() - %(overdue)s::interval)
"""


def others(db: Db, machine: str, *, besides: str, overdue: timedelta) -> list[Other]:
    """The workers about whom we may have something to do."""
    rows = db.execute(_OTHERS, {"machine": machine, "besides": besides, "overdue": overdue}).fetchall()
    return [Other(*row) for row in rows]

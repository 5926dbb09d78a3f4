"""Every SQL statement of a supervisor: it holds its host, writes the state of its pools and the ends of workers,
measures the load of a pool, and records the decisions to scale."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from snapapp.jobs.fleet.pool import PoolStatus, State
from snapapp.jobs.fleet.scaling import Load
from snapapp.jobs.os import processes, state_file
from snapapp.jobs.rows import leases, roster
from snapapp.jobs.rows.database import Db, run
from snapapp.jobs.rows.people.overviews import bend_plans, walks

LIVES_FOR = timedelta(seconds=15)  # how long a supervisor without a heartbeat counts as alive


@dataclass(frozen=True, slots=True)
class Master:
    """The identity of a supervisor."""

    id: str
    host: str
    machine: str
    pid: int
    pid_started: int


class Holder(NamedTuple):
    """The supervisor that holds a host, as its row in job_master says."""

    id: str
    machine: str
    pid: int
    pid_started: int
    since: datetime
    last_beat: timedelta

    def in_words(self, host: str) -> str:
        where = f"pid {self.pid}" + ("" if self.machine == processes.machine() else " of another machine of that name")
        since = f"since {self.since:%Y-%m-%d %H:%M:%S} UTC, last heard of {self.last_beat.total_seconds():.0f} s ago"
        return f"the host {host} has a supervisor for this database: {where}, {since}"


# --- masters ----------------------------------------------------------------------------------------------------

_HOLDER = """
SELECT id, machine, pid, pid_started, started_at, now() - beat_at
  FROM job_master WHERE host = %(host)s
"""

# `instead` is the id of a dead supervisor. If another one has taken the host meanwhile, no row matches.
_HOLD = """
INSERT INTO job_master AS held (host, id, machine, pid, pid_started, expires_at)
VALUES (%(host)s, %(id)s, %(machine)s, %(pid)s, %(pid_started)s, now() + %(lives_for)s)
ON CONFLICT (host) DO UPDATE
   SET id = excluded.id, machine = excluded.machine, pid = excluded.pid, pid_started = excluded.pid_started,
       status = 'ACTIVE', started_at = now(), beat_at = now(), expires_at = excluded.expires_at
 WHERE held.id = %(instead)s OR held.expires_at <= now()
RETURNING id
"""

_BEAT = """
UPDATE job_master SET status = %(status)s, beat_at = now(), expires_at = now() + %(lives_for)s
 WHERE host = %(host)s AND id = %(id)s
RETURNING EXISTS (SELECT FROM job_command WHERE host = %(host)s AND status = 'PENDING')
"""

_LEAVE = "DELETE FROM job_master WHERE host = %(host)s AND id = %(id)s RETURNING id"


def holder(db: Db, host: str) -> Holder | None:
    rows = run(db, _HOLDER, {"host": host})
    return Holder(*rows[0]) if rows else None


def hold(db: Db, master: Master, instead: str | None = None) -> bool:
    """Takes the host. True: nobody else held it, or only the supervisor `instead`."""
    return bool(run(db, _HOLD, asdict(master) | {"lives_for": LIVES_FOR, "instead": instead}))


def beat(db: Db, master: Master, *, status: str = "ACTIVE") -> bool | None:
    """Writes a heartbeat. Returns whether a command waits for this host; None: another supervisor holds the host."""
    given = {"host": master.host, "id": master.id, "status": status, "lives_for": LIVES_FOR}
    rows = run(db, _BEAT, given)
    return bool(rows[0][0]) if rows else None


def leave(db: Db, master: Master) -> None:
    run(db, _LEAVE, {"host": master.host, "id": master.id})


# --- pools ------------------------------------------------------------------------------------------------------

_KEPT = "SELECT name, state, state_reason, fixed_at FROM job_pool WHERE host = %(host)s"

_STAND = """
INSERT INTO job_pool AS known (host, name, queues, balance, min_processes, max_processes, state, state_reason, fixed_at,
                               wanted, present, leaving, note)
VALUES (%(host)s, %(name)s, %(queues)s, %(balance)s, %(least)s, %(most)s, %(state)s, %(state_reason)s, %(fixed_at)s,
        %(wanted)s, %(present)s, %(leaving)s, %(note)s)
ON CONFLICT (host, name) DO UPDATE
   SET queues = excluded.queues, balance = excluded.balance, min_processes = excluded.min_processes,
       max_processes = excluded.max_processes, state = excluded.state, state_reason = excluded.state_reason,
       fixed_at = excluded.fixed_at, wanted = excluded.wanted, present = excluded.present,
       leaving = excluded.leaving, note = excluded.note, seen_at = now()
RETURNING name
"""

_FORGET = "DELETE FROM job_pool WHERE host = %(host)s AND name <> ALL (%(names)s) RETURNING name"


class SavedPool(NamedTuple):
    """The state and the size that a person gave a pool, kept beyond the life of a supervisor."""

    name: str
    state: State
    reason: str | None
    fixed_at: int | None


def saved_pools(db: Db, host: str) -> list[SavedPool]:
    return [SavedPool(name, State(state), *rest) for name, state, *rest in run(db, _KEPT, {"host": host})]


def write_status(db: Db, host: str, pool: PoolStatus) -> None:
    planned = pool.planned
    given = {
        "host": host,
        "name": planned.name,
        "queues": list(planned.queues),
        "balance": str(planned.balance),
        "least": planned.min_processes,
        "most": planned.max_processes,
        "state": str(pool.state),
        "state_reason": pool.state_reason,
        "fixed_at": pool.fixed_at,
        "wanted": pool.wanted,
        "present": pool.present,
        "leaving": pool.leaving,
        "note": pool.note,
    }
    run(db, _STAND, given)


def forget_pools(db: Db, host: str, besides: Sequence[str]) -> None:
    """Deletes the pools that are no longer planned."""
    run(db, _FORGET, {"host": host, "names": list(besides)})


# --- workers ----------------------------------------------------------------------------------------------------

_OF_PROCESS = """
SELECT id, state_file FROM job_worker WHERE machine = %(machine)s AND pid = %(pid)s AND pid_started = %(pid_started)s
"""

# Another worker of this machine may have found the dead process first, and recorded its end already.
_NEVER_CAME = """
INSERT INTO job_worker_exit (worker_id, name, host, pid, pool, queues, reason, jobs_completed, jobs_failed, started_at)
SELECT '', %(name)s, %(host)s, %(pid)s, %(pool)s, %(queues)s, %(reason)s, 0, 0, now() - %(age)s::interval
 WHERE NOT EXISTS (SELECT FROM job_worker_exit
                    WHERE host = %(host)s AND pid = %(pid)s AND exited_at >= now() - %(age)s::interval)
RETURNING id
"""

# The one that found it first could not know more than that the process was gone.
_CORRECT_END = """
UPDATE job_worker_exit SET reason = %(reason)s
 WHERE host = %(host)s AND pid = %(pid)s AND reason = %(lost)s AND exited_at >= now() - %(age)s::interval
RETURNING id
"""

_OF_OTHERS = """
SELECT pid, pid_started FROM job_worker
 WHERE machine = %(machine)s AND pool IS NOT NULL AND host = %(host)s AND master <> %(master)s
"""


@dataclass(frozen=True, slots=True)
class EndedWorker:
    """A worker process that has ended, as its supervisor saw it."""

    pid: int
    pid_started: int
    pool: str
    queues: tuple[str, ...]
    age: timedelta
    end: str
    never_ready: bool  # it ended before it was ready
    state_file: str | None = None


def record_end(
    db: psycopg.Connection[Any], master: Master, ended: EndedWorker, refused: leases.Refused | None = None
) -> list[int]:
    """Records the end of a worker and frees its jobs at once; attempts that had begun count. Returns the jobs' ids.
    `refused` is called for each job whose row PostgreSQL refuses to write; without it, that raises."""
    ours = {"machine": master.machine, "pid": ended.pid, "pid_started": ended.pid_started}
    taken: list[int] = []
    rows = run(db, _OF_PROCESS, ours)
    for worker, file in rows:
        taken += leases.release(db, worker, state_file.running(file), refused=refused)
        roster.leave(db, worker, ended.end)
        state_file.forget(file)
    state_file.forget(ended.state_file)
    its = {"host": master.host, "pid": ended.pid, "age": ended.age}
    run(db, _CORRECT_END, {**its, "reason": ended.end, "lost": roster.LOST})
    if not rows and ended.never_ready:
        name = f"{ended.pool}-{ended.pid}"
        reason = f"{ended.end} before it stood on the roster"
        about = {"name": name, "pool": ended.pool, "queues": list(ended.queues), "reason": reason}
        run(db, _NEVER_CAME, its | about)
    return taken


def of_other_masters(db: Db, master: Master) -> list[tuple[int, int]]:
    """The workers of this machine that belong to other supervisors: (pid, start time of the process)."""
    given = {"machine": master.machine, "host": master.host, "master": master.id}
    return [(pid, started) for pid, started in run(db, _OF_OTHERS, given)]


# --- the load, and decisions to scale ---------------------------------------------------------------------------

# How many jobs could begin now. Jobs of the gate 'open' count if they are due. Of the gate 'held' (limits and fair
# queues; each lane is a range of the index) as many count as their key, kind and queue have room for. The speeds of
# coming and going are measured on one page of ids near the newest running job. Jobs that a limit holds back do not
# count as arrived.
_WALKS = walks(head=("open", "queue, kind, priority"), lane=("held", "queue, kind, lane"))
_NUMBERS = """, open AS (
    SELECT its.* FROM head CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(next_retry_at) AS oldest FROM (
            SELECT next_retry_at FROM snap_processing_job AS job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open' AND job.queue = head.queue
               AND job.kind = head.kind AND job.priority = head.priority AND next_retry_at <= now()
             ORDER BY next_retry_at LIMIT %(cap)s) AS entries) AS its
     WHERE (%(queues)s::text[] IS NULL OR head.queue = ANY (%(queues)s))
       AND (%(kinds)s::text[] IS NULL OR head.kind = ANY (%(kinds)s))
       AND NOT EXISTS (SELECT FROM job_queue WHERE name = head.queue AND paused_at IS NOT NULL)
), held AS MATERIALIZED (
    SELECT lane.queue, lane.kind, lane.lane, its.jobs, its.oldest FROM lane CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(next_retry_at) AS oldest FROM (
            SELECT next_retry_at FROM snap_processing_job AS job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held'
               AND job.queue = lane.queue AND job.kind = lane.kind AND job.lane = lane.lane
             LIMIT %(cap)s) AS entries) AS its
     WHERE (%(queues)s::text[] IS NULL OR lane.queue = ANY (%(queues)s))
       AND (%(kinds)s::text[] IS NULL OR lane.kind = ANY (%(kinds)s))
       AND NOT EXISTS (SELECT FROM job_queue WHERE name = lane.queue AND paused_at IS NOT NULL)
), taken AS MATERIALIZED (
    SELECT key, count(*) AS jobs FROM snap_processing_job AS job CROSS JOIN LATERAL (
        VALUES ('queue:' || job.queue), ('kind:' || job.kind), ('key:' || nullif(job.lane, ''))) AS its (key)
     WHERE job.status = 'RUNNING' AND job.gate = 'held' AND key IS NOT NULL
     GROUP BY key
), room AS MATERIALIZED (
    SELECT key, least(its.places, its.tokens) AS jobs
      FROM (SELECT 'queue:' || queue AS key FROM held UNION SELECT 'kind:' || kind FROM held
            UNION SELECT 'key:' || lane FROM held WHERE lane <> '') AS wanted
      LEFT JOIN taken USING (key)
      LEFT JOIN job_limit_key AS bucket USING (key)
     CROSS JOIN LATERAL job_limit_of(key) AS rule
     CROSS JOIN LATERAL job_limit_room(
        rule.max_running, rule.rate, rule.burst, coalesce(taken.jobs, 0), coalesce(bucket.full_at, now())) AS its
), let_in AS (  -- least() skips nulls: where there is no limit, all
    SELECT least(sum(jobs), max(room)) AS jobs, min(oldest) AS oldest FROM (
        SELECT queue, least(sum(jobs), max(room)) AS jobs, min(oldest) AS oldest,
               (SELECT jobs FROM room WHERE key = 'queue:' || queue) AS room FROM (
            SELECT queue, kind, least(jobs, (SELECT jobs FROM room WHERE key = 'key:' || lane)) AS jobs, oldest,
                   (SELECT jobs FROM room WHERE key = 'kind:' || kind) AS room
              FROM held) AS of_lane
         GROUP BY queue, kind) AS of_kind
     GROUP BY queue
), due AS (
    -- greatest() replaces -infinity, which people may write into a run_at and old servers cannot subtract
    SELECT sum(jobs) AS jobs, min(greatest(oldest, '1900-01-01Z')) FILTER (WHERE jobs > 0) AS oldest
      FROM (SELECT * FROM open UNION ALL SELECT * FROM let_in) AS both_ways
), running AS (
    SELECT count(*) AS jobs, max(id) AS newest FROM snap_processing_job
     WHERE status = 'RUNNING' AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
), ended AS (
    SELECT count(*) FILTER (WHERE finished_at > now() - %(goes)s::interval) AS jobs,
           avg(extract(epoch FROM finished_at - started_at)) AS runtime FROM (
        SELECT queue, started_at, finished_at FROM snap_processing_job
         WHERE id <= (SELECT coalesce(newest, (SELECT max(id) FROM snap_processing_job)) FROM running)
         ORDER BY id DESC LIMIT %(sample)s) AS lately
     WHERE finished_at > now() - %(memory)s::interval AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
), arrived AS (
    SELECT count(*) AS jobs FROM (
        SELECT queue, gate, status, created_at FROM snap_processing_job ORDER BY id DESC LIMIT %(sample)s) AS newest
     WHERE created_at > now() - %(comes)s::interval AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s))
       AND NOT (gate = 'held' AND status IN ('PENDING', 'RETRY_WAIT'))
)
SELECT coalesce(due.jobs, 0)::bigint, greatest(0, extract(epoch FROM now() - due.oldest))::float8, running.jobs,
       arrived.jobs::float8, ended.jobs::float8, ended.runtime::float8
  FROM due, running, arrived, ended
"""
_LOAD = _WALKS + _NUMBERS

_KINDS = """
SELECT array_agg(DISTINCT kind) FROM job_worker CROSS JOIN unnest(kinds) AS kind
 WHERE host = %(host)s AND pool = %(pool)s AND expires_at > now()
"""

_DECIDE = """
INSERT INTO job_scaling (host, pool, balance, present, wanted, reason, inputs)
VALUES (%(host)s, %(pool)s, %(balance)s, %(present)s, %(wanted)s, %(reason)s, %(inputs)s)
RETURNING id
"""

# The windows in which arrivals and ends are counted. The first is long, to be smooth. The second is short, because the
# ends are divided by the present number of processes, which may have been another one earlier.
_COMES, _GOES = timedelta(seconds=10), timedelta(seconds=3)
_MEMORY = timedelta(minutes=5)  # the window of the mean duration


def load(db: Db, queues: Sequence[str], known: Sequence[str] | None) -> Load:
    """Measures the load of a pool now, in the caller's transaction. `known` are the kinds that its workers know; None:
    no worker has told its kinds yet."""
    bend_plans(db, within=timedelta(seconds=5))
    given = {
        "queues": list(queues) or None,
        "kinds": None if known is None else list(known),
        "cap": 10_000,
        "sample": 5_000,
        "comes": _COMES,
        "goes": _GOES,
        "memory": _MEMORY,
    }
    [(due, oldest, running, arrived, ended, runtime)] = run(db, _LOAD, given)
    return Load(
        due=due,
        oldest_due=oldest or 0.0,
        running=running,
        arrivals=arrived / _COMES.total_seconds(),
        finished=ended / _GOES.total_seconds(),
        runtime=runtime,
    )


def kinds(db: Db, host: str, pool: str) -> list[str] | None:
    """The kinds that the workers of a pool know; None: it has no worker."""
    [(known,)] = run(db, _KINDS, {"host": host, "pool": pool})
    return known and list(known)


def record_decision(
    db: Db, host: str, pool: str, balance: str, present: int, wanted: int, reason: str, inputs: dict[str, Any]
) -> None:
    given = {"host": host, "pool": pool, "balance": balance, "present": present, "wanted": wanted, "reason": reason}
    run(db, _DECIDE, {**given, "inputs": json.dumps(inputs)})

"""Supervisors and pools for people: their present state, and the decisions to scale them."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from snapapp.jobs.rows.database import Db, run, value_of


@dataclass(frozen=True, slots=True)
class PoolLine:
    """A pool, or a host without pools (then `pool` is None)."""

    host: str
    master: str
    pool: str | None
    state: str | None
    state_reason: str | None
    queues: list[str] | None
    balance: str | None
    fixed_at: int | None
    min_processes: int | None
    max_processes: int | None
    wanted: int | None
    present: int | None
    leaving: int | None
    slots: int
    running: int
    memory_mb: int
    jobs_completed: int
    jobs_failed: int
    note: str | None
    pid: int
    started_at: datetime
    beat_at: datetime


@dataclass(frozen=True, slots=True)
class Decided:
    id: int
    at: datetime
    host: str
    pool: str
    balance: str
    present: int
    wanted: int
    reason: str
    inputs: Any


_FLEET = """
SELECT host, master, pool, state, state_reason, queues, balance, fixed_at, min_processes, max_processes, wanted,
       present, leaving, coalesce(slots, 0)::bigint, coalesce(running, 0)::bigint, coalesce(memory_mb, 0)::bigint,
       coalesce(jobs_completed, 0)::bigint, coalesce(jobs_failed, 0)::bigint, note, pid, started_at, beat_at
  FROM fleet_overview ORDER BY host, pool
"""

_DECISIONS = """
SELECT id, at, host, pool, balance, present, wanted, reason, inputs::text FROM job_scaling
 WHERE id < %(before)s AND (%(pool)s::text IS NULL OR pool = %(pool)s) ORDER BY id DESC LIMIT %(limit)s
"""


def fleet(db: Db) -> list[PoolLine]:
    return [PoolLine(*row) for row in run(db, _FLEET, {})]


def decisions(db: Db, *, before: int | None = None, pool: str | None = None, limit: int = 50) -> list[Decided]:
    """The decisions to scale, the newest first; `before` is the id of the last one seen."""
    rows = run(db, _DECISIONS, {"before": before or 2**63 - 1, "pool": pool, "limit": limit})
    return [value_of(Decided, row, inputs=json.loads) for row in rows]

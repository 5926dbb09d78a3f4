"""Schedules for people: the list, one schedule, its coming slots and its ledger; pausing, resuming and running it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, cast

from snapapp.jobs.rows.database import Db, Rows, refusals, value_of
from snapapp.jobs.rows.database import run as _run
from snapapp.jobs.schedules.slots import InvalidSchedule, Outcome, Slot, UnknownSchedule, upcoming


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSummary:
    """A schedule as a line of a list; the fields are named as the columns of schedule_overview."""

    name: str
    spec: str
    tz: str
    queue: str
    payload: Any
    max_attempts: int
    missed: str
    at_most: int
    overlap: bool
    workers: int  # how many live workers declare it as it stands; 0: no slot is fired
    paused_at: datetime | None
    paused_reason: str | None
    last_slot: datetime | None
    last_outcome: Outcome | None
    last_why: str | None
    last_fired: datetime | None
    last_job: int | None
    last_job_status: str | None
    settled_until: datetime
    created_at: datetime
    declared_at: datetime
    next_slot: datetime | None  # given even if the schedule is paused or no worker declares it
    now: datetime  # by the database's clock


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The outcome of a slot. worker=None: a person ran the schedule."""

    slot: datetime
    outcome: Outcome
    why: str | None
    job_id: int | None
    job_status: str | None  # None: there is no job, or it was pruned
    worker: str | None
    recorded_at: datetime


_SUMMARIES = """
SELECT seen.name, seen.spec, seen.tz, seen.queue, its.payload::text, its.max_attempts, seen.missed, its.at_most,
       seen.overlap, seen.workers, seen.paused_at, seen.paused_reason, seen.last_slot, seen.last_outcome, seen.last_why,
       seen.last_fired, seen.last_job, seen.last_job_status, seen.settled_until, seen.created_at, seen.declared_at,
       NULL, clock_timestamp()
  FROM schedule_overview AS seen JOIN job_schedule AS its USING (name)
 WHERE %(name)s::text IS NULL OR seen.name = %(name)s
 ORDER BY seen.name
"""

_LEDGER = """
SELECT entry.slot, entry.outcome, entry.why, entry.job_id, job.status, entry.worker, entry.recorded_at
  FROM job_schedule_slot AS entry LEFT JOIN snap_processing_job AS job ON job.id = entry.job_id
 WHERE entry.schedule = %(name)s AND (%(before)s::timestamptz IS NULL OR entry.slot < %(before)s)
 ORDER BY entry.slot DESC LIMIT %(limit)s
"""


def schedules(db: Db) -> list[ScheduleSummary]:
    """All schedules that were ever declared, in the order of their names."""
    return [_summary(row) for row in _run(db, _SUMMARIES, {"name": None})]


def schedule(db: Db, name: str) -> ScheduleSummary:
    rows = _run(db, _SUMMARIES, {"name": name})
    if not rows:
        raise UnknownSchedule(f"there is no schedule {name}: a worker that declares it writes it down when it starts")
    return _summary(rows[0])


def ledger(db: Db, name: str, *, before: datetime | None = None, limit: int = 20) -> list[LedgerEntry]:
    """The outcomes of its slots, the newest first; `before` is the last slot of the previous page."""
    rows = _run(db, _LEDGER, {"name": name, "before": before, "limit": limit})
    return [LedgerEntry(slot, Outcome(outcome), *rest) for slot, outcome, *rest in rows]


def preview(its: ScheduleSummary, *, after: datetime | None = None, count: int = 20) -> list[Slot]:
    """Its next slots, from now or from any time, with notes about changes of the clock."""
    return list(islice(upcoming(its.spec, its.tz, after or max(its.now, its.settled_until)), count))


def pause(db: Db, name: str, reason: str | None = None) -> None:
    """Pauses a schedule: its slots are skipped until it is resumed."""
    _ask(db, "SELECT pause_schedule(%(name)s, %(reason)s)", {"name": name, "reason": reason})


def resume(db: Db, name: str) -> None:
    _ask(db, "SELECT resume_schedule(%(name)s)", {"name": name})


def run(db: Db, name: str) -> int:
    """Enqueues its job now, in addition to its slots, even if the schedule is paused; returns the job's id."""
    return cast(int, _ask(db, "SELECT run_schedule(%(name)s)", {"name": name})[0][0])


def _ask(db: Db, sql: str, parameters: Mapping[str, Any]) -> Rows:
    with refusals({"P0002": UnknownSchedule}):
        return _run(db, sql, parameters)


def _summary(row: tuple[Any, ...]) -> ScheduleSummary:
    its = value_of(ScheduleSummary, row, payload=json.loads, last_outcome=lambda outcome: outcome and Outcome(outcome))
    return replace(its, next_slot=_next(its.spec, its.tz, max(its.now, its.settled_until)))


def _next(spec: str, tz: str, after: datetime) -> datetime | None:
    try:
        slot = next(upcoming(spec, tz, after), None)
    except InvalidSchedule:  # a worker of a newer release declared it, and this one cannot read its spec
        return None
    return slot.at if slot else None

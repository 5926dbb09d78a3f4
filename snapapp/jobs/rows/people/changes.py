"""What changes in the queue, told as facts: one bounded look, compared with the look before. No trigger and no index
is there for it, so that a queue nobody watches pays nothing.

A job that went several steps between two looks is told by the last of them.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from snapapp.jobs.model import Status
from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.database import run as _run
from snapapp.jobs.rows.people import views
from snapapp.jobs.rows.people.views import JobSummary, LogEntry

NEWEST = 500  # jobs that a look has in sight, besides the running ones
RUNNING = 500
WINDOW = 5_000  # the newest rows, among which those that match are looked for
IDS_MAX = 100  # jobs that can be watched by their ids
LINES = 200  # of a job's log, in one look


class What(StrEnum):
    ADDED = "added"
    CLAIMED = "claimed"
    PROGRESS = "progress"
    STOPPING = "stopping"  # it runs, and was asked to stop
    RETRIED = "retried"  # it failed, and will be tried again
    WAITING = "waiting"  # it was handed back, snoozed, or revived by a person
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Interest:
    """Which jobs to watch; None: any. With ids, these and no others."""

    kind: str | None = None
    queue: str | None = None
    tenant: str | None = None
    ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    what: What
    job: JobSummary


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a job's log."""

    job_id: int
    entry: LogEntry


@dataclass(frozen=True, slots=True)
class Look:
    """The jobs in sight at one moment. From `floor` on none is missing; `top` is the newest that existed."""

    jobs: Mapping[int, JobSummary] = field(default_factory=dict)
    floor: int = 0
    top: int = 0


@dataclass(frozen=True, slots=True)
class News:
    """What became of the jobs in sight. `skipped`: so many, at most, came and went between two looks unseen."""

    changes: list[Change]
    lines: list[Line]
    skipped: int
    now: datetime  # the database's


# --- what changed, from two looks -------------------------------------------------------------------------------


def changes(before: Look, now: Look) -> list[Change]:
    """In the order of the ids."""
    found = [(_what(before, job), job) for job in now.jobs.values() if job is not before.jobs.get(job.id)]
    gone = [(What.REMOVED, job) for job in before.jobs.values() if _is_gone(job, now)]
    told = [Change(what, job) for what, job in (*found, *gone) if what is not None]
    return sorted(told, key=lambda change: change.job.id)


def _what(before: Look, job: JobSummary) -> What | None:
    old = before.jobs.get(job.id)
    if old is not None:
        return _step(old, job)
    if job.id < before.floor:  # it was there, out of sight
        return What.CLAIMED if job.status is Status.RUNNING else None
    return What.ADDED if job.status is Status.PENDING else _STATES[job.status]


def _step(old: JobSummary, new: JobSummary) -> What | None:
    if _place(old) != _place(new):
        return _STATES[new.status]
    if new.status is not Status.RUNNING:
        return None
    if old.cancel_requested_at is None and new.cancel_requested_at is not None:
        return What.STOPPING
    return What.PROGRESS if (old.progress, old.started_at) != (new.progress, new.started_at) else None


def _place(job: JobSummary) -> tuple[object, ...]:
    """Where a job stands on its way. When a waiting one may run is part of it, of the others it is history."""
    due = job.next_retry_at if job.status in (Status.PENDING, Status.RETRY_WAIT) else None
    return job.status, job.attempt_count, job.claimed_by, job.finished_at, due


_STATES: Mapping[Status, What] = {
    Status.PENDING: What.WAITING,
    Status.RETRY_WAIT: What.RETRIED,
    Status.RUNNING: What.CLAIMED,
    Status.COMPLETED: What.COMPLETED,
    Status.FAILED: What.FAILED,
    Status.CANCELLED: What.CANCELLED,
}


def _is_gone(job: JobSummary, now: Look) -> bool:
    """A job that ran was asked for by its id; any other may just have slipped out of sight."""
    return job.id not in now.jobs and (job.id >= now.floor or job.status is Status.RUNNING)


def skipped(before: Look, now: Look) -> int:
    """Ids between what the last look knew and what this one sees: jobs that are in neither."""
    return max(0, now.floor - before.top - 1) if before.top else 0


# --- looking ----------------------------------------------------------------------------------------------------

# The newest by id, and not those above the last one seen: ids are taken before their transactions commit, so a lower
# one may come later. xmin is another one whenever a row was changed: only such rows are read whole.
_SIGHT = """
WITH newest AS MATERIALIZED (
    SELECT id, xmin::text AS version, kind, queue, tenant FROM snap_processing_job ORDER BY id DESC LIMIT %(window)s
), running AS MATERIALIZED (
    SELECT id, xmin::text AS version, kind, queue, tenant FROM snap_processing_job
     WHERE status = 'RUNNING' ORDER BY id DESC LIMIT %(running)s
), matching AS MATERIALIZED (
    SELECT id, version FROM newest
     WHERE (%(kind)s::text IS NULL OR kind = %(kind)s) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
       AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
     ORDER BY id DESC LIMIT %(newest)s
), sight AS (
    SELECT id, version FROM matching
  UNION
    SELECT id, version FROM running
     WHERE (%(kind)s::text IS NULL OR kind = %(kind)s) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
       AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
  UNION
    SELECT id, xmin::text FROM snap_processing_job WHERE id = ANY (%(watched)s::bigint[])
)
SELECT edge.floor, edge.top, clock_timestamp(), sight.id, sight.version
  FROM (SELECT CASE WHEN (SELECT count(*) FROM matching) = %(newest)s THEN (SELECT min(id) FROM matching)
                    WHEN (SELECT count(*) FROM newest) = %(window)s THEN (SELECT min(id) FROM newest)
                    ELSE 0 END AS floor,
               (SELECT max(id) FROM newest) AS top) AS edge
  LEFT JOIN sight ON true
"""

_NAMED = """
SELECT 0, 0, clock_timestamp(), sight.id, sight.version
  FROM (SELECT) AS always
  LEFT JOIN (SELECT id, xmin::text AS version FROM snap_processing_job WHERE id = ANY (%(watched)s::bigint[])) AS sight
    ON true
"""

# As in a list of the board, but cut: thousands of them are kept, and a progress may have 64 KiB.
_CUT = {
    "suspect": "losses >= 2 OR memory_mb IS NOT NULL",
    "progress": "CASE WHEN pg_column_size(progress) <= 4096 THEN progress::text END",
    "last_error": "left(last_error, 500)",
    "next_retry_at": "greatest(least(next_retry_at, '9999-01-01Z'), '1900-01-01Z')",
}
_FIELDS = tuple(JobSummary.__dataclass_fields__)
_SUMMARIES = f"""
SELECT {", ".join(_CUT.get(name, name) for name in _FIELDS)}
  FROM snap_processing_job WHERE id = ANY (%(ids)s::bigint[])
"""  # noqa: S608 - put together once, from names in this file

_LINES = """
SELECT wanted.job_id, said.* FROM unnest(%(ids)s::bigint[], %(since)s::bigint[]) AS wanted (job_id, since)
 CROSS JOIN LATERAL (
    SELECT id, attempt, level, message, at FROM job_log
     WHERE job_id = wanted.job_id AND id > wanted.since ORDER BY id LIMIT %(limit)s) AS said
 ORDER BY said.id
"""


class Tail:
    """Remembers its last look. Its connection may be another one each time, after the database was away."""

    def __init__(self, interest: Interest = Interest()) -> None:
        self.interest = interest
        self._last: Look | None = None
        self._versions: dict[int, str] = {}
        self._said: dict[int, int] = {}  # by job: the last line of its log that was told

    @property
    def jobs(self) -> list[JobSummary]:
        """Those in sight at the last look, newest first."""
        return sorted(self._last.jobs.values(), key=lambda job: -job.id) if self._last else []

    def look(self, db: Db) -> News:
        """What changed since the last look; the first one only remembers."""
        before = self._last
        now, at = self._see(db)
        self._last = now
        lines = self._lines(db)
        if before is None:
            return News([], lines, 0, at)
        return News(changes(before, now), lines, skipped(before, now), at)

    def _see(self, db: Db) -> tuple[Look, datetime]:
        rows = _run(db, _NAMED if self.interest.ids else _SIGHT, self._parameters())
        floor, top, at = rows[0][:3]
        versions = {row[3]: row[4] for row in rows if row[3] is not None}
        known = self._last.jobs if self._last else {}
        changed = [job_id for job_id, version in versions.items() if self._versions.get(job_id) != version]
        fresh = _summaries(db, changed)
        kept = {job_id: known[job_id] for job_id in versions.keys() - set(changed)}
        # a row that was changed once more between the two statements has a version we do not know: read again next time
        self._versions = versions
        return Look(kept | fresh, floor, top or 0), at

    def _parameters(self) -> dict[str, Any]:
        it = self.interest
        is_open = it.kind is None and it.queue is None and it.tenant is None
        return {
            "kind": it.kind,
            "queue": it.queue,
            "tenant": it.tenant,
            "window": NEWEST if is_open else WINDOW,
            "newest": NEWEST,
            "running": RUNNING,
            "watched": list(it.ids) or self._unfinished(),
        }

    def _unfinished(self) -> list[int]:
        """What ran at the last look and may have ended since; the newest and the running are in sight anyway."""
        jobs = self._last.jobs.values() if self._last else ()
        return [job.id for job in jobs if job.status is Status.RUNNING]

    def _lines(self, db: Db) -> list[Line]:
        """Of jobs that were named; of all jobs they would be a flood."""
        told: list[Line] = []
        for job_id in self.interest.ids - self._said.keys():
            last = views.logs(db, job_id)
            told += [Line(job_id, entry) for entry in last]
            self._said[job_id] = last[-1].id if last else 0
        for line in _lines_since(db, self._said):
            told.append(line)
            self._said[line.job_id] = line.entry.id
        return told


def _summaries(db: Db, ids: Collection[int]) -> dict[int, JobSummary]:
    rows = _run(db, _SUMMARIES, {"ids": list(ids)}) if ids else []
    return {job.id: job for job in map(_summary, rows)}


def _summary(row: tuple[Any, ...]) -> JobSummary:
    values = dict(zip(_FIELDS, row, strict=True))
    progress = None if values["progress"] is None else json.loads(values["progress"])
    return JobSummary(**values | {"status": Status(values["status"]), "progress": progress})


def _lines_since(db: Db, since: Mapping[int, int]) -> Iterable[Line]:
    if not since:
        return []
    parameters = {"ids": list(since), "since": list(since.values()), "limit": LINES}
    return [Line(row[0], LogEntry(*row[1:])) for row in _run(db, _LINES, parameters)]

"""What changed in the queue, for live pages: each look reads a bounded number of jobs and is compared with the look
before. It needs no trigger and no index of its own, so a queue that nobody watches pays nothing.

For a job that made several steps between two looks, only the last step is reported.
"""

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

NEWEST = 500  # newest matching jobs that a look has in sight
RUNNING = 500  # running jobs that it has in sight besides
WINDOW = 5_000  # newest rows among which it searches the matching ones
IDS_MAX = 100  # jobs that can be watched by their ids
LINES = 200  # lines of one job's log that a look reports


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
    """Which jobs to watch. None, or no kinds: any. If ids are given, only these jobs, whatever the other fields say."""

    kinds: frozenset[str] = frozenset()
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
    """The jobs in sight at one moment. From the id `floor` on no matching job is missing; `top` is the highest id."""

    jobs: Mapping[int, JobSummary] = field(default_factory=dict)
    floor: int = 0
    top: int = 0


@dataclass(frozen=True, slots=True)
class News:
    """What changed between two looks. `skipped`: at most so many jobs came and went out of sight unseen."""

    changes: list[Change]
    lines: list[Line]
    skipped: int
    now: datetime  # the database's


# --- what changed, from two looks -------------------------------------------------------------------------------


def changes(before: Look, now: Look) -> list[Change]:
    """All changes between two looks, in the order of job ids."""
    steps = [(_change_of(before, job), job) for job in now.jobs.values() if job is not before.jobs.get(job.id)]
    removals = [(What.REMOVED, job) for job in before.jobs.values() if _is_gone(job, now)]
    changed = [Change(what, job) for what, job in (*steps, *removals) if what is not None]
    return sorted(changed, key=lambda change: change.job.id)


def _change_of(before: Look, job: JobSummary) -> What | None:
    old = before.jobs.get(job.id)
    if old is not None:
        return _step(old, job)
    if job.id < before.floor:  # the job existed before, but was not in sight
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
    """Two looks with the same place: the job made no step. next_retry_at means something only while a job waits."""
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
    """Was the job deleted? Jobs that ran are looked up by id; others below `floor` may only be out of sight."""
    return job.id not in now.jobs and (job.id >= now.floor or job.status is Status.RUNNING)


def skipped(before: Look, now: Look) -> int:
    """Number of ids between the top of the last look and the floor of this one: jobs in neither look."""
    return max(0, now.floor - before.top - 1) if before.top else 0


# --- looking ----------------------------------------------------------------------------------------------------

# It reads the newest ids each time, not only those above the last one seen: an id is taken before its transaction
# commits, so a lower id may become visible later. xmin differs after every change of a row, so only rows with a new
# xmin are read whole.
_SIGHT = """
WITH newest AS MATERIALIZED (
    SELECT id, xmin::text AS version, kind, queue, tenant FROM snap_processing_job ORDER BY id DESC LIMIT %(window)s
), running AS MATERIALIZED (
    SELECT id, xmin::text AS version, kind, queue, tenant FROM snap_processing_job
     WHERE status = 'RUNNING' ORDER BY id DESC LIMIT %(running)s
), matching AS MATERIALIZED (
    SELECT id, version FROM newest
     WHERE (%(kinds)s::text[] IS NULL OR kind = ANY (%(kinds)s)) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
       AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
     ORDER BY id DESC LIMIT %(newest)s
), sight AS (
    SELECT id, version FROM matching
  UNION
    SELECT id, version FROM running
     WHERE (%(kinds)s::text[] IS NULL OR kind = ANY (%(kinds)s)) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
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

# Thousands of summaries are kept, and one progress may have 64 KiB.
_PROGRESS = "CASE WHEN pg_column_size(progress) <= 4096 THEN progress::text END"
_SUMMARIES = f"""
SELECT {views.columns(JobSummary, progress=_PROGRESS, last_error="left(last_error, 500)")}
  FROM snap_processing_job WHERE id = ANY (%(ids)s::bigint[])
"""  # noqa: S608 - put together once, from names in these files

_LINES = """
SELECT wanted.job_id, log.* FROM unnest(%(ids)s::bigint[], %(since)s::bigint[]) AS wanted (job_id, since)
 CROSS JOIN LATERAL (
    SELECT id, attempt, level, message, at FROM job_log
     WHERE job_id = wanted.job_id AND id > wanted.since ORDER BY id LIMIT %(limit)s) AS log
 ORDER BY log.id
"""


class Tail:
    """Watches jobs by repeated looks and remembers the last one. Each look may use another connection."""

    def __init__(self, interest: Interest = Interest()) -> None:
        self.interest = interest
        self._last: Look | None = None
        self._versions: dict[int, str] = {}
        self._last_lines: dict[int, int] = {}  # job id -> id of its last log line that was reported

    @property
    def jobs(self) -> list[JobSummary]:
        """The jobs in sight at the last look, newest first."""
        return sorted(self._last.jobs.values(), key=lambda job: -job.id) if self._last else []

    def look(self, db: Db) -> News:
        """Returns what changed since the last look. The first look reports no changes."""
        before = self._last
        now, at = self._see(db)
        self._last = now
        lines = self._lines(db)
        if before is None:
            return News([], lines, 0, at)
        return News(changes(before, now), lines, skipped(before, now), at)

    def _see(self, db: Db) -> tuple[Look, datetime]:
        rows = _run(db, _SIGHT, self._parameters())
        floor, top, at = rows[0][:3]
        versions = {row[3]: row[4] for row in rows if row[3] is not None}
        last_jobs = self._last.jobs if self._last else {}
        changed = [job_id for job_id, version in versions.items() if self._versions.get(job_id) != version]
        reread = _summaries(db, changed)
        unchanged = {job_id: last_jobs[job_id] for job_id in versions.keys() - set(changed)}
        # a row changed between the two statements has a version newer than its entry here: the next look reads it again
        self._versions = versions
        return Look(unchanged | reread, floor or 0, top or 0), at

    def _parameters(self) -> dict[str, Any]:
        interest = self.interest
        is_open = not interest.kinds and interest.queue is None and interest.tenant is None
        by_id = bool(interest.ids)  # then no other job is in sight
        return {
            "kinds": list(interest.kinds) or None,
            "queue": interest.queue,
            "tenant": interest.tenant,
            "window": 0 if by_id else NEWEST if is_open else WINDOW,
            "newest": 0 if by_id else NEWEST,
            "running": 0 if by_id else RUNNING,
            "watched": list(interest.ids) or self._unfinished(),
        }

    def _unfinished(self) -> list[int]:
        """Jobs that ran at the last look: they may have ended since, and need not be among the newest."""
        jobs = self._last.jobs.values() if self._last else ()
        return [job.id for job in jobs if job.status is Status.RUNNING]

    def _lines(self, db: Db) -> list[Line]:
        """New log lines of the jobs watched by id; the lines of all jobs would be too many."""
        lines: list[Line] = []
        for job_id in self.interest.ids - self._last_lines.keys():
            last = views.logs(db, job_id)
            lines += [Line(job_id, entry) for entry in last]
            self._last_lines[job_id] = last[-1].id if last else 0
        for line in _lines_since(db, self._last_lines):
            lines.append(line)
            self._last_lines[line.job_id] = line.entry.id
        return lines


def _summaries(db: Db, ids: Collection[int]) -> dict[int, JobSummary]:
    rows = _run(db, _SUMMARIES, {"ids": list(ids)}) if ids else []
    return {job.id: job for job in map(views.summary, rows)}


def _lines_since(db: Db, since: Mapping[int, int]) -> Iterable[Line]:
    if not since:
        return []
    parameters = {"ids": list(since), "since": list(since.values()), "limit": LINES}
    return [Line(row[0], LogEntry(*row[1:])) for row in _run(db, _LINES, parameters)]

"""Checks of work that does not advance: jobs that a limit holds back, slots that hang, jobs that kill their workers,
and kinds whose attempts keep failing and being retried."""

import shlex
from collections.abc import Iterator

from snapapp.jobs.amounts import counted
from snapapp.jobs.doctor.finding import ExaminedDatabase, Finding, Severity, one_line, span
from snapapp.jobs.rows.people.overviews import bend_plans, walks

# --- limits -----------------------------------------------------------------------------------------------------

# The next job of each lane, those that are due longest; explain_limits_of_job then says what holds each of them back.
_HEADS = """, head AS MATERIALIZED (
    SELECT first.* FROM lane CROSS JOIN LATERAL (
        SELECT job, job.id, job.kind, job.next_retry_at FROM snap_processing_job AS job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held'
           AND job.queue = lane.queue AND job.kind = lane.kind AND job.lane = lane.lane
         ORDER BY priority DESC, next_retry_at LIMIT 1) AS first
     WHERE first.next_retry_at < now() - %(longer_than)s
       AND NOT EXISTS (SELECT FROM job_queue WHERE name = lane.queue AND paused_at IS NOT NULL)
     ORDER BY first.next_retry_at LIMIT 50
)
SELECT split_part(substr(said, length('The limit ') + 1), ' lets ', 1), (array_agg(said ORDER BY next_retry_at))[1],
       bool_or(coalesce(is_shut, false)), count(*), (array_agg(head.id ORDER BY next_retry_at))[1],
       (array_agg(head.kind ORDER BY next_retry_at))[1],
       -- greatest() replaces -infinity, which people may write into a run_at and old servers cannot subtract
       extract(epoch FROM now() - greatest(min(next_retry_at), '1900-01-01Z'))::float8
  FROM head CROSS JOIN LATERAL explain_limits_of_job(head.job) AS says
 WHERE said LIKE 'The limit %%'
 GROUP BY 1 ORDER BY 7 DESC LIMIT 10
"""
_HELD_BACK = walks(lane=("held", "queue, kind, lane")) + _HEADS


def limits(examined: ExaminedDatabase) -> Iterator[Finding]:
    bend_plans(examined.db)
    rows = examined.ask(_HELD_BACK, longer_than=examined.limits.unknown_for)
    for limit, said, is_shut, lanes, job, kind, seconds in rows:
        is_long = seconds >= examined.limits.due_for.total_seconds()
        yield Finding(
            id="LIMIT_FULL",
            severity=Severity.WARNING if is_shut or is_long else Severity.NOTICE,
            saw=f"{said} The oldest that it holds back, job {job} ({kind}), has been due for {span(seconds)}.",
            why="It is what somebody set, and lower than what comes in; or what runs under it does not end.",
            do="If it is too low, set it anew (snapapp limits set) or remove it; else see what runs under it.",
            paste="snapapp limits list",
            numbers={"limit": limit, "lanes": lanes, "job": job, "dueSeconds": round(seconds, 1), "isShut": is_shut},
        )
    if not rows:
        yield Finding(id="LIMITS", saw="No limit holds a job back for long.")


# --- slots ------------------------------------------------------------------------------------------------------

HANGS = "threads that ignore their deadline"  # these words are in the note of such a worker on the roster

_HANGING = """
SELECT name, host, note, current_jobs FROM job_worker
 WHERE expires_at > now() AND strpos(note, %(hangs)s) > 0 ORDER BY host, name LIMIT 20
"""


def slots(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask(_HANGING, hangs=HANGS)
    for name, host, note, jobs in rows:
        hanging = next(part for part in note.split("; ") if HANGS in part)
        yield Finding(
            id="SLOT_HANGS",
            severity=Severity.WARNING,
            saw=f"{name} ({host}) has {hanging}: a slot that is gone until they return.",
            why="A job or its hook waits for something without a time limit: a connection, a lock, a file. A thread "
            "cannot be killed.",
            do="Its worker's log has the stack. Give the call a time limit; the worker restarted, the job runs again.",
            paste=f"snapapp jobs show {jobs[0]}" if jobs else None,
            numbers={"worker": name, "host": host, "jobs": jobs},
        )
    if not rows:
        yield Finding(id="SLOTS", saw="No slot hangs beyond its deadline.")


# --- suspects ---------------------------------------------------------------------------------------------------

_SUSPECTS = """
SELECT kind, count(*), min(id), max(losses), bool_or(memory_mb IS NOT NULL) FROM (
    (SELECT id, kind, losses, memory_mb FROM snap_processing_job
      WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone' LIMIT 1000)
  UNION ALL
    (SELECT id, kind, losses, memory_mb FROM snap_processing_job WHERE status = 'RUNNING' AND losses >= 2 LIMIT 1000)
) AS suspects GROUP BY kind ORDER BY 2 DESC, 1
"""


def suspects(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask(_SUSPECTS)
    for kind, jobs, job, losses, wants_memory in rows:
        why = f"lost their worker up to {counted(losses, 'time', 'times')}" if losses else "ran short of memory"
        yield Finding(
            id="SUSPECTS",
            severity=Severity.WARNING,
            saw=f"Jobs of the kind {kind} {why}: {jobs:,}, such as job {job}. Each runs with nothing beside it.",
            why="Whoever is near when it happens is lost with it, and a worker that waits to be empty does little.",
            do=f"See how its attempts ended (snapapp jobs show {job}) and how workers ended (/ops/workers); "
            + ("give the kind more memory, or " if wants_memory else "")
            + "pause its queue or discard it until it is mended.",
            paste=f"snapapp jobs show {job}",
            numbers={"kind": kind, "jobs": jobs, "job": job, "losses": losses},
        )
    if not rows:
        yield Finding(id="NO_SUSPECTS", saw="No job is suspected of killing its workers.")


# --- kinds that keep failing ------------------------------------------------------------------------------------

# The counts come from the roll-up, the errors from the newest rows, because no index finds jobs in RETRY_WAIT by kind.
# Those that have ended meanwhile tell the error as well: at the end of a fault none may wait any more.
_REPEATED = """
WITH failing AS MATERIALIZED (
    SELECT kind, sum(retried)::bigint AS retried, sum(completed)::bigint AS completed FROM job_history
     WHERE minutes = 1 AND at > now() - %(lately)s::interval AND kind <> ''
     GROUP BY kind HAVING sum(retried) >= %(least)s AND sum(retried) > sum(completed)
), newest AS MATERIALIZED (
    SELECT kind, id, status, last_error FROM snap_processing_job
     WHERE id > (SELECT coalesce(max(id), 0) - 20000 FROM snap_processing_job) AND last_error IS NOT NULL
)
SELECT failing.*, count(*) FILTER (WHERE status = 'RETRY_WAIT'), max(newest.id),
       mode() WITHIN GROUP (ORDER BY left(split_part(newest.last_error, chr(10), 1), 200))
  FROM failing LEFT JOIN newest USING (kind)
 GROUP BY failing.kind, failing.retried, failing.completed ORDER BY failing.retried DESC
"""
_LEAST = 3


def repeated(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask(_REPEATED, lately=examined.limits.repeated_lately, least=_LEAST)
    for kind, retried, completed, waiting, job, error in rows:
        lately = span(examined.limits.repeated_lately.total_seconds())
        yield Finding(
            id="MOSTLY_REPEATED",
            severity=Severity.WARNING,
            saw=f"Attempts of the kind {kind} fail: {retried:,} within {lately} are repeated, {completed:,} completed"
            + (f"; mostly: {one_line(error)}" if error else ""),
            why="They run again by themselves, each time later; those that use up their attempts become dead letters.",
            do="What does it call: a receiver, a server, a disk? Is that up, and does it know us? When it is back, "
            "those that wait run by themselves; retry those that have become dead letters.",
            paste=f"snapapp jobs list --status {'RETRY_WAIT' if waiting else 'FAILED'} --kind={shlex.quote(kind)}",
            numbers={"kind": kind, "retried": retried, "completed": completed, "waiting": waiting, "job": job},
        )
    if not rows:
        yield Finding(id="REPEATED", saw="No kind fails more often than it completes.")

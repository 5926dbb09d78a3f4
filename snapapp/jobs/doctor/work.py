"""Checks of the work: the workers, jobs that no worker serves, stuck jobs, paused queues, schedules, dead letters, and
broken invariants."""

import shlex
from collections.abc import Iterator
from typing import Any

from snapapp.jobs.amounts import counted
from snapapp.jobs.doctor.finding import (
    Act,
    ExaminedDatabase,
    Finding,
    Remedy,
    Severity,
    ago,
    one_line,
    quoted,
    span,
    typed,
)
from snapapp.jobs.doctor.waiting import CAP, WaitingKind, waiting
from snapapp.jobs.os import processes

# --- workers ----------------------------------------------------------------------------------------------------

_WORKERS = """
SELECT id, name, host, pid, pid_started, machine, expires_at > now(),
       extract(epoch FROM clock_timestamp() - beat_at)::float8, note, queues, kinds,
       (SELECT count(*) FROM (SELECT FROM snap_processing_job
                               WHERE status = 'RUNNING' AND claimed_by = its.id LIMIT 1001) AS held)
  FROM job_worker AS its ORDER BY host, name, id
"""


def workers(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask(_WORKERS)
    alive = [row for row in rows if row[6]]
    for row in rows:
        yield from _absent(*row)
    yield from _different(alive)
    if alive:
        names = ", ".join(row[1] for row in alive[:10])
        yield Finding(
            id="WORKERS",
            saw=f"{counted(len(alive), 'worker is', 'workers are')} alive: {names}.",
            numbers={"alive": len(alive)},
        )
        return
    is_due = any(each.oldest_due is not None for each in waiting(examined.db))
    yield Finding(
        id="NO_WORKER",
        severity=Severity.CRITICAL if is_due else Severity.NOTICE,
        saw="No worker is alive" + ("." if rows else ", and none is on the roster."),
        why="Nothing runs, and nobody takes back what a dead worker held.",
        do="Start one.",
        paste="snapapp worker",
        numbers={"alive": 0},
    )


def _absent(
    worker: str, name: str, host: str, pid: int, started: int, machine: str, is_alive: bool, beat: float, *rest: Any
) -> Iterator[Finding]:
    held = rest[-1]
    is_gone = machine == processes.machine() and processes.is_gone(pid, started)
    if is_alive and not is_gone:
        return
    end = "its process is gone" if is_gone else f"its last heartbeat was {ago(beat)}"
    yield Finding(
        id="WORKER_OVERDUE",
        severity=Severity.WARNING,
        saw=f"{name} ({host}, pid {pid}) is on the roster, but {end}; it holds {counted(held, 'job', 'jobs')}.",
        why="Its jobs wait until somebody takes them back: a live worker does, within its sweep.",
        do="Is it frozen, cut off or dead? If it is dead, clear it away; its jobs run again.",
        paste="snapapp doctor --fix --only workers",
        numbers={"worker": worker, "pid": pid, "beatSecondsAgo": round(beat, 1), "jobsHeld": held, "isGone": is_gone},
        remedy=Remedy(Act.CLEAR_ROSTER),
    )


def _different(alive: list[tuple[Any, ...]]) -> Iterator[Finding]:
    """Reports workers of the same queues that know different kinds: usually two releases in the middle of a deploy."""
    by_queues: dict[tuple[str, ...], list[tuple[str, set[str]]]] = {}
    for row in alive:
        by_queues.setdefault(tuple(sorted(row[9])), []).append((row[1], set(row[10])))
    for members in by_queues.values():
        everything = set[str]().union(*(kinds for _, kinds in members))
        lacking = {name: sorted(everything - kinds) for name, kinds in members if everything - kinds}
        if lacking:
            lacks = "; ".join(f"{name} lacks {', '.join(kinds[:5])}" for name, kinds in lacking.items())
            yield Finding(
                id="WORKERS_DIFFER",
                severity=Severity.NOTICE,
                saw=f"Workers of the same queues know different kinds: {one_line(lacks, 400)}.",
                why="They run different releases, or SNAPAPP_PROCESSORS differs.",
                do="Finish the deploy, or give each its own queues.",
                numbers={"lacking": lacking},
            )


# --- LISTEN -----------------------------------------------------------------------------------------------------

_DEAF = """
SELECT name, note FROM job_worker WHERE expires_at > now() AND note LIKE '%%LISTEN is not proven alive%%'
   AND started_at < now() - interval '30 seconds'  -- the proof takes a moment
 ORDER BY name
"""


def listening(examined: ExaminedDatabase) -> Iterator[Finding]:
    deaf = examined.ask(_DEAF)
    [(full,)] = examined.ask("SELECT pg_notification_queue_usage()")
    if deaf:
        yield Finding(
            id="LISTEN_NOT_PROVEN",
            severity=Severity.NOTICE,
            saw=f"{counted(len(deaf), 'worker polls', 'workers poll')}, because LISTEN is not proven alive: "
            f"{', '.join(name for name, _ in deaf)}.",
            why="Jobs start up to a poll delay later, and idle costs more statements. Nothing is lost.",
            do="Behind a pooler in transaction mode that is how it is. Else its connection may be cut.",
            numbers={"workers": [name for name, _ in deaf]},
        )
    if full >= examined.limits.notify_queue_full:
        yield Finding(
            id="NOTIFY_QUEUE_FULL",
            severity=Severity.CRITICAL,
            saw=f"The server's NOTIFY queue is {full:.0%} full.",
            why="A session that LISTENs sits in a transaction. When the queue is full, commits with a NOTIFY fail.",
            do="End that session: the server's log names its pid, and the check `xmin` may too.",
            paste="SELECT pid, xact_start, query FROM pg_stat_activity WHERE state LIKE 'idle in tr%' ORDER BY 2;",
            numbers={"usage": full},
        )
    if not deaf and full < examined.limits.notify_queue_full:
        yield Finding(id="LISTEN", saw="Every worker hears NOTIFY, and its queue has room.", numbers={"usage": full})


# --- kinds that no worker serves, and long waits ----------------------------------------------------------------


def kinds(examined: ExaminedDatabase) -> Iterator[Finding]:
    waits = waiting(examined.db)
    wrong = [finding for each in waits for finding in _neglected(examined, each)]
    yield from wrong
    if not wrong:
        due = max((each.oldest_due or 0.0 for each in waits), default=0.0)
        oldest = f"the oldest due one for {span(due)}" if due else "none of them due"
        numbers = {"kinds": len({each.kind for each in waits}), "oldestDueSeconds": round(due, 1)}
        saw = f"Jobs of {numbers['kinds']} kinds wait, {oldest}." if waits else "Nothing waits."
        yield Finding(id="KINDS", saw=saw, numbers=numbers)


def _neglected(examined: ExaminedDatabase, its: WaitingKind) -> Iterator[Finding]:
    due = its.oldest_due or 0.0
    numbers = {"queue": its.queue, "kind": its.kind, "jobs": its.jobs, "oldestDueSeconds": round(due, 1)}
    if due < examined.limits.unknown_for.total_seconds() or its.is_paused:
        return
    if not its.is_served:
        id_ = "QUEUE_UNSERVED" if its.is_known else "KIND_UNKNOWN"
        who = f"works the queue {its.queue} and knows it" if its.is_known else "knows it"
        yield Finding(
            id=id_,
            severity=Severity.WARNING,
            saw=f"Jobs of the kind {its.kind} wait in {its.queue}: {its.count}, the oldest due for {span(due)}, and no "
            f"worker alive {who}.",
            why="They wait for ever; nothing else is held up.",
            do="Start a worker that declares it, or cancel them.",
            paste=f"snapapp jobs cancel --waiting {_these(its)}",
            numbers=numbers,
        )
    elif due >= (its.long_wait or examined.limits.due_for).total_seconds():
        yield Finding(
            id="DUE_FOR_LONG",
            severity=Severity.WARNING,
            saw=f"Jobs of the kind {its.kind} wait in {its.queue}: {its.count}, the oldest due for {span(due)}.",
            why="More comes in than the workers get done, or something holds this one back.",
            do="Ask the oldest why, look at what the workers run, or start more of them.",
            paste=f"snapapp jobs explain {its.oldest_id}" if its.oldest_id else f"snapapp jobs list {_these(its)}",
            numbers=numbers,
        )


def _these(its: WaitingKind) -> str:
    return f"--kind={shlex.quote(its.kind)} --queue={shlex.quote(its.queue)}"


# --- stuck jobs -------------------------------------------------------------------------------------------------

# The first half of the view queue_stuck. Its other half, kinds that no worker knows, is checked above at less cost.
_ENDED = """
SELECT id, kind, claimed_by, extract(epoch FROM clock_timestamp() - lock_expires_at)::float8
  FROM (SELECT id, kind, claimed_by, lock_expires_at FROM snap_processing_job
         WHERE status = 'RUNNING' LIMIT 10000) AS running
 WHERE lock_expires_at < clock_timestamp() ORDER BY lock_expires_at
"""


def stuck(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask(_ENDED)
    if not rows:
        yield Finding(id="STUCK", saw="No running job has lost its lease.")
        return
    job, kind, worker, seconds = rows[0]
    yield Finding(
        id="QUEUE_STUCK_JOBS",
        severity=Severity.WARNING,
        saw=f"{counted(len(rows), 'running job has', 'running jobs have')} lost the lease; the oldest, "
        f"of job {job} ({kind}, worker {worker}), {span(seconds)} ago.",
        why="Their worker is dead, frozen or cut off. A live one takes them back with its sweep, mostly every 15 s.",
        do="If it stays so, no worker is alive, or it cannot sweep. They can be taken back from here.",
        paste="SELECT * FROM queue_stuck;",
        numbers={"jobs": len(rows), "oldest": job, "endedSecondsAgo": round(seconds, 1)},
        remedy=Remedy(Act.RECOVER),
    )


# --- paused queues ----------------------------------------------------------------------------------------------

_PAUSED = """
SELECT name, paused_reason, extract(epoch FROM clock_timestamp() - paused_at)::float8 FROM job_queue
 WHERE paused_at IS NOT NULL ORDER BY name
"""


def queues(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask(_PAUSED)
    waits = waiting(examined.db) if rows else []
    for name, reason, seconds in rows:
        jobs = sum(each.jobs for each in waits if each.queue == name)
        is_long = jobs > 0 and seconds >= examined.limits.paused_for.total_seconds()
        yield Finding(
            id="QUEUE_PAUSED",
            severity=Severity.WARNING if is_long else Severity.NOTICE,
            saw=f"The queue {name} has been paused for {span(seconds)}{_because(reason)}; {_wait(jobs)} in it.",
            why="Somebody wanted it. No worker claims from it.",
            do="If the reason is gone, resume it.",
            paste=f"snapapp queues resume {typed(name)}",
            numbers={"queue": name, "pausedSeconds": round(seconds, 1), "reason": reason, "jobs": jobs},
        )
    if not rows:
        yield Finding(id="QUEUES", saw="No queue is paused.")


def _wait(jobs: int) -> str:
    return counted(jobs, "job waits", "jobs wait") if jobs <= CAP else f"more than {CAP:,} jobs wait"


def _because(reason: str | None) -> str:
    return f" ({one_line(reason)})" if reason else ", without a reason"


# --- schedules --------------------------------------------------------------------------------------------------

# A worker that knows the schedule's kind declares the schedule within a minute. One that has been on the roster for
# longer and is not in declared_by declares it otherwise.
_SCHEDULES = """
SELECT its.name, its.spec, its.tz, its.paused_reason,
       extract(epoch FROM clock_timestamp() - its.paused_at)::float8,
       (SELECT count(*) FROM job_worker WHERE id = ANY (its.declared_by) AND expires_at > now()),
       ARRAY(SELECT name FROM job_worker
              WHERE expires_at > now() AND its.name = ANY (kinds) AND id <> ALL (its.declared_by)
                AND started_at < now() - interval '1 minute' ORDER BY name),
       extract(epoch FROM clock_timestamp() - its.declared_at)::float8,
       (SELECT string_agg(name, ', ' ORDER BY name) FROM job_worker WHERE expires_at > now())
  FROM job_schedule AS its ORDER BY its.name
"""


def schedules(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask(_SCHEDULES)
    wrong = [finding for row in rows for finding in _schedule(*row)]
    yield from wrong
    if not wrong:
        saw = (
            f"{counted(len(rows), 'schedule', 'schedules')}, each declared by a worker that is alive."
            if rows
            else "There are no schedules."
        )
        yield Finding(id="SCHEDULES", saw=saw, numbers={"schedules": len(rows)})


def _schedule(
    name: str,
    spec: str,
    tz: str,
    reason: str | None,
    paused: float | None,
    declared: int,
    superseded: list[str],
    declared_ago: float,
    alive: str | None,
) -> Iterator[Finding]:
    numbers = {"schedule": name, "workers": declared}
    who = f"none of the workers alive ({one_line(alive)}) has it" if alive else "no worker is alive that has it"
    if not declared:
        yield Finding(
            id="SCHEDULE_UNDECLARED",
            severity=Severity.WARNING,
            saw=f"The schedule {name} ({spec}, {tz}) does not fire: {who} in its code; one last had it "
            f"{ago(declared_ago)}.",
            why="Only a worker whose code declares a schedule fires it.",
            do="Start a worker whose code has it; if it is meant to be gone, delete it and what is noted of its past.",
            paste=f"DELETE FROM job_schedule WHERE name = {quoted(name)};",  # noqa: S608 - for people to read
            numbers=numbers,
        )
    elif superseded:
        yield Finding(
            id="SCHEDULE_SUPERSEDED",
            severity=Severity.NOTICE,
            saw=f"{', '.join(superseded)} declare the schedule {name} otherwise than it stands: {spec} ({tz}).",
            why="Whoever declared last wins; the others fire nothing of it. Two releases run beside each other.",
            do="Finish the deploy.",
            numbers=numbers | {"superseded": superseded},
        )
    if paused is not None:
        yield Finding(
            id="SCHEDULE_PAUSED",
            severity=Severity.NOTICE,
            saw=f"The schedule {name} has been paused for {span(paused)}{_because(reason)}.",
            why="Somebody wanted it. Its slots are skipped, with that reason in the ledger.",
            do="If the reason is gone, resume it.",
            paste=f"snapapp schedules resume {typed(name)}",
            numbers=numbers | {"pausedSeconds": round(paused, 1), "reason": reason},
        )


# --- dead letters -----------------------------------------------------------------------------------------------

_NEWEST_DEAD = 10_000

_DEAD = """
SELECT kind, count(*), sum(count(*)) OVER () = %(newest)s, count(*) FILTER (WHERE finished_at > now() - %(lately)s),
       mode() WITHIN GROUP (ORDER BY left(split_part(last_error, chr(10), 1), 200)),
       extract(epoch FROM clock_timestamp() - max(finished_at))::float8, max(id)
  FROM (SELECT id, kind, finished_at, last_error FROM snap_processing_job
         WHERE status = 'FAILED' ORDER BY id DESC LIMIT %(newest)s) AS newest
 GROUP BY kind ORDER BY 4 DESC, 2 DESC, kind
"""


def dead_letters(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask(_DEAD, lately=examined.limits.dead_lately, newest=_NEWEST_DEAD)
    for kind, count, has_more, lately, error, seconds, newest in rows:
        jobs = f"{count:,} of the newest {_NEWEST_DEAD:,}" if has_more else f"{count:,}"
        yield Finding(
            id="DEAD_LETTERS",
            severity=Severity.WARNING if lately else Severity.NOTICE,
            saw=f"Dead letters of the kind {kind}: {jobs}, {lately:,} of them since yesterday, the last "
            f"{ago(seconds)}; mostly: {one_line(error or 'no reason')}",
            why="Their attempts are used up: they are FAILED, and run again only if somebody retries them.",
            do=f"Look at one (snapapp jobs show {newest}); when the cause is gone, retry them.",
            paste=f"snapapp jobs retry --failed --kind={shlex.quote(kind)}",
            numbers={"kind": kind, "jobs": count, "lately": lately, "newest": newest, "mostly": error},
        )
    if not rows:
        yield Finding(id="DEAD", saw="There are no dead letters.")


# --- invariants -------------------------------------------------------------------------------------------------


def invariants(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask("SELECT invariant, job_id, what FROM queue_invariants LIMIT 20")
    for invariant, job, what in rows:
        is_gone = job and invariant == "I10"  # only its log is left, and no command can show it
        look = f"snapapp jobs show {job}" if job else "SELECT * FROM queue_invariants;"
        yield Finding(
            id="INVARIANT_BROKEN",
            severity=Severity.CRITICAL,
            saw=f"{invariant}: {f'job {job}: ' if job else ''}{one_line(what)}.",
            why="This must never be: rows were changed behind the queue's back, or it has a bug.",
            do="If somebody deleted the job by hand, its log can go, too; else keep the rows and report it."
            if is_gone
            else "Keep the rows and report it; `docs/doctor.md` says what each invariant means.",
            paste=f"DELETE FROM job_log WHERE job_id = {job};" if is_gone else look,  # noqa: S608 - for people to read
            numbers={"invariant": invariant, "job": job},
        )
    if not rows:
        yield Finding(id="INVARIANTS", saw="The view queue_invariants is empty.")

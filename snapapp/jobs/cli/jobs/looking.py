"""`jobs list, show, explain, workflows`: shows jobs, and changes nothing."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from snapapp.jobs import tracing
from snapapp.jobs.amounts import about, ago, counted, local, milliseconds, moment_and_age, span
from snapapp.jobs.cli.jobs.which import add_filter, filter_of
from snapapp.jobs.cli.shown import answer, first_line, folded_json, in_json, remark, say, show_json, show_list
from snapapp.jobs.cli.tables import pairs_in_lines, show_pairs, show_table, table_in_lines, visible, write_lines
from snapapp.jobs.cli.typed import Add, Db, job_number, whole
from snapapp.jobs.model import Status
from snapapp.jobs.rows import costs
from snapapp.jobs.rows.costs import AttemptCost
from snapapp.jobs.rows.people import audit, lists, relatives, views
from snapapp.jobs.rows.people.views import JobDetail, JobSummary


def add_commands(add: Add) -> None:
    listing = add("list", list_jobs, "list jobs, newest first")
    listing.add_argument("--status", type=str.upper, choices=[status.value for status in Status])
    add_filter(listing)
    listing.add_argument("--limit", type=whole(1, 10_000), default=50, help="how many at most (default: 50)")
    listing.add_argument("--before", type=job_number, metavar="ID", help="only jobs older than this one")
    showing = add("show", show_job, "show all that is known of a job")
    showing.add_argument("id", type=job_number, metavar="ID")
    showing.add_argument("--logs", type=whole(0, 10_000), default=20, help="how many log lines (default: 20)")
    explaining = add("explain", explain_job, "say why a job is where it is, and what comes next")
    explaining.add_argument("id", type=job_number, metavar="ID")
    add("workflows", list_workflows, "list the newest jobs that wait for others, and how many of those are done")


def list_jobs(db: Db, arguments: Namespace) -> int:
    page = lists.jobs(db, filter_of(arguments), before=arguments.before, limit=arguments.limit)
    if arguments.json:
        show_json({"jobs": page.jobs, "before": page.before})
        return 0
    if page.jobs:
        show_lines(page.jobs, page.now)
    elif page.before is None:
        say("No job matches." if arguments.before is None else "No older job matches.")
    if page.before is not None:
        remark(f"Older ones: --before {page.before}")
    return 0


def show_lines(jobs: Sequence[JobSummary], now: datetime) -> None:
    headers = ["id", "status", "kind", "queue", "try", "when", "note"]
    show_table(headers, [in_line(job, now) for job in jobs], whole={4, 5}, spare=(3, 4))


def in_line(job: JobSummary, now: datetime) -> list[str]:
    tries = f"{job.attempt_count}/{job.max_attempts}"
    return [str(job.id), job.status, job.kind, job.queue, tries, _when(job, now), _note(job)]


def _when(job: JobSummary, now: datetime) -> str:
    match job.status:
        case Status.PENDING if job.waits_for:
            return f"after {counted(job.waits_for, 'job', 'jobs')}"
        case Status.PENDING | Status.RETRY_WAIT:
            late = now - job.next_retry_at
            return f"due {ago(late)}" if late >= timedelta(0) else f"in {about(-late)}"
        case Status.RUNNING:
            return f"for {about(now - job.started_at)}" if job.started_at else "claimed"
    return ago(now - job.finished_at) if job.finished_at else ""


def _note(job: JobSummary) -> str:
    match job.status:
        case Status.RUNNING if job.cancel_requested_at:
            return "asked to stop"
        case Status.RUNNING:
            return _progress(job) if job.progress is not None else ""
        case Status.COMPLETED:
            return f"took {span(job.finished_at - job.started_at)}" if job.finished_at and job.started_at else ""
    return first_line(job.last_error or "")


def show_job(db: Db, arguments: Namespace) -> int:
    job = views.job(db, arguments.id)
    logs = views.logs(db, job.id, limit=arguments.logs)
    spent = costs.of_job(db, job.id)
    deeds = audit.deeds(db, subject=f"job {job.id}")
    if arguments.json:
        further = {"costs": spent, "logs": logs, "deeds": deeds}
        show_json(asdict(job) | {"explain": views.explain(db, job.id)} | further)
        return 0
    show_pairs(job_in_words(job, views.now(db)))
    write_lines(_paragraph(views.explain(db, job.id)))
    write_lines(attempts_in_lines(job, spent, logs))
    if deeds:
        say("\nwhat people did")
        show_pairs((local(deed.at), deed.action, deed.who or "(no name)", in_json(deed.detail)) for deed in deeds)
    return 0


def attempts_in_lines(job: JobDetail, spent: Sequence[AttemptCost], logs: Sequence[views.LogEntry]) -> Iterator[str]:
    """The errors, the costs and the log of a job's attempts."""
    for error in job.errors:
        trace = str(error.get("trace") or "").rstrip()
        yield from _paragraph(f"attempt {error.get('attempt')}{_run_time(error)} failed: {error.get('error')}\n{trace}")
    if spent:
        yield ""
        headers = ["attempt", "led to", "started", "waited", "ran", "cpu", "memory"]
        yield from table_in_lines(headers, [_cost(cost) for cost in spent], numbers={3, 4, 5, 6}, whole={2})
    if logs:
        yield from ("", "log")
        said = [[local(entry.at), f"#{entry.attempt}", entry.level, entry.message] for entry in logs]
        yield from pairs_in_lines(said)


def _paragraph(text: str) -> list[str]:
    return ["", *visible(text, keep="\n").split("\n")]


def list_workflows(db: Db, arguments: Namespace) -> int:
    workflows = relatives.workflows(db)
    if arguments.json:
        show_json({"workflows": workflows})
        return 0
    headers = ["id", "state", "kind", "expected", "done", "failed", "open", "note"]
    return show_list(arguments, workflows, headers, _workflow, numbers={3, 4, 5, 6}, empty="No job waits for others.")


def _workflow(one: relatives.Workflow) -> list[str]:
    counted = [str(number) for number in (one.expected, one.succeeded, one.failed, one.open)]
    return [str(one.job_id), one.state, one.kind, *counted, first_line(one.last_error or "")]


def explain_job(db: Db, arguments: Namespace) -> int:
    explained = views.explain(db, arguments.id)
    return answer(arguments, {"id": arguments.id, "explain": explained}, explained)


def job_in_words(job: JobDetail, now: datetime) -> Iterator[tuple[str, str]]:
    """What is known of a job; what it has not, is left out."""
    for name, words in _facts(job, now):
        if words:
            yield name, words


def _facts(job: JobDetail, now: datetime) -> Iterator[tuple[str, str | None]]:
    died, interrupted = (counted(count, "time", "times") for count in (job.losses, job.interruptions))
    why_alone = f"it may use {job.memory_mb} MB" if job.memory_mb else f"its worker died {died}"
    suspect = f", a suspect: {why_alone}, so it runs alone" if job.suspect else ""
    yield "job", str(job.id)
    yield "kind", job.kind
    yield "status", f"{job.status}, {_when(job, now)}{suspect}"
    yield "queue", f"{job.queue}, priority {job.priority}"
    attempts = f"{job.attempt_count} of {job.max_attempts}"
    yield "attempts", f"{attempts}, interrupted {interrupted} by a shutdown" if job.interruptions else attempts
    if job.progress is not None:
        yield "progress", _progress(job, bar=True)
    yield "created", moment_and_age(job.created_at, now)
    yield "may run", moment_and_age(job.next_retry_at, now)
    yield "started", moment_and_age(job.started_at, now)
    yield "finished", moment_and_age(job.finished_at, now)
    yield "held by", _holder(job, now)
    yield "cancel asked", moment_and_age(job.cancel_requested_at, now)
    yield "tenant", job.tenant
    yield "unique key", job.unique_key and f"{job.unique_key} ({job.unique_scope})"
    yield "concurrency", job.concurrency_key
    yield "timeout", span(timedelta(milliseconds=job.timeout_ms)) if job.timeout_ms else "its kind's"
    yield "snap", str(job.snap_id or "")
    yield "replay of", f"job {job.replay_of}" if job.replay_of else None
    if job.waits_for is not None:
        yield "waits for", f"{job.waits_for} of its parents"
    yield "request", job.request_id
    if ids := tracing.ids(job.traceparent):
        yield "trace", ids[0]
    yield "payload", folded_json(job.payload)
    yield "result", folded_json(job.result) if job.result is not None else None
    yield "last error", job.last_error


def _holder(job: JobDetail, now: datetime) -> str | None:
    if job.claimed_by is None or job.locked_at is None or job.lock_expires_at is None:
        return None
    left = job.lock_expires_at - now
    lease = f"lease ends in {about(left)}" if left > timedelta(0) else f"lease ended {ago(-left)}"
    return f"worker {job.claimed_by}, last heartbeat {ago(now - job.locked_at)}, {lease}"


def _cost(cost: AttemptCost) -> list[str]:
    amounts = map(milliseconds, (cost.wait_ms, cost.wall_ms, cost.cpu_ms))
    return [f"#{cost.attempt}", cost.outcome, local(cost.started_at), *amounts, _memory(cost.peak_mb)]


def _memory(megabytes: float | None) -> str:
    return "" if megabytes is None else f"{megabytes:.0f} MB"


def _run_time(error: dict[str, Any]) -> str:
    return f", after {milliseconds(error['ran_ms'])}," if "ran_ms" in error else ""


def _progress(job: JobSummary, *, bar: bool = False) -> str:
    progress = job.progress
    if not isinstance(progress, dict) or not isinstance(progress.get("percent"), int | float):
        return in_json(progress)
    is_done = job.status is Status.COMPLETED  # shown as 100 %, because few processors report it before their end
    percent = 100.0 if is_done else max(0.0, min(100.0, float(progress["percent"])))
    filled = round(percent / 5)
    drawn = f"{'█' * filled}{'░' * (20 - filled)} " if bar else ""
    note = "" if is_done else progress.get("note") or ""
    return f"{drawn}{percent:g} % {note}".rstrip()

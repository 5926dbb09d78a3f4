"""`jobs …`: list, show, enqueue, retry, replay, cancel, count."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from snapapp.jobs import tracing
from snapapp.jobs.cli.audited import note, witness_of_all, witness_of_each
from snapapp.jobs.cli.queues import found_queues, show_queues
from snapapp.jobs.cli.shown import (
    about,
    ago,
    answer,
    bar_of,
    begun,
    digits,
    first_line,
    folded_json,
    in_json,
    local,
    milliseconds,
    moment_and_age,
    pairs_in_lines,
    say,
    show_json,
    show_list,
    show_table,
    span,
    table_in_lines,
    visible,
    whisper,
    write_lines,
)
from snapapp.jobs.cli.typed import Add, Db, age, duration, hexadecimal, job_number, moment, text, whole
from snapapp.jobs.enqueue import enqueue
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.model import FINAL, Status
from snapapp.jobs.rows import costs, lifecycle
from snapapp.jobs.rows.costs import AttemptCost, KindCost
from snapapp.jobs.rows.database import together
from snapapp.jobs.rows.people import audit, bulk, overviews, relatives, views
from snapapp.jobs.rows.people.bulk import Answers
from snapapp.jobs.rows.people.views import Filter, JobDetail, JobSummary

Step = Callable[[Db, Iterable[int], bulk.OnProgress, bulk.Witness], Answers]

_SAMPLE = 10  # jobs that a preview shows
_MOST_REPLAYED = 10_000  # in one call, so that a slip of the fingers has an end
_COMPLAINTS = 20  # printed one by one; the others are only counted


def add_commands(add: Add) -> None:
    listing = add("list", list_jobs, "list jobs, newest first")
    listing.add_argument("--status", type=str.upper, choices=[status.value for status in Status])
    _add_filter(listing)
    listing.add_argument("--limit", type=whole(1, 10_000), default=50, help="how many at most (default: 50)")
    listing.add_argument("--before", type=job_number, metavar="ID", help="only jobs older than this one")
    showing = add("show", show_job, "show all that is known of a job")
    showing.add_argument("id", type=job_number, metavar="ID")
    showing.add_argument("--logs", type=whole(0, 10_000), default=20, help="how many log lines (default: 20)")
    explaining = add("explain", explain_job, "say why a job is where it is, and what comes next")
    explaining.add_argument("id", type=job_number, metavar="ID")
    _add_enqueue(add)
    retrying = add("retry", retry_jobs, "run FAILED or CANCELLED jobs again, counting from zero")
    add_many(retrying, "--failed", "every FAILED job that matches")
    replaying = add("replay", replay_jobs, "run copies of jobs")
    add_many(replaying, "--ended", "every COMPLETED job that matches, or those of --status")
    replaying.add_argument("--status", type=str.upper, choices=[status.value for status in FINAL])
    cancelling = add("cancel", cancel_jobs, "end waiting jobs, ask running ones to stop")
    add_many(cancelling, "--waiting", "every waiting job that matches")
    add("workflows", list_workflows, "list the newest jobs that wait for others, and how many of those are done")
    add("stats", show_stats, "count what waits, runs and failed, what the last hour did, and what each kind costs")


def _add_enqueue(add: Add) -> None:
    parser = add("enqueue", enqueue_job, "add a job")
    parser.set_defaults(needs_kinds=True)
    parser.add_argument("kind", type=text, metavar="KIND")
    parser.add_argument(
        "payload", nargs="?", default="{}", metavar="JSON", help="an object; @FILE reads a file, - reads stdin"
    )
    parser.add_argument("--queue", type=text, help="default: the one that its kind declares")
    parser.add_argument("--priority", type=int, default=0, help="higher first, -1000 to 1000")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--delay", type=duration, help="such as 10s, 5m, 2h, 1d")
    when.add_argument("--run-at", type=moment, metavar="TIME", help="such as 2030-01-31T08:00:00Z")
    unique = parser.add_mutually_exclusive_group()
    unique.add_argument("--unique-key", type=text, help="while a live job of its kind has it, no other is added")
    unique.add_argument("--unique-by", choices=["spec"], help="its work is its key: the same payload, the same job")
    parser.add_argument("--max-attempts", type=int)
    parser.add_argument("--tenant", type=text, default="")
    parser.add_argument("--concurrency-key", type=text)
    parser.add_argument("--after", type=job_number, nargs="+", metavar="ID", help="jobs that must end before")
    parser.add_argument("--on-parent-failure", choices=["cancel", "run"], default="cancel", help="default: cancel")


def _add_filter(parser: ArgumentParser) -> None:
    parser.add_argument("--kind", type=text)
    parser.add_argument("--queue", type=text)
    parser.add_argument("--tenant", type=text)
    parser.add_argument("--error", dest="last_error", type=text, metavar="TEXT", help="their last error has this in it")
    parser.add_argument("--older-than", type=age, metavar="AGE", help="since they were enqueued: 12h, 30d")
    parser.add_argument("--hash", type=hexadecimal, help="of their work, or how it begins: jobs show has it")


def add_many(parser: ArgumentParser, flag: str, what: str) -> None:
    parser.add_argument("ids", nargs="*", type=job_number, metavar="ID")
    parser.add_argument(flag, dest="all", action="store_true", help=what)
    _add_filter(parser)
    parser.add_argument("--preview", action="store_true", help="count those that match, show some, change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")


# --- jobs -------------------------------------------------------------------------------------------------------


def list_jobs(db: Db, arguments: Namespace) -> int:
    page = views.jobs(db, _filter(arguments), before=arguments.before, limit=arguments.limit)
    if arguments.json:
        show_json({"jobs": page.jobs, "before": page.before})
        return 0
    if page.jobs:
        _show_lines(page.jobs, page.now)
    elif page.before is None:
        say("No job matches." if arguments.before is None else "No older job matches.")
    if page.before is not None:
        whisper(f"Older ones: --before {page.before}")
    return 0


def _show_lines(jobs: Sequence[JobSummary], now: datetime) -> None:
    headers = ["id", "status", "kind", "queue", "try", "when", "note"]
    show_table(headers, [in_line(job, now) for job in jobs], whole={4, 5}, spare=(3, 4))


def in_line(job: JobSummary, now: datetime) -> list[str]:
    tries = f"{job.attempt_count}/{job.max_attempts}"
    return [str(job.id), job.status, job.kind, job.queue, tries, _when(job, now), _note(job)]


def _when(job: JobSummary, now: datetime) -> str:
    match job.status:
        case Status.PENDING if job.waits_for:
            return f"after {job.waits_for} jobs"
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
        told = {"costs": spent, "logs": logs, "deeds": deeds}
        show_json(asdict(job) | {"explain": views.explain(db, job.id)} | told)
        return 0
    write_lines(pairs_in_lines(job_in_words(job, views.now(db))))
    write_lines(_paragraph(views.explain(db, job.id)))
    write_lines(attempts_in_lines(job, spent, logs))
    if deeds:
        say("\nwhat people did")
        done = [(local(deed.at), deed.action, deed.who or "(no name)", in_json(deed.detail)) for deed in deeds]
        write_lines(pairs_in_lines(done))
    return 0


def attempts_in_lines(job: JobDetail, spent: Sequence[AttemptCost], logs: Sequence[views.LogEntry]) -> Iterator[str]:
    """What went wrong, what it cost, and what it said."""
    for error in job.errors:
        trace = str(error.get("trace") or "").rstrip()
        yield from _paragraph(f"attempt {error.get('attempt')}{_ran(error)} failed: {error.get('error')}\n{trace}")
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
    found = relatives.workflows(db)
    if arguments.json:
        show_json({"workflows": found})
        return 0
    headers = ["id", "state", "kind", "expected", "done", "failed", "open", "note"]
    return show_list(arguments, found, headers, _workflow, numbers={3, 4, 5, 6}, empty="No job waits for others.")


def _workflow(one: relatives.Workflow) -> list[str]:
    counted = [str(number) for number in (one.expected, one.succeeded, one.failed, one.open)]
    return [str(one.job_id), one.state, one.kind, *counted, first_line(one.last_error or "")]


def explain_job(db: Db, arguments: Namespace) -> int:
    explained = views.explain(db, arguments.id)
    return answer(arguments, {"id": arguments.id, "explain": explained}, explained)


def job_in_words(job: JobDetail, now: datetime) -> Iterator[tuple[str, str]]:
    why_alone = f"it may use {job.memory_mb} MB" if job.memory_mb else f"its worker died {job.losses} times"
    suspect = f", a suspect: {why_alone}, so it runs alone" if job.suspect else ""
    yield "job", str(job.id)
    yield "kind", job.kind
    yield "status", f"{job.status}, {_when(job, now)}{suspect}"
    yield "queue", f"{job.queue}, priority {job.priority}, concurrency key {job.concurrency_key or '(none)'}"
    yield "attempts", f"{job.attempt_count} of {job.max_attempts}, interrupted {job.interruptions} times by a shutdown"
    if job.progress is not None:
        yield "progress", _progress(job, bar=True)
    yield "created", moment_and_age(job.created_at, now)
    yield "may run", moment_and_age(job.next_retry_at, now)
    yield "started", moment_and_age(job.started_at, now)
    yield "finished", moment_and_age(job.finished_at, now)
    yield "held by", _holder(job, now)
    yield "cancel asked", moment_and_age(job.cancel_requested_at, now)
    yield "tenant", job.tenant or "none: the house's own"
    yield "unique key", f"{job.unique_key} ({job.unique_scope})" if job.unique_key is not None else "none"
    yield "concurrency", job.concurrency_key or "no key"
    yield "timeout", span(timedelta(milliseconds=job.timeout_ms)) if job.timeout_ms else "its kind's"
    yield "snap", str(job.snap_id or "none")
    yield "replay of", f"job {job.replay_of}" if job.replay_of else "none"
    if job.waits_for is not None:
        yield "waits for", f"{job.waits_for} of its parents"
    yield "request", job.request_id or "none"
    if ids := tracing.ids(job.traceparent):
        yield "trace", ids[0]
    yield "lease", f"{job.lease_seq}, raised by every change of status"
    yield "payload", folded_json(job.payload)
    yield "result", folded_json(job.result) if job.result is not None else "none"
    yield "last error", job.last_error or "none"


def _holder(job: JobDetail, now: datetime) -> str:
    if job.claimed_by is None or job.locked_at is None or job.lock_expires_at is None:
        return "nobody"
    left = job.lock_expires_at - now
    lease = f"lease ends in {about(left)}" if left > timedelta(0) else f"lease ended {ago(-left)}"
    return f"worker {job.claimed_by}, last heartbeat {ago(now - job.locked_at)}, {lease}"


def _cost(cost: AttemptCost) -> list[str]:
    amounts = map(milliseconds, (cost.wait_ms, cost.wall_ms, cost.cpu_ms))
    return [f"#{cost.attempt}", cost.outcome, local(cost.started_at), *amounts, _memory(cost.peak_mb)]


def _memory(megabytes: float | None) -> str:
    return "" if megabytes is None else f"{megabytes:.0f} MB"


def _ran(error: dict[str, Any]) -> str:
    return f", after {milliseconds(error['ran_ms'])}," if "ran_ms" in error else ""


def enqueue_job(db: Db, arguments: Namespace) -> int:
    job_id = enqueue(
        db,
        arguments.kind,
        _payload(arguments.payload),
        queue=arguments.queue,
        priority=arguments.priority,
        delay=arguments.delay,
        run_at=arguments.run_at,
        unique_key=arguments.unique_key,
        unique_by=arguments.unique_by,
        max_attempts=arguments.max_attempts,
        tenant=arguments.tenant,
        concurrency_key=arguments.concurrency_key,
        after=arguments.after,
        on_parent_failure=arguments.on_parent_failure,
    )
    answer(arguments, {"id": job_id}, f"Job {job_id}")
    if not overviews.is_known(db, arguments.kind):
        whisper(f"No worker that is alive knows the kind {arguments.kind}: the job waits for one.")
    return 0


def _payload(given: str) -> Any:
    try:
        if given == "-":
            given = sys.stdin.read()
        elif given.startswith("@"):
            given = Path(given[1:]).read_text(encoding="utf-8")
        return json.loads(given)
    except json.JSONDecodeError as error:
        raise InvalidJob(f"the payload is not JSON: {error}; it begins with {given[:40]!r}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise InvalidJob(f"the payload cannot be read: {error}") from None


def _filter(arguments: Namespace) -> Filter:
    status = getattr(arguments, "status", None)
    return Filter(
        status=Status(status) if status else None,
        kind=arguments.kind,
        queue=arguments.queue,
        tenant=arguments.tenant,
        error=arguments.last_error,
        older_than=arguments.older_than,
        hash=arguments.hash,
    )


def _progress(job: JobSummary, *, bar: bool = False) -> str:
    progress = job.progress
    if not isinstance(progress, dict) or not isinstance(progress.get("percent"), int | float):
        return in_json(progress)
    is_done = job.status is Status.COMPLETED  # whatever it said last: nobody says 100 % before the end
    percent = 100.0 if is_done else max(0.0, min(100.0, float(progress["percent"])))
    filled = round(percent / 5)
    drawn = f"{'█' * filled}{'░' * (20 - filled)} " if bar else ""
    note = "" if is_done else progress.get("note") or ""
    return f"{drawn}{percent:g} % {note}".rstrip()


# --- many jobs --------------------------------------------------------------------------------------------------


def retry_jobs(db: Db, arguments: Namespace) -> int:
    return to_many(db, arguments, bulk.retry, views.dead_letters, verb="retry", participle="retried")


def cancel_jobs(db: Db, arguments: Namespace) -> int:
    return to_many(db, arguments, bulk.cancel, views.waiting, verb="cancel", participle="cancelled")


def replay_jobs(db: Db, arguments: Namespace) -> int:
    if len(arguments.ids) == 1 and not arguments.all:
        return _replay_one(db, arguments.ids[0], arguments)
    return to_many(db, arguments, bulk.replay, _ended, verb="replay", participle="replayed")


def _ended(db: Db, which: Filter) -> list[int]:
    """No index has those that ended well: as many as one call looks through, the newest first."""
    which = which if which.status else replace(which, status=Status.COMPLETED)
    return sorted(views.matching(db, which, _MOST_REPLAYED).ids)


def _replay_one(db: Db, job_id: int, arguments: Namespace) -> int:
    with together(db):
        copy = lifecycle.replay(db, job_id)
        note(db, "job.replay", f"job {job_id}", jobs=1, detail={"copy": copy})
    return answer(arguments, {"id": copy, "replay_of": job_id}, f"Job {copy} repeats job {job_id}")


def to_many(
    db: Db,
    arguments: Namespace,
    step: Step,
    matching: Callable[[Db, Filter], list[int]],
    *,
    verb: str,
    participle: str,
    **said: str,
) -> int:
    """The jobs that were named, each with its answer; or all that match, counted. What was `said` stands in the audit
    beside the filter."""
    which = _filter(arguments)
    if bool(arguments.ids) == arguments.all or ((not which.is_open or arguments.preview) and not arguments.all):
        arguments.error(f"name the jobs to {verb} by their ids, or all that match by the option for it")
    if arguments.ids:
        answers = watched(db, arguments.ids, step, witness_of_each(f"job.{verb}", said))
        report(answers, arguments)
        return 1 if answers.refused else 0
    ids = matching(db, which)
    if arguments.preview:
        return _preview(db, ids, arguments, verb)
    if ids and not (arguments.yes or agreed(f"{verb} {counted_jobs(len(ids))}", arguments)):
        return 1
    detail = _narrowed(which, arguments) | said
    report(watched(db, ids, step, witness_of_all(f"jobs.{verb}", detail)), arguments, counted=participle)
    return 0


def _narrowed(which: Filter, arguments: Namespace) -> dict[str, Any]:
    """As /internal writes down what narrowed it."""
    narrowed: dict[str, Any] = {"kind": which.kind, "queue": which.queue, "tenant": which.tenant, "error": which.error}
    age = None if which.older_than is None else which.older_than // timedelta(milliseconds=1)
    narrowed |= {"olderThanMs": age, "hash": which.hash, "status": getattr(arguments, "status", None)}
    return narrowed if not which.is_open else narrowed | {"all": True}


def _preview(db: Db, ids: list[int], arguments: Namespace, verb: str) -> int:
    sample = views.lines(db, ids[-_SAMPLE:])
    if arguments.json:
        show_json({"matching": len(ids), "sample": sample})
        return 0
    say(f"This would {verb} {counted_jobs(len(ids))}{', the newest of them:' if sample else '.'}")
    if sample:
        _show_lines(sample, views.now(db))
    return 0


def agreed(question: str, arguments: Namespace) -> bool:
    if not sys.stdin.isatty():
        arguments.error(f"this would {question}: add --yes")
    sys.stderr.write(f"{begun(question)}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def watched(db: Db, ids: Sequence[int], step: Step, witness: bulk.Witness) -> Answers:
    with bar_of(len(ids)) as done:
        return step(db, ids, done, witness)


def report(answers: Answers, arguments: Namespace, *, counted: str | None = None) -> None:
    done, refused = answers
    if arguments.json:
        show_json({"done": list(done), "refused": [{"id": job_id, "why": why} for job_id, why in refused.items()]})
        return
    if counted:
        skipped = f", {len(refused)} refused" if refused else ""
        say(begun(f"{counted_jobs(len(done))} {counted}{skipped}."))
    else:
        for job_id, status in done.items():
            say(f"Job {job_id} {_NOW[status]}")
    for why in list(refused.values())[:_COMPLAINTS]:
        whisper(why)
    if len(refused) > _COMPLAINTS:
        whisper(f"… and {len(refused) - _COMPLAINTS} more")


_NOW = {
    Status.PENDING: "runs again",
    Status.CANCELLED: "is cancelled",
    Status.RUNNING: "is running and was asked to stop",
}


def counted_jobs(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs or 'no'} jobs"


# --- numbers --------------------------------------------------------------------------------------------------------


def show_stats(db: Db, arguments: Namespace) -> int:
    queues, throughput, kinds = found_queues(db), overviews.throughput(db), costs.of_kinds(db)
    if arguments.json:
        show_json({"queues": queues, "last_hour": throughput, "costs": kinds})
        return 0
    show_queues(queues)
    say("")
    if throughput:
        headers = ["last hour", "queue", "completed", "failed", "cancelled", "took", "waited"]
        show_table(headers, [_last_hour(each) for each in throughput], numbers={2, 3, 4, 5, 6})
    else:
        say("No job ended within the last hour.")
    if kinds:
        say("\ncosts of an attempt: half of them stay below the first number, 95 % and 99 % below the others")
        headers = ["kind", "attempts", "waited", "ran", "cpu", "memory"]
        show_table(headers, [_costs(each) for each in kinds], numbers={1, 2, 3, 4, 5}, spare=(1,))
    return 0


def _last_hour(each: overviews.Throughput) -> list[str]:
    counts = map(str, (each.completed, each.failed, each.cancelled))
    return [each.kind, each.queue, *counts, _mean(each.mean_ms), _mean(each.mean_wait_ms)]


def _mean(amount: float | None) -> str:
    return "" if amount is None else milliseconds(amount)


def _costs(each: KindCost) -> list[str]:
    return [
        each.kind,
        str(each.attempts),
        _percentiles(_UNITS_OF_TIME, each.wait_p50_ms, each.wait_p95_ms, each.wait_p99_ms),
        _percentiles(_UNITS_OF_TIME, each.wall_p50_ms, each.wall_p95_ms, each.wall_p99_ms),
        _percentiles(_UNITS_OF_TIME, each.cpu_p50_ms, each.cpu_p95_ms, each.cpu_p99_ms),
        _percentiles({"MB": 1}, each.peak_p50_mb, each.peak_p95_mb, each.peak_p99_mb),
    ]


_UNITS_OF_TIME = {"h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}


def _percentiles(units: dict[str, int], *amounts: float | None) -> str:
    """In one unit, that of the first or the one above it, so that they can be compared."""
    known = [amount for amount in amounts if amount is not None]
    if len(known) < len(amounts):
        return ""
    unit = next((name for name, size in units.items() if known[0] >= size / 10), [*units][-1])
    return f"{'/'.join(digits(amount / units[unit]) for amount in known)} {unit}"

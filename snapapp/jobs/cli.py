"""The queue's own commands, `jobs …`, `queues …` and `workers …`: tables for people, --json for programs."""

import json
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from snapapp.jobs import board, queue
from snapapp.jobs.board import Filter, JobDetail, JobSummary
from snapapp.jobs.errors import IllegalTransition, InvalidJob, JobsError
from snapapp.jobs.intake import enqueue
from snapapp.jobs.model import Status

Db = psycopg.Connection[Any]
Act = Callable[[Db, int], str]  # does something to one job and says what

_AT_ONCE = 100  # jobs changed in one transaction
_COMPLAINTS = 20  # printed one by one; the others are only counted
_REFUSALS = (
    psycopg.errors.NoDataFound,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.UniqueViolation,
    JobsError,
)


def run(url: str, arguments: Namespace) -> int:
    """What was typed, on this database; its exit code."""
    with psycopg.connect(url, autocommit=True, application_name="snapapp cli", connect_timeout=10) as db:
        db.prepare_threshold = None  # a pooler may sit in between
        db.execute("SELECT set_config('statement_timeout', '60s', false), set_config('timezone', 'UTC', false)")
        code: int = arguments.act(db, arguments)
        return code


# --- what can be typed ------------------------------------------------------------------------------------------


def add_arguments(family: str, parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    shared = ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="for programs")
    shared.set_defaults(needs_kinds=False)

    def add(name: str, act: Callable[[Db, Namespace], int], what: str, **options: Any) -> ArgumentParser:
        description = f"{what[0].upper()}{what[1:]}."
        command = commands.add_parser(name, help=what, description=description, parents=[shared], **options)
        command.set_defaults(act=act, error=command.error)
        return command

    _FAMILIES[family](add)


Add = Callable[..., ArgumentParser]


def _add_jobs(add: Add) -> None:
    listing = add("list", list_jobs, "list jobs, newest first")
    listing.add_argument("--status", type=str.upper, choices=[status.value for status in Status])
    _add_filter(listing)
    listing.add_argument("--limit", type=_whole(1, 10_000), default=50, help="how many at most (default: 50)")
    listing.add_argument("--before", type=_whole(1, 2**63 - 1), metavar="ID", help="only jobs older than this one")
    showing = add("show", show_job, "show all that is known of a job")
    showing.add_argument("id", type=_whole(1, 2**63 - 1), metavar="ID")
    showing.add_argument("--logs", type=_whole(0, 10_000), default=20, help="how many log lines (default: 20)")
    _add_enqueue(add)
    retrying = add("retry", retry_jobs, "run FAILED or CANCELLED jobs again, counting from zero")
    _add_many(retrying, "--failed", "every FAILED job that matches")
    replaying = add("replay", replay_job, "run a copy of a job")
    replaying.add_argument("id", type=_whole(1, 2**63 - 1), metavar="ID")
    cancelling = add("cancel", cancel_jobs, "end waiting jobs, ask running ones to stop")
    _add_many(cancelling, "--waiting", "every waiting job that matches")
    add("stats", show_stats, "count what waits, runs and failed, and what the last hour did")


def _add_enqueue(add: Add) -> None:
    parser = add("enqueue", enqueue_job, "add a job")
    parser.set_defaults(needs_kinds=True)
    parser.add_argument("kind", type=_text, metavar="KIND")
    parser.add_argument(
        "payload", nargs="?", default="{}", metavar="JSON", help="an object; @FILE reads a file, - reads stdin"
    )
    parser.add_argument("--queue", type=_text, help="default: the one that its kind declares")
    parser.add_argument("--priority", type=int, default=0, help="higher first, -1000 to 1000")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--delay", type=_duration, help="such as 10s, 5m, 2h, 1d")
    when.add_argument("--run-at", type=_moment, metavar="TIME", help="such as 2030-01-31T08:00:00Z")
    parser.add_argument("--unique-key", type=_text, help="while a live job of its kind has it, no other is added")
    parser.add_argument("--max-attempts", type=int)
    parser.add_argument("--tenant", type=_text, default="")
    parser.add_argument("--concurrency-key", type=_text)


def _add_filter(parser: ArgumentParser) -> None:
    parser.add_argument("--kind", type=_text)
    parser.add_argument("--queue", type=_text)
    parser.add_argument("--tenant", type=_text)


def _add_many(parser: ArgumentParser, flag: str, what: str) -> None:
    parser.add_argument("ids", nargs="*", type=_whole(1, 2**63 - 1), metavar="ID")
    parser.add_argument(flag, dest="all", action="store_true", help=what)
    _add_filter(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _add_queues(add: Add) -> None:
    add("list", list_queues, "list the queues that have work in them, and the paused ones")
    pausing = add("pause", pause_queue, "let no worker claim from a queue")
    pausing.add_argument("queue", type=_text, metavar="QUEUE")
    pausing.add_argument("--reason", type=_text, help="for whoever wonders")
    resuming = add("resume", resume_queue, "let workers claim from a queue again")
    resuming.add_argument("queue", type=_text, metavar="QUEUE")


def _add_workers(add: Add) -> None:
    add("list", list_workers, "list the workers, as of their last heartbeat")


_FAMILIES: dict[str, Callable[[Add], None]] = {"jobs": _add_jobs, "queues": _add_queues, "workers": _add_workers}


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        # int() alone would take "1_000" and unbounded digits
        if not re.fullmatch(r"[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def _text(text: str) -> str:
    if not text.isascii() and text.encode(errors="replace").decode() != text:  # bytes that are no text in this locale
        raise ArgumentTypeError(f"{text!r} is not text that PostgreSQL can keep")
    return text


_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _duration(text: str) -> timedelta:
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", text)
    if not found:
        raise ArgumentTypeError(f"{text!r} is not a duration: write 250ms, 10s, 5m, 2h or 1d")
    return timedelta(**{_UNITS[found[2]]: float(found[1])})


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time in ISO 8601, such as 2030-01-31T08:00:00Z") from None
    if moment.tzinfo is None:
        raise ArgumentTypeError(f"{text!r} has no time zone: add Z for UTC, or an offset such as -03:00")
    return moment


# --- jobs -------------------------------------------------------------------------------------------------------


def list_jobs(db: Db, arguments: Namespace) -> int:
    page = board.jobs(db, _filter(arguments), before=arguments.before, limit=arguments.limit)
    if arguments.json:
        show_json({"jobs": [asdict(job) for job in page.jobs], "before": page.before})
        return 0
    if page.jobs:
        show_table(
            ["id", "status", "kind", "queue", "try", "when", "note"], [_line(job, page.now) for job in page.jobs]
        )
    elif page.before is None:
        _say("No job matches." if arguments.before is None else "No older job matches.")
    if page.before is not None:
        _whisper(f"Older ones: --before {page.before}")
    return 0


def _line(job: JobSummary, now: datetime) -> list[str]:
    tries = f"{job.attempt_count}/{job.max_attempts}"
    return [str(job.id), job.status, job.kind, job.queue, tries, _when(job, now), _note(job)]


def _when(job: JobSummary, now: datetime) -> str:
    match job.status:
        case Status.PENDING | Status.RETRY_WAIT:
            late = now - job.next_retry_at
            return f"due {_span(late)} ago" if late >= timedelta(0) else f"in {_span(-late)}"
        case Status.RUNNING:
            return f"for {_span(now - job.started_at)}" if job.started_at else "claimed"
    return f"{_span(now - job.finished_at)} ago" if job.finished_at else ""


def _note(job: JobSummary) -> str:
    match job.status:
        case Status.RUNNING if job.cancel_requested_at:
            return "asked to stop"
        case Status.RUNNING:
            return _progress(job.progress) if job.progress is not None else ""
        case Status.COMPLETED:
            return f"took {_span(job.finished_at - job.started_at)}" if job.finished_at and job.started_at else ""
    return _first_line(job.last_error or "")


def show_job(db: Db, arguments: Namespace) -> int:
    job = board.job(db, arguments.id)
    logs = board.logs(db, job.id, limit=arguments.logs)
    if arguments.json:
        show_json(asdict(job) | {"logs": [asdict(entry) for entry in logs]})
        return 0
    [(now,)] = db.execute("SELECT clock_timestamp()").fetchall()
    show_table([], [[name, words] for name, words in _in_words(job, now)])
    for error in job.errors:
        _say(f"\nattempt {error.get('attempt')}{_ran(error)} failed: {error.get('error')}")
        _say(str(error.get("trace") or "").rstrip())
    if logs:
        _say("\nlog")
        show_table([], [[_local(entry.at), f"#{entry.attempt}", entry.level, entry.message] for entry in logs])
    return 0


def _in_words(job: JobDetail, now: datetime) -> Iterator[tuple[str, str]]:
    suspect = ", a suspect: its last worker died, so it runs alone" if job.suspect else ""
    yield "job", str(job.id)
    yield "kind", job.kind
    yield "status", f"{job.status}, {_when(job, now)}{suspect}"
    yield "queue", f"{job.queue}, priority {job.priority}, lane {job.lane or '(none)'}"
    yield "attempts", f"{job.attempt_count} of {job.max_attempts}, interrupted {job.interruptions} times by a shutdown"
    if job.progress is not None:
        yield "progress", _progress(job.progress, bar=True)
    yield "created", _moment_and_age(job.created_at, now)
    yield "may run", _moment_and_age(job.next_retry_at, now)
    yield "started", _moment_and_age(job.started_at, now)
    yield "finished", _moment_and_age(job.finished_at, now)
    yield "held by", _holder(job, now)
    yield "cancel asked", _moment_and_age(job.cancel_requested_at, now)
    yield "tenant", job.tenant or "none: the house's own"
    yield "unique key", f"{job.unique_key} ({job.unique_scope})" if job.unique_key is not None else "none"
    yield "concurrency", job.concurrency_key or "no key"
    yield "timeout", _span(timedelta(milliseconds=job.timeout_ms)) if job.timeout_ms else "its kind's"
    yield "snap", str(job.snap_id or "none")
    yield "replay of", f"job {job.replay_of}" if job.replay_of else "none"
    yield "request", job.request_id or "none"
    yield "lease", f"{job.lease_seq}, raised by every change of status"
    yield "spec hash", job.spec_hash or "none"
    yield "payload", _json(job.payload)
    yield "result", _json(job.result) if job.result is not None else "none"
    yield "last error", job.last_error or "none"


def _holder(job: JobDetail, now: datetime) -> str:
    if job.claimed_by is None or job.locked_at is None or job.lock_expires_at is None:
        return "nobody"
    left = job.lock_expires_at - now
    lease = f"lease ends in {_span(left)}" if left > timedelta(0) else f"lease ended {_span(-left)} ago"
    return f"worker {job.claimed_by}, last heartbeat {_span(now - job.locked_at)} ago, {lease}"


def _ran(error: dict[str, Any]) -> str:
    return f", after {error['ran_ms']:g} ms," if "ran_ms" in error else ""


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
        max_attempts=arguments.max_attempts,
        tenant=arguments.tenant,
        concurrency_key=arguments.concurrency_key,
    )
    if arguments.json:
        show_json({"id": job_id})
    else:
        _say(f"Job {job_id}")
    if not board.is_known(db, arguments.kind):
        _whisper(f"No worker that is alive knows the kind {arguments.kind}: the job waits for one.")
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


def replay_job(db: Db, arguments: Namespace) -> int:
    try:
        copy = queue.replay(db, arguments.id)
    except _REFUSALS as error:
        raise JobsError(_why(error)) from None
    if arguments.json:
        show_json({"id": copy, "replay_of": arguments.id})
    else:
        _say(f"Job {copy} repeats job {arguments.id}")
    return 0


# --- many jobs --------------------------------------------------------------------------------------------------


def retry_jobs(db: Db, arguments: Namespace) -> int:
    return _to_many(db, arguments, _retry, board.dead_letters, verb="retry", participle="retried")


def cancel_jobs(db: Db, arguments: Namespace) -> int:
    return _to_many(db, arguments, _cancel, board.waiting, verb="cancel", participle="cancelled")


def _retry(db: Db, job_id: int) -> str:
    queue.retry_by_person(db, job_id)
    return f"Job {job_id} runs again"


def _cancel(db: Db, job_id: int) -> str:
    status = queue.cancel(db, job_id)
    if status is Status.RUNNING:
        return f"Job {job_id} is running and was asked to stop"
    if status is not Status.CANCELLED:
        raise IllegalTransition(f"job {job_id} is {status}: there is nothing to cancel")
    return f"Job {job_id} is cancelled"


def _to_many(
    db: Db,
    arguments: Namespace,
    act: Act,
    matching: Callable[[Db, Filter], list[int]],
    *,
    verb: str,
    participle: str,
) -> int:
    """The jobs that were named, each with its answer; or all that match, counted."""
    narrowed = any(value is not None for value in (arguments.kind, arguments.queue, arguments.tenant))
    if bool(arguments.ids) == arguments.all or (narrowed and not arguments.all):
        arguments.error(f"name the jobs to {verb} by their ids, or all that match by the option for it")
    if arguments.ids:
        done, refused = _one_by_one(db, arguments.ids, act)
        _report(done, refused, arguments)
        return 1 if refused else 0
    ids = matching(db, _filter(arguments))
    if ids and not (arguments.yes or _agreed(f"{verb} {_count(len(ids))}", arguments)):
        return 1
    done, refused = _in_pages(db, ids, act)
    _report(done, refused, arguments, counted=participle)
    return 0


def _agreed(question: str, arguments: Namespace) -> bool:
    if not sys.stdin.isatty():
        arguments.error(f"this would {question}: add --yes")
    sys.stderr.write(f"{question[0].upper()}{question[1:]}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


Done = dict[int, str]  # by job: what became of it, or why nothing did


def _one_by_one(db: Db, ids: Iterable[int], act: Act) -> tuple[Done, Done]:
    done: Done = {}
    refused: Done = {}
    for job_id in ids:
        try:
            done[job_id] = act(db, job_id)
        except _REFUSALS as error:
            refused[job_id] = _why(error)
    return done, refused


def _in_pages(db: Db, ids: Sequence[int], act: Act) -> tuple[Done, Done]:
    """A hundred jobs in a transaction, because a commit costs more than a job; where one is refused, one by one."""
    done: Done = {}
    refused: Done = {}
    with _progress_bar(len(ids)) as bar:
        task = bar.add_task("", total=len(ids))
        for start in range(0, len(ids), _AT_ONCE):
            page = ids[start : start + _AT_ONCE]
            try:
                with db.transaction():
                    done |= {job_id: act(db, job_id) for job_id in page}
            except _REFUSALS:
                some_done, some_refused = _one_by_one(db, page, act)
                done, refused = done | some_done, refused | some_refused
            bar.advance(task, len(page))
    return done, refused


def _progress_bar(length: int) -> Progress:
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=length <= _AT_ONCE or not console.is_terminal)


def _report(done: Done, refused: Done, arguments: Namespace, *, counted: str | None = None) -> None:
    if arguments.json:
        show_json({"done": list(done), "refused": [{"id": job_id, "why": why} for job_id, why in refused.items()]})
        return
    if counted:
        skipped = f", {len(refused)} refused" if refused else ""
        said = f"{_count(len(done))} {counted}{skipped}."
        _say(said[0].upper() + said[1:])
    else:
        for said in done.values():
            _say(said)
    for why in list(refused.values())[:_COMPLAINTS]:
        _whisper(why)
    if len(refused) > _COMPLAINTS:
        _whisper(f"… and {len(refused) - _COMPLAINTS} more")


def _why(error: Exception) -> str:
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return said or str(error)


def _count(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs or 'no'} jobs"


# --- queues, workers, numbers -----------------------------------------------------------------------------------


def show_stats(db: Db, arguments: Namespace) -> int:
    queues, throughput = board.queues(db), board.throughput(db)
    if arguments.json:
        show_json({"queues": [asdict(one) for one in queues], "last_hour": [asdict(one) for one in throughput]})
        return 0
    _show_queues(queues)
    _say("")
    if not throughput:
        _say("No job ended within the last hour.")
        return 0
    headers = ["last hour", "queue", "completed", "failed", "cancelled", "ms", "waited ms"]
    show_table(headers, [_last_hour(each) for each in throughput], numbers={2, 3, 4, 5, 6})
    return 0


def _last_hour(each: board.Throughput) -> list[str]:
    counts = map(str, (each.completed, each.failed, each.cancelled))
    return [each.kind, each.queue, *counts, _number(each.mean_ms), _number(each.mean_wait_ms)]


def list_queues(db: Db, arguments: Namespace) -> int:
    queues = board.queues(db)
    if arguments.json:
        show_json([asdict(one) for one in queues])
    else:
        _show_queues(queues)
    return 0


def _show_queues(queues: list[board.QueueSummary]) -> None:
    if not queues:
        _say("Every queue is empty, and none is paused.")
        return
    rows = [_queue_line(each) for each in queues]
    headers = ["queue", "pending", "retry", "due", "running", "failed", "oldest due", "paused"]
    show_table(headers, rows, numbers={1, 2, 3, 4, 5, 6})


def _queue_line(each: board.QueueSummary) -> list[str]:
    counts = map(str, (each.pending, each.retry_wait, each.due, each.running, each.failed))
    oldest = _span(each.oldest_due) if each.oldest_due is not None else ""
    paused = f"since {_local(each.paused_at)} {each.paused_reason or ''}" if each.paused_at else ""
    return [each.queue, *counts, oldest, paused.rstrip()]


def pause_queue(db: Db, arguments: Namespace) -> int:
    board.pause(db, arguments.queue, arguments.reason)
    return _said_of_queue(f"The queue {arguments.queue} is paused; what runs goes on.", arguments, is_paused=True)


def resume_queue(db: Db, arguments: Namespace) -> int:
    board.resume(db, arguments.queue)
    return _said_of_queue(f"The queue {arguments.queue} is open.", arguments, is_paused=False)


def _said_of_queue(said: str, arguments: Namespace, *, is_paused: bool) -> int:
    if arguments.json:
        show_json({"queue": arguments.queue, "paused": is_paused})
    else:
        _say(said)
    return 0


def list_workers(db: Db, arguments: Namespace) -> int:
    workers = board.workers(db)
    if arguments.json:
        show_json([asdict(one) for one in workers])
        return 0
    if not workers:
        _say("No worker is on the roster.")
        return 0
    rows = [_worker_line(each) for each in workers]
    show_table(["id", "status", "busy", "done", "failed", "beat", "name"], rows, numbers={2, 3, 4})
    return 0


def _worker_line(each: board.WorkerSummary) -> list[str]:
    queues = f"({','.join(each.queues)})" if each.queues else ""
    name = " ".join(filter(None, [each.name, queues, each.note]))
    counts = [f"{len(each.current_jobs)}/{each.slots}", str(each.jobs_completed), str(each.jobs_failed)]
    return [each.id, each.status, *counts, f"{_span(each.last_beat)} ago", name]


# --- how it looks -----------------------------------------------------------------------------------------------


def show_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Iterable[int] = ()) -> None:
    """Columns on a terminal; whole lines without colours elsewhere. Only the last column may be cut or wrapped."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, no_color=True, width=100_000)
    width = len(rows[0]) if rows else len(headers)
    table = Table(box=None, show_header=bool(headers), padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for place in range(width):
        is_last, is_number = place == width - 1, place in set(numbers)
        longest = max([len(row[place]) for row in rows] + [len(headers[place]) if headers else 0])
        table.add_column(
            Text(headers[place].upper() if headers else ""),
            justify="right" if is_number else "left",
            no_wrap=not is_last,
            min_width=None if is_last else min(longest, 40),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(_visible(cell)) for cell in row))
    with console.capture() as capture:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def show_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=_plain) + "\n")


def _plain(value: object) -> object:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
    return str(value)


def _filter(arguments: Namespace) -> Filter:
    status = getattr(arguments, "status", None)
    return Filter(
        status=Status(status) if status else None,
        kind=arguments.kind,
        queue=arguments.queue,
        tenant=arguments.tenant,
    )


def _say(text: str) -> None:
    sys.stdout.write(_visible(text, keep="\n") + "\n")


def _whisper(text: str) -> None:
    """To people, beside the output that a program may be reading."""
    sys.stderr.write(_visible(text) + "\n")


def _visible(text: str, keep: str = "") -> str:
    """What a job says may hold anything, and must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else _escaped(character) for character in text
    )


def _escaped(character: str) -> str:
    return " " if character in "\n\t" else character.encode("unicode_escape").decode()


def _progress(progress: Any, *, bar: bool = False) -> str:
    if not isinstance(progress, dict) or not isinstance(progress.get("percent"), int | float):
        return _json(progress)
    percent = max(0.0, min(100.0, float(progress["percent"])))
    filled = round(percent / 5)
    drawn = f"{'█' * filled}{'░' * (20 - filled)} " if bar else ""
    return f"{drawn}{percent:g} % {progress.get('note') or ''}".rstrip()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _first_line(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= 100 else f"{line[:99]}…"


def _moment_and_age(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "not yet"
    ago = now - moment
    return f"{_local(moment)}, {f'{_span(ago)} ago' if ago >= timedelta(0) else f'in {_span(-ago)}'}"


def _local(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _span(duration: timedelta) -> str:
    seconds = max(0.0, duration.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"

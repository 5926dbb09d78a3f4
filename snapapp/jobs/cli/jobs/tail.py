"""`jobs tail`: prints the changes of jobs in the queue line by line, as they happen."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from time import sleep
from typing import Any

from snapapp.jobs.cli.jobs.looking import in_line
from snapapp.jobs.cli.shown import first_line, plain, remark, say
from snapapp.jobs.cli.tables import in_columns, visible
from snapapp.jobs.cli.typed import Add, Db, job_number, text
from snapapp.jobs.errors import UnknownJob
from snapapp.jobs.model import FINAL, Status
from snapapp.jobs.rows.people.changes import IDS_MAX, Interest, Line, News, Tail
from snapapp.jobs.rows.people.views import JobSummary

_LOOK_EVERY = 0.3  # seconds
_AT_FIRST = 10  # existing jobs that are shown first
_WIDTHS = (6, 10, 12, 8, 4)

Tell = Callable[[datetime, str, JobSummary], None]


def add_command(add: Add) -> None:
    parser = add("tail", tail_jobs, "show what happens, as it happens, until Ctrl-C or until the jobs named are over")
    parser.add_argument("ids", nargs="*", type=job_number, metavar="ID", help="with what these say")
    for option in ("--kind", "--queue", "--tenant"):
        parser.add_argument(option, type=text)


def tail_jobs(db: Db, arguments: Namespace) -> int:
    watching = Tail(_interest(arguments))
    tell, say_line = (_tell_json, _say_json) if arguments.json else (_tell, _say_line)
    news = watching.look(db)
    _require(watching)
    for job in reversed(watching.jobs if arguments.ids else watching.jobs[:_AT_FIRST]):
        tell(news.now, "present", job)
    is_over = False
    while True:
        _report(news, tell, say_line)
        is_over, was_over = bool(arguments.ids) and all(job.status in FINAL for job in watching.jobs), is_over
        if is_over and was_over:  # one look more, because a job's last lines are written after its end
            return 0 if all(job.status is Status.COMPLETED for job in watching.jobs) else 1
        sleep(_LOOK_EVERY)
        news = watching.look(db)


def _interest(arguments: Namespace) -> Interest:
    ids = frozenset(arguments.ids)
    narrowed = any(value is not None for value in (arguments.kind, arguments.queue, arguments.tenant))
    if ids and narrowed:
        arguments.error("name jobs by their ids, or by kind, queue and tenant")
    if len(ids) > IDS_MAX:
        arguments.error(f"at most {IDS_MAX} jobs can be named")
    return Interest(
        frozenset([] if arguments.kind is None else [arguments.kind]), arguments.queue, arguments.tenant, ids
    )


def _require(watching: Tail) -> None:
    missing = watching.interest.ids - {job.id for job in watching.jobs}
    if missing:
        raise UnknownJob(f"there is no job {min(missing)}")


def _report(news: News, tell: Tell, say_line: Callable[[Line], None]) -> None:
    for line in news.lines:
        say_line(line)
    for change in news.changes:
        tell(news.now, change.what, change.job)
    if news.skipped:
        remark(f"Too many at once: up to {news.skipped} jobs came and went unseen.")
    sys.stdout.flush()  # a reader behind a pipe should see each line at once


# --- lines of output --------------------------------------------------------------------------------------------


def _tell(at: datetime, what: str, job: JobSummary) -> None:
    *cells, when, note = in_line(job, at)
    has_just_ended = job.status in FINAL and what != "present"  # then the line's own time says when
    last_cell = "  ".join(filter(None, ["" if has_just_ended else when, note]))
    widths = [8, *_WIDTHS]
    sys.stdout.write(in_columns(list(map(visible, [_clock(at), *cells, last_cell])), widths) + "\n")


def _say_line(line: Line) -> None:
    message = f"{line.entry.level.lower()}: {first_line(line.entry.message)}"
    say("  ".join([_clock(line.entry.at), str(line.job_id).ljust(_WIDTHS[0]), message]))


def _clock(at: datetime) -> str:
    return f"{at.astimezone():%H:%M:%S}"


def _tell_json(at: datetime, what: str, job: JobSummary) -> None:
    _write({"at": at, "what": what, "job": job})


def _say_json(line: Line) -> None:
    _write({"at": line.entry.at, "what": "log", "job_id": line.job_id, "log": line.entry})


def _write(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=plain) + "\n")

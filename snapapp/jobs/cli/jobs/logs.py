"""`jobs logs`: writes the log of a job, the rows of job_log, as lines of a file."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from textwrap import indent
from time import sleep
from typing import TextIO

from snapapp.jobs.cli.shown import plain
from snapapp.jobs.cli.tables import visible
from snapapp.jobs.cli.typed import Add, Db, job_number, whole
from snapapp.jobs.errors import JobsError
from snapapp.jobs.model import FINAL, Status
from snapapp.jobs.rows.people import views
from snapapp.jobs.rows.people.views import LogEntry

_LOOK_EVERY = 0.3  # seconds
_PAGE = 1000


def add_command(add: Add) -> None:
    parser = add("logs", show_logs, "write what a job said, a line each; --json makes each line an object")
    parser.add_argument("id", type=job_number, metavar="ID")
    parser.add_argument("--attempt", type=whole(1, 1000), metavar="N", help="only what this attempt said")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it there")
    where.add_argument("-f", "--follow", action="store_true", help="go on until the job is over; 1: it did not succeed")


def show_logs(db: Db, arguments: Namespace) -> int:
    status, was_over, after = views.job(db, arguments.id).status, False, 0
    write = _as_json if arguments.json else _as_text if arguments.output else _as_visible_text
    with _open_output(arguments.output) as file:
        while True:
            for entry in _log_entries(db, arguments.id, arguments.attempt, after):
                file.write(write(entry))
                after = entry.id
            file.flush()
            if not arguments.follow:
                return 0
            if status in FINAL and was_over:  # one look more, because a job's last lines are written after its end
                return 0 if status is Status.COMPLETED else 1
            was_over = status in FINAL
            sleep(_LOOK_EVERY)
            status = views.job(db, arguments.id).status


def _log_entries(db: Db, job: int, attempt: int | None, after: int) -> Iterator[LogEntry]:
    """Reads page by page, because 20 attempts of 1000 lines of 4000 characters may not fit into memory."""
    while page := views.log_page(db, job, attempt=attempt, after=after, limit=_PAGE):
        yield from page
        after = page[-1].id


@contextmanager
def _open_output(file: Path | None) -> Iterator[TextIO]:
    if file is None:
        yield sys.stdout
        return
    try:
        opened = file.open("w", encoding="utf-8")
    except OSError as error:
        raise JobsError(f"{file} cannot be written: {error.strerror}") from None
    with opened:
        yield opened


def _as_text(entry: LogEntry) -> str:
    """An entry as text. Its further lines are indented, so that every line that begins at the margin has a time."""
    at = entry.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return indent(f"{at} #{entry.attempt} {entry.level} {entry.message}", "    ").removeprefix("    ") + "\n"


def _as_visible_text(entry: LogEntry) -> str:
    return visible(_as_text(entry), keep="\n")


def _as_json(entry: LogEntry) -> str:
    return json.dumps(entry, ensure_ascii=False, default=plain) + "\n"

"""`jobs enqueue`: adds a job."""

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from snapapp.jobs.adding import enqueue
from snapapp.jobs.cli.shown import answer, remark
from snapapp.jobs.cli.typed import Add, Db, duration, job_number, moment, text
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.rows.people import overviews

_OPTIONS = (  # the arguments of enqueue that have an option of the same name
    *("queue", "priority", "delay", "run_at", "unique_key", "unique_by", "max_attempts", "tenant", "concurrency_key"),
    *("after", "on_parent_failure"),
)


def add_command(add: Add) -> None:
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


def enqueue_job(db: Db, arguments: Namespace) -> int:
    options = {name: getattr(arguments, name) for name in _OPTIONS}
    job_id = enqueue(db, arguments.kind, _payload(arguments.payload), **options)
    answer(arguments, {"id": job_id}, f"Job {job_id}")
    if not overviews.is_known(db, arguments.kind):
        remark(f"No worker that is alive knows the kind {arguments.kind}: the job waits for one.")
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

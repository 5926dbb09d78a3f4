"""The options by which a command selects jobs."""

from argparse import ArgumentParser, Namespace

from snapapp.jobs.cli.typed import age, hexadecimal, text
from snapapp.jobs.model import Status
from snapapp.jobs.rows.people.lists import Filter


def add_filter(parser: ArgumentParser) -> None:
    parser.add_argument("--kind", type=text)
    parser.add_argument("--queue", type=text)
    parser.add_argument("--tenant", type=text)
    parser.add_argument("--error", dest="last_error", type=text, metavar="TEXT", help="their last error has this in it")
    parser.add_argument("--older-than", type=age, metavar="AGE", help="since they were enqueued: 12h, 30d")
    parser.add_argument("--hash", type=hexadecimal, help="of their work, or how it begins: jobs show has it")


def filter_of(arguments: Namespace) -> Filter:
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

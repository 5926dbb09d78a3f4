"""The queue's own commands, one file for each family. They print tables for people, or JSON with --json."""

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Any

from snapapp.jobs.cli.typed import Act
from snapapp.jobs.rows.database import open_connection

# A family's modules are imported when one of its commands is typed, because importing all of them takes longer than
# most commands.
_FAMILIES = {
    "jobs": (
        *("jobs.looking.add_commands", "jobs.stats.add_command", "jobs.adding.add_command"),
        *("jobs.many.add_commands", "jobs.upkeep.add_commands", "jobs.tail.add_command"),
        *("jobs.logs.add_command", "jobs.spec.add_command"),
    ),
    "queues": ("queues.add_commands",),
    "workers": ("queues.add_worker_commands",),
    "schedules": ("schedules.add_commands",),
    "limits": ("limits.add_commands",),
    "retention": ("retention.add_commands",),
    "fleet": ("fleet.add_commands",),
}


def run(url: str, arguments: Namespace) -> int:
    """Runs the command that was typed on this database, and returns its exit code."""
    settings = {"statement_timeout": "60s"}
    with open_connection(
        url, settings=settings, autocommit=True, application_name="snapapp cli", connect_timeout=10
    ) as db:
        db.prepare_threshold = None  # a pooler in between may not support prepared statements
        code: int = arguments.act(db, arguments)
        return code


def add_arguments(family: str, parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    shared = ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="for programs")
    shared.set_defaults(needs_kinds=False)

    def add(name: str, act: Act, what: str, **options: Any) -> ArgumentParser:
        description = f"{what[0].upper()}{what[1:]}."
        command = commands.add_parser(name, help=what, description=description, parents=[shared], **options)
        command.set_defaults(act=act, error=command.error)
        return command

    for place in _FAMILIES[family]:
        module, _, declare = place.rpartition(".")
        getattr(import_module(f"{__name__}.{module}"), declare)(add)

"""The queue's own commands, a file a family: tables for people, --json for programs."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

import psycopg

from snapapp.jobs.cli import fleet, jobs, limits, queues, schedules, tail
from snapapp.jobs.cli.shown import show_json, show_table
from snapapp.jobs.cli.typed import Act, Add

__all__ = ["add_arguments", "run", "show_json", "show_table"]


def _add_jobs(add: Add) -> None:
    jobs.add_commands(add)
    tail.add_command(add)


_FAMILIES: dict[str, Callable[[Add], None]] = {
    "jobs": _add_jobs,
    "queues": queues.add_commands,
    "workers": queues.add_worker_commands,
    "schedules": schedules.add_commands,
    "limits": limits.add_commands,
    "fleet": fleet.add_commands,
}


def run(url: str, arguments: Namespace) -> int:
    """What was typed, on this database; its exit code."""
    with psycopg.connect(url, autocommit=True, application_name="snapapp cli", connect_timeout=10) as db:
        db.prepare_threshold = None  # a pooler may sit in between
        db.execute("SELECT set_config('statement_timeout', '60s', false), set_config('timezone', 'UTC', false)")
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

    _FAMILIES[family](add)

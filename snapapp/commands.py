"""The commands that look at things and change rows: psql, config, jobs, queues, workers, schedules. And what every
command needs: its database, the declared kinds, an explanation of what went wrong."""

import dataclasses
import json
import sys
from argparse import Namespace
from collections.abc import Callable

import psycopg
import sqlalchemy.exc

from snapapp import db, logs, postgres, processing
from snapapp.errors import SnapError
from snapapp.jobs import cli, intake
from snapapp.jobs.errors import JobsError
from snapapp.settings import LogLevel, Settings


def run(arguments: Namespace, settings: Settings) -> int:
    """The command that was typed; its exit code."""
    set_up_log(settings, at_least=LogLevel.WARNING)
    return _COMMANDS[arguments.command](arguments, settings)


def set_up_log(settings: Settings, *, at_least: LogLevel = LogLevel.DEBUG) -> None:
    logs.set_up(settings, at_least=at_least)
    logs.warn_of(settings)


# --- the commands ----------------------------------------------------------------------------------------------


def psql(arguments: Namespace, settings: Settings) -> int:
    with db.in_use(settings) as url:
        code = postgres.run_psql(url, arguments.arguments)
    return code if code >= 0 else 128 - code


def config(arguments: Namespace, settings: Settings) -> int:
    rows = settings.explain()
    if arguments.json:
        _say(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    elif arguments.explain:
        cli.show_table(
            ["setting", "value", "from", "meaning"],
            [[row.name, row.value, row.source, row.description] for row in rows],
        )
    else:
        cli.show_table(["setting", "value"], [[row.name, row.value] for row in rows])
    return 0


def queue_command(arguments: Namespace, settings: Settings) -> int:
    if arguments.needs_kinds:
        processing.load(settings)
        intake.Defaults.max_attempts = settings.job_max_attempts
    with db.in_use(settings) as url:
        return cli.run(url, arguments)


_COMMANDS: dict[str, Callable[[Namespace, Settings], int]] = {
    "psql": psql,
    "config": config,
    "jobs": queue_command,
    "queues": queue_command,
    "workers": queue_command,
    "schedules": queue_command,
}


# --- errors -----------------------------------------------------------------------------------------------------


def explanation(error: BaseException) -> str | None:
    """What a person is told of an error that people can answer; None: it is a bug, and wants its traceback."""
    match error:
        case SnapError():
            return str(error)
        case JobsError():
            return one_line(str(error))
        case sqlalchemy.exc.DBAPIError() if error.orig:
            return explanation(error.orig)
        case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedFunction() | psycopg.errors.UndefinedColumn():
            return "The database does not have the schema that this code needs: type `snapapp migrate`."
        case psycopg.OperationalError() if error.sqlstate is None:
            return f"The database cannot be reached: {one_line(str(error))}"
        case psycopg.Error():
            return f"The database refuses: {one_line(str(error))}"
        case OSError() if error.strerror:
            return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return None


def one_line(text: str) -> str:
    return " ".join(text.split())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")

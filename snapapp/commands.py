"""The commands that look at things and change rows: psql, config, jobs, queues, workers. And what every command
needs: its database, the declared kinds, an explanation of what went wrong."""

import dataclasses
import json
import logging
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import sqlalchemy.exc

from snapapp import logs, postgres
from snapapp.errors import PostgresError, SnapError
from snapapp.jobs import cli, intake, registry
from snapapp.jobs.errors import JobsError
from snapapp.settings import LogLevel, Settings

_log = logging.getLogger(__name__)


def run(arguments: Namespace, settings: Settings) -> int:
    """The command that was typed; its exit code."""
    set_up_log(settings, at_least=LogLevel.WARNING)
    return _COMMANDS[arguments.command](arguments, settings)


def set_up_log(settings: Settings, *, at_least: LogLevel = LogLevel.DEBUG) -> None:
    logs.set_up(settings, at_least=at_least)
    for warning in settings.warnings:
        _log.warning("%s", warning)


# --- the database -----------------------------------------------------------------------------------------------


@contextmanager
def database(settings: Settings, *, create: bool = False) -> Iterator[str]:
    """The URL of the database in use: the one that is set, else the embedded one, for as long as we need it."""
    if settings.database_url:
        yield settings.database_url
        return
    try:
        server = postgres.start(settings.data_dir, create=create)
    except PostgresError as error:
        if settings.data_dir.exists():
            raise
        places = " and ".join(settings.looked_in)
        raise PostgresError(f"{error} (SNAPAPP_DATABASE_URL was looked for in {places}.)") from error
    with server:
        yield server.url


def load_processors(settings: Settings) -> None:
    sys.path.append(str(Path.cwd()))  # where people keep the modules they name; children look there as well
    for module in (*settings.processors, "snapapp.demo"):
        try:
            registry.load((module,))
        except ImportError as error:
            raise SnapError(f"SNAPAPP_PROCESSORS names {module}, which cannot be imported: {error}") from error


# --- the commands ----------------------------------------------------------------------------------------------


def psql(arguments: Namespace, settings: Settings) -> int:
    with database(settings) as url:
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
        load_processors(settings)
        intake.Defaults.max_attempts = settings.job_max_attempts
    with database(settings) as url:
        return cli.run(url, arguments)


_COMMANDS: dict[str, Callable[[Namespace, Settings], int]] = {
    "psql": psql,
    "config": config,
    "jobs": queue_command,
    "queues": queue_command,
    "workers": queue_command,
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

"""The commands that look at things and change rows: psql, config, jobs, queues, workers, schedules, tenants, demo,
doctor, check-deploy. And what every command needs: its database, the declared kinds, an explanation of what failed."""

import dataclasses
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable

import psycopg
import sqlalchemy.exc
from sqlalchemy import Connection

from snapapp import db, logs, postgres, processing, tenants
from snapapp.errors import SnapError
from snapapp.jobs import cli, doctor, intake, registry
from snapapp.jobs.cli.shown import say
from snapapp.jobs.errors import JobsError
from snapapp.processing import demo
from snapapp.settings import Environment, LogLevel, Settings
from snapapp.tenants import Tenant


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


def tenant_command(arguments: Namespace, settings: Settings) -> int:
    with db.in_use(settings) as url, db.transaction(url) as connection:
        return _TENANT_COMMANDS[arguments.act](connection, arguments)


def list_tenants(connection: Connection, arguments: Namespace) -> int:
    found = tenants.every(connection)
    if arguments.json:
        cli.show_json([dataclasses.asdict(tenant) for tenant in found])
    elif found:
        cli.show_table(["code", "status", "token", "added", "name"], [_line(tenant) for tenant in found])
    else:
        say("There is no tenant.")
    return 0


def _line(tenant: Tenant) -> list[str]:
    token = f"since {tenant.token_changed_at:%Y-%m-%d}" if tenant.has_token else "none"
    return [tenant.code, tenant.status, token, f"{tenant.created_at:%Y-%m-%d}", tenant.name]


def add_tenant(connection: Connection, arguments: Namespace) -> int:
    tenant, token = tenants.add(connection, arguments.code, arguments.name or arguments.code)
    return _show_token(arguments, tenant.code, token)


def rotate_token(connection: Connection, arguments: Namespace) -> int:
    return _show_token(arguments, arguments.code, tenants.rotate_token(connection, arguments.code))


def _show_token(arguments: Namespace, code: str, token: str) -> int:
    if arguments.json:
        cli.show_json({"code": code, "token": token})
    else:
        say(f"The token of {code}, which is kept nowhere and not shown again:\n{token}")
    return 0


_TENANT_COMMANDS: dict[str, Callable[[Connection, Namespace], int]] = {
    "list": list_tenants,
    "add": add_tenant,
    "rotate-token": rotate_token,
}


def prepare_demo(_arguments: Namespace, settings: Settings) -> int:
    if settings.env is Environment.PROD:
        raise SnapError("The demo is for development, and SNAPAPP_ENV is prod.")
    processing.load(settings)
    intake.Defaults.max_attempts = settings.job_max_attempts
    with db.in_use(settings) as url, db.transaction(url) as connection:
        job_id = demo.order(connection)
    say(f"Job {job_id} prepares the demo, as soon as a worker runs; the page at / shows it.")
    return 0


def import_legacy(arguments: Namespace, settings: Settings) -> int:
    from rich.console import Console
    from rich.progress import Progress

    from snapapp import legacy
    from snapapp.legacy import files, old

    archive = files.archive_of(arguments.media, settings) if arguments.media else None
    console = Console(stderr=True)
    with (
        db.in_use(settings) as url,
        old.opened(arguments.dsn) as theirs,
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        steps = bar.add_task("Snaps", total=theirs.count() * (2 if archive else 1))
        moved = legacy.move(theirs, url, archive, lambda: bar.advance(steps))
    if arguments.json:
        cli.show_json(dataclasses.asdict(moved))
    else:
        _say_lines(moved.in_words())
    return 0


# Both exit with 2 where they cannot look, so that a script can tell "ill" from "nobody knows".


def diagnose(arguments: Namespace, settings: Settings) -> int:
    # together 200 ms, which no other command here should take longer
    from alembic.script import ScriptDirectory

    from snapapp import migrate
    from snapapp.monolith import connections_needed

    def look() -> int:
        with db.in_use(settings) as url:
            house = doctor.House(
                jobs=settings.jobs(url),
                connections=connections_needed(settings),
                disk_free_min_mb=settings.disk_free_min_mb,
                schema=ScriptDirectory(str(migrate.migrations_folder())).get_current_head(),
            )
            findings = doctor.examine(url, house, only=arguments.only)
            deeds = doctor.mend(url, findings, house) if arguments.fix else []
            if deeds:  # what is said is how it stands now
                findings = doctor.examine(url, house, only=arguments.only)
        if arguments.json:
            cli.show_json(doctor.as_json(findings, deeds))
        else:
            _say_lines(doctor.in_words(findings, deeds))
        return 2 if doctor.saw_nothing(findings) else int(doctor.needs_a_person(findings))

    return _or_two(look)


def check_deploy(arguments: Namespace, settings: Settings) -> int:
    def look() -> int:
        processing.load(settings)
        with db.in_use(settings) as url, doctor.consulting(url) as line:
            deploy = doctor.compare(line, registry.default)
        if arguments.json:
            cli.show_json(deploy.as_json())
        else:
            _say_lines(doctor.of_deploy(deploy))
        return 0 if deploy.is_safe else 1

    return _or_two(look)


def _or_two(look: Callable[[], int]) -> int:
    try:
        return look()
    except BrokenPipeError:
        raise
    except Exception as error:
        said = explanation(error)
        if said is None:
            raise
        sys.stderr.write(f"snapapp: {said}\n")
        return 2


def _say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


_COMMANDS: dict[str, Callable[[Namespace, Settings], int]] = {
    "psql": psql,
    "config": config,
    "jobs": queue_command,
    "queues": queue_command,
    "workers": queue_command,
    "schedules": queue_command,
    "limits": queue_command,
    "tenants": tenant_command,
    "demo": prepare_demo,
    "import-legacy": import_legacy,
    "fleet": queue_command,
    "doctor": diagnose,
    "check-deploy": check_deploy,
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

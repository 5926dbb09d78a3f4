"""The commands of the product: tenants, demo, import-legacy."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from snapapp.demo import first_minute
from snapapp.domain import tenants
from snapapp.errors import SnapError
from snapapp.jobs.cli.shown import answer, answer_once, say, show_list
from snapapp.postgres import connections, database
from snapapp.postgres.in_use import in_use
from snapapp.processing import loading
from snapapp.settings.table import Environment, Settings


def tenant_command(arguments: Namespace, settings: Settings) -> int:
    with in_use(settings) as url, connections.transaction(url) as db:
        return _TENANT_COMMANDS[arguments.act](db, arguments)


_SHOWN_FIELDS = ("code", "name", "status", "has_token", "created_at", "token_changed_at")


def list_tenants(db: Session, arguments: Namespace) -> int:
    with database.unfiltered(db):
        everyone = [{name: getattr(tenant, name) for name in _SHOWN_FIELDS} for tenant in tenants.every(db)]
    headers = ["code", "status", "token", "added", "name"]
    return show_list(arguments, everyone, headers, _line, empty="There is no tenant.")


def _line(its: dict[str, Any]) -> list[str]:
    token = f"since {its['token_changed_at']:%Y-%m-%d}" if its["has_token"] else "none"
    return [its["code"], its["status"], token, f"{its['created_at']:%Y-%m-%d}", its["name"]]


def add_tenant(db: Session, arguments: Namespace) -> int:
    tenant, token = tenants.add(db, arguments.code, arguments.name or arguments.code)
    return _show_token(arguments, tenant.code, token)


def rotate_token(db: Session, arguments: Namespace) -> int:
    return _show_token(arguments, arguments.code, tenants.rotate_token(db, arguments.code))


def _show_token(arguments: Namespace, code: str, token: str) -> int:
    message = f"The token of {code}, which is kept nowhere and not shown again:\n{token}"
    return answer_once(arguments, {"code": code, "token": token}, message)


_TENANT_COMMANDS: dict[str, Callable[[Session, Namespace], int]] = {
    "list": list_tenants,
    "add": add_tenant,
    "rotate-token": rotate_token,
}


def prepare_demo(_arguments: Namespace, settings: Settings) -> int:
    if settings.env is Environment.PROD:
        raise SnapError("The demo is for development, and SNAPAPP_ENV is prod.")
    loading.load(settings)
    with in_use(settings) as url, connections.transaction(url) as db, database.unfiltered(db):
        job_id = first_minute.order(db)
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
        in_use(settings) as url,
        old.opened(arguments.dsn) as old_database,
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        steps = bar.add_task("Snaps", total=old_database.count() * (2 if archive else 1))
        moved = legacy.move(old_database, url, archive, lambda: bar.advance(steps))
    return answer(arguments, moved, "\n".join(moved.in_words()))

"""The commands backup, restore and drill."""

import signal
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from types import FrameType
from typing import Any

import psycopg

from snapapp import backup, logs, storage
from snapapp.backup import records
from snapapp.backup.errors import BackupError
from snapapp.backup.manifest import Manifest
from snapapp.backup.records import What
from snapapp.cli.explanation import explanation
from snapapp.jobs import cli
from snapapp.jobs.cli.shown import say
from snapapp.jobs.doctor.finding import size
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import LogLevel, Settings


def run(arguments: Namespace, settings: Settings) -> int:
    """The command that was typed; its exit code."""
    logs.begin(settings, at_least=LogLevel.WARNING)
    if not settings.has_product:
        raise BackupError("Backups are of the product: the queue alone is one database, which pg_dump copies.")
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _ended_by_signals():
        return _COMMANDS[arguments.command](arguments, settings)


def make(arguments: Namespace, settings: Settings) -> int:
    place = backup.place_of(settings)
    if arguments.list:
        return _list(arguments, place.whole(), place.manifest)
    with in_use(settings) as url, _recorded(url, What.BACKUP) as run:
        media = storage.from_settings(settings)
        made = backup.make(url, media, place, keep=settings.backup_keep, keep_for=settings.backup_keep_for)
        run.said = f"{_told(made.manifest)}; {made.copied} objects were new"
    if arguments.json:
        cli.show_json(made.manifest.as_json() | {"copied": made.copied, "removed": made.removed})
    else:
        say(f"Backup {made.manifest.id} is whole: {run.said}.")
        for id_ in made.removed:
            say(f"Backup {id_} was removed: its time was over.")
    return 0


def restore(arguments: Namespace, settings: Settings) -> int:
    place = backup.place_of(settings)
    with in_use(settings, create=True) as url:
        restored = backup.restore(url, storage.from_settings(settings), place, arguments.id, settings.data_dir)
    if arguments.json:
        cli.show_json(restored.manifest.as_json())
    else:
        say(f"Backup {restored.manifest.id} is back, rows and hashes as they were: {_told(restored.manifest)}.")
    return 0


def drill(arguments: Namespace, settings: Settings) -> int:
    with in_use(settings) as url, _recorded(url, What.DRILL) as run:
        drilled = backup.drill(backup.place_of(settings), arguments.id, settings.data_dir)
        run.said = f"backup {drilled.manifest.id}: {_told(drilled.manifest)}"
    if arguments.json:
        cli.show_json(drilled.manifest.as_json())
    else:
        say(f"Restored on trial, rows and hashes as they were, and removed: {run.said}.")
    return 0


_COMMANDS: dict[str, Callable[[Namespace, Settings], int]] = {"backup": make, "restore": restore, "drill": drill}


def _list(arguments: Namespace, ids: list[str], read: Callable[[str], Manifest]) -> int:
    found = [read(id_) for id_ in ids]
    if arguments.json:
        cli.show_json([manifest.as_json() for manifest in found])
    elif found:
        cli.show_table(["backup", "rows", "objects", "media"], [_line(each) for each in found], numbers={1, 2, 3})
    else:
        say("There is no whole backup.")
    return 0


def _line(its: Manifest) -> list[str]:
    return [its.id, str(sum(its.tables.values())), str(its.objects), size(its.object_bytes)]


def _told(its: Manifest) -> str:
    rows = sum(its.tables.values())
    return f"{rows:,} rows ({size(its.database.size)}), {its.objects:,} objects ({size(its.object_bytes)})"


# --- what is noted of it ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    said: str = ""


@contextmanager
def _recorded(url: str, what: What) -> Iterator[_Run]:
    """How it ended is noted in the database, where the doctor finds it; what keeps that from being noted is not."""
    began, its = monotonic(), _Run()

    def note(said: str, *, is_good: bool) -> None:
        records.add(url, what, took=timedelta(seconds=monotonic() - began), is_good=is_good, said=said)

    try:
        yield its
    except BaseException as error:
        with suppress(psycopg.OperationalError, psycopg.errors.UndefinedTable):  # it is away, or not ours yet
            note(explanation(error) or f"{type(error).__name__}: {error}", is_good=False)
        raise
    note(its.said, is_good=True)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """As Ctrl-C ends it: what is half made is cleared away, and the scratch server of a drill is stopped."""

    def end(_number: int, _frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""The commands backup, restore and drill."""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

import psycopg

from snapapp import backup, storage
from snapapp.backup import records
from snapapp.backup.errors import BackupError
from snapapp.backup.manifest import Manifest
from snapapp.backup.records import What
from snapapp.cli.explanation import explanation
from snapapp.errors import SnapError
from snapapp.jobs.amounts import counted, size
from snapapp.jobs.cli.shown import answer, say, show_json
from snapapp.jobs.cli.tables import show_table
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import Settings


def run(arguments: Namespace, settings: Settings) -> int:
    """Runs one of the three commands; returns its exit code."""
    if not settings.has_product:
        raise BackupError("Backups are of the product: the queue alone is one database, which pg_dump copies.")
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _COMMANDS[arguments.command](arguments, settings)


def make(arguments: Namespace, settings: Settings) -> int:
    if arguments.list:
        place = backup.place_of(settings)
        return _list(arguments, place.whole(), place.manifest)
    with in_use(settings) as url, _recording(url, What.BACKUP) as run:
        place = backup.place_of(settings, is_first=not records.has_good(url))
        media = storage.from_settings(settings)
        backed_up = backup.make(url, media, place, keep=settings.backup_keep, keep_for=settings.backup_keep_for)
        run.said = f"{_in_words(backed_up.manifest)}; {backed_up.copied} objects were new"
    facts = backed_up.manifest.as_json() | {"copied": backed_up.copied, "removed": backed_up.removed}
    gone = [f"Backup {id_} was removed: its time was over." for id_ in backed_up.removed]
    return answer(arguments, facts, "\n".join([f"Backup {backed_up.manifest.id} is whole: {run.said}.", *gone]))


def restore(arguments: Namespace, settings: Settings) -> int:
    place = backup.place_of(settings)
    with in_use(settings, create=True) as url:
        restored = backup.restore(url, storage.from_settings(settings), place, arguments.id, settings.data_dir)
    words = f"Backup {restored.id} is back, rows and hashes as they were: {_in_words(restored)}."
    return answer(arguments, restored.as_json(), words)


def drill(arguments: Namespace, settings: Settings) -> int:
    with in_use(settings) as url, _recording(url, What.DRILL) as run:
        restored = backup.drill(backup.place_of(settings), arguments.id, settings.data_dir)
        run.said = f"backup {restored.id}: {_in_words(restored)}"
    words = f"Restored on trial, rows and hashes as they were, and removed: {run.said}."
    return answer(arguments, restored.as_json(), words)


_COMMANDS: dict[str, Callable[[Namespace, Settings], int]] = {"backup": make, "restore": restore, "drill": drill}


def _list(arguments: Namespace, ids: list[str], read: Callable[[str], Manifest]) -> int:
    manifests, is_all = [], True
    for id_ in ids:
        try:
            manifests.append(read(id_))
        except SnapError as error:
            sys.stderr.write(f"snapapp: {error}\n")
            is_all = False
    if arguments.json:
        show_json([manifest.as_json() for manifest in manifests])
    elif manifests:
        headers = ["backup", "rows", "objects", "lacking", "media"]
        show_table(headers, [_line(each) for each in manifests], numbers={1, 2, 3, 4})
    elif is_all:
        say("There is no whole backup.")
    return 0 if is_all else 1


def _line(manifest: Manifest) -> list[str]:
    rows, media = sum(manifest.tables.values()), size(manifest.object_bytes)
    return [manifest.id, str(rows), str(manifest.objects), str(manifest.lacking), media]


def _in_words(manifest: Manifest) -> str:
    rows = sum(manifest.tables.values())
    database, media = size(manifest.database.size), size(manifest.object_bytes)
    objects = counted(manifest.objects, "object", "objects")
    lacking = counted(manifest.lacking, "file", "files")
    but = f", without {lacking} that could not be read when it was made" if manifest.lacking else ""
    return f"{counted(rows, 'row', 'rows')} ({database}), {objects} ({media}){but}"


# --- the record of a run ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    said: str = ""


@contextmanager
def _recording(url: str, what: What) -> Iterator[_Run]:
    """Records in the database how the run ended, for the doctor. A run that failed because the database cannot be
    reached, or has no schema, is not recorded."""
    began, run = monotonic(), _Run()

    def note(said: str, *, is_good: bool) -> None:
        records.add(url, what, took=timedelta(seconds=monotonic() - began), is_good=is_good, said=said)

    try:
        yield run
    except BaseException as error:
        with suppress(psycopg.OperationalError, psycopg.errors.UndefinedTable):  # no connection, or no schema
            note(explanation(error) or f"{type(error).__name__}: {error}", is_good=False)
        raise
    note(run.said, is_good=True)

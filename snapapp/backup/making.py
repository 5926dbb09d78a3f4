"""Makes a backup: it copies the media, dumps the database, copies the media that came meanwhile, and writes the
manifest.

The product stores a file before it commits the row that names it. So every file that the dump has a row for is there at
the second copy, or was deleted since and is in the first one. An object never changes under its key, so a backup reads
only new objects."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from snapapp import __version__
from snapapp.backup import reading, retention
from snapapp.backup.errors import BackupError, Incomplete
from snapapp.backup.manifest import Manifest, MediaFile, Part, index_of, new_id
from snapapp.backup.place import Place
from snapapp.backup.streams import Program, size_and_hash
from snapapp.errors import SnapError
from snapapp.postgres import dump
from snapapp.storage import NotStored, ObjectRefused, Storage, Stored, keys


@dataclass(frozen=True, slots=True)
class Made:
    manifest: Manifest
    copied: int  # how many objects were new
    removed: list[str]  # old backups that were deleted


@dataclass(frozen=True, slots=True)
class Dumped:
    part: Part
    server: int
    tables: dict[str, int]
    roles: tuple[str, ...]


def make(url: str, media: Storage, place: Place, *, keep: int, keep_for: timedelta) -> Made:
    with reading.alone(url):
        now = datetime.now(UTC)
        manifest, copy = _write(url, media, place, new_id(now))
        _require_all(manifest.id, copy.refused)  # older backups stay: they may be all that is left of what is refused
        return Made(manifest, copy.copied, retention.apply(place, now, keep=keep, keep_for=keep_for))


def _write(url: str, media: Storage, place: Place, id_: str) -> "tuple[Manifest, Copy]":
    if id_ in place.whole():
        raise BackupError(f"There is a backup of this second already: {id_}")
    copy = Copy(media, place)
    copy.run()
    dumped = dump_database(url, place, id_)
    copy.run()
    files = sorted(copy.files.values(), key=lambda file: file.key)
    index = place.put(id_, "media", index_of(files))
    _require_whole(place, id_, files)
    manifest = Manifest(
        id=id_,
        version=__version__,
        server=dumped.server,
        database=dumped.part,
        tables=dumped.tables,
        roles=dumped.roles,
        index=index,
        objects=len(files),
        object_bytes=sum(file.size for file in files),
        lacking=len(copy.refused),
    )
    place.put_manifest(manifest)
    return manifest, copy


def _require_all(id_: str, refused: Mapping[str, str]) -> None:
    if refused:
        [(first, why), *_] = refused.items()
        raise Incomplete(
            f"Backup {id_} has everything but {len(refused)} of the storage's files, which cannot be read: "
            f"{', '.join([*refused][:5])}{', …' if len(refused) > 5 else ''}. Of {first} the storage says: {why}. "
            "Mend them, or delete the snaps and videos that they are of. Until then no old backup is removed."
        )


def _require_whole(place: Place, id_: str, files: Iterable[MediaFile]) -> None:
    """Another installation with the same place cannot see that a backup is being made, and clears away what belongs to
    no whole one."""
    lacking = {file.sha256 for file in files}
    lacking.difference_update(place.hashes())
    if lacking or not place.has_database(id_):
        raise BackupError(
            "Somebody removed files of this backup while it was made. Does another installation have the same "
            "SNAPAPP_BACKUP_TO? Each needs a folder, or a prefix in the bucket, of its own."
        )


# --- the database -----------------------------------------------------------------------------------------------


def dump_database(url: str, place: Place, id_: str) -> Dumped:
    """Dumps the database, and counts its rows in the same snapshot."""
    with reading.connected(url) as db:
        role = reading.role(db)
        with db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            [snapshot] = db.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
            options = ["--format=custom", f"--snapshot={snapshot}", *([f"--role={role}"] if role else [])]
            argv, environment = dump.pg_dump(url, reading.major(db), *options)
            with Program(argv, env=environment) as source:
                part = place.put(id_, "database", source)
            reading.act_as(db, role)
            return Dumped(part, reading.major(db), reading.rows(db), reading.roles(db))


# --- the media --------------------------------------------------------------------------------------------------


class Copy:
    """Copies the objects of the storage, each content once. A second `run` copies what is new since the first."""

    def __init__(self, media: Storage, place: Place) -> None:
        self._media = media
        self._place = place
        self._there = {*place.hashes()}
        self._known = _files_of_newest(place)
        self.files: dict[str, MediaFile] = {}
        self.refused: dict[str, str] = {}  # what could not be read, and why
        self.copied = 0

    def run(self) -> None:
        self.refused.clear()
        for folder in keys.FOLDERS:
            for stored in self._media.listed(folder):
                try:
                    self._take(stored)
                except NotStored:
                    continue  # it was deleted since it was listed
                except ObjectRefused as error:
                    self.refused[stored.key] = error.reason

    def _take(self, stored: Stored) -> None:
        known = self.files.get(stored.key) or self._known.get(stored.key)
        is_same = known is not None and (known.size, known.etag) == (stored.size, stored.etag)
        if known and is_same and known.sha256 in self._there:
            self.files[stored.key] = known
            return
        with ExitStack() as stack:
            with _bad_file_as_refused(stored.key):
                source = stack.enter_context(self._media.open(stored.key))
                part = size_and_hash(source)
            if part.sha256 not in self._there:
                source.seek(0)
                if self._place.put_object(part.sha256, source) != part:
                    raise BackupError(f"{stored.key} was replaced while it was copied.")
                self._there.add(part.sha256)
                self.copied += 1
            self.files[stored.key] = MediaFile(stored.key, part.size, part.sha256, source.stored.etag)


@contextmanager
def _bad_file_as_refused(key: str) -> Iterator[None]:
    """A local file on a bad block, or without rights, must not keep all others from being copied."""
    try:
        yield
    except OSError as error:
        raise ObjectRefused(key, error) from error


def _files_of_newest(place: Place) -> dict[str, MediaFile]:
    """The media of the newest backup that can be read, so that unchanged objects need not be read again."""
    for id_ in reversed(place.whole()):
        try:
            return {file.key: file for file in place.media(place.manifest(id_))}
        except SnapError:
            continue
    return {}

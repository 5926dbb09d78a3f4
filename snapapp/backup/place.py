"""Where backups are stored, and in which form:

    backups/20260131T030000Z/database   pg_dump's custom format
    backups/20260131T030000Z/media      a line for each object of the storage: key, size, SHA-256, etag
    backups/20260131T030000Z/manifest   written last; without it the backup is unfinished
    objects/ab/ab12…                    the content of an object, by its SHA-256

With a key each name ends in .age, and `age --decrypt --identity KEY FILE` opens it without snapapp."""

import io
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from snapapp.backup.errors import BackupError, Damaged
from snapapp.backup.manifest import Manifest, MediaFile, Part, by_age, is_id, read_index
from snapapp.backup.streams import BLOCK, Counted, Readable, decrypt, encrypt
from snapapp.settings.table import Settings
from snapapp.storage import Local, Room, Storage

_SEALED = ".age"


class Place:
    """The storage of the backups, with encryption if there is a key."""

    def __init__(self, store: Storage, key: Path | None) -> None:
        self.store = store
        self._key = key
        self._ending = _SEALED if key else ""

    # --- listing ----------------------------------------------------------------------------------------------

    def whole(self) -> list[str]:
        """The backups that have a manifest, the oldest first, whether sealed or not."""
        ids = {id_ for id_, name in self._files() if name in ("manifest", f"manifest{_SEALED}")}
        return by_age(ids, datetime.now(UTC))

    def unfinished(self) -> list[str]:
        """The backups without a manifest, which were interrupted."""
        return sorted({id_ for id_, _ in self._files()} - {*self.whole()})

    def objects(self) -> Iterator[tuple[str, str]]:
        """The SHA-256 of each object, and its key."""
        for stored in self.store.listed("objects/"):
            yield stored.key.rpartition("/")[2].removesuffix(_SEALED), stored.key

    def hashes(self) -> Iterator[str]:
        """Of the objects that need not be copied again: with a key the sealed ones, without a key the others."""
        return (sha256 for sha256, key in self.objects() if key.endswith(_SEALED) == bool(self._key))

    def has_database(self, id_: str) -> bool:
        return self.store.exists(f"backups/{id_}/database{self._ending}")

    def _files(self) -> Iterator[tuple[str, str]]:
        for stored in self.store.listed("backups/"):
            id_, _, name = stored.key.removeprefix("backups/").partition("/")
            if is_id(id_):  # else it is somebody's own, such as a note beside the backups
                yield id_, name

    # --- writing ----------------------------------------------------------------------------------------------

    def put(self, id_: str, name: str, source: Readable) -> Part:
        return self._put(f"backups/{id_}/{name}", source)

    def put_manifest(self, manifest: Manifest) -> None:
        content = json.dumps(manifest.as_json(), indent=1).encode()
        self.put(manifest.id, "manifest", io.BytesIO(content))

    def forget(self, id_: str) -> None:
        for name in (f"manifest{_SEALED}", "manifest"):
            self.store.delete(f"backups/{id_}/{name}")
        self.store.delete_prefix(f"backups/{id_}/")

    def put_object(self, sha256: str, source: Readable) -> Part:
        return self._put(_object(sha256), source)

    def _put(self, key: str, source: Readable) -> Part:
        reader = Counted(source)
        with ExitStack() as stack:
            into = stack.enter_context(self.store.upload(f"{key}{self._ending}"))
            content = io.BufferedReader(stack.enter_context(encrypt(reader, self._key))) if self._key else reader
            while block := content.read(BLOCK):
                into.write(block)
            into.finish()
        return reader.part()

    # --- reading ----------------------------------------------------------------------------------------------

    def manifest(self, id_: str) -> Manifest:
        with _naming(id_), self.open_file(f"backups/{id_}/manifest") as source:
            return Manifest.read(source.read())

    def media(self, manifest: Manifest) -> Iterator[MediaFile]:
        with _naming(manifest.id), self.open_file(f"backups/{manifest.id}/media", manifest.index) as source:
            return read_index(source.read())

    def database(self, manifest: Manifest) -> AbstractContextManager[Readable]:
        return self.open_file(f"backups/{manifest.id}/database", manifest.database)

    def media_file(self, file: MediaFile) -> AbstractContextManager[Readable]:
        return self.open_file(_object(file.sha256), Part(file.size, file.sha256))

    @contextmanager
    def open_file(self, key: str, expected: Part | None = None) -> Iterator[Readable]:
        """Opens a file, decrypted. Reading to its end raises Damaged if size or hash are not the expected ones."""
        is_sealed = self.store.exists(f"{key}{_SEALED}") and (self._key is not None or not self.store.exists(key))
        if is_sealed and self._key is None:
            raise BackupError(
                f"{key} is encrypted: SNAPAPP_BACKUP_KEY_FILE must name the key that it was encrypted with."
            )
        with ExitStack() as stack:
            source: Readable = stack.enter_context(self.store.open(f"{key}{_SEALED}" if is_sealed else key))
            if is_sealed and self._key:
                source = io.BufferedReader(stack.enter_context(decrypt(source, self._key)))
            yield source if expected is None else _Verified(source, key, expected)


def _object(sha256: str) -> str:
    return f"objects/{sha256[:2]}/{sha256}"


class _Verified:
    def __init__(self, source: Readable, key: str, expected: Part) -> None:
        self._reader = Counted(source)
        self._key = key
        self._expected = expected

    def read(self, size: int = -1, /) -> bytes:
        block = self._reader.read(size)
        if (size < 0 or not block) and self._reader.part() != self._expected:
            part = self._reader.part()
            raise Damaged(
                f"{self._key} is damaged: it has {part.size} bytes with the hash {part.sha256[:12]}…, not "
                f"{self._expected.size} with {self._expected.sha256[:12]}…. {_cure(self._key)}"
            )
        return block


def _cure(key: str) -> str:
    if key.startswith("objects/"):
        return "Remove it: the next backup copies the object anew."
    return f"This backup is lost: remove all of {key.rpartition('/')[0]}."


@contextmanager
def _naming(id_: str) -> Iterator[None]:
    """Names the backup in errors that do not: of its key, of its manifest."""
    try:
        yield
    except BackupError as error:
        raise type(error)(f"Backup {id_}: {error}") from error


def place_of(settings: Settings, *, is_first: bool = False) -> Place:
    """The place that SNAPAPP_BACKUP_TO names. Only the first backup makes the folder: later a missing folder means a
    disk that is not mounted, and the disk below would be filled."""
    target = settings.backup_to
    if target is None:
        raise BackupError("SNAPAPP_BACKUP_TO says where backups go: a folder, or s3://BUCKET/PREFIX. It is not set.")
    return Place(_store(settings, target, is_first=is_first), settings.backup_key_file)


def _store(settings: Settings, target: str, *, is_first: bool) -> Storage:
    # The product's floor of free disk does not apply to backups: a backup itself fails if the disk is full.
    room = Room(settings.data_dir, 0)
    if not target.startswith("s3://"):
        folder = Path(target)
        if is_first:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise BackupError(f"There is no folder {folder}, which SNAPAPP_BACKUP_TO names. Is its disk mounted?")
        return Local(folder, room)
    bucket, _, prefix = target.removeprefix("s3://").partition("/")
    from snapapp.storage.s3 import S3  # late, because the library behind it takes 6 MB

    return S3(
        bucket=bucket,
        endpoint=settings.backup_s3_endpoint or settings.s3_endpoint,
        region=settings.backup_s3_region or settings.s3_region,
        access_key_id=settings.backup_s3_access_key_id or settings.s3_access_key_id or "",
        secret_access_key=settings.backup_s3_secret_access_key or settings.s3_secret_access_key or "",
        prefix=prefix.strip("/"),
        spool=settings.data_dir / "incoming",
        room=room,
    )

"""What a backup says of itself. The manifest is written last: a backup without one is none."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from snapapp.backup.errors import BackupError

FORMAT = 1
_ID = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the backup, before it was sealed."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class MediaFile:
    """An object of the storage. Its content lies under its hash, once, however many backups have it."""

    key: str
    size: int
    sha256: str
    etag: str  # as the storage had it: the same one again is not read again


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    id: str
    version: str  # of snapapp
    server: int  # the major version of PostgreSQL
    database: Part
    tables: Mapping[str, int]  # rows, as of the dump
    roles: tuple[str, ...]  # that the schema names
    index: Part  # the list of the media
    objects: int
    object_bytes: int

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, content: bytes) -> "Manifest":
        try:
            said = json.loads(content)
            if said.pop("format") != FORMAT:
                raise BackupError("The backup was made by another version of snapapp: restore it with that one.")
            database, index = Part(**said.pop("database")), Part(**said.pop("index"))
            return cls(database=database, index=index, roles=tuple(said.pop("roles")), **said)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BackupError(f"The manifest of the backup cannot be read: {error}") from error


def new_id(now: datetime) -> str:
    """Sorts by time."""
    return now.astimezone(UTC).strftime(_ID)


def when(id_: str) -> datetime:
    return datetime.strptime(id_, _ID).replace(tzinfo=UTC)


def is_id(text: str) -> bool:
    try:
        return new_id(when(text)) == text
    except ValueError:
        return False


def index_lines(files: Iterable[MediaFile]) -> Iterator[bytes]:
    for file in files:
        yield json.dumps([file.key, file.size, file.sha256, file.etag]).encode() + b"\n"


def read_index(content: bytes) -> list[MediaFile]:
    return [MediaFile(*json.loads(line)) for line in content.splitlines()]

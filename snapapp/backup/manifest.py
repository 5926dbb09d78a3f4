"""The manifest, which describes a backup. It is written last, so a backup without a manifest is unfinished."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from snapapp.backup.errors import BackupError, Damaged

FORMAT = 1
_ID = "%Y%m%dT%H%M%SZ"
_CLOCKS_DIFFER = timedelta(days=1)  # those of two machines, at most


@dataclass(frozen=True, slots=True)
class Part:
    """The size and the hash of a file in the backup, before encryption."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class MediaFile:
    """An object of the storage. All backups share its content, which is stored once under its hash."""

    key: str
    size: int
    sha256: str
    etag: str  # as the storage gave it; an object with the same etag need not be read again


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    id: str
    version: str  # of snapapp
    server: int  # the major version of PostgreSQL
    database: Part
    tables: Mapping[str, int]  # rows by table, as of the dump
    roles: tuple[str, ...]  # that the schema grants rights to
    index: Part  # the list of the media
    objects: int
    object_bytes: int
    lacking: int = 0  # files that the storage had and could not be read

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, content: bytes) -> "Manifest":
        try:
            fields = json.loads(content)
            if fields.pop("format") != FORMAT:
                raise BackupError("It was made by another version of snapapp: restore it with that one.")
            database, index = Part(**fields.pop("database")), Part(**fields.pop("index"))
            return cls(database=database, index=index, roles=tuple(fields.pop("roles")), **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Damaged(f"Its manifest cannot be read ({error}), so it is lost: remove its folder.") from error


def new_id(now: datetime) -> str:
    """The id of a backup made now. Ids sort by time."""
    return now.astimezone(UTC).strftime(_ID)


def when(id_: str) -> datetime:
    return datetime.strptime(id_, _ID).replace(tzinfo=UTC)


def by_age(ids: Iterable[str], now: datetime) -> list[str]:
    """The ids, the oldest first. An id of the future is of a time when the clock was wrong: until then it would stand
    before every backup that came since, so it counts as older than all."""
    return sorted(ids, key=lambda id_: (when(id_) <= now + _CLOCKS_DIFFER, id_))


def is_id(text: str) -> bool:
    try:
        return new_id(when(text)) == text
    except ValueError:
        return False


def index_of(files: Iterable[MediaFile]) -> io.BytesIO:
    index = io.BytesIO()
    for file in files:
        index.write(json.dumps(astuple(file)).encode() + b"\n")
    index.seek(0)
    return index


def read_index(content: bytes) -> Iterator[MediaFile]:
    return (MediaFile(*json.loads(line)) for line in io.BytesIO(content))

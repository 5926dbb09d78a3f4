"""The interface that both storages implement, and its values."""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from snapapp.storage import keys, uploads
from snapapp.storage.errors import NotStored
from snapapp.storage.resumable import ResumableUploads
from snapapp.storage.room import Room
from snapapp.storage.uploads import Upload

Source = bytes | Path | BinaryIO


@dataclass(frozen=True, slots=True)
class Stored:
    """What is known of an object without reading it."""

    key: str
    size: int
    etag: str  # in quotes, as in HTTP; differs between any two contents of one key
    modified: datetime


class Reader(io.BufferedReader):
    """An object opened for reading. It is seekable, so that PyAV and HTTP ranges read only what they need. If the
    object is deleted meanwhile, a local reader goes on; if it is replaced, no reader mixes the two contents."""

    def __init__(self, raw: io.RawIOBase, stored: Stored, *, block: int) -> None:
        super().__init__(raw, block)
        self.stored = stored


class Storage(ABC):
    """Stores bytes by key. An object appears whole or not at all, and survives a power cut once `put` or `finish` has
    returned. snapapp writes each key once; writing a key again replaces its object."""

    def __init__(self, incoming: Path, resumable: Path, room: Room) -> None:
        """`incoming` and `resumable` are local folders in which uploads stay until they are complete."""
        self._incoming = incoming
        self._room = room
        self.resumable = ResumableUploads(resumable, room, self._publish)  # uploads that come in several parts

    @abstractmethod
    def put(self, key: str, source: Source) -> None: ...

    def upload(self, key: str, *, max_bytes: int | None = None, announced: int | None = None) -> Upload:
        """A writer for bytes as they arrive; `announced` is the length that the client announced."""
        keys.checked(key)
        return Upload(key, self._incoming, self._publish, room=self._room, max_bytes=max_bytes, announced=announced)

    @abstractmethod
    def _publish(self, written: Path, key: str) -> None:
        """Moves a complete local file to its key."""

    @abstractmethod
    def open(self, key: str) -> Reader:
        """Raises NotStored."""

    def read(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`, or fewer if the object ends earlier."""
        with self.open(key) as file:
            file.seek(start)
            return file.read(length)

    @abstractmethod
    def stat(self, key: str) -> Stored:
        """Raises NotStored."""

    def exists(self, key: str) -> bool:
        try:
            self.stat(key)
        except NotStored:
            return False
        return True

    @abstractmethod
    def listed(self, prefix: str = "") -> Iterator[Stored]:
        """All objects below a prefix, which ends with a slash, in the order of the keys' bytes."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Deletes the object; a missing object is no error."""

    @abstractmethod
    def delete_prefix(self, prefix: str) -> int:
        """Deletes all objects below the prefix, which cannot be empty; returns how many there were."""

    def forget_uploads(self, before: datetime) -> int:
        """Removes the files that killed processes left of uploads, if nothing was written to them since `before`."""
        return uploads.forget(self._incoming, before) + self.resumable.forget(before)

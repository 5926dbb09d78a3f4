"""The one interface of both storages, and its values."""

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
    etag: str  # with its quotes, as HTTP has it; two contents of one key never share it
    modified: datetime


class Reader(io.BufferedReader):
    """An object opened for reading: seekable, so that PyAV and ranges read only what they need. Deleting the object
    meanwhile does not end a local one; replacing it never mixes two contents."""

    def __init__(self, raw: io.RawIOBase, stored: Stored, *, block: int) -> None:
        super().__init__(raw, block)
        self.stored = stored


class Storage(ABC):
    """Bytes by key. An object appears whole or not at all, and is there after a power cut once `put` or `finish`
    returned. A key of ours is written once; writing it again replaces the object."""

    def __init__(self, incoming: Path, resumable: Path, room: Room) -> None:
        """`incoming` and `resumable` are local folders in which uploads stay until they are whole."""
        self._incoming = incoming
        self._room = room
        self.resumable = ResumableUploads(resumable, room, self._publish)  # uploads that come in parts

    @abstractmethod
    def put(self, key: str, source: Source) -> None: ...

    def upload(self, key: str, *, max_bytes: int | None = None, announced: int | None = None) -> Upload:
        """A writer for bytes as they arrive; `announced` is what the client says there will be."""
        keys.checked(key)
        return Upload(key, self._incoming, self._publish, room=self._room, max_bytes=max_bytes, announced=announced)

    @abstractmethod
    def _publish(self, written: Path, key: str) -> None:
        """What came in whole gets its key."""

    @abstractmethod
    def open(self, key: str) -> Reader:
        """Raises NotStored."""

    def read(self, key: str, start: int, length: int) -> bytes:
        """Fewer bytes where the object ends before."""
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
        """Whatever is below a prefix that ends with a slash, in the order of the keys' bytes."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """What is not there is deleted already."""

    @abstractmethod
    def delete_prefix(self, prefix: str) -> int:
        """How many objects that were. Never the whole storage."""

    def forget_uploads(self, before: datetime) -> int:
        """Removes what uploads left behind whose process was killed, unless it was written to since."""
        return uploads.forget(self._incoming, before) + self.resumable.forget(before)

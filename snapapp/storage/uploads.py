"""Bytes on their way in. Both storages take them the same way: into a nameless file on the local disk, counted and
hashed, which gets its key when all of it is there. So memory does not grow with the size, and a client that goes away
leaves nothing behind, not even the unfinished multipart upload of a bucket, which nobody sees and somebody pays."""

import hashlib
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from snapapp.storage.errors import UploadTooLarge
from snapapp.storage.room import MB, Room, told_when_full

_LOOK_EVERY = 16 * MB  # bytes between two looks at the disk's floor


@dataclass(frozen=True, slots=True)
class Received:
    """What came in whole."""

    key: str
    size: int
    sha256: str


class Upload:
    """`write` as often as there is something, then `finish`; leaving the `with` before that leaves nothing behind.
    One thread at a time. Without `room` the disk's floor does not matter: running work may still land."""

    def __init__(
        self,
        key: str,
        folder: Path,
        publish: Callable[[Path, str], None],
        *,
        room: Room | None = None,
        max_bytes: int | None = None,
        announced: int | None = None,
    ) -> None:
        if announced is not None and max_bytes is not None and announced > max_bytes:
            raise UploadTooLarge(max_bytes)
        if room:
            room.require(announced or 0)
        self.size = 0
        self._key = key
        self._room = room
        self._publish = publish
        self._max = max_bytes
        self._digest = hashlib.sha256()
        self._looks_at = _LOOK_EVERY
        self._path = folder / uuid.uuid4().hex
        with told_when_full():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "wb")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._max is not None and self.size + len(data) > self._max:
            self.abort()
            raise UploadTooLarge(self._max)
        try:
            with told_when_full():
                self._file.write(data)
            self.size += len(data)
            if self._room and self.size >= self._looks_at:
                self._looks_at = self.size + _LOOK_EVERY
                self._room.require()
        except BaseException:
            self.abort()  # else what is missing here would be missing in the middle
            raise
        self._digest.update(data)

    def finish(self) -> Received:
        """All of it is on disk under its key when this returns."""
        try:
            with told_when_full():
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                self._publish(self._path, self._key)
        except BaseException:
            self.abort()
            raise
        return Received(self._key, self.size, self._digest.hexdigest())

    def abort(self) -> None:
        """Twice is fine; after `finish` there is nothing left to remove."""
        with suppress(OSError):  # a full disk refuses what is still buffered
            self._file.close()
        with suppress(FileNotFoundError):
            self._path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


def forget(folder: Path, before: datetime) -> int:
    """Removes files of uploads that were last written to before then: their processes are dead."""
    removed = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # it was finished just now
                if entry.stat(follow_symlinks=False).st_mtime < before.timestamp():
                    Path(entry.path).unlink()
                    removed += 1
    return removed

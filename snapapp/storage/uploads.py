"""Takes bytes as they arrive. Both storages write them to a temporary file on the local disk, where they are counted
and hashed; the complete file gets its key. So memory does not grow with the size of an upload, and a client that goes
away leaves nothing behind: above all no unfinished multipart upload in a bucket, which no listing shows and which costs
money."""

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
from snapapp.storage.room import CHECK_EVERY, Room, full_disk_as_no_room


@dataclass(frozen=True, slots=True)
class Received:
    """A complete upload that has its key."""

    key: str
    size: int
    sha256: str


class Upload:
    """An upload: `write` as often as needed, then `finish`. Leaving the `with` before `finish` removes the file. For
    one thread at a time. Without `room` the disk's floor is not checked, so that running jobs can still store their
    results."""

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
        self._next_check = CHECK_EVERY
        self._path = folder / uuid.uuid4().hex
        with full_disk_as_no_room():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "wb")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._max is not None and self.size + len(data) > self._max:
            self.abort()
            raise UploadTooLarge(self._max)
        try:
            with full_disk_as_no_room():
                self._file.write(data)
            self.size += len(data)
            if self._room and self.size >= self._next_check:
                self._next_check = self.size + CHECK_EVERY
                self._room.require()
        except BaseException:
            self.abort()  # otherwise later writes would leave a gap in the file
            raise
        self._digest.update(data)

    def finish(self) -> Received:
        """Gives the file its key; it survives a power cut when this returns."""
        try:
            with full_disk_as_no_room():
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                self._publish(self._path, self._key)
        except BaseException:
            self.abort()
            raise
        return Received(self._key, self.size, self._digest.hexdigest())

    def abort(self) -> None:
        """Removes the file. Calling it again, or after `finish`, does nothing."""
        with suppress(OSError):  # on a full disk the last buffer cannot be written
            self._file.close()
        with suppress(FileNotFoundError):
            self._path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


def forget(folder: Path, before: datetime) -> int:
    """Removes upload files that were last written to before `before`, whose processes must be dead; returns how
    many."""
    removed = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # the upload was finished at this moment
                if entry.stat(follow_symlinks=False).st_mtime < before.timestamp():
                    Path(entry.path).unlink()
                    removed += 1
    return removed

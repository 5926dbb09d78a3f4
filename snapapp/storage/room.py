"""Whether the disk has room for more. Under the floor everything goes on but new heavy work."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from snapapp.storage.errors import NoRoom

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
MB = 2**20


@dataclass(frozen=True, slots=True)
class Room:
    """The disk that holds `folder`, which need not be there yet."""

    folder: Path
    floor_mb: int

    def free_mb(self) -> int:
        """Raises OSError where nobody may look."""
        there = next(each for each in (self.folder, *self.folder.parents) if each.exists())
        return shutil.disk_usage(there).free // MB

    def refusal(self, wanted_bytes: int = 0) -> str | None:
        """Why new heavy work is refused; None while it is welcome."""
        try:
            free = self.free_mb()
        except OSError as error:
            return f"The disk cannot be looked at: {error.strerror}"
        if free - wanted_bytes // MB >= self.floor_mb:
            return None
        wanted = f" and {wanted_bytes // MB} MB are wanted" if wanted_bytes else ""
        return f"The disk has {free} MB free{wanted}; {self.floor_mb} MB must stay free"

    def require(self, wanted_bytes: int = 0) -> None:
        if refusal := self.refusal(wanted_bytes):
            raise NoRoom(refusal)


@contextmanager
def told_when_full() -> Iterator[None]:
    """A full disk is the same answer, whoever notices it."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom(f"The disk is full: {error.strerror}") from error
        raise

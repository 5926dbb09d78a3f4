"""Whether the disk of SNAPAPP_DATA_DIR has room for more. Below the floor of free space only new heavy work is refused.

Messages name the setting and no folder, because tenants read them too."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from snapapp.storage.errors import NoRoom

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
MB = 2**20
CHECK_EVERY = 16 * MB  # bytes of an upload between two checks of the free space


@dataclass(frozen=True, slots=True)
class Room:
    """The disk that holds `folder`, which need not exist yet."""

    folder: Path
    floor_mb: int

    def free_mb(self) -> int:
        """The free space of the disk. Raises OSError where this process may not read it."""
        existing = next(each for each in (self.folder, *self.folder.parents) if each.exists())
        return shutil.disk_usage(existing).free // MB

    def refusal(self, wanted_bytes: int = 0) -> str | None:
        """Why new heavy work is refused; None while it is accepted."""
        try:
            free = self.free_mb()
        except OSError as error:
            return f"The disk of SNAPAPP_DATA_DIR cannot be looked at: {error.strerror}"
        if free - wanted_bytes // MB >= self.floor_mb:
            return None
        wanted = f" and {wanted_bytes // MB} MB are wanted" if wanted_bytes else ""
        return f"The disk of SNAPAPP_DATA_DIR has {free} MB free{wanted}; {self.floor_mb} MB must stay free"

    def require(self, wanted_bytes: int = 0) -> None:
        if refusal := self.refusal(wanted_bytes):
            raise NoRoom(refusal)


@contextmanager
def full_disk_as_no_room() -> Iterator[None]:
    """Turns the system's errors of a full disk into NoRoom, the same error as below the floor."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom(f"The disk of SNAPAPP_DATA_DIR is full: {error.strerror}") from error
        raise

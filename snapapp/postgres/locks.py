"""Who uses the server, whose turn it is to change that. The kernel keeps the answers and forgets the dead."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from snapapp.errors import PostgresError
from snapapp.postgres.home import open_private

_PAUSE = timedelta(milliseconds=20)


class GateBusyError(PostgresError):
    """Another process has been starting or stopping the server for all the time we were ready to wait."""


@contextmanager
def gate(path: Path, *, within: timedelta) -> Iterator[None]:
    """One process at a time starts, adopts or stops."""
    descriptor = open_private(path, os.O_RDWR)
    try:
        _pass(descriptor, path, time.monotonic() + within.total_seconds())
        yield
    finally:
        os.close(descriptor)


def _pass(descriptor: int, path: Path, deadline: float) -> None:
    while not _try_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            raise GateBusyError(
                f"Another process is still starting or stopping PostgreSQL in {path.parent}: wait for it, "
                f"or find it with `fuser {path}`."
            )
        time.sleep(_PAUSE.total_seconds())


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Share:
    """One adopter's hold on the server. Take it, ask it and release it behind the gate."""

    def __init__(self, path: Path) -> None:
        # never inherited: a lock that the server or a child also holds would not end with its owner
        self._descriptor: int | None = open_private(path, os.O_RDWR)
        if not _try_lock(self._descriptor, fcntl.LOCK_SH):
            self.release()
            raise PostgresError(f"{path} is locked by a process that is not one of ours: see `fuser {path}`.")

    def is_the_last(self) -> bool:
        return self._descriptor is not None and _try_lock(self._descriptor, fcntl.LOCK_EX)

    def release(self) -> None:
        """Twice is fine."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

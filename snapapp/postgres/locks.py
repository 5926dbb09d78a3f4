"""File locks that say which processes use the server, and which one may start or stop it. The kernel releases the locks
of a process that dies."""

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
    """Another process is still starting or stopping the server, after the longest time that this one waits."""


@contextmanager
def gate(path: Path, *, within: timedelta) -> Iterator[None]:
    """Lets one process at a time start, adopt or stop the server."""
    descriptor = open_private(path, os.O_RDWR)
    try:
        _lock_gate(descriptor, path, time.monotonic() + within.total_seconds())
        yield
    finally:
        os.close(descriptor)


def _lock_gate(descriptor: int, path: Path, deadline: float) -> None:
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
    """The share of one process in the server, as a lock. Create, ask and release it only while holding the gate."""

    def __init__(self, path: Path) -> None:
        # The descriptor is never inherited: if the server or a child held it too, the lock would outlive this process.
        self._descriptor: int | None = open_private(path, os.O_RDWR)
        if not _try_lock(self._descriptor, fcntl.LOCK_SH):
            self.release()
            raise PostgresError(f"{path} is locked by a process that is not one of ours: see `fuser {path}`.")

    def is_the_last(self) -> bool:
        return self._descriptor is not None and _try_lock(self._descriptor, fcntl.LOCK_EX)

    def release(self) -> None:
        """Releases the share; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

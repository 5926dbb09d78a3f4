"""The folders in which drills and restores work. Each holds rows of every tenant, so it must not stay behind, even if
the process was killed: whoever comes next, and is alone, removes what it finds."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from snapapp.errors import PostgresError
from snapapp.postgres import postmaster

DRILL, RESTORE = "drill-", "restore-"
DATABASE = "database"  # in the folder of a drill: the data directory of its server

_ANY = "?" * 8  # what tempfile adds to a prefix


@contextmanager
def folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder, which is removed at the end of the block."""
    lock = os.open(parent, os.O_RDONLY)
    try:
        with suppress(BlockingIOError):  # somebody is at work in one of the folders
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(parent)
        fcntl.flock(lock, fcntl.LOCK_SH)  # the kernel gives it back when this process dies
        with TemporaryDirectory(prefix=prefix, dir=parent) as made:
            yield Path(made)
    finally:
        os.close(lock)


def _clear(parent: Path) -> None:
    for left in [each for prefix in (DRILL, RESTORE) for each in parent.glob(f"{prefix}{_ANY}")]:
        if left.name.startswith(DRILL):
            # The server of a drill is no child of the drill's process, so it has outlived that.
            with suppress(PostgresError):
                postmaster.stop(left / DATABASE / "postgres")
        shutil.rmtree(left, ignore_errors=True)

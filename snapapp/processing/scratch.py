"""Folders for work in progress. Each is locked by whoever works in it, so what a killed child left is told from what
a living one still needs, whatever process ids say."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def folder(under: Path) -> Iterator[Path]:
    """An empty folder, removed in the end. Folders that killed processes left are removed first."""
    under.mkdir(parents=True, exist_ok=True, mode=0o700)
    sweep(under)
    path, lock = _locked(under)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def sweep(under: Path) -> int:
    """Removes what nobody holds any more; returns how many."""
    return sum(_is_removed(path) for path in under.iterdir()) if under.is_dir() else 0


def _locked(under: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(dir=under))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():  # a sweep may have come between the making and the locking
            return path, lock
        os.close(lock)


def _is_removed(path: Path) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
    return False

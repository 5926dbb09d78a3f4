"""Folders for work in progress. The process that works in a folder holds a lock on it, so a folder that a killed
process left can be told from one in use. Process ids would not do, because the system reuses them."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def folder(under: Path) -> Iterator[Path]:
    """An empty folder, which is removed at the end. Folders that killed processes left are removed first."""
    under.mkdir(parents=True, exist_ok=True, mode=0o700)
    sweep(under)
    path, lock = _make_locked(under)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def sweep(under: Path) -> int:
    """Removes the folders that no process holds; returns how many."""
    return sum(_is_removed(path) for path in under.iterdir()) if under.is_dir() else 0


def _make_locked(under: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(dir=under))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():  # a sweep may have removed the folder before it was locked
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

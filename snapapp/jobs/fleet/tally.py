"""What a worker process and its supervisor tell each other without a statement: a few numbers in memory that both see.

A worker that was killed has left its last numbers there, so its supervisor knows whether it ever finished a job.
"""

import mmap
import os
import tempfile
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

_SIZE = 4096  # whatever is used of it: after a deploy a worker may know more numbers than its older supervisor


class Reason(IntEnum):
    """Why a worker was asked to finish what it runs and go."""

    NONE = 0
    FEWER = 1
    RESTARTED = 2
    DRAINED = 3


class Tally:
    """Each number has one writer."""

    def __init__(self, handle: int) -> None:
        self._map = mmap.mmap(handle, _SIZE)
        os.close(handle)
        self._words = memoryview(self._map).cast("q")

    @classmethod
    def make(cls) -> tuple["Tally", str]:
        """For a worker that is about to be started; the second value is for `join`, over there."""
        handle, path = tempfile.mkstemp(prefix="snapapp-tally-")
        os.ftruncate(handle, _SIZE)
        return cls(handle), path

    @classmethod
    def join(cls, path: str) -> "Tally":
        """Once both have the memory, nobody needs the name."""
        tally = cls(os.open(path, os.O_RDWR | os.O_NOFOLLOW))
        forget(path)
        return tally

    @property
    def is_ready(self) -> bool:
        """It stands on the roster and has looked at the queue; written by the worker."""
        return bool(self._words[0])

    def ready(self) -> None:
        self._words[0] = 1

    @property
    def done(self) -> int:
        """Attempts that came to an end; written by the worker."""
        return int(self._words[1])

    @property
    def memory_mb(self) -> int:
        """Written by the worker."""
        return int(self._words[2])

    def note(self, done: int, memory_mb: int) -> None:
        self._words[1], self._words[2] = done, memory_mb

    @property
    def is_leaving(self) -> bool:
        """It has reached a limit, claims nothing more and will end; written by the worker."""
        return bool(self._words[4])

    def leave(self) -> None:
        self._words[4] = 1

    @property
    def reason(self) -> Reason:
        """Written by the supervisor."""
        return Reason(self._words[3])

    @reason.setter
    def reason(self, why: Reason) -> None:
        self._words[3] = why

    def close(self) -> None:
        self._words.release()
        self._map.close()


def forget(path: str) -> None:
    with suppress(FileNotFoundError):
        Path(path).unlink()

"""How a worker process stands, in a file that it and its supervisor have mapped, and that outlives a kill.

All that a worker and its supervisor tell each other without a statement is here: a number costs 60 ns, a statement
60 µs. Whoever finds the process dead on the same machine reads which jobs were really running, so that the ones beside
them, claimed but not started, are not charged. Times are those of `monotonic`, which all processes here share.
"""

import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from time import time
from typing import Self

_PREFIX = "snapapp-state-"
_READ_WITHIN = 86_400.0  # seconds after a death in which somebody may still want to know what was running
MOST_SLOTS = 32_000
_READY, _LEAVING, _REASON, _DONE, _SLOTS, _SEEN_AT = range(6)
_HEADER = 8  # words; after them, for each slot: the job that runs there, and when its time is up
_SIZE = 8 * (_HEADER + 2 * MOST_SLOTS)  # the same for all releases; what nobody writes to takes no memory


class Reason(IntEnum):
    """Why a worker was asked to finish what it runs and go."""

    NONE = 0
    FEWER = 1
    RESTARTED = 2
    DRAINED = 3


class StateFile:
    """Each number has one writer: the worker, or where it says so the supervisor."""

    def __init__(self, handle: int, path: str) -> None:
        self.path = path
        with os.fdopen(handle, "r+b") as file:
            fcntl.flock(handle, fcntl.LOCK_SH)  # for as long as somebody has it mapped
            file.truncate(_SIZE)
            self._map = mmap.mmap(handle, _SIZE)
        self._numbers = memoryview(self._map).cast("q")
        self._times = memoryview(self._map).cast("d")  # the same words

    @classmethod
    def make(cls) -> Self:
        """By whoever is there first: the supervisor of a worker that is about to be started, else the worker."""
        _sweep()
        return cls(*tempfile.mkstemp(prefix=_PREFIX))

    @classmethod
    def open(cls, path: str) -> Self:
        """FileNotFoundError where it is no more; PermissionError where it is not ours: paths also come from a table."""
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        if os.fstat(handle).st_uid != os.geteuid() or not Path(path).name.startswith(_PREFIX):
            os.close(handle)
            raise PermissionError(f"{path} is not a state file of ours")
        return cls(handle, path)

    # --- the worker as a whole --------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """It stands on the roster and has looked at the queue."""
        return bool(self._numbers[_READY])

    def ready(self) -> None:
        self._numbers[_READY] = 1

    @property
    def is_leaving(self) -> bool:
        """It claims nothing more, and ends when it has finished what it runs."""
        return bool(self._numbers[_LEAVING])

    def leave(self) -> None:
        self._numbers[_LEAVING] = 1

    @property
    def reason(self) -> Reason:
        """Why it should leave; written by the supervisor."""
        return Reason(self._numbers[_REASON])

    @reason.setter
    def reason(self, why: Reason) -> None:
        self._numbers[_REASON] = why

    @property
    def done(self) -> int:
        """Attempts that came to an end."""
        return int(self._numbers[_DONE])

    @property
    def seen_at(self) -> float:
        """When its main thread last looked around."""
        return float(self._times[_SEEN_AT])

    def note(self, done: int, seen_at: float) -> None:
        self._numbers[_DONE], self._times[_SEEN_AT] = done, seen_at

    # --- its slots --------------------------------------------------------------------------------------------

    def use(self, slots: int) -> None:
        """Has so many of them."""
        if slots > MOST_SLOTS:
            raise ValueError(f"one process may run {MOST_SLOTS} jobs at once, not {slots}")
        self._numbers[_SLOTS] = slots

    def marker(self, slot: int) -> Callable[[int, float], None]:
        """`mark` for one slot, for the hot path: the id of the job that it runs, or 0, and when its time is up."""
        numbers, times, at = self._numbers, self._times, _HEADER + 2 * slot

        def mark(job_id: int, deadline: float) -> None:
            times[at + 1] = deadline
            numbers[at] = job_id

        return mark

    @property
    def running(self) -> list[int]:
        """The ids of the jobs that have begun and are not concluded."""
        return [job for at in self._slots() if (job := self._numbers[at])]

    @property
    def busy_until(self) -> float:
        """When the time of all that runs is up; 0 where nothing does."""
        return max((self._times[at + 1] for at in self._slots() if self._numbers[at]), default=0.0)

    def _slots(self) -> range:
        return range(_HEADER, _HEADER + 2 * min(self._numbers[_SLOTS], MOST_SLOTS), 2)

    # --- its end ----------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """The file goes; the memory stays until the last who has mapped it lets go."""
        with suppress(FileNotFoundError):
            Path(self.path).unlink()

    def close(self) -> None:
        self._numbers.release()
        self._times.release()
        self._map.close()


def running(path: str | None) -> list[int] | None:
    """What a dead process was running; None where that cannot be known."""
    try:
        state = StateFile.open(path or "")
    except OSError:
        return None
    try:
        return state.running
    finally:
        state.close()


def forget(path: str | None) -> None:
    """Removes what a dead process left behind, if it is what its name says."""
    with suppress(OSError):
        state = StateFile.open(path or "")
        state.forget()
        state.close()


def _sweep() -> None:
    """Removes what killed processes left behind whose database nobody asks any more: nobody has these mapped."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another's, in use, or gone
            if path.lstat().st_mtime < time() - _READ_WITHIN:
                handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(handle)

"""The state of a worker process, in a file that the worker and its supervisor have mapped into memory and that survives
a kill.

The worker and its supervisor exchange all frequent facts here, because writing a number costs 60 ns and a statement
60 µs. When the process is dead, another one on the same machine reads which jobs were really running: jobs that were
claimed but not started are not charged for the death. Times are `monotonic`, which all processes of a machine share.
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
_READ_WITHIN = 86_400.0  # seconds for which the file of a dead process is kept for readers
MOST_SLOTS = 32_000
_READY, _LEAVING, _REASON, _DONE, _SLOTS, _SEEN_AT, _PAUSED = range(7)
_HEADER = 8  # words; then two words for each slot: the id of the job that it runs, and the job's deadline
_SIZE = 8 * (_HEADER + 2 * MOST_SLOTS)  # the same in all releases; untouched pages take no memory


class Reason(IntEnum):
    """Why the supervisor asked a worker to finish its jobs and end."""

    NONE = 0
    FEWER = 1
    RESTARTED = 2
    DRAINED = 3


class StateFile:
    """The worker writes every number, except those that say the supervisor does."""

    def __init__(self, handle: int, path: str) -> None:
        self.path = path
        with os.fdopen(handle, "r+b") as file:
            fcntl.flock(handle, fcntl.LOCK_SH)  # held while the file is mapped, so that _sweep leaves it alone
            file.truncate(_SIZE)
            self._map = mmap.mmap(handle, _SIZE)
        self._numbers = memoryview(self._map).cast("q")
        self._times = memoryview(self._map).cast("d")  # the same words, read as floats

    @classmethod
    def make(cls) -> Self:
        """Makes a new file: called by the supervisor before it starts a worker, or by a worker without a supervisor.
        OSError: the disk is full."""
        _sweep()
        handle, path = tempfile.mkstemp(prefix=_PREFIX)
        state = cls(handle, path)
        try:
            state._take_room(0, mmap.PAGESIZE)
        except BaseException:
            state.forget()
            state.close()
            raise
        return state

    @classmethod
    def open(cls, path: str) -> Self:
        """Opens an existing file. FileNotFoundError: it was removed. PermissionError: it is not ours; paths come from a
        table, so they are not trusted."""
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        if os.fstat(handle).st_uid != os.geteuid() or not Path(path).name.startswith(_PREFIX):
            os.close(handle)
            raise PermissionError(f"{path} is not a state file of ours")
        return cls(handle, path)

    # --- the worker as a whole --------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """The worker is on the roster and has looked at the queue."""
        return bool(self._numbers[_READY])

    def ready(self) -> None:
        self._numbers[_READY] = 1

    @property
    def is_leaving(self) -> bool:
        """The worker claims nothing more, and ends when its jobs have ended."""
        return bool(self._numbers[_LEAVING])

    def leave(self) -> None:
        self._numbers[_LEAVING] = 1

    @property
    def reason(self) -> Reason:
        """Why the worker should end; written by the supervisor."""
        return Reason(self._numbers[_REASON])

    @reason.setter
    def reason(self, why: Reason) -> None:
        self._numbers[_REASON] = why

    @property
    def is_paused(self) -> bool:
        """Whether it should claim nothing; written by the supervisor before it signals, because signals that wait
        together arrive in the order of their numbers."""
        return bool(self._numbers[_PAUSED])

    @is_paused.setter
    def is_paused(self, is_paused: bool) -> None:
        self._numbers[_PAUSED] = is_paused

    @property
    def done(self) -> int:
        """Number of attempts that have ended."""
        return int(self._numbers[_DONE])

    @property
    def seen_at(self) -> float:
        """When the worker's main thread last ran its loop."""
        return float(self._times[_SEEN_AT])

    def note(self, done: int, seen_at: float) -> None:
        self._numbers[_DONE], self._times[_SEEN_AT] = done, seen_at

    # --- its slots --------------------------------------------------------------------------------------------

    def use(self, slots: int) -> None:
        """Sets the number of slots. OSError: the disk is full."""
        if slots > MOST_SLOTS:
            raise ValueError(f"one process may run {MOST_SLOTS} jobs at once, not {slots}")
        self._take_room(mmap.PAGESIZE, 8 * (_HEADER + 2 * slots))
        self._numbers[_SLOTS] = slots

    def marker(self, slot: int) -> Callable[[int, float], None]:
        """Returns `mark(job_id, deadline)` for one slot, for the hot path; job_id 0: the slot runs nothing."""
        numbers, times, at = self._numbers, self._times, _HEADER + 2 * slot

        def mark(job_id: int, deadline: float) -> None:
            times[at + 1] = deadline
            numbers[at] = job_id

        return mark

    @property
    def running(self) -> list[int]:
        """The ids of the jobs that slots are running."""
        return [job for at in self._slots() if (job := self._numbers[at])]

    @property
    def busy_until(self) -> float:
        """The latest deadline of the running jobs; 0 if none runs."""
        return max((self._times[at + 1] for at in self._slots() if self._numbers[at]), default=0.0)

    def _slots(self) -> range:
        return range(_HEADER, _HEADER + 2 * min(self._numbers[_SLOTS], MOST_SLOTS), 2)

    def _take_room(self, since: int, until: int) -> None:
        """Writes these bytes, which nobody has used yet, so that the disk has room for them. The kernel kills (SIGBUS)
        whoever touches a mapped page that a full disk has no room for."""
        missing = bytes(max(0, until - since))
        with Path(self.path).open("r+b", buffering=0) as file:
            file.seek(since)
            while missing:
                try:
                    missing = missing[file.write(missing) :]
                except OSError as error:
                    raise OSError(error.errno, error.strerror, self.path) from error

    # --- its end ----------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Removes the file. The memory stays until the last process that has mapped it closes it."""
        with suppress(FileNotFoundError):
            Path(self.path).unlink()

    def close(self) -> None:
        self._numbers.release()
        self._times.release()
        self._map.close()


def running(path: str | None) -> list[int] | None:
    """The ids of the jobs that a dead process was running; None: unknown."""
    try:
        state = StateFile.open(path or "")
    except OSError:
        return None
    try:
        return state.running
    finally:
        state.close()


def forget(path: str | None) -> None:
    """Removes the file of a dead process, if it is one of our state files."""
    with suppress(OSError):
        state = StateFile.open(path or "")
        state.forget()
        state.close()


def _sweep() -> None:
    """Removes old files of killed processes that no process has mapped and no recovery has removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, still mapped, or already removed
            if path.lstat().st_mtime < time() - _READ_WITHIN:
                handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(handle)

"""What a process is running, marked where its death does not erase it: a small file that the kernel keeps.

A mark costs 60 ns, a statement 60 µs. Whoever finds the process dead on the same machine reads which jobs were
really running, so that the ones beside them, claimed but not started, are not taken for suspects.
"""

import mmap
import os
import platform
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_WORD = 8
_PREFIX = "snapapp-crumbs-"


class Crumbs:
    """One number for each slot: the id of the job it runs, or 0. Each slot writes only its own."""

    def __init__(self, slots: int) -> None:
        handle, path = tempfile.mkstemp(prefix=_PREFIX)
        os.ftruncate(handle, slots * _WORD)
        self._map = mmap.mmap(handle, slots * _WORD)
        os.close(handle)
        self._words = memoryview(self._map).cast("q")
        self.path = Path(path)

    def mark(self, slot: int, job_id: int) -> None:
        self._words[slot] = job_id

    def marker(self, slot: int) -> Callable[[int], None]:
        """`mark` for one slot, for the hot path."""
        words = self._words

        def mark(job_id: int) -> None:
            words[slot] = job_id

        return mark

    def close(self) -> None:
        """The file goes; the memory stays until the last slot lets go of it."""
        with suppress(FileNotFoundError):
            self.path.unlink()


def read(path: str | None) -> list[int] | None:
    """What a dead process was running; None where it cannot be known."""
    if path is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if os.fstat(handle).st_uid != os.geteuid():  # the path came from a table: trust only our own files
            return None
        words = memoryview(file.read(1024 * 1024)[: os.fstat(handle).st_size // _WORD * _WORD]).cast("q")
        return [word for word in words if word]


def forget(path: str | None) -> None:
    """Removes what a dead process left behind, if it is what its name says."""
    if path and read(path) is not None and Path(path).name.startswith(_PREFIX):
        with suppress(OSError):
            Path(path).unlink()


def machine() -> str:
    """Two processes with the same answer see the same pids. Where that cannot be known, nobody shares an answer."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - not a path but a name
    except OSError:
        return f"{platform.node()}:{os.getpid()}:{os.urandom(8).hex()}"


def is_gone(pid: int, since: int) -> bool:
    """Is the process that started then no more? One that cannot be seen (hidepid, a sandbox) is not therefore dead."""
    if (found := started(pid)) is not None:
        return found != since
    return Path(f"/proc/{pid}").exists() or not _answers(pid)


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def started(pid: int) -> int | None:
    """When a process started, in the kernel's ticks since boot: with it, a reused pid is not mistaken. None: dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])

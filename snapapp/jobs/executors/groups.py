"""A program that we started together with all that it starts: watched, killed and reaped as one process group."""

import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import Any

from snapapp.jobs.errors import JobsError
from snapapp.jobs.executors.errors import MemoryExceeded
from snapapp.jobs.executors.guard import Guard
from snapapp.jobs.model import Job

MB = 1024 * 1024
LOOK_EVERY = 0.1  # seconds between two looks at a program's memory and at whether somebody wants it to end
_PAGE = resource.getpagesize()
_NICE = os.getpriority(os.PRIO_PROCESS, 0)


class Group:
    """One program and its descendants. `kill` may come from any thread; `end` is for the one that started it."""

    def __init__(self, argv: list[str], guard: Guard, *, nice: int = 0, **how: Any) -> None:
        self._guard = guard
        self._lock = Lock()  # a kill must not meet a number that was reaped, and is somebody else's by now
        self._is_over = False
        self.process: subprocess.Popen[bytes] = subprocess.Popen(argv, start_new_session=True, bufsize=0, **how)
        self.pid = self.process.pid
        try:
            guard.watch(self.pid)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.ear = os.pidfd_open(self.pid) if sys.platform == "linux" else -1  # readable when the program has ended
        with suppress(OSError):  # it may have ended already
            if nice:
                os.setpriority(os.PRIO_PROCESS, self.pid, _NICE + nice)

    @property
    def has_ended(self) -> bool:
        """Without reaping it: its number stays ours, and so does that of its group."""
        if sys.platform == "darwin":  # has no waitid
            return self._is_over or self.process.poll() is not None
        return self._is_over or os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def linger(self, seconds: float) -> None:
        """Returns when the program has ended by itself, or after so long: it lets go of its pipes a moment before."""
        deadline = monotonic() + seconds
        while not self.has_ended and monotonic() < deadline:
            sleep(0.002)

    def kill(self) -> None:
        """All of it, at once."""
        with self._lock:
            self._kill()

    def end(self) -> int:
        """Kills whatever is left; the exit code of the program, negative for the signal that ended it."""
        with self._lock:
            self._kill()
            if not self._is_over:
                self._is_over = True
                self._guard.forget(self.pid)
                if self.ear >= 0:
                    os.close(self.ear)
        return self.process.wait()

    def memory(self) -> int:
        """Bytes resident, of all of it; 0 where that cannot be seen."""
        # A program that is just being started shares its parent's memory, and would count twice.
        return sum({line: int(line.split()[1]) * _PAGE for line in map(_statm, self.family()) if line}.values())

    def family(self) -> list[int]:
        """The program and its descendants, but for those whose parent has ended."""
        found = [self.pid]
        for pid in found:  # which grows meanwhile
            found += _children(pid)
        return found

    def go_first(self) -> None:
        """When memory runs out altogether, the kernel takes it before us."""
        if sys.platform == "linux":
            with suppress(OSError):
                Path(f"/proc/{self.pid}/oom_score_adj").write_text("500", encoding="ascii")

    def allow_data(self, megabytes: int) -> None:
        """The kernel refuses what goes far beyond the limit: between two looks a program can take a gigabyte. Far,
        because it counts what is reserved, and libraries reserve much that they never touch."""
        if sys.platform == "linux":
            with suppress(ProcessLookupError, PermissionError):
                _, hard = resource.prlimit(self.pid, resource.RLIMIT_DATA)
                room = (2 * megabytes + 256) * MB if megabytes else hard
                soft = room if hard == resource.RLIM_INFINITY else min(room, hard)
                resource.prlimit(self.pid, resource.RLIMIT_DATA, (soft, hard))

    def _kill(self) -> None:
        if not self._is_over:
            with suppress(ProcessLookupError, PermissionError):  # the latter is how macOS says it of a zombie
                os.killpg(self.pid, signal.SIGKILL)


class Watch:
    """Over a group while it works for one attempt: its time, its memory, and whether somebody wants it to end."""

    def __init__(self, group: Group, job: Job | None, deadline: float, late: JobsError, memory_mb: int = 0) -> None:
        self._group = group
        self._job = job
        self._deadline = deadline
        self._late = late
        self._memory_mb = memory_mb
        self._look_at = monotonic() + LOOK_EVERY
        self.peak = 0  # bytes, as far as anybody looked

    def pause(self) -> float:
        """Seconds until it is time to check again."""
        return max(0.0, min(self._look_at, self._deadline) - monotonic())

    def check(self) -> None:
        """Raises the reason to end it."""
        if self._job and self._job.stop:
            raise self._job.stop
        now = monotonic()
        if now >= self._deadline:
            raise self._late
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            if self._memory_mb and self._used_mb() > self._memory_mb and self._used_mb() > self._memory_mb:
                raise self.exceeded(f"used {self.peak / MB:.0f} MB of memory and was killed")

    @property
    def limits_memory(self) -> bool:
        return self._memory_mb > 0

    def exceeded(self, what: str) -> MemoryExceeded:
        assert self._job
        return MemoryExceeded(f"{self._job.kind} job {self._job.id} {what}: its limit is {self._memory_mb} MB")

    def _used_mb(self) -> float:
        used = self._group.memory()
        self.peak = max(self.peak, used)
        return used / MB


def signal_name(code: int) -> str:
    """Of a negative exit code."""
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    # We kill too, but then the reason is ours and nobody asks here.
    return f"{name}, which was not sent by the worker: perhaps memory ran out" if name == "SIGKILL" else name


def _statm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    try:
        lists = [path / "children" for path in Path(f"/proc/{pid}/task").iterdir()]
        return [int(child) for each in lists for child in each.read_text(encoding="ascii").split()]
    except OSError:
        return []

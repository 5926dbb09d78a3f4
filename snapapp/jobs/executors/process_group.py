"""A program that we started together with all that it starts: watched, killed and reaped as one process group."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import clock_gettime, monotonic, sleep
from typing import Any

from snapapp.jobs.errors import JobsError
from snapapp.jobs.executors import late_report
from snapapp.jobs.executors.errors import MemoryExceeded
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.model import Job
from snapapp.jobs.os import processes

MB = 1024 * 1024
LOOK_EVERY = 0.1  # seconds between two looks at a program's memory and at whether somebody wants it to end
_PAGE = resource.getpagesize()
_TICK = 1 / os.sysconf("SC_CLK_TCK")
_KB = 1024 if sys.platform == "linux" else 1  # what ru_maxrss counts in
_NICE = os.getpriority(os.PRIO_PROCESS, 0)


class Group:
    """One program and its descendants. `kill` may come from any thread; `end` is for the one that started it."""

    def __init__(self, argv: list[str], guard: Guard, *, nice: int = 0, **how: Any) -> None:
        self._guard = guard
        self._lock = Lock()  # a kill must not meet a number that was reaped, and is somebody else's by now
        self._is_over = False
        self._cpu, self._cpu_before = 0.0, 0.0  # seconds, as of the last attempt's end and of this one's beginning
        self._peak_is_its_own = True  # is the kernel's mark of this attempt?
        self.kept: frozenset[int] = frozenset()  # descendants that it keeps from one job to the next
        self._rusage: resource.struct_rusage | None = None
        self._our_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.process: subprocess.Popen[bytes] = subprocess.Popen(argv, start_new_session=True, bufsize=0, **how)
        self.pid = self.process.pid
        try:
            guard.watch(self.pid)
            self.ear = os.pidfd_open(self.pid) if sys.platform == "linux" else -1  # readable when it has ended
        except BaseException:
            self.ear = -1
            self.end()
            close_pipes(self.process)
            raise
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
        return self._reap()

    def begin(self) -> None:
        """Another attempt begins: what was used until now is not its own."""
        # between two attempts it waits; before the first it was starting, which no job has to pay for
        self._cpu_before = self._cpu or (_cpu_of(self.pid) if sys.platform == "linux" else 0.0)
        self._peak_is_its_own = _forget_peak(self.pid)

    def used(self, job: Job, seen: int) -> None:
        """Writes onto the job what it has used; `seen` is the most memory that anybody saw, 0 where it was so short
        that nobody looked: then what it may have left running is left out, for looking around takes 0.1 ms."""
        if sys.platform == "linux":
            self._cpu = sum(map(_cpu_of, self.family() if seen or self.kept else [self.pid]))
            job.cpu = max(0.0, self._cpu - self._cpu_before)
            job.peak = max(seen, _high_water(self.pid) if self._peak_is_its_own else 0) or None

    def used_until_its_end(self, job: Job) -> None:
        """For a program that ran this job only. What it needed counts from our own need, which it was started with."""
        if self._rusage:
            job.cpu = max(job.cpu or 0.0, self._rusage.ru_utime + self._rusage.ru_stime)
            if self._rusage.ru_maxrss > self._our_peak:
                job.peak = max(job.peak or 0, self._rusage.ru_maxrss * _KB)

    def memory(self) -> int:
        """Bytes resident, of all of it; 0 where that cannot be seen."""
        # A program that is just being started shares its parent's memory, and would count twice.
        return sum({line: int(line.split()[1]) * _PAGE for line in map(_statm, self.family()) if line}.values())

    def family(self) -> list[int]:
        """The program and its descendants, but for those whose parent has ended."""
        found = [self.pid]
        for pid in found:  # which grows meanwhile
            found += processes.children(pid)
        return found

    def nudge(self, number: signal.Signals, pid: int) -> None:
        """Signals the program, or one of its descendants, alone."""
        with self._lock:
            if not self._is_over:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

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

    def _reap(self) -> int:
        if self.process.returncode is None:
            _, status, self._rusage = os.wait4(self.pid, 0)
            self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode

    def _kill(self) -> None:
        if not self._is_over:
            with suppress(ProcessLookupError, PermissionError):  # the latter is how macOS says it of a zombie
                os.killpg(self.pid, signal.SIGKILL)


class Watch:
    """Over a group while it works for one attempt: its time, its memory, and whether somebody wants it to end."""

    def __init__(
        self,
        group: Group,
        job: Job | None,
        deadline: float,
        late: JobsError,
        memory_mb: int = 0,
        *,
        first_look: float = LOOK_EVERY,
        on_soft_deadline: Callable[[], None] | None = None,
    ) -> None:
        self._group = group
        self._job = job
        self._deadline = deadline
        self._late = late
        self._memory_mb = memory_mb
        self._gap = first_look
        self._look_at = monotonic() + first_look
        self._on_soft_deadline = on_soft_deadline
        self._soft_at = late_report.opens_at(job) if job and on_soft_deadline else float("inf")
        self.peak = 0  # bytes, as far as anybody looked

    def pause(self) -> float:
        """Seconds until it is time to check again."""
        return max(0.0, min(self._look_at, self._deadline, self._soft_at) - monotonic())

    def check(self) -> None:
        """Raises the reason to end it."""
        if self._job and self._job.stop:
            raise self._job.stop
        now = monotonic()
        if now >= self._deadline:
            raise self._late
        if now >= self._soft_at and self._on_soft_deadline:
            self._soft_at = float("inf")
            self._on_soft_deadline()
        if now >= self._look_at:
            self._gap = min(2 * self._gap, LOOK_EVERY)
            self._look_at = now + self._gap
            if self._used_mb() > self._memory_mb > 0 and self._used_mb() > self._memory_mb:
                assert self._job
                raise exceeded(self._job, f"used {self.peak / MB:.0f} MB of memory and was killed", self._memory_mb)

    def account(self) -> None:
        """The attempt is over: what has it used? Asked before its group is reaped."""
        if self._job:
            self._group.used(self._job, self.peak)

    def _used_mb(self) -> float:
        used = self._group.memory()
        self.peak = max(self.peak, used)
        if self._job:
            self._job.peak = self.peak or None
        return used / MB


def exceeded(job: Job, what: str, limit_mb: int) -> MemoryExceeded:
    return MemoryExceeded(f"{job.kind} job {job.id} {what}: its limit is {limit_mb} MB")


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with suppress(OSError):
                pipe.close()


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


def _cpu_of(pid: int) -> float:
    """Of all its threads, to the nanosecond, and of the descendants that it waited for, to the tick."""
    try:
        own = clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid makes it
        fields = _read(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split()
    except OSError:
        return 0.0
    return own + (int(fields[13]) + int(fields[14])) * _TICK


def _forget_peak(pid: int) -> bool:
    try:
        handle = os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY)
        try:
            os.write(handle, b"5")
        finally:
            os.close(handle)
    except OSError:
        return False
    return True


def _high_water(pid: int) -> int:
    """The most bytes resident that the kernel has seen; 0 where it does not say, as of a process that has ended."""
    try:
        _, found, line = _read(f"/proc/{pid}/status").partition(b"VmHWM:")
    except OSError:
        return 0
    return int(line.split(maxsplit=1)[0]) * 1024 if found else 0


def _read(path: str) -> bytes:
    """A small file of /proc, in a fifth of the time that Path takes."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, 8192)
    finally:
        os.close(handle)

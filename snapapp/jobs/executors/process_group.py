"""A child process and everything it starts: measured, watched, killed and reaped as one process group."""

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
from snapapp.jobs.os import memory, processes

MB = 1024 * 1024
LOOK_EVERY = 0.1  # seconds between two checks of a program's memory, and whether its job should stop
_PAGE = resource.getpagesize()
_TICK = 1 / os.sysconf("SC_CLK_TCK")
_INEXACT = 4 * MB  # each processor counts pages of its own, which the kernel adds up now and then
_KB = 1024 if sys.platform == "linux" else 1  # the unit of ru_maxrss
_NICE = os.getpriority(os.PRIO_PROCESS, 0)


class Group:
    """One program and its descendants. Any thread may call `kill`; only the thread that started it calls `end`."""

    def __init__(self, argv: list[str], guard: Guard, *, nice: int = 0, **how: Any) -> None:
        self._guard = guard
        self._lock = Lock()  # no kill after the reap: the pid may belong to another process by then
        self._is_over = False
        self._cpu, self._cpu_before = 0.0, 0.0  # seconds used until the last attempt ended, and until this one began
        self._peak_is_its_own = True  # was the kernel's peak reset when this attempt began?
        self.kept: frozenset[int] = frozenset()  # descendants that live on after a job, as declared by the child
        self._rusage: resource.struct_rusage | None = None
        self.process: subprocess.Popen[bytes] = subprocess.Popen(argv, start_new_session=True, bufsize=0, **how)
        self._our_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # not before: another thread adds to it
        self.pid = self.process.pid
        try:
            guard.watch(self.pid)
            # a pidfd is readable when the program has ended
            self.pidfd = os.pidfd_open(self.pid) if sys.platform == "linux" else -1
        except BaseException:
            self.pidfd = -1
            self.end()
            close_pipes(self.process)
            raise
        with suppress(OSError):  # it may have ended already
            if nice:
                os.setpriority(os.PRIO_PROCESS, self.pid, _NICE + nice)

    @property
    def has_ended(self) -> bool:
        """Has the program ended? It is not reaped here, so its pid, and that of its group, stay ours."""
        if sys.platform == "darwin":  # has no waitid
            return self._is_over or self.process.poll() is not None
        return self._is_over or os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def linger(self, seconds: float) -> None:
        """Returns when the program has ended by itself, or after `seconds`. It closes its pipes a little earlier."""
        deadline = monotonic() + seconds
        while not self.has_ended and monotonic() < deadline:
            sleep(0.002)

    def kill(self) -> None:
        """Kills the program and its descendants."""
        with self._lock:
            self._kill()

    def end(self) -> int:
        """Kills what is left of the group and reaps the program. Returns its exit code, negative for a signal."""
        with self._lock:
            self._kill()
            if not self._is_over:
                self._is_over = True
                self._guard.forget(self.pid)
                if self.pidfd >= 0:
                    os.close(self.pidfd)
        return self._reap()

    def begin(self) -> None:
        """Called when another attempt begins: what was used until now does not count for it."""
        # 0.0 before the first attempt: then read the CPU time of the start, which counts for no job
        self._cpu_before = self._cpu or (_cpu_of(self.pid) if sys.platform == "linux" else 0.0)
        self._peak_is_its_own = _reset_peak(self.pid)

    def used(self, job: Job, seen: int) -> None:
        """Sets the CPU time and memory peak of the job. `seen` is the highest memory measured, in bytes; 0: the job was
        too short to be measured. Then its descendants are left out, because finding them takes 0.1 ms."""
        if sys.platform == "linux":
            self._cpu = sum(map(_cpu_of, self.family() if seen or self.kept else [self.pid]))
            job.cpu = max(0.0, self._cpu - self._cpu_before)
            job.peak = max(seen, _peak_of(self.pid) if self._peak_is_its_own else 0) or None

    def used_until_its_end(self, job: Job) -> None:
        """Sets the same from the kernel's account, for a program that ran only this job. A peak up to our own stays
        unknown, because a new process begins with its parent's peak."""
        if self._rusage:
            job.cpu = max(job.cpu or 0.0, self._rusage.ru_utime + self._rusage.ru_stime)
            if (self._rusage.ru_maxrss - self._our_peak) * _KB > _INEXACT:
                job.peak = max(job.peak or 0, self._rusage.ru_maxrss * _KB)

    def memory(self) -> int:
        """Resident bytes of the whole family; 0 where that cannot be measured."""
        # equal lines count once: a process that was just forked shows its parent's memory
        lines = {memory.text(Path(f"/proc/{pid}/statm")) for pid in self.family()}
        return sum(int(line.split()[1]) * _PAGE for line in lines if line)

    def family(self) -> list[int]:
        """The pids of the program and its descendants, except those whose parent has ended."""
        pids = [self.pid]
        for pid in pids:  # the list grows while we walk over it
            pids += processes.children(pid)
        return pids

    def nudge(self, number: signal.Signals, pid: int) -> None:
        """Sends a signal to the program or to one of its descendants."""
        with self._lock:
            if not self._is_over:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def go_first(self) -> None:
        """Makes the kernel kill this program, and not the worker, when the machine runs out of memory."""
        if sys.platform == "linux":
            with suppress(OSError):
                Path(f"/proc/{self.pid}/oom_score_adj").write_text("500", encoding="ascii")

    def allow_data(self, megabytes: int) -> None:
        """Sets a limit in the kernel, because a program can take a gigabyte between two of our checks. It is more than
        twice our limit, because the kernel counts reserved memory, and libraries reserve much that they never use."""
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
            with suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, for a zombie
                os.killpg(self.pid, signal.SIGKILL)


class Watch:
    """Watches a group during one attempt: its deadline, its memory, and whether the job should stop."""

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
        self.peak = 0  # bytes, the highest measured

    def pause(self) -> float:
        """Seconds until the next `check` is due."""
        return max(0.0, min(self._look_at, self._deadline, self._soft_at) - monotonic())

    def check(self) -> None:
        """Raises the reason why the attempt must end, if there is one."""
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
            # measured twice, because one measurement may catch a process that was just forked
            if self._used_mb() > self._memory_mb > 0 and self._used_mb() > self._memory_mb:
                assert self._job
                raise exceeded(self._job, f"used {self.peak / MB:.0f} MB of memory and was killed", self._memory_mb)

    def account(self) -> None:
        """Sets what the attempt has used. Called after its end and before its group is reaped."""
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
    """The name of the signal in a negative exit code."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def foreign_signal(code: int) -> str:
    """The name of a signal that the worker did not send: of its own kills it knows the reason."""
    name = signal_name(code)
    return f"{name}, which was not sent by the worker: perhaps memory ran out" if name == "SIGKILL" else name


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process: of its threads, exact to the ns, plus its reaped descendants, exact to the tick."""
    try:
        own = clock_gettime((~pid << 3) | 2)  # the clock id that clock_getcpuclockid returns
        fields = _read(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split()
    except OSError:
        return 0.0
    return own + (int(fields[13]) + int(fields[14])) * _TICK


def _reset_peak(pid: int) -> bool:
    """Makes the kernel count the memory peak of a process anew. False: it does not allow that."""
    try:
        handle = os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY)
        try:
            os.write(handle, b"5")
        finally:
            os.close(handle)
    except OSError:
        return False
    return True


def _peak_of(pid: int) -> int:
    """The peak of resident bytes that the kernel counted; 0: unknown, for example after the process has ended."""
    try:
        _, is_there, line = _read(f"/proc/{pid}/status").partition(b"VmHWM:")
    except OSError:
        return 0
    return int(line.split(maxsplit=1)[0]) * 1024 if is_there else 0


def _read(path: str) -> bytes:
    """Reads a small file of /proc, five times as fast as Path."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, 8192)
    finally:
        os.close(handle)

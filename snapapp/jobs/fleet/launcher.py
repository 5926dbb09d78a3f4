"""Starts worker processes, signals them and reaps them. No other module of the supervisor does so."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from snapapp.jobs.executors import messages
from snapapp.jobs.executors.process_group import signal_name
from snapapp.jobs.fleet import fork_server
from snapapp.jobs.fleet.errors import NotStarted
from snapapp.jobs.os import parentage, processes
from snapapp.jobs.os.state_file import StateFile
from snapapp.jobs.os.waiting import readable

_STARTS_WITHIN = 10.0  # seconds
_OPENS_WITHIN = 60.0
_CAN_ADOPT = sys.platform == "linux"


class WorkerProcess:
    """One worker process. Its pid is not given to another process before it is reaped, so a signal cannot reach the
    wrong one."""

    def __init__(self, pid: int, pool: str, state: StateFile) -> None:
        self.pid = pid
        self.pid_started = processes.started(pid) or 0
        self.pool = pool
        self.state = state
        self.started_at = monotonic()
        self.code: int | None = None  # its exit code, negative for a signal; None while it lives

    @property
    def has_ended(self) -> bool:
        return self.code is not None

    @property
    def is_ready(self) -> bool:
        return self.state.is_ready

    def signal(self, number: signal.Signals) -> None:
        if not self.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the worker and its process group. The processes that its jobs started are ended by its own guard."""
        if not self.has_ended:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.signal(signal.SIGKILL)  # it may have no process group of its own yet

    @property
    def end(self) -> str:
        """How it ended, in words."""
        assert self.code is not None
        return f"killed by {signal_name(self.code)}" if self.code < 0 else f"exited with code {self.code}"


@dataclass(frozen=True, slots=True)
class Program:
    """The program of the worker processes. Symbolic links in the paths are not resolved: after a deploy that changes
    the link, the next fork server runs the new code."""

    entry: str  # "module:function" of the application, with which a worker gets its runtime; see worker_process.Entry
    python: str = sys.executable
    folder: Path | None = None  # the working directory; None: the supervisor's


class Launcher:
    """Used by the main thread only, because the kernel ends a worker with the thread that is its parent."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._now: _ForkServer | None = None
        self._next: _ForkServer | None = None
        self._children: dict[int, WorkerProcess] = {}
        self._strays: set[int] = set()

    def open(self) -> None:
        if _CAN_ADOPT:
            parentage.adopt()
            self._now = _ForkServer(self._program)

    def start(self, pool: str, request: Mapping[str, Any]) -> WorkerProcess:
        state = StateFile.make()
        try:
            pid = self._fork_server().start(
                {**request, "entry": self._program.entry, "pool": pool, "state_file": state.path}
            )
        except BaseException:
            state.forget()
            state.close()
            raise
        child = self._children[pid] = WorkerProcess(pid, pool, state)
        return child

    def renew(self) -> None:
        """Starts a fork server with the new code; `is_renewed` says when it is in use."""
        if _CAN_ADOPT and self._next is None:
            self._next = _ForkServer(self._program)

    @property
    def is_renewed(self) -> bool:
        """Whether no newer fork server is still starting. One that failed to start is forgotten, and the old one
        stays."""
        if self._next and (ready := self._next.look()) is not None:
            if ready and self._now:
                self._now.close()
            self._now, self._next = (self._next if ready else self._now), None
        return self._next is None

    def reap(self) -> list[WorkerProcess]:
        """The workers that have ended since the last call. Adopted processes that have ended are reaped too."""
        ended = []
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if child := self._children.pop(pid, None):
                    child.code = os.waitstatus_to_exitcode(status)
                    ended.append(child)
        return ended

    def end_strays(self) -> list[int]:
        """Kills the processes that dead workers left behind, which the supervisor has adopted. A process is killed when
        it is seen the second time, so that one about to end may do so."""
        known = {*self._children, *(each.pid for each in (self._now, self._next) if each)}
        seen = {pid for pid in processes.children("self") if pid not in known} if _CAN_ADOPT else set()
        old, self._strays = seen & self._strays, seen
        for pid in old:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return sorted(old)

    def close(self) -> None:
        for server in (self._now, self._next):
            if server:
                server.close()
        self._now = self._next = None

    def _fork_server(self) -> "_ForkServer":
        if not _CAN_ADOPT:
            return _ForkServer(self._program)
        if self._now is None or self._now.is_gone:
            self._now = _ForkServer(self._program)
        return self._now


class _ForkServer:
    """The process in which fork_server.py runs."""

    def __init__(self, program: Program) -> None:
        ours, theirs = os.pipe(), os.pipe()
        self._requests, self._answers = ours[1], theirs[0]
        module = program.entry.partition(":")[0]
        argv = [program.python, "-m", fork_server.__name__, str(ours[0]), str(theirs[1]), str(os.getpid()), module]
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=program.folder,
                pass_fds=(ours[0], theirs[1]),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(ours[0])
            os.close(theirs[1])
        self.pid = self._process.pid
        self._inbox = messages.Inbox(self._answers)
        self._is_ready = False
        self._is_closed = False

    @property
    def is_gone(self) -> bool:
        return self._is_closed or self._inbox.is_closed

    def look(self) -> bool | None:
        """Whether the fork server is ready. False: it has ended; None: it is still starting."""
        if not self._is_ready and self._answer(within=0.0) is not None:
            self._is_ready = True
        return True if self._is_ready else False if self.is_gone else None

    def start(self, request: Mapping[str, Any]) -> int:
        if not _CAN_ADOPT:
            messages.write(self._requests, dict(request))
            self._let_go()
            return self.pid
        if not self._is_ready:
            self._expect("ready", _OPENS_WITHIN)
            self._is_ready = True
        try:
            messages.write(self._requests, dict(request))
        except BrokenPipeError:
            self.close()
            raise NotStarted("the fork server has died") from None
        return int(self._expect("started", _STARTS_WITHIN))

    def close(self) -> None:
        """Kills the fork server; closing twice is fine. The workers do not need it: their parent is the supervisor."""
        if not self._is_closed:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._let_go()

    def _expect(self, word: str, within: float) -> Any:
        answer = self._answer(within)
        if answer is None or word not in answer:
            why = "has died" if self.is_gone else f"did not answer within {within:g} s"
            self.close()
            raise NotStarted(f"the fork server {why}")
        return answer[word]

    def _answer(self, within: float) -> dict[str, Any] | None:
        deadline = monotonic() + within
        while not self.is_gone:
            if not readable(self._answers, within=max(0.0, deadline - monotonic())):
                return None
            for answer in self._inbox.take():
                return answer
        return None

    def _let_go(self) -> None:
        self._is_closed = True
        self._process.returncode = 0  # `reap` waits for every child, this one too; without a code, Popen would warn
        os.close(self._requests)
        os.close(self._answers)

"""A process that has the product imported, and forks: a command begins in it within a tenth of a second of a processor,
where a Python of its own takes two and a half, nearly all for imports. What begins is a process like any other, in a
session of its own, with an environment, a folder and an exit code. tests/cli begins the commands as people do."""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from snapapp.jobs.os import exits
from tests import ROOT

_LONGEST = 1 << 20  # bytes that a command and its environment may take


class Forked:
    """As much of subprocess.Popen as tests ask for."""

    def __init__(self, command: list[str], *, folder: Path, environment: Mapping[str, str], said: int) -> None:
        """`command` begins with the name of a module that is run."""
        asked = {"command": command, "folder": str(folder), "environment": dict(environment)}
        self.returncode: int | None = None
        self._told, telling = os.pipe()
        try:
            socket.send_fds(begin(), [json.dumps(asked).encode()], [said, telling])
        finally:
            os.close(telling)
        self.pid = int(self._next_line())

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = int(self._next_line())
        os.close(self._told)

    def _next_line(self) -> str:
        """Short ones, each written at once."""
        line = os.read(self._told, 100).decode()
        assert line.endswith("\n"), "the process that forks has ended"
        return line


@cache
def begin() -> socket.socket:
    """The line to the process that forks, which ends when we do, whatever our end is like. Forks of ours, of which each
    request is one message, use the same."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    atexit.register(ours.close)
    with its:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(its.fileno())],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("SNAPAPP_")},
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            start_new_session=True,
        )
    process.returncode = 0  # nobody waits for it
    return ours


def hear_signals() -> None:
    """Run in the background of a shell, or under nohup, we inherit deaf ears, and so would every process under test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# --- the process that forks -------------------------------------------------------------------------------------


def main(number: int) -> None:
    import snapapp.app
    import snapapp.cli.processes.service
    import snapapp.cli.processes.supervisor
    import snapapp.cli.processes.worker  # noqa: F401

    hear_signals()
    gc.freeze()  # else the first collection of every fork copies all pages
    with socket.socket(fileno=number) as wire:
        asked = _asked_of_a_fork(wire)
    if asked is None:
        exits.leave(0)
    _become(**asked)


def _asked_of_a_fork(wire: socket.socket) -> dict[str, Any] | None:
    """Returns in each process that is to become a command, and without one when nobody asks any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        asked, (*descriptors,), _, _ = socket.recv_fds(wire, _LONGEST, 2)
        if not asked:
            return None
        if os.fork() == 0:
            said, telling = descriptors
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if pid := os.fork():
                _tell(pid, telling)
            os.close(telling)
            for descriptor in (1, 2):
                os.dup2(said, descriptor)
            os.close(said)
            command: dict[str, Any] = json.loads(asked)
            return command
        for descriptor in descriptors:
            os.close(descriptor)


def _tell(pid: int, telling: int) -> None:
    """Waits for the command, and passes its end on."""
    os.write(telling, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.write(telling, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(command: list[str], folder: str, environment: dict[str, str]) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[0] = folder
    module, *sys.argv[1:] = command
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        exits.leave(end.code)


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""The tests in processes side by side, which `make test` begins; the arguments are those of pytest.

Each process is a fork of this one, which has imported the tests and the product before: that takes a processor ten
seconds in each Python that begins anew. pytest-xdist hands out the files as ever.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from execnet import gateway_io
from execnet.gateway_base import ExecModel, Popen2IO

from snapapp.jobs.os import exits
from tests import warm

_PROCESSES = 5  # on two processors: tests mostly wait
# By what tests/handing_out.py says; else files of few, long tests come last.
_HOW = ("-p", "tests.handing_out", "--numprocesses", str(_PROCESSES), "--dist", "loadfile", "--no-loadscope-reorder")


def main(arguments: Sequence[str]) -> int:
    warm.begin()  # one for all, and ready when the first test wants it
    with Path(os.devnull).open("w") as nobody, redirect_stdout(nobody):
        pytest.main(["--collect-only", *arguments], plugins=[_Importing()])  # what is wrong is said by the forks
    gc.collect()
    gc.freeze()  # else the first collection of every fork copies all pages
    assert threading.active_count() == 1, "what another thread has locked stays locked in a fork"
    waiting: list[_Fork] = []
    for _ in range(_PROCESSES):
        fork = _Fork()
        if fork.pid == 0:
            for earlier in waiting:
                earlier.let_go()
            fork.work()
        waiting.append(fork)
    _hand_out(waiting)
    try:
        return pytest.main([*_HOW, *arguments])
    finally:
        for fork in waiting:
            fork.let_go()


class _Importing:
    """Of each module of tests nothing is collected: pytest keeps in a mark the names that it made of its parameters,
    and would make others of them the next time."""

    def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
        return []


class _Fork:
    """A process that waits for the line which execnet tells each Python that it begins."""

    def __init__(self) -> None:
        its_input, self.input = os.pipe()
        self.output, its_output = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.let_go()
            os.dup2(its_input, 0)
            os.dup2(its_output, 1)
        os.close(its_input)
        os.close(its_output)

    def let_go(self) -> None:
        os.close(self.input)
        os.close(self.output)

    def work(self) -> NoReturn:
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        told = sys.stdin.readline()  # nothing, where fewer processes were asked for
        if told:
            exec(eval(told), {"__name__": "__main__"})
        exits.leave(0)


class _Line(Popen2IO):
    """What execnet has to a process that it began."""

    def __init__(self, fork: _Fork, execmodel: ExecModel) -> None:
        self._pid = fork.pid
        super().__init__(os.fdopen(fork.input, "wb"), os.fdopen(fork.output, "rb"), execmodel)

    def wait(self) -> int:
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has ended, and `wait` knows
            os.kill(self._pid, signal.SIGKILL)


def _hand_out(waiting: list[_Fork]) -> None:
    """To execnet, which has no other place for it. A process that crashes is followed by a Python that begins anew."""
    begin_anew = gateway_io.Popen2IOMaster

    def begin(command: Sequence[str], execmodel: ExecModel) -> Any:
        return _Line(waiting.pop(0), execmodel) if waiting else begin_anew(command, execmodel)

    gateway_io.Popen2IOMaster = begin  # type: ignore[assignment, misc]


if __name__ == "__main__":
    exits.leave(main(sys.argv[1:]))

"""Where worker processes come from: a process that has imported the engine and the module of the application's entry,
but none that declares jobs, and forks itself.

Started as `python -m snapapp.jobs.fleet.fork_server REQUESTS ANSWERS SUPERVISOR ENTRY`. A worker that is forked here
is there in some milliseconds and shares the memory of what was imported; one that is started anew takes half a second
of a core, each time. It is forked before there is any thread or connection, which is what makes forking safe, and it is
forked twice, so that the supervisor becomes its parent: it sees the end itself, and this process may die without harm.

Where a process cannot adopt (macOS), each worker is a fork server of its own, which becomes what it was asked for.
"""

import ctypes
import gc
import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from snapapp.jobs.executors import messages
from snapapp.jobs.fleet import worker_process
from snapapp.jobs.fleet.worker_process import PARENT_DIED, STEERING
from snapapp.jobs.os import exits
from snapapp.jobs.os.signals import ENDING

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
_ADOPTED_WITHIN = 5.0  # seconds


def main(arguments: list[str]) -> None:
    requests, answers, supervisor = (int(argument) for argument in arguments[:3])
    die_with(supervisor, signal.SIGKILL)
    # until a worker can answer them: by default they would end it, and it may be told something as soon as it is born
    signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, *STEERING))
    importlib.import_module(arguments[3])
    importlib.import_module("sqlalchemy.dialects.postgresql.psycopg")  # which the first engine would import
    if sys.platform != "linux":
        request = messages.read(requests)
        sys.exit(worker_process.live(request, supervisor) if request else PARENT_DIED)
    gc.collect()
    gc.freeze()  # a collection in a worker would write into every page that it shares with us
    messages.write(answers, {"ready": os.getpid()})
    while request := messages.read(requests):
        pid = _fork(supervisor)
        if pid is None:
            os.close(requests)
            os.close(answers)
            code = _live(request, supervisor)
            exits.leave(code)
            sys.exit(code)
        messages.write(answers, {"started": pid})


def die_with(parent: int, how: signal.Signals) -> None:
    """Only after this is a parent that died before noticed: whoever is our parent by then is not ours."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:
        os._exit(PARENT_DIED)


def adopt() -> None:
    """From now on whatever loses its parent below us becomes our child, and nothing of ours can hide."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: Any) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _fork(supervisor: int) -> int | None:
    """In the worker None, and else its pid, once the supervisor has become its parent."""
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("there are threads in the fork server: a fork would be a gamble")
    ear, mouth = os.pipe()
    middle = os.fork()
    if middle == 0:
        if worker := os.fork():
            os.write(mouth, b"%d" % worker)
            os._exit(0)
        os.close(ear)
        os.close(mouth)
        _wait_for(supervisor)
        return None
    os.close(mouth)
    os.waitpid(middle, 0)  # by its end the kernel has given the worker to the supervisor
    pid = int(os.read(ear, 20) or b"0")
    os.close(ear)
    return pid


def _wait_for(supervisor: int) -> None:
    deadline = time.monotonic() + _ADOPTED_WITHIN
    while os.getppid() != supervisor:
        if time.monotonic() > deadline:
            os._exit(PARENT_DIED)
        time.sleep(0.0005)
    die_with(supervisor, signal.SIGTERM)


def _live(request: dict[str, Any], supervisor: int) -> int:
    gc.unfreeze()
    os.setsid()  # a group of its own: Ctrl-C in the supervisor's terminal is for the supervisor
    _prctl(_PR_SET_NAME, ctypes.c_char_p(request["pool"].encode()[:15]))  # what `top` and `pgrep` show
    return worker_process.live(request, supervisor)


if __name__ == "__main__":
    main(sys.argv[1:])

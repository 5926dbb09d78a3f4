"""The fork server: a process that forks worker processes from itself. It has imported the engine and the module of the
application's entry, but no module that declares jobs.

It is started as `python -m snapapp.jobs.fleet.fork_server REQUESTS ANSWERS SUPERVISOR ENTRY`. A forked worker is ready
in some milliseconds and shares the memory of the imported modules; a worker started as a new program would take half a
second of a core. Forking is safe because the fork server has no threads and no connections. It forks twice, so that the
supervisor becomes the worker's parent: the supervisor itself sees the worker's end, and the fork server may die without
harm.

Where a process cannot adopt others (macOS), a fork server is started for each worker, and itself becomes the worker.
"""

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
from snapapp.jobs.os import exits, parentage
from snapapp.jobs.os.signals import ENDING

_ADOPTED_WITHIN = 5.0  # seconds


def main(arguments: list[str]) -> None:
    requests, answers, supervisor = (int(argument) for argument in arguments[:3])
    parentage.die_with(supervisor, code=PARENT_DIED)
    # Blocked until a worker can handle them: a signal may come right after the fork, and by default it would end it.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, *STEERING))
    importlib.import_module(arguments[3])
    importlib.import_module("sqlalchemy.dialects.postgresql.psycopg")  # else each worker's first engine would import it
    if sys.platform != "linux":
        request = next(messages.each(requests), None)
        sys.exit(worker_process.live(request, supervisor) if request else PARENT_DIED)
    gc.collect()
    gc.freeze()  # else a garbage collection in a worker would write to every page shared with this process
    messages.write(answers, {"ready": os.getpid()})
    for request in messages.each(requests):
        pid = _fork(supervisor)
        if pid is None:
            os.close(requests)
            os.close(answers)
            exits.leave(_live(request, supervisor))
        messages.write(answers, {"started": pid})
    exits.leave(0)


def _fork(supervisor: int) -> int | None:
    """Forks a worker. Returns None in the worker, and in this process its pid, once the supervisor is its parent."""
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("there are threads in the fork server: a fork would be a gamble")
    read_end, write_end = os.pipe()
    middle = os.fork()
    if middle == 0:
        if worker := os.fork():
            os.write(write_end, b"%d" % worker)
            os._exit(0)
        os.close(read_end)
        os.close(write_end)
        _wait_for(supervisor)
        return None
    os.close(write_end)
    os.waitpid(middle, 0)  # when it has ended, the kernel has made the supervisor the worker's parent
    pid = int(os.read(read_end, 20) or b"0")
    os.close(read_end)
    return pid


def _wait_for(supervisor: int) -> None:
    deadline = time.monotonic() + _ADOPTED_WITHIN
    while os.getppid() != supervisor:
        if time.monotonic() > deadline:
            os._exit(PARENT_DIED)
        time.sleep(0.0005)
    parentage.die_with(supervisor, signal.SIGTERM, code=PARENT_DIED)


def _live(request: dict[str, Any], supervisor: int) -> int:
    gc.unfreeze()
    os.setsid()  # a process group of its own, so that Ctrl-C in the terminal reaches the supervisor only
    parentage.name(request["pool"])
    return worker_process.live(request, supervisor)


if __name__ == "__main__":
    main(sys.argv[1:])

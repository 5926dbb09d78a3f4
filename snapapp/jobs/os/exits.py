"""The last step of a process: it ends at once."""

import atexit
import logging
import os
import sys
import threading
from concurrent.futures.thread import _threads_queues
from contextlib import suppress
from time import monotonic
from typing import NoReturn

_log = logging.getLogger(__name__)
_LAST_THREADS = 1.0  # seconds that threads get to end by themselves …
_LAST_FUNCTIONS = 5.0  # … and the functions that were registered with atexit


def leave(code: int) -> NoReturn:
    """Called when everything is closed. Python would wait for threads and processes for ever, for example for those of
    a job that never returns. And it would free each of its objects one by one, which takes a service half a second of a
    processor, and for which a forked process copies all memory that it shares."""
    ends_at = monotonic() + _LAST_THREADS
    ending = threading.Thread(target=_end_pools, name="end pools", daemon=True)
    with suppress(RuntimeError):  # no thread can be started
        ending.start()
        ending.join(_LAST_THREADS)  # before the functions below, which close what pools of processes end by
    threads = [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    threads += _threads_queues  # threads of pools: Python waits for these even if they are daemons
    for thread in threads:
        thread.join(max(0.0, ends_at - monotonic()))
    if hanging := [thread.name for thread in threads if thread.is_alive()]:
        _log.warning("Left without waiting for threads that do not end: %s.", ", ".join(sorted({*hanging})))
    _kill_processes()
    with suppress(RuntimeError):
        guard = threading.Timer(_LAST_FUNCTIONS, _give_up, [code])
        guard.daemon = True
        guard.start()
    atexit._run_exitfuncs()  # as Python would: of logs, of temporary folders, of libraries
    _end(code)


def _end_pools() -> None:
    """As Python would: pools of threads and of processes are told to end, and waited for."""
    for end in reversed(threading._threading_atexits):  # type: ignore[attr-defined]
        end()


def _kill_processes() -> None:
    """What a job has left running with multiprocessing; its functions of atexit would wait for them."""
    if "multiprocessing.process" in sys.modules:
        from multiprocessing import active_children

        for child in active_children():
            child.kill()


def _give_up(code: int) -> None:
    _log.warning("Left without waiting for functions of atexit that do not end.")
    _end(code)


def _end(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)

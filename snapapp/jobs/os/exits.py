"""Ends a process that threads would otherwise keep from ending."""

import logging
import os
import threading
from concurrent.futures.thread import _threads_queues
from time import monotonic

_log = logging.getLogger(__name__)
_LAST_THREADS = 1.0  # seconds that threads get to end by themselves


def leave(code: int) -> None:
    """Called when everything is closed. If threads still run, for example in a job that never returns, it ends the
    process at once, because Python would wait for them for ever. Otherwise it returns."""
    ends_at = monotonic() + _LAST_THREADS
    threads = [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    threads += _threads_queues  # threads of pools: Python waits for these even if they are daemons
    for thread in threads:
        thread.join(max(0.0, ends_at - monotonic()))
    if hanging := [thread.name for thread in threads if thread.is_alive()]:
        _log.warning("Left without waiting for threads that do not end: %s.", ", ".join(sorted({*hanging})))
        logging.shutdown()
        os._exit(code)

"""How a process of ours ends that would hang at its end."""

import logging
import os
import threading
from concurrent.futures.thread import _threads_queues
from time import monotonic

_log = logging.getLogger(__name__)
_LAST_THREADS = 1.0  # seconds in which threads may still end by themselves


def leave(code: int) -> None:
    """Ends this process where it would hang: at its end Python waits for threads, also for those that a job or a
    routine holds for ever. Called when everything is closed; returns where no such thread is left."""
    ends_at = monotonic() + _LAST_THREADS
    others = [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    others += _threads_queues  # of pools, which are waited for also where they are daemons
    for thread in others:
        thread.join(max(0.0, ends_at - monotonic()))
    if hanging := [thread.name for thread in others if thread.is_alive()]:
        _log.warning("Left without waiting for threads that do not end: %s.", ", ".join(sorted({*hanging})))
        logging.shutdown()
        os._exit(code)

"""Waits for file descriptors of any number: `select` refuses those above 1023, and a supervisor has one a worker."""

import select
from math import ceil


def readable(*descriptors: int, within: float | None) -> set[int]:
    """Those that have something to say, or have ended, within so many seconds; None: however long it takes."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(None if within is None else ceil(within * 1000))}

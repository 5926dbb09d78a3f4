"""Waits for file descriptors. It uses poll, because select refuses descriptors above 1023, which a supervisor of many
workers has."""

import select
from math import ceil


def readable(*descriptors: int, within: float | None) -> set[int]:
    """The descriptors that are readable or closed within so many seconds; None: waits as long as it takes."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(None if within is None else ceil(within * 1000))}

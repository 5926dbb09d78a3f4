"""Measures how late the event loop is, because every request waits as long. If the loop is too late, the worker in this
process pauses."""

import asyncio
from collections import deque
from time import monotonic
from typing import NamedTuple, Self

from snapapp.jobs.worker.capacity.web_priority import WebPriority

_EVERY = 0.1  # seconds; a look takes 10 µs
_REMEMBERED = int(60 / _EVERY)  # looks
MARK = 0.02  # seconds of lag that a person's request should not have to bear
_LONGEST_PRESS = 0.25  # seconds that the worker pauses at most


class Lateness(NamedTuple):
    """How late the event loop was over the last minute, in seconds."""

    p99: float
    longest: float


class Lag:
    """Watches the event loop within a `with` block, on the loop's thread. A test can call `note` without a loop."""

    def __init__(self, web_priority: WebPriority) -> None:
        self._web_priority = web_priority
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)
        self._due = 0.0
        self._next: asyncio.TimerHandle | None = None
        self.presses = 0

    def __enter__(self) -> Self:
        self._arm(asyncio.get_running_loop())
        return self

    def __exit__(self, *_: object) -> None:
        if self._next:
            self._next.cancel()

    def note(self, late: float) -> float:
        """Notes the lateness of one look. Returns the seconds that the worker is asked to pause: as long as the loop
        was late, so that on a machine that is slow for other reasons the worker still does a share of its jobs."""
        self._seen.append(max(0.0, late))
        self._web_priority.ease()
        if late <= MARK:
            return 0.0
        pause = min(late, _LONGEST_PRESS)
        self._web_priority.press(pause)
        self.presses += 1
        return pause

    def lately(self) -> Lateness:
        seen = sorted(self._seen) or [0.0]
        return Lateness(seen[int(0.99 * (len(seen) - 1))], seen[-1])

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = monotonic() + _EVERY  # not the loop's own time, which does not advance while the loop is blocked
        self._next = loop.call_later(_EVERY, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if pause := self.note(monotonic() - self._due):
            loop.call_later(pause, self._web_priority.ease)
        self._arm(loop)

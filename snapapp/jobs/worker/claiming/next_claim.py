"""When a worker's next claim is due, and what it should look at."""

import threading
from collections.abc import Collection
from math import inf
from time import monotonic


class NextClaim:
    """Any thread may wake it. What is said during a claim is kept for the next one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due_at = -inf  # monotonic
        self._began_at = -inf  # the last claim; likewise
        # queues with new jobs since the last claim began; None: more than that has changed
        self._woken: set[str] | None = None

    @property
    def due_in(self) -> float:
        """Seconds; infinite: nobody has asked for a claim."""
        return self._due_at - monotonic()

    def may_wait(self, rest: float) -> bool:
        """Is none due yet, with the last one less than `rest` seconds ago?"""
        return self.due_in > 0 and monotonic() - self._began_at < rest

    def within(self, seconds: float) -> None:
        with self._lock:
            self._due_at = min(self._due_at, monotonic() + seconds)

    def wake(self, queue: str | None) -> None:
        """Makes it due now. `queue`: where new jobs are, if nothing else has changed."""
        with self._lock:
            self._due_at = -inf
            if queue is None:
                self._woken = None
            elif self._woken is not None:
                self._woken.add(queue)

    def begin(self) -> Collection[str]:
        """A claim begins now: returns the queues that it should look at. None of them: all."""
        with self._lock:
            woken, self._woken = self._woken, set()
            self._due_at, self._began_at = inf, monotonic()
        return woken or ()

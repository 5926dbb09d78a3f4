"""Requests go before jobs: while this process answers a request, or just after its event loop has lagged, the worker's
slots, claims and settles wait a moment before their next step."""

import threading
from time import monotonic

_PATIENCE = 0.05  # seconds that a step of the worker waits at most: unending requests must not stop the queue
_WINDOW = 5.0  # seconds over which the share is computed
_NOT_WORTH_TELLING = 0.02  # a share smaller than this is reported as 0
_REMEMBERED = 10.0  # seconds after the last request for which the loop's lag still counts


class WebPriority:
    """The web's thread calls `arrive`, `depart`, `press` and `ease`; the worker's threads call `give_way`."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._clear = threading.Event()
        self._clear.set()
        self._requests = 0  # requests being answered; written by the web's thread only
        self._began = 0.0  # when the first of them came; likewise
        self._seen_at = float("-inf")  # when the last of them came; likewise
        self._pressed_until: float | None = None  # likewise
        self._somebody_waited = False  # set by a worker's thread that waits, cleared by the web's thread
        self.held_back = 0.0  # seconds with requests in which a worker's thread waited; written by the web's thread
        # written by any thread that calls `share`; a race is harmless
        self._window_began, self._held_before, self._share = monotonic(), 0.0, 0.0

    def arrive(self) -> None:
        self._seen_at = monotonic()
        self._enter(self._seen_at)

    def depart(self) -> None:
        self._requests -= 1
        if self._requests == 0:
            self._clear.set()
            if self._somebody_waited:
                self.held_back += monotonic() - self._began

    def press(self, seconds: float) -> None:
        """The web's event loop has lagged: hold the worker back for `seconds`, unless no request came lately."""
        now = monotonic()
        if self._requests == 0 and now - self._seen_at > _REMEMBERED:
            return
        if self._pressed_until is None:
            self._enter(now)  # counts as a request until `ease` ends it
        self._pressed_until = max(self._pressed_until or 0.0, now + seconds)

    def ease(self) -> None:
        """Called periodically: ends a `press` whose time is over."""
        if self._pressed_until is not None and monotonic() >= self._pressed_until:
            self._pressed_until = None
            self.depart()

    def _enter(self, now: float) -> None:
        self._requests += 1
        if self._requests == 1:
            self._began = now
            self._somebody_waited = False
            self._clear.clear()

    def share(self) -> float:
        """The part of the last seconds in which the worker waited for the web; 0 when negligible."""
        now, held = monotonic(), self.held_back
        if (passed := now - self._window_began) >= _WINDOW:
            self._share = (held - self._held_before) / passed
            self._window_began, self._held_before = now, held
        return self._share if self._share >= _NOT_WORTH_TELLING else 0.0

    def give_way(self) -> None:
        """Waits while requests are being answered, but not longer than the patience. Without requests the hot path pays
        for one look at an Event."""
        if not self._clear.is_set():
            self._somebody_waited = True
            self._clear.wait(self._patience)

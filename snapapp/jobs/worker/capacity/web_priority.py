"""The web of this process goes first: while a request is being answered, or its event loop has lagged, the worker's
slots, claims and settles wait a moment before they go on."""

import threading
from time import monotonic

_PATIENCE = 0.05  # seconds: requests without end must not stop the queue for ever
_WINDOW = 5.0  # seconds over which the share is computed
_NOT_WORTH_TELLING = 0.02  # a smaller share
_REMEMBERED = 10.0  # seconds after the last request in which another one is expected


class WebPriority:
    """`arrive`, `depart`, `press`, `ease`: on one thread, that of the web. `give_way`: on any of the worker's."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._clear = threading.Event()
        self._clear.set()
        self._requests = 0  # that are being answered; written by the web's thread only
        self._began = 0.0  # when the first of them came; likewise
        self._seen_at = float("-inf")  # when the last of them came; likewise
        self._pressed_until: float | None = None  # likewise
        self._somebody_waited = False  # set by whoever waits, cleared by the web's thread
        self.held_back = 0.0  # seconds in which the worker would have done something; written by the web's thread
        # by whoever asks; a race is harmless
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
        """The web's event loop was kept waiting: hold back for so long, unless no request has come for a while."""
        now = monotonic()
        if self._requests == 0 and now - self._seen_at > _REMEMBERED:
            return
        if self._pressed_until is None:
            self._enter(now)  # like a request that lasts until `ease` finds that the time is over
        self._pressed_until = max(self._pressed_until or 0.0, now + seconds)

    def ease(self) -> None:
        """Called every now and then: ends what `press` began."""
        if self._pressed_until is not None and monotonic() >= self._pressed_until:
            self._pressed_until = None
            self.depart()

    @property
    def is_pressed(self) -> bool:
        return self._pressed_until is not None

    def _enter(self, now: float) -> None:
        self._requests += 1
        if self._requests == 1:
            self._began = now
            self._somebody_waited = False
            self._clear.clear()

    def share(self) -> float:
        """The part of the last seconds in which the worker waited; 0 when it is not worth telling."""
        now, held = monotonic(), self.held_back
        if (passed := now - self._window_began) >= _WINDOW:
            self._share = (held - self._held_before) / passed
            self._window_began, self._held_before = now, held
        return self._share if self._share >= _NOT_WORTH_TELLING else 0.0

    def give_way(self) -> None:
        """Returns at once when no request is being answered, which is all that the hot path pays for."""
        if not self._clear.is_set():
            self._somebody_waited = True
            self._clear.wait(self._patience)

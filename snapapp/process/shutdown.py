"""Handles SIGTERM and Ctrl-C under uvicorn. By itself, uvicorn ends the lifespan only after the last response, so with
one open stream the worker would go on claiming. Therefore the signals are handled here first, and then passed on."""

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Self

from snapapp.process.monolith import Monolith

_LINGER = 0.15  # seconds in which requests that are on their way are still accepted
_IMPATIENT_AFTER = 1.0  # seconds; a second signal before that is the first one again, sent by terminal and supervisor
_NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # SIGHUP: the terminal was closed


class Shutdown:
    """The end of the process. At the first signal streams end and the worker drains. At the second signal, or at the
    end of the grace, everything ends at once."""

    def __init__(self, monolith: Monolith) -> None:
        self._monolith = monolith
        self._loop = asyncio.get_running_loop()
        self._before: dict[int, signal.Handlers | int | object] = {}
        # The loop's thread alone writes these.
        self._first: int | None = None
        self._first_at = 0.0
        self._is_serving = False
        self._is_hurried = False
        self.begun = asyncio.Event()  # what streams wait for

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _NUMBERS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores a signal like this
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, handler)  # type: ignore[arg-type]  # it came from signal.signal

    @property
    def reason(self) -> str:
        """Why the process ends, for the log and the roster."""
        return "stopped" if self._first is None else signal.Signals(self._first).name

    def serving(self, noted: Sequence[int]) -> None:
        """Says that requests are served now. A signal that came during the start is handled or passed on only now."""
        self._is_serving = True
        if self._first is not None:
            self._pass_on_soon(self._first)
        elif noted:
            self._answer(noted[0])

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._answer, number)

    def _answer(self, number: int) -> None:
        now = self._loop.time()
        if self._first is None:
            self._first, self._first_at = number, now
            self._monolith.is_leaving = True
            self.begun.set()
            self._loop.call_later(self._monolith.settings.shutdown_grace.total_seconds(), self._hurry)
            if self._is_serving:
                self._pass_on_soon(number)
            self._in_background(lambda: self._monolith.leave(self.reason))
        elif now - self._first_at > _IMPATIENT_AFTER:
            self._monolith.hurried_by = number
            self._hurry()

    def _hurry(self) -> None:
        if not self._is_hurried:
            self._is_hurried = True
            self._in_background(self._end)

    def _end(self) -> None:
        self._monolith.leave(self.reason, hurry=True)
        self._monolith.stop(self.reason)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._force)

    def _force(self) -> None:
        """Sends uvicorn SIGINT twice: at the second one it stops waiting for open responses."""
        self._pass_on(signal.SIGINT)
        self._pass_on(signal.SIGINT)

    def _pass_on_soon(self, number: int) -> None:
        known = signal.SIGTERM if number == signal.SIGHUP else number
        self._loop.call_later(_LINGER, self._pass_on, known)

    def _pass_on(self, number: int) -> None:
        handler = self._before.get(number)
        if callable(handler):
            handler(number, None)

    def _in_background(self, act: Callable[[], None]) -> None:
        try:
            threading.Thread(target=act, name="shutdown", daemon=True).start()
        except RuntimeError:  # no thread can be started: requests wait meanwhile
            act()

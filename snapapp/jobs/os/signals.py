"""Signal handlers that only note a signal. The main thread takes the noted signals where it can act on them."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self

from snapapp.jobs.os.waiting import readable

Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def handled(by: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Within this block these signals have this handler. SIGHUP that is ignored stays so: nohup started the process."""
    before = {number: signal.signal(number, by) for number in numbers if not _is_left_to_nohup(number)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_left_to_nohup(number: signal.Signals) -> bool:
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


class Signals:
    """Notes SIGTERM, SIGINT and SIGHUP, and the signals in `besides`."""

    def __init__(self, *besides: signal.Signals) -> None:
        self.noted: list[signal.Signals] = []  # written by the handler, and by `take`, which runs on the same thread
        self._numbers = (*ENDING, *besides)
        self._interrupts = False
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> Self:
        # The kernel may deliver a signal to any thread, but Python runs the handler on the main thread only when that
        # wakes up. The wakeup descriptor wakes it from `wait`.
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in self._numbers:
            if not _is_left_to_nohup(number):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        write_end, self._write_end = self._write_end, -1
        os.close(self._read_end)
        os.close(write_end)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within this block an ending signal raises KeyboardInterrupt, so that a long start can be interrupted."""
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    def wait(self, seconds: float | None = None) -> None:
        """Returns after `seconds`, or earlier for a signal or a `wake`, also one that came since the last wait."""
        if readable(self._read_end, within=seconds):
            os.read(self._read_end, 4096)

    def take(self) -> list[signal.Signals]:
        """The signals noted since the last call, in order."""
        noted, self.noted = self.noted, []
        return noted

    def take_first(self) -> signal.Signals | None:
        """The first of these signals; the others stay."""
        return self.noted.pop(0) if self.noted else None

    def ignore(self) -> None:
        """Ignores the signals from now on, also after the `with`, so that a late one cannot change the exit code.
        Blocking them would not be enough, because any thread may get them."""
        self._before = dict.fromkeys(self._before, signal.SIG_IGN)
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def wake(self) -> None:
        """Ends a `wait`, from any thread."""
        with suppress(OSError):  # the pipe is full, so `wait` ends anyway; or it is closed
            os.write(self._write_end, b"!")

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.noted.append(signal.Signals(number))
        if self._interrupts and number in ENDING:
            self._interrupts = False
            raise KeyboardInterrupt

"""A terminal as it is: lines go to it, keys come from it, and it gets back what it was. A few sequences that every
terminal of the last forty years knows; what draws more than that is a library of its own."""

import codecs
import fcntl
import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Self

_BEGIN = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"  # the other screen, without a cursor; what is too long is not wrapped
_END = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_KEYS = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[5~": "page up", "\x02": "page up", "\x1b[6~": "page down", "\x06": "page down", " ": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "g": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end", "G": "end",
    "\r": "enter", "\n": "enter", "\x1b": "escape", "\x1b[D": "escape", "\x7f": "backspace", "\x08": "backspace",
}  # fmt: skip
_KEY = re.compile(r"\x1b(?:\[[0-9;?]*[@-~]|O[A-Z])|.", re.DOTALL)
_REST_OF_A_KEY = 0.05  # seconds, in which what began with Escape goes on where it was an arrow

Key = tuple[str, str]  # what it is called, and the text that it types: arrows type none


class Terminal:
    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown: list[str] = []
        self._size = (0, 0)
        self._wake, self._waker = os.pipe()
        self.ended_by: int | None = None  # a signal

    def __enter__(self) -> Self:
        os.environ.pop("COLUMNS", None)  # how wide it was when somebody exported it
        self._before = termios.tcgetattr(self._in)
        for end in (self._wake, self._waker):
            fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK)
        self._wakeup_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        wanted = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        self._handlers = {number: signal.signal(number, self._note) for number in wanted}
        tty.setcbreak(self._in, termios.TCSADRAIN)  # what was typed ahead is not lost
        attributes = termios.tcgetattr(self._in)
        attributes[6][termios.VSUSP] = b"\0"  # stopped, it would leave the other screen to the shell
        termios.tcsetattr(self._in, termios.TCSADRAIN, attributes)
        self._write(_BEGIN)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, termios.error):  # it is gone, as after SIGHUP
            self._write(_END)
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        columns, lines = os.get_terminal_size(self._out)
        return max(columns, 1), max(lines, 1)

    def draw(self, lines: Sequence[str]) -> None:
        """As many as the terminal has; those that have not changed are not written again."""
        if self._size != self.size:
            self._size, self._shown = self.size, []
        wanted = [*lines, *[""] * (self._size[1] - len(lines))][: self._size[1]]
        is_known = len(self._shown) == len(wanted)
        news = [at for at, line in enumerate(wanted) if not is_known or line != self._shown[at]]
        self._shown = wanted
        if news:
            self._write("".join(f"\x1b[{at + 1};1H\x1b[2K{wanted[at]}" for at in news))

    def keys(self, timeout: float) -> list[Key]:
        """Those that were pressed, as soon as there are any; none after a signal, a `wake`, or so many seconds."""
        ready, _, _ = select.select([self._in, self._wake], [], [], timeout)
        if self._wake in ready:
            os.read(self._wake, 1024)
        if self._in not in ready:
            return []
        text = self._read()
        if text.endswith("\x1b") and select.select([self._in], [], [], _REST_OF_A_KEY)[0]:
            text += self._read()
        return [(_KEYS.get(found, found), found if found.isprintable() else "") for found in _KEY.findall(text)]

    def wake(self) -> None:
        """From any thread."""
        with suppress(BlockingIOError):  # it is full of them
            os.write(self._waker, b"\0")

    def _read(self) -> str:
        try:
            said = os.read(self._in, 4096)
        except OSError:
            said = b""
        if not said:
            self.ended_by = signal.SIGHUP  # nobody is there any more
        return self._decoder.decode(said)

    def _write(self, text: str) -> None:
        """Whole, however slow the line is."""
        left = text.encode(errors="backslashreplace")
        while left:
            left = left[os.write(self._out, left) :]

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGWINCH:
            self.ended_by = number

"""Writes lines to a terminal, reads keys from it, and restores it at the end. The few control sequences used here are
known to every terminal."""

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

_BEGIN = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"  # the alternate screen, no cursor, no wrapping of long lines
_END = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_KEYS = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[5~": "page up", "\x02": "page up", "\x1b[6~": "page down", "\x06": "page down", " ": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "g": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end", "G": "end",
    "\r": "enter", "\n": "enter", "\x1b": "escape", "\x1b[D": "escape", "\x7f": "backspace", "\x08": "backspace",
}  # fmt: skip
_KEY = re.compile(r"\x1b(?:\[[0-9;?]*[@-~]|O[A-Z])|.", re.DOTALL)
_REST_OF_A_KEY = 0.05  # seconds to wait after Escape for the rest of the sequence that an arrow key sends

Key = tuple[str, str]  # the name of a key, and the text that it types; arrow keys type none


class Terminal:
    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown: list[str] = []
        self._size = (0, 0)
        self._wake, self._waker = os.pipe()
        self.ended_by: int | None = None  # a signal

    def __enter__(self) -> Self:
        os.environ.pop("COLUMNS", None)  # an exported value is the width at that time, not now
        self._before = termios.tcgetattr(self._in)
        for end in (self._wake, self._waker):
            fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK)
        self._wakeup_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        wanted = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        self._handlers = {number: signal.signal(number, self._note) for number in wanted}
        tty.setcbreak(self._in, termios.TCSADRAIN)  # TCSADRAIN keeps what was typed ahead
        attributes = termios.tcgetattr(self._in)
        attributes[6][termios.VSUSP] = b"\0"  # no Ctrl-Z: a stopped process would leave its screen to the shell
        attributes[6][termios.VMIN] = 0  # reading never waits: Ctrl-C takes away a key that `select` has announced
        termios.tcsetattr(self._in, termios.TCSADRAIN, attributes)
        self._write(_BEGIN)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, termios.error):  # the terminal may be gone, as after SIGHUP
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
        """Shows these lines, as many as fit. Lines that have not changed are not written again."""
        if self._size != self.size:
            self._size, self._shown = self.size, []
        wanted = [*lines, *[""] * (self._size[1] - len(lines))][: self._size[1]]
        is_known = len(self._shown) == len(wanted)
        news = [at for at, line in enumerate(wanted) if not is_known or line != self._shown[at]]
        self._shown = wanted
        if news:
            self._write("".join(f"\x1b[{at + 1};1H\x1b[2K{wanted[at]}" for at in news))

    def keys(self, timeout: float) -> list[Key]:
        """Waits for keys and returns them; returns none after a signal, a `wake`, or `timeout` seconds."""
        ready, _, _ = select.select([self._in, self._wake], [], [], timeout)
        if self._wake in ready:
            os.read(self._wake, 1024)
        if self._in not in ready:
            return []
        text = self._read()
        if text.endswith("\x1b") and select.select([self._in], [], [], _REST_OF_A_KEY)[0]:
            text += self._read()
        return [(_KEYS.get(key, key), key if key.isprintable() else "") for key in _KEY.findall(text)]

    def wake(self) -> None:
        """Ends a wait for keys; may be called from any thread."""
        with suppress(BlockingIOError):  # the pipe is full, so `keys` will wake up anyway
            os.write(self._waker, b"\0")

    def _read(self) -> str:
        try:
            typed = os.read(self._in, 4096)
            is_closed = not typed and bool(select.select([self._in], [], [], 0)[0])  # ready, and has nothing
        except OSError:
            typed, is_closed = b"", True
        if is_closed:
            self.ended_by = signal.SIGHUP
        return self._decoder.decode(typed)

    def _write(self, text: str) -> None:
        """Writes all of the text, however slow the line is."""
        left = text.encode(errors="backslashreplace")
        while left:
            left = left[os.write(self._out, left) :]

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGWINCH:
            self.ended_by = number

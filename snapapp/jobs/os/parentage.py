"""What a process asks of the kernel about its parent and its descendants. Only Linux can do it."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

# loaded before any fork: another thread might hold the loader's lock
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36


def die_with(parent: int, how: signal.Signals = signal.SIGKILL, *, code: int = 1) -> None:
    """Lets the kernel send `how` to this process when its parent dies. The parent may have died before that; then this
    process has another parent by now, and ends itself with this exit code."""
    _prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:
        os._exit(code)


def ends_with_us() -> Callable[[], None]:
    """`preexec_fn` of a program that is to end when this process does, also if somebody kills it."""
    return partial(die_with, os.getpid(), signal.SIGTERM)


def adopt() -> None:
    """From now on every descendant whose parent dies becomes a child of this process, so that none gets lost."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def name(text: str) -> None:
    """Sets what `top` and `pgrep` show."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(text.encode()[:15]))


def _prctl(option: int, value: Any) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(option, value, 0, 0, 0)

"""The signals that end a command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def by_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the command as Ctrl-C does, so that an embedded server is stopped where nobody else
    uses it, and half-made files are removed. What nohup ignores stays ignored: a backup that takes hours is left to
    run."""

    def end(_number: int, _frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    heard = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

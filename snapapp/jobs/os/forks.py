"""Processes that a job or the application forks with os.fork(), as multiprocessing does: they are no copies of the
worker."""

import os
import signal
import sys
import traceback
from contextlib import suppress

from snapapp.jobs.os.signals import ENDING

_our_ends: set[int] = set()  # of pipes that tell another process, by their end, that this one has ended or wants it to


def keep_end(pipe: int) -> None:
    """Keeps this end of a pipe from processes that are forked while it is open: as long as one of them held it, too,
    the other process would read no end."""
    _our_ends.add(pipe)


def close_end(pipe: int) -> None:
    _our_ends.discard(pipe)  # first, because another file may get its number
    os.close(pipe)


def _let_go_of_ends() -> None:
    """In a process that was just forked. The numbers stay taken: an object that was forked as well may close them."""
    if _our_ends:
        nothing = os.open(os.devnull, os.O_RDWR)
        for pipe in _our_ends:
            os.dup2(nothing, pipe, inheritable=False)
        os.close(nothing)
        _our_ends.clear()


def _forget_handlers() -> None:
    """Ours only note a signal, or wake the parent: with them neither Ctrl-C nor terminate() would end the process."""
    for number in ENDING:
        if str(getattr(signal.getsignal(number), "__module__", "")).startswith("snapapp."):
            signal.set_wakeup_fd(-1)
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_let_go_of_ends)
os.register_at_fork(after_in_child=_forget_handlers)


def end_if_forked(process: int, error: BaseException | None = None) -> None:
    """Called where a job's function has returned or raised, with the pid from before the call. A process that the
    function has forked comes here, too, and ends as a program would. It must not go on: it would settle the job that
    its parent still runs, on the parent's connections, and then wait in a slot for ever."""
    if os.getpid() != process:
        code = 1
        with suppress(Exception):  # whatever it prints: nobody may read it, or the stream is closed
            code = _exit_code(error)
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    match error:
        case None | SystemExit(code=None):
            return 0
        case SystemExit(code=int(code)):
            return code & 0xFF
        case SystemExit(code=text):
            print(text, file=sys.stderr)  # noqa: T201
        case _:
            traceback.print_exception(error)
    return 1

"""A process that a job forks with os.fork(): it is the job's own, and no copy of the worker."""

import os
import sys
import traceback
from contextlib import suppress


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

"""Where decoders come from. Started as `python -m snapapp.processing.decoder.fork_server CONTROL MODULE...`: a socket
to whoever started it, and the modules whose functions a decoder may be asked for: nothing is imported behind the walls.

Nothing of a job passes through here, only open files: what is never in this memory no decoder can find in its own.
"""

import faulthandler
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from snapapp.processing.decoder import desk
from snapapp.processing.decoder.wire import ENDED, FORK

_FILES = 8
_LOOK_EVERY = 0.01  # seconds, where a process has no descriptor


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker
    faulthandler.enable()
    control = socket.socket(fileno=int(arguments[0]))
    for module in arguments[1:]:
        importlib.import_module(module)
    time.tzset()  # reads a file
    gc.collect()
    gc.freeze()  # a collection in a decoder would write into every page that it shares with us
    while True:
        word, files, _, _ = socket.recv_fds(control, 1, _FILES)
        if not word:
            return  # whoever wanted decoders is gone
        if word == FORK:
            _serve(control, files)


def _serve(control: socket.socket, files: list[int]) -> None:
    decoder = os.fork()
    if decoder == 0:
        control.close()
        desk.live(files)
    for file in files:
        os.close(file)
    control.sendall(ENDED.pack(_end_of(decoder, control)))


def _end_of(decoder: int, control: socket.socket) -> int:
    """Killed if somebody says so, or if there is nobody any more."""
    while True:
        with _ear_on(decoder) as ears:
            if select.select([control.fileno(), *ears], [], [], None if ears else _LOOK_EVERY)[0] == [control.fileno()]:
                os.kill(decoder, signal.SIGKILL)
                return os.waitpid(decoder, 0)[1]
        ended, status = os.waitpid(decoder, os.WNOHANG)
        if ended:
            return status


@contextmanager
def _ear_on(decoder: int) -> Iterator[list[int]]:
    """A descriptor that tells when it has ended, where the system has such."""
    if sys.platform != "linux":
        yield []
        return
    ear = os.pidfd_open(decoder)
    try:
        yield [ear]
    finally:
        os.close(ear)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Forks decoders. Started as `python -m snapapp.processing.decoder.fork_server CONTROL MODULE...`: CONTROL is a socket
to the child that started it, the modules are those whose functions a decoder may run, because nothing can be imported
in the sandbox. Only open files of a job pass through this process: what was never in its memory, no decoder can find
in its own.
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

from snapapp.jobs.os import exits
from snapapp.processing.decoder import process
from snapapp.processing.decoder.protocol import ENDED, FORK

_FILES = 8
_LOOK_EVERY = 0.01  # seconds, where the system has no descriptors of processes


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker
    faulthandler.enable()
    control = socket.socket(fileno=int(arguments[0]))
    for module in arguments[1:]:
        importlib.import_module(module)
    time.tzset()  # reads a file, which the sandbox would refuse
    gc.collect()
    gc.freeze()  # a garbage collection in a decoder would write to every shared page, and so copy it
    while True:
        word, files, _, _ = socket.recv_fds(control, 1, _FILES)
        if not word:
            exits.leave(0)  # the child is gone
        if word == FORK:
            _serve(control, files)


def _serve(control: socket.socket, files: list[int]) -> None:
    server = os.getpid()
    decoder = os.fork()
    if decoder == 0:
        control.close()
        process.live(files, server)
    for file in files:
        os.close(file)
    control.sendall(ENDED.pack(_end_of(decoder, control)))


def _end_of(decoder: int, control: socket.socket) -> int:
    """Waits for the decoder's end and returns its wait status. Kills it when the child says so, or is gone."""
    while True:
        with _end_descriptor(decoder) as descriptors:
            if select.select([control.fileno(), *descriptors], [], [], None if descriptors else _LOOK_EVERY)[0] == [
                control.fileno()
            ]:
                os.kill(decoder, signal.SIGKILL)
                return os.waitpid(decoder, 0)[1]
        ended, status = os.waitpid(decoder, os.WNOHANG)
        if ended:
            return status


@contextmanager
def _end_descriptor(decoder: int) -> Iterator[list[int]]:
    """A descriptor that becomes readable when the decoder ends; none where the system has no such descriptors."""
    if sys.platform != "linux":
        yield []
        return
    descriptor = os.pidfd_open(decoder)
    try:
        yield [descriptor]
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1:])

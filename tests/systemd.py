"""As much of systemd as services speak with: what they say to it, and the sockets that it keeps for them."""

import os
import socket
import sys
from pathlib import Path

from tests.running import WITHIN, Served

# Descriptors that are handed over begin at 3, and are for the process that LISTEN_PID names.
_START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="http")
os.execv(sys.argv[2], sys.argv[2:])
"""


class Systemd:
    """Hears what a service says, and starts it with the socket that it has kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: int | None = None
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.bind(str(path))
        self._line.settimeout(WITHIN)

    def hears(self) -> str:
        said, descriptors, _, _ = socket.recv_fds(self._line, 100, 1)
        if descriptors:
            self.forget()
            [self.kept] = descriptors
        return said.decode()

    def hears_of(self, words: str) -> None:
        while self.hears() != words:
            pass

    def start(self, folder: Path, **settings: str) -> Served:
        service = Served if self.kept is None else _again(self.kept)
        return service(folder, NOTIFY_SOCKET=str(self.path), **settings)

    def forget(self) -> None:
        """As at a stop."""
        if self.kept is not None:
            os.close(self.kept)
            self.kept = None

    def close(self) -> None:
        self.forget()
        self._line.close()


def _again(kept: int) -> type[Served]:
    class Again(Served):
        within = (sys.executable, "-c", _START, str(kept))
        inherits = (kept,)

    return Again

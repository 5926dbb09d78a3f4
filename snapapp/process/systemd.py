"""What systemd is told, where it asks (Type=notify): that requests are served, that the event loop still turns, that
the end has begun. A loop that hangs answers nobody, and no part of this process would notice: so it is started anew.

And what it keeps for us, where it may (FileDescriptorStoreMax): the socket that we listen on. Between the end of this
process and the start of the next one nobody is refused: who comes meanwhile waits in the kernel. A stop is a stop, it
keeps nothing."""

import asyncio
import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Self

_KEPT = "http"  # the socket's name
_FIRST = 3  # the number of the first descriptor that is handed over


class SocketStore:
    """systemd's, for the socket that we listen on."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        handed_over = [environ.get(name) for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")]
        self._number = _FIRST if handed_over == [str(os.getpid()), "1", _KEPT] else None
        for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):  # not for our children
            environ.pop(name, None)

    def take(self, place: tuple[str, int]) -> socket.socket | None:
        """What the process before us listened on, if it is the place where we are to listen, too."""
        if self._number is None:
            return None
        kept = socket.socket(fileno=self._number)
        self._number = None
        kept.set_inheritable(False)
        if kept.getsockname()[:2] == place:
            return kept
        kept.close()
        _send(self._address, f"FDSTOREREMOVE=1\nFDNAME={_KEPT}")
        return None

    def keep(self, listening: socket.socket) -> None:
        _send(self._address, f"FDSTORE=1\nFDNAME={_KEPT}", [listening.fileno()])


class Notices:
    """Lives on the event loop's thread. Elsewhere than under systemd it does nothing."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        # systemd's protocol, not settings of ours
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._within = int(environ.get("WATCHDOG_USEC") or 0) / 1_000_000  # seconds, in which it wants a beat
        self._next: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._next:
            self._next.cancel()

    def ready(self) -> None:
        _send(self._address, "READY=1")
        if self._within:
            self._beat(asyncio.get_running_loop())

    def stopping(self) -> None:
        _send(self._address, "STOPPING=1")

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        _send(self._address, "WATCHDOG=1")
        self._next = loop.call_later(self._within / 3, self._beat, loop)


def _send(address: str, words: str, descriptors: Sequence[int] = ()) -> None:
    if not address:
        return
    place = f"\0{address[1:]}" if address.startswith("@") else address
    # a full buffer is a systemd that is busy; the next beat comes
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as line:
        line.connect(place)
        socket.send_fds(line, [words.encode()], list(descriptors))

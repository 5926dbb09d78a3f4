"""Notices to systemd (Type=notify): that requests are served, that the event loop runs, that the end has begun. If the
event loop hangs, no part of this process could notice it, so systemd's watchdog restarts the process. It does the same
where only a new process helps, because systemd does not ask for liveness.

systemd can also keep the listening socket (FileDescriptorStoreMax) from the end of this process to the start of the
next one. Then no client is refused at a restart: new connections wait in the kernel. At a stop, systemd closes the
socket."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

_log = logging.getLogger(__name__)

_KEPT = "http"  # the socket's name
_FIRST = 3  # the number of the first descriptor that systemd hands over


class SocketStore:
    """systemd's store for the listening socket."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        # taken out, because children must not see them
        handed_over = [os.environ.pop(name, None) for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")]
        self._number = _FIRST if handed_over == [str(os.getpid()), "1", _KEPT] else None

    def take(self, place: tuple[str, int]) -> socket.socket | None:
        """The socket of the previous process, if it listens on the place that is wanted now; None: there is none."""
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
    """Sends the notices, on the event loop's thread. Without systemd it does nothing. `worth_a_restart` says why only a
    new process helps; None: this one can go on."""

    def __init__(self, worth_a_restart: Callable[[], str | None], environ: Mapping[str, str] = os.environ) -> None:
        self._worth_a_restart = worth_a_restart
        self._is_said = False
        # variables of systemd's protocol, not settings of snapapp
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._within = int(environ.get("WATCHDOG_USEC") or 0) / 1_000_000  # seconds in which systemd wants a beat
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
        why = self._worth_a_restart()
        if why is None:
            _send(self._address, "WATCHDOG=1")
        elif not self._is_said:
            _log.error("systemd's watchdog starts this process anew within %g s: %s.", self._within, why)
            self._is_said = True
        self._next = loop.call_later(self._within / 3, self._beat, loop)


def _send(address: str, words: str, descriptors: Sequence[int] = ()) -> None:
    if not address:
        return
    place = f"\0{address[1:]}" if address.startswith("@") else address
    # An error such as a full buffer is ignored: systemd is busy, and the next beat follows.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as line:
        line.connect(place)
        socket.send_fds(line, [words.encode()], list(descriptors))

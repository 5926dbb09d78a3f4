"""What systemd is told, where it asks (Type=notify): that requests are served, that the event loop still turns, that
the end has begun. A loop that hangs answers nobody, and no part of this process would notice: so it is started anew."""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self


class Notices:
    """Lives on the event loop's thread. Elsewhere than under systemd it does nothing."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        # systemd's protocol, not settings of ours
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._within = int(environ.get("WATCHDOG_USEC") or 0) / 1_000_000  # seconds, in which it wants a beat
        self._next: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._next:
            self._next.cancel()

    def ready(self) -> None:
        self._send("READY=1")
        if self._within:
            self._beat(asyncio.get_running_loop())

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._send("WATCHDOG=1")
        self._next = loop.call_later(self._within / 3, self._beat, loop)

    def _send(self, words: str) -> None:
        if not self._address:
            return
        place = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        # a full buffer is a systemd that is busy; the next beat comes
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as line:
            line.sendto(words.encode(), place)

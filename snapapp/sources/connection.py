"""A connection to an address that the guard has judged, whose every wait for a byte is counted."""

import http.client
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

from snapapp.sources.guard import Address, Place

_CONNECT_WITHIN = 5.0  # seconds; then the next address, as IPv6 leads nowhere in more places than it should


class Pace:
    """How long the network may still keep us waiting, in all and at a time. Only what happens while it is `running`
    counts. One thread uses it."""

    def __init__(self, total: timedelta, stall: timedelta) -> None:
        self._left = total.total_seconds()
        self._stall = stall.total_seconds()
        self._until: float | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        self._until = monotonic() + self._left
        try:
            yield
        finally:
            self._left, self._until = self.left, None

    @property
    def left(self) -> float:
        return self._left if self._until is None else max(0.0, self._until - monotonic())

    def allowance(self) -> float:
        """Seconds that the next wait may take; TimeoutError when there are none."""
        left = self.left
        if left <= 0:
            raise TimeoutError("the time for this source is over")
        return min(left, self._stall)


class _PacedSocket(socket.socket):
    """A plain timeout starts anew with each byte, so a server that sends one now and then could hold us for ever."""

    pace: Pace

    def recv_into(self, *arguments: Any, **named: Any) -> int:
        self.settimeout(self.pace.allowance())
        return super().recv_into(*arguments, **named)


class _PacedTLSSocket(ssl.SSLSocket):
    pace: Pace

    def recv_into(self, *arguments: Any, **named: Any) -> int:
        self.settimeout(self.pace.allowance())
        return super().recv_into(*arguments, **named)


def trusted() -> ssl.SSLContext:
    """The system's authorities, or those that SSL_CERT_FILE names."""
    context = ssl.create_default_context()
    context.sslsocket_class = _PacedTLSSocket
    return context


class _Response(http.client.HTTPResponse):
    def _read_next_chunk_size(self) -> int:
        """The library takes -1 for a size, and then everything that comes into memory."""
        size = int(super()._read_next_chunk_size())  # type: ignore[misc]  # not among what is typed
        if size < 0:
            raise ValueError(f"a chunk of {size} bytes")
        return size


class Connection(http.client.HTTPConnection):
    """To one of the given addresses. The host's name is left to TLS, which checks it, and to the Host header."""

    response_class = _Response

    def __init__(self, place: Place, addresses: Sequence[Address], pace: Pace) -> None:
        super().__init__(place.host, place.port)
        self.default_port = 443 if place.scheme == "https" else 80  # else Host would say :443
        self._is_secure = place.scheme == "https"
        self._addresses = addresses
        self._pace = pace

    def connect(self) -> None:
        plain = self._reached()
        self.sock = self._secured(plain) if self._is_secure else plain

    def leads_to(self, place: Place) -> bool:
        """False as well where the server has asked to close it."""
        is_secure = place.scheme == "https"
        return self.sock is not None and (self.host, self.port, self._is_secure) == (place.host, place.port, is_secure)

    def hurry(self) -> None:
        """Before each request: sending has a deadline too."""
        if self.sock is not None:
            self.sock.settimeout(self._pace.allowance())

    def _reached(self) -> _PacedSocket:
        failure = OSError("it has no address")
        for address in self._addresses:
            within = min(self._pace.allowance(), _CONNECT_WITHIN)
            try:
                return self._reach(address, within)
            except TimeoutError:
                failure = OSError(f"it did not answer within {within:.0f} s")
            except OSError as error:
                failure = error
        raise failure

    def _reach(self, address: Address, within: float) -> _PacedSocket:
        reached = _PacedSocket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        try:
            reached.pace = self._pace
            reached.settimeout(within)
            reached.connect((str(address), self.port))
            reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            reached.close()
            raise
        return reached

    def _secured(self, plain: _PacedSocket) -> ssl.SSLSocket:
        try:
            plain.settimeout(self._pace.allowance())
            secured = trusted().wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise
        secured.pace = self._pace  # type: ignore[attr-defined]  # it is a _PacedTLSSocket
        return secured

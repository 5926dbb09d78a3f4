"""Connections to addresses that the guard has approved. All time spent waiting for the network counts towards a
limit."""

import http.client
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

from snapapp.sources.guard import Address, SourceUrl

_CONNECT_WITHIN = 5.0  # seconds; then the next address is tried, because IPv6 is broken in many networks


class Pace:
    """How long we may still wait for the network, in all and at a time. Only time spent in `running` counts. Used by
    one thread."""

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
        """The seconds that the next wait may take; raises TimeoutError if there are none left."""
        left = self.left
        if left <= 0:
            raise TimeoutError("the time for this source is over")
        return min(left, self._stall)


class _PacedSocket(socket.socket):
    """A socket that counts its waits. A plain timeout starts again with each byte, so a server that sends a byte now
    and then could hold us for ever."""

    pace: Pace

    def recv_into(self, *arguments: Any, **named: Any) -> int:
        self.settimeout(self.pace.allowance())
        return super().recv_into(*arguments, **named)


class _PacedTLSSocket(_PacedSocket, ssl.SSLSocket):
    """The same, over TLS."""


def trusted() -> ssl.SSLContext:
    """A TLS context with the system's certificate authorities, or those of SSL_CERT_FILE."""
    context = ssl.create_default_context()
    context.sslsocket_class = _PacedTLSSocket
    return context


class _Response(http.client.HTTPResponse):
    def _read_next_chunk_size(self) -> int:
        """Refuses a negative chunk size, with which http.client would read everything that comes into memory."""
        size = int(super()._read_next_chunk_size())  # type: ignore[misc]  # a private method, without types
        if size < 0:
            raise ValueError(f"a chunk of {size} bytes")
        return size


class Connection(http.client.HTTPConnection):
    """A connection to one of the given addresses. The host's name is used by TLS, which checks it, and in the Host
    header."""

    response_class = _Response

    def __init__(self, url: SourceUrl, addresses: Sequence[Address], pace: Pace) -> None:
        super().__init__(url.host, url.port)
        self.default_port = 443 if url.scheme == "https" else 80  # otherwise the Host header would have :443
        self._is_secure = url.scheme == "https"
        self._addresses = addresses
        self._pace = pace

    def connect(self) -> None:
        plain = self._connect_to_any()
        self.sock = self._with_tls(plain) if self._is_secure else plain

    def leads_to(self, url: SourceUrl) -> bool:
        """Whether the connection is open and leads to this url."""
        is_secure = url.scheme == "https"
        return self.sock is not None and (self.host, self.port, self._is_secure) == (url.host, url.port, is_secure)

    def hurry(self) -> None:
        """Sets the timeout before a request, because sending must end in time too."""
        if self.sock is not None:
            self.sock.settimeout(self._pace.allowance())

    def _connect_to_any(self) -> _PacedSocket:
        failure = OSError("it has no address")
        for address in self._addresses:
            within = min(self._pace.allowance(), _CONNECT_WITHIN)
            try:
                return self._connect_to(address, within)
            except TimeoutError:
                failure = OSError(f"it did not answer within {within:.0f} s")
            except OSError as error:
                failure = error
        raise failure

    def _connect_to(self, address: Address, within: float) -> _PacedSocket:
        connection = _PacedSocket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        try:
            connection.pace = self._pace
            connection.settimeout(within)
            connection.connect((str(address), self.port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            connection.close()
            raise
        return connection

    def _with_tls(self, plain: _PacedSocket) -> ssl.SSLSocket:
        try:
            plain.settimeout(self._pace.allowance())
            tls_socket = trusted().wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise
        tls_socket.pace = self._pace  # type: ignore[attr-defined]  # the context makes _PacedTLSSockets
        return tls_socket

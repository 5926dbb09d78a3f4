"""A connection of `snapapp serve`: how long it waits for its client, which connections are closed when there are too
many, and what ends with a connection. The time limits of a body are in `exchange`."""

import asyncio
import json
import logging
import resource
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from snapapp.api.http import errors

_log = logging.getLogger(__name__)

HEAD_WITHIN = 10.0  # seconds from the first byte of a request to the end of its headers
# uvicorn keeps headers in a dozen times their size, also those behind a body.
HEAD_MOST = 65_536  # bytes; what comes in one piece with their end is not counted
_HEADERS_MOST = 200
_WAITING_MOST = 100  # requests that wait behind the one that runs
_DESCRIPTORS = 4096  # as in the service's systemd unit; a shell often allows 1,024


def most_open() -> int:
    """The number of open connections above which those that wait for their clients are closed: half of the file
    descriptors. The other half is for files, the database and child processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted // 2


class _Parser:
    """Ignores that a client offers another protocol. The library's parser would take what follows the headers for that
    one's, and drop the body: so the head is read again, without the offer."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._parser = self._new()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    @property
    def offers_another_protocol(self) -> bool:
        return self._parser.should_upgrade() and any(name == b"upgrade" for name, _ in self._connection.headers)

    def feed_data(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except HttpParserUpgrade as stopped:
                if not self.offers_another_protocol:
                    raise
                data = self._head_without_offer() + data[stopped.args[0] :]
                self._parser = self._new()
            except HttpParserError:  # uvicorn would log it without the client
                self._connection.refuse_invalid()
                return

    def _new(self) -> Any:
        parser = HttpRequestParser(self._connection)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return parser

    def _head_without_offer(self) -> bytes:
        first = b"%b %b HTTP/%b" % (
            self._parser.get_method(),
            self._connection.url,
            self._parser.get_http_version().encode(),
        )
        rest = [name + b": " + value for name, value in self._connection.headers if name != b"upgrade"]
        return b"\r\n".join([first, *rest, b"", b""])


class Connection(HttpToolsProtocol):
    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.parser: _Parser = _Parser(self)  # type: ignore[assignment]
        # uvicorn would count idle connections too, and refuse every request; the middleware counts the running ones
        self._most, self.limit_concurrency = self.limit_concurrency, None
        self._active_at = self.loop.time()
        self._head_due: asyncio.TimerHandle | None = None
        self._is_in_head = False
        self._is_in_body = False
        self._beside_body = 0  # bytes since the last part of a body, or the last request
        # `cycle` is the request that was read last, and pipelined ones wait
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._close_when_idle()
        if self._most is not None and len(self.connections) > self._most:
            self._close_the_most_silent()

    def data_received(self, data: bytes) -> None:
        self._active_at = self.loop.time()
        self._beside_body += len(data)
        super().data_received(data)
        if self._beside_body > HEAD_MOST and not self.transport.is_closing():
            self._refuse(431, f"The headers are larger than {HEAD_MOST} bytes")
        if self.transport.is_closing() or not self._is_answered:
            return
        if not self._is_in_head:  # the rest of a body whose request is answered: read and dropped
            self._close_when_idle()
        elif self._head_due is None:
            self._head_due = self.loop.call_later(HEAD_WITHIN, self._give_up_on_the_head)

    # What raises here is refused as no valid HTTP, and nothing more of it is read.

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _WAITING_MOST:
            raise ValueError("too many requests at once")
        self._is_in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= _HEADERS_MOST:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.offers_another_protocol:
            return
        self._is_in_head, self._is_in_body = False, True
        self._forget_the_head()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._beside_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.offers_another_protocol:
            return
        self._is_in_body = False
        self._beside_body = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """uvicorn tells only the request that was read last. The one that runs is told too, and those that wait behind
        it are not begun, because nobody would receive their answers."""
        self._forget_the_head()
        super().connection_lost(exc)
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()

    def resume_writing(self) -> None:
        self._active_at = self.loop.time()
        super().resume_writing()

    def refuse_invalid(self) -> None:
        """Answers a request that is not valid HTTP. Such a request never reaches the application, so its error body is
        built here, in the same shape as all others."""
        _log.warning("Invalid HTTP request received from %s.", self.client[0] if self.client else "an unknown address")
        if self.headers and len(self.headers) >= _HEADERS_MOST:
            self._refuse(431, f"There are more than {_HEADERS_MOST} headers")
        else:
            self._refuse(400, "Invalid HTTP request received.")

    @property
    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # it begins with None

    @property
    def _waits_for_its_client(self) -> bool:
        """For a request, for the rest of one, or until it takes what it was sent. While reading is paused, the client
        waits for the application."""
        if self._is_answered or self.flow.write_paused:
            return True
        return self.cycle.more_body and not self.flow.read_paused

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGIApp) -> None:  # type: ignore[override]
        self._running = cycle
        super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]  # two packages' names for one thing

    def _close_when_idle(self) -> None:
        """Also before the first request, because a proxy may open connections in advance."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _close_the_most_silent(self) -> None:
        """Closes an eighth of all at once: to search them for each new connection takes milliseconds, and a client
        that opens many would keep all others waiting."""
        others = [each for each in self.connections if isinstance(each, Connection) and each is not self]
        waiting = [each for each in others if each._waits_for_its_client]
        waiting.sort(key=lambda each: each._active_at)
        closed = waiting[: max(1, len(self.connections) // 8)]
        if closed:
            _log.warning("%d connections are open: closing the %d silent longest.", len(self.connections), len(closed))
        for each in closed:
            self.connections.discard(each)  # `connection_lost` comes later, and new connections may come before
            each.transport.abort()

    def _give_up_on_the_head(self) -> None:
        if not self.transport.is_closing():
            self._refuse(408, f"The headers did not come within {HEAD_WITHIN:g} s")

    def _forget_the_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _refuse(self, status: int, message: str) -> None:
        answer = errors.body_of(status, message)
        body = json.dumps(answer).encode()
        head = (
            f"HTTP/1.1 {status} {answer['error']}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

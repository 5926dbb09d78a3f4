"""A real HTTP server that can be as mean as the ones out there: each path answers with a function of its own."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Act = Callable[["Visit"], None]


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]  # by names in lower case
    port: int  # the visitor's; the same one is the same connection


class Visit(BaseHTTPRequestHandler):
    """One request, as the functions of a path see it."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    server: "Server"

    def do_GET(self) -> None:
        named = {name.lower(): value for name, value in self.headers.items()}
        self.request_seen = Request(self.path, named, self.client_address[1])
        self.server.requests.append(self.request_seen)
        act = self.server.acts.get(self.path.partition("?")[0])
        if act:
            act(self)
        else:
            self.say(404)

    do_POST = do_GET  # noqa: N815 - the handler's word for it

    def say(self, status: int, body: bytes = b"", named: dict[str, object] | None = None, **headers: object) -> None:
        """Names of headers are written with _ for -."""
        self.head(status, **({"Content_Length": len(body)} | (named or {}) | headers))
        self.wfile.write(body)

    def head(self, status: int, **headers: object) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def drip(self, bytes_: Iterator[bytes], every: float = 0.05) -> None:
        """Slowly, until the visitor or the server goes."""
        self.close_connection = True
        with suppress(OSError):
            for piece in bytes_:
                self.wfile.write(piece)
                if self.server.is_closing.wait(every):
                    return

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0), context: ssl.SSLContext | None = None) -> None:
        super().__init__(address, Visit)
        self.context = context
        self.acts: dict[str, Act] = {}
        self.requests: list[Request] = []
        self.is_closing = threading.Event()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def connections(self) -> int:
        return len({request.port for request in self.requests})

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{'https' if self.context else 'http'}://{host}:{self.port}{path}"

    def get_request(self) -> tuple[socket.socket, Any]:
        plain, address = super().get_request()
        if self.context:
            plain.settimeout(10)
            return self.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address
        return plain, address

    def handle_error(self, *_: Any) -> None:
        pass  # visitors hang up in the middle here


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.is_closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Film:
    """A file as an ordinary server has it. Its bytes may be changed between requests."""

    content: bytes
    etag: str | None = '"1"'
    last_modified: str | None = formatdate(1_700_000_000, usegmt=True)
    honours_ranges: bool = True
    honours_if_range: bool = True
    longest: int | None = None  # of a part
    sent: list[range] = field(default_factory=list)

    def __call__(self, visit: Visit) -> None:
        asked = self.asked(visit)
        if asked is None:
            self.sent.append(range(len(self.content)))
            visit.say(200, self.content, self.named())
        elif asked.start >= len(self.content):
            visit.say(416, b"", self.named(), Content_Range=f"bytes */{len(self.content)}")
        else:
            self.sent.append(asked)
            visit.say(206, self.content[asked.start : asked.stop], self.named(), Content_Range=self.of(asked))

    def asked(self, visit: Visit) -> range | None:
        wanted = visit.headers.get("Range")
        condition = visit.headers.get("If-Range")
        is_other = self.honours_if_range and condition not in (None, self.etag, self.last_modified)
        if not wanted or not self.honours_ranges or is_other:
            return None
        start, _, last = wanted.removeprefix("bytes=").partition("-")
        stop = min(int(last) + 1, len(self.content))
        return range(int(start), min(stop, int(start) + self.longest) if self.longest else stop)

    def of(self, part: range) -> str:
        return f"bytes {part.start}-{part.stop - 1}/{len(self.content)}"

    def named(self) -> dict[str, object]:
        named = {"ETag": self.etag, "Last_Modified": self.last_modified, "Content_Type": "video/mp4"}
        return {name: value for name, value in named.items() if value is not None}


class Listener:
    """Counts who comes and what they say; nobody should."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.host = host
        self.port = int(self._socket.getsockname()[1])

    @property
    def visitors(self) -> int:
        """The kernel completes connections without us, so all that came are waiting in its queue."""
        self._socket.settimeout(0.0)
        count = 0
        with suppress(BlockingIOError):
            while True:
                self._socket.accept()[0].close()
                count += 1
        return count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

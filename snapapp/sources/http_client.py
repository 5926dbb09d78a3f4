"""Sends requests to one source over one kept connection. Each redirect is judged before it is followed; statuses and
headers become an `Answer`, or an error for a person."""

import http.client
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPResponse

from snapapp.sources import guard
from snapapp.sources.connection import Connection, Pace
from snapapp.sources.errors import Dropped, Reason, SourceRefused, SourceUnavailable
from snapapp.sources.guard import SourceUrl
from snapapp.sources.limits import MIB, Limits

_LARGEST = 1 << 40  # bytes; no video is so large, and sparse files and loops over blocks have limits too
_HOPS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_MAY_HAVE_EXPIRED = (400, 401, 403, 404, 410)  # how object stores answer when a URL's signature has expired
_BROKEN_OFF = (ConnectionError, http.client.IncompleteRead, ssl.SSLEOFError, ssl.SSLZeroReturnError)
_PIECE = 65_536
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Version:
    """What tells one version of a file from another, as far as the server says."""

    size: int | None
    etag: str | None
    last_modified: str | None

    @property
    def is_known(self) -> bool:
        """Whether there is enough to tell this version from another."""
        return self.size is not None and bool(self.etag or self.last_modified)

    @property
    def validator(self) -> str | None:
        """The value for If-Range, which does not allow a weak ETag."""
        is_strong = self.etag is not None and not self.etag.startswith("W/")
        return self.etag if is_strong else self.last_modified

    def is_still(self, other: "Version") -> bool:
        if None not in (self.size, other.size) and self.size != other.size:
            return False
        if self.etag and other.etag:
            return self.etag == other.etag
        return not (self.last_modified and other.last_modified) or self.last_modified == other.last_modified


class Answer:
    """An answer whose headers have come; `pieces` yields its bytes. If some are left unread, the connection is
    closed."""

    def __init__(self, connection: "SourceConnection", response: HTTPResponse, start: int, stop: int | None) -> None:
        self._connection = connection
        self._response = response
        self.is_partial = response.status == http.client.PARTIAL_CONTENT
        span = _span(response) if self.is_partial else None
        self.is_as_asked = span is not None and span.start == start
        size = _total(response) if self.is_partial else _length(response)
        self.version = Version(size, response.getheader("ETag"), response.getheader("Last-Modified"))
        self.length = size  # None: unknown until the end
        if span and stop is not None:
            self.length = min(len(span), stop - start)

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the answer; raises `Dropped` if fewer come than were announced."""
        count = 0
        while self.length is None or count < self.length:
            wanted = _PIECE if self.length is None else min(_PIECE, self.length - count)
            piece = self._connection.read(self._response, wanted)
            if not piece:
                break
            count += len(piece)
            yield piece
        if self.length is not None and count < self.length:
            raise self._connection.dropped(f"it sent {count} of {self.length} bytes")
        self._connection.let_go()


class SourceConnection:
    """The connection to a source, as long as it is read, for one thread and one request at a time."""

    def __init__(self, origin: SourceUrl, limits: Limits) -> None:
        self.origin = origin
        self.pace = Pace(limits.timeout, limits.stall)
        self.requests = 0
        self.bytes = 0
        self._limits = limits
        self._url = origin  # where the redirects led
        self._connection: Connection | None = None
        self._response: HTTPResponse | None = None

    def ask(self, start: int, stop: int | None, version: Version | None = None) -> Answer:
        """Requests the bytes from `start` to before `stop`, or the whole without Range if `stop` is None. With a
        version, the range is asked for only if the source still has it; otherwise, and from servers without ranges, the
        whole file comes."""
        self.let_go()
        response = self._answer_after_redirects(_headers(start, stop, version))
        with self._or_hang_up():
            self._check(response, start, stop)
            return Answer(self, response, start, stop)

    def read(self, response: HTTPResponse, size: int) -> bytes:
        with self._errors_as_ours(), self._or_hang_up():
            piece = response.read(size)
        self.bytes += len(piece)
        if self.bytes > self._limits.max_bytes:
            self.hang_up()
            raise self._too_large()
        return piece

    def hang_up(self) -> None:
        """Closes the connection. Calling it twice does no harm."""
        connection, self._connection = self._connection, None
        response, self._response = self._response, None
        if response:
            response.close()  # http.client keeps the response open when the server asked to close the connection
        if connection:
            connection.close()

    def let_go(self) -> None:
        """Finishes with the last answer. If it was read to its end, the connection is kept for the next request;
        otherwise it is closed."""
        if self._response and not self._response.isclosed():
            self.hang_up()

    def afford(self, length: int | None) -> None:
        """Refuses a download whose known length is beyond the limit."""
        if length is not None and self.bytes + length > self._limits.max_bytes:
            raise self._too_large()

    def judge(self, size: int | None) -> None:
        if size == 0:
            raise self._empty()
        if size is not None and size > _LARGEST:
            raise SourceRefused(Reason.TOO_LARGE, f"The video at {self.origin.shown} claims to have {size} bytes.")

    def _empty(self) -> SourceRefused:
        return SourceRefused(Reason.EMPTY, f"The video at {self.origin.shown} is empty.")

    def _too_large(self) -> SourceRefused:
        most = self._limits.max_bytes / MIB
        return SourceRefused(
            Reason.TOO_LARGE,
            f"The video at {self.origin.shown} needs more than the {most:g} MB that may be downloaded of one.",
        )

    def dropped(self, how: str) -> Dropped:
        self.hang_up()
        return Dropped(Reason.BROKEN, f"{self._url.host} broke off while sending the video: {how}.")

    # --- one request ----------------------------------------------------------------------------------------

    def _answer_after_redirects(self, headers: dict[str, str]) -> HTTPResponse:
        """The answer after all redirects. The last request's target is tried first; if that has expired, the original
        URL is."""
        was_elsewhere = self._url != self.origin
        response = self._follow(self._url, headers)
        if was_elsewhere and response.status in _MAY_HAVE_EXPIRED:
            self.hang_up()
            response = self._follow(self.origin, headers)
        return response

    def _follow(self, url: SourceUrl, headers: dict[str, str]) -> HTTPResponse:
        for _ in range(_HOPS + 1):
            response = self._send_with_retry(url, headers)
            location = response.getheader("Location")
            if response.status not in _REDIRECTS or location is None:
                self._url = url
                return response
            self.hang_up()  # cheaper than to read the redirect's body
            url = url.beyond(location)
        raise SourceRefused(Reason.BROKEN, f"{self.origin.shown} redirects more than {_HOPS} times.")

    def _send_with_retry(self, url: SourceUrl, headers: dict[str, str]) -> HTTPResponse:
        is_kept = self._connection is not None and self._connection.leads_to(url)
        try:
            return self._send(url, headers)
        except Dropped:
            if not is_kept:
                raise
            return self._send(url, headers)  # the server may have closed the kept connection

    def _send(self, url: SourceUrl, headers: dict[str, str]) -> HTTPResponse:
        if self.requests >= self._limits.max_requests:
            raise SourceRefused(
                Reason.BROKEN, f"{url.host} sends the video in pieces too small to read it ({self.requests} so far)."
            )
        with self._errors_as_ours(url), self._or_hang_up():
            connection = self._connect(url)
            self.requests += 1
            connection.hurry()
            connection.request("GET", url.path, headers=headers)
            self._response = connection.getresponse()
        return self._response

    def _connect(self, url: SourceUrl) -> Connection:
        if self._connection and self._connection.leads_to(url):
            return self._connection
        self.hang_up()
        addresses = guard.addresses(url, self._limits.allowed_hosts, self.pace.allowance())
        self._connection = Connection(url, addresses, self.pace)
        self._connection.connect()
        return self._connection

    def _check(self, response: HTTPResponse, start: int, stop: int | None) -> None:
        status, shown, host = response.status, self._url.shown, self._url.host
        if status == 200 or (status == 206 and stop is not None):
            if (coding := response.getheader("Content-Encoding", "").strip().lower()) not in ("", "identity"):
                raise SourceRefused(
                    Reason.BROKEN, f"{host} sends the video compressed ({coding[:40]}), though asked not to."
                )
        elif status in (404, 410):
            raise SourceRefused(Reason.NOT_FOUND, f"There is nothing at {shown} (status {status}).")
        elif status in (401, 402, 403, 407, 451):
            raise SourceRefused(Reason.DENIED, f"{host} refuses access to {shown} (status {status}).")
        elif status == 416:
            raise self._beyond_the_end(start)
        elif status in (408, 425, 429) or status >= 500:
            raise SourceUnavailable(Reason.BUSY, f"{host} cannot answer now (status {status}).")
        else:
            raise SourceRefused(Reason.BROKEN, f"{host} answers with status {status} where a video should be.")

    def _beyond_the_end(self, start: int) -> SourceRefused | SourceUnavailable:
        return self._empty() if start == 0 else self.changed()

    def changed(self) -> SourceUnavailable:
        self.hang_up()
        return SourceUnavailable(Reason.CHANGED, f"The video at {self.origin.shown} changed while it was being read.")

    @contextmanager
    def _or_hang_up(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.hang_up()
            raise

    @contextmanager
    def _errors_as_ours(self, url: SourceUrl | None = None) -> Iterator[None]:
        """Turns all errors of the network into ours."""
        host = (url or self._url).host
        try:
            yield
        except TimeoutError as error:
            raise SourceUnavailable(
                Reason.TOO_SLOW,
                f"{host} is too slow: it may take {_seconds(self._limits.timeout)} in all"
                f" and be silent for {_seconds(self._limits.stall)}.",
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise SourceRefused(
                Reason.UNTRUSTED, f"{host} cannot prove who it is: {error.verify_message or error.reason}."
            ) from error
        except ConnectionRefusedError as error:
            raise guard.unreachable(host, "it refuses connections") from error
        except _BROKEN_OFF as error:
            raise Dropped(Reason.BROKEN, f"{host} broke off the connection.") from error
        except ssl.SSLError as error:
            raise guard.unreachable(
                host, f"TLS fails ({(error.reason or 'unknown').lower().replace('_', ' ')})"
            ) from error
        except (http.client.HTTPException, ValueError) as error:
            raise SourceUnavailable(Reason.BROKEN, f"{host} does not answer in HTTP.") from error
        except OSError as error:
            raise guard.unreachable(host, error.strerror or str(error)) from error


def _headers(start: int, stop: int | None, version: Version | None) -> dict[str, str]:
    headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "snapapp"}
    if stop is not None:
        headers["Range"] = f"bytes={start}-{stop - 1}"
        if version and version.validator:
            headers["If-Range"] = version.validator
    return headers


def _span(response: HTTPResponse) -> range | None:
    match = _CONTENT_RANGE.fullmatch(response.getheader("Content-Range", "").strip())
    if not match:
        return None
    start, last = int(match[1]), int(match[2])
    is_sound = start <= last and (match[3] == "*" or last < int(match[3]))
    return range(start, last + 1) if is_sound else None


def _total(response: HTTPResponse) -> int | None:
    match = _CONTENT_RANGE.fullmatch(response.getheader("Content-Range", "").strip())
    return int(match[3]) if match and match[3] != "*" else None


def _length(response: HTTPResponse) -> int | None:
    match = _LENGTH.fullmatch(response.getheader("Content-Length", "").strip())
    return int(match[0]) if match and not response.chunked else None


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"

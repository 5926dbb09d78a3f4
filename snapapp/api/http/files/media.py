"""Sends stored files, for all routes that do: in ranges, and safe for a browser to open. A slow client holds an open
file and one block of it in memory, never a thread."""

import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from fastapi import HTTPException, Path, Request, Response
from starlette.types import Receive, Scope, Send

from snapapp.api.http.deps import MonolithDep
from snapapp.api.http.errors import COME_BACK, may_be
from snapapp.api.http.files import media_links
from snapapp.api.http.files.ranges import Part, Unsatisfiable, last_modified, requested_part, status_of_unmet_condition
from snapapp.api.http.routers import Router
from snapapp.api.http.timely import TimelyResponse
from snapapp.process.monolith import Monolith
from snapapp.sources import SourceError
from snapapp.storage import InvalidKey, NotStored, Reader, Storage, StorageError

_log = logging.getLogger(__name__)

T = TypeVar("T")

BLOCK = 256 * 1024  # bytes in memory for one client
SEND_WITHIN = 60.0  # seconds that a client may take for a block
READERS = 8  # threads that read for all clients: a storage that hangs must not block the threads of other routes
WAITING = 500  # requests that may wait for them: a storage that hangs must leave places for requests of other routes

# By our own file name or the probe's result; never by the type that an upload claimed.
TYPES: Mapping[str, str] = {
    "jpg": "image/jpeg",
    "png": "image/png",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "mkv": "video/x-matroska",
    "webm": "video/webm",
    "ts": "video/mp2t",
    "flv": "video/x-flv",
    "avi": "video/x-msvideo",
}
UNKNOWN = "application/octet-stream"

_SAFE = {
    "Accept-Ranges": "bytes",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; media-src 'self'; sandbox",
    "Cross-Origin-Resource-Policy": "cross-origin",  # the link is the permission, so any page may show the file
    "Referrer-Policy": "no-referrer",
}

router = Router(tags=["media"])


# --- the answer -------------------------------------------------------------------------------------------------


def answer(
    storage: Storage,
    key: str,
    request: Request,
    *,
    name: str | None = None,
    kind: str | None = None,
    fresh_for: timedelta = timedelta(0),
) -> Response:
    """The answer with the file of this key, or the range of it that is asked for; 404 if there is none.

    `name` is the file name for saving (by default the key's last part), `kind` a key of TYPES (by default the name's
    ending). `fresh_for` is how long a client may cache the file; 0 if it may be withdrawn. This reads from the storage,
    so call it from a `def` route.
    """
    try:
        file = storage.open(key)
    except (NotStored, InvalidKey):  # not their message, which has the key
        raise HTTPException(404, "Media not found") from None
    name = name or key.rpartition("/")[2]
    return answer_with(file, request, name=name, kind=kind, fresh_for=fresh_for)


def answer_with(
    file: Reader,
    request: Request,
    *,
    name: str,
    kind: str | None = None,
    fresh_for: timedelta = timedelta(0),
    threads: "Threads | None" = None,
) -> Response:
    """The answer with a file that is open already; the file is closed with the answer. `threads` read it."""
    media_type = TYPES.get(kind or PurePosixPath(name).suffix.removeprefix(".").lower(), UNKNOWN)
    try:
        headers = _SAFE | {
            "Content-Type": media_type,
            "Content-Disposition": disposition(name, download=media_type == UNKNOWN),
            "Cache-Control": f"private, max-age={fresh_for.total_seconds():.0f}" if fresh_for else "private, no-cache",
            "ETag": file.stored.etag,
            "Last-Modified": last_modified(file.stored),
        }
        return _answer(file, request, headers, threads or _threads)
    except BaseException:
        file.close()
        raise


async def sent(
    storage: Storage, key: str, request: Request, *, name: str | None = None, kind: str | None = None
) -> Response:
    """`answer` for an `async def` route. It runs in the reading threads, so that a storage that hangs blocks only
    these."""
    return await _begin(partial(answer, storage, key, request, name=name, kind=kind))


async def is_there(storage: Storage, key: str) -> bool:
    return await _begin(partial(storage.exists, key))


async def _begin(act: Callable[[], T]) -> T:
    """Runs the first call for an answer. 503 if too many wait for theirs."""
    if _threads.is_full:
        raise HTTPException(503, "Too many files are being read, try again", COME_BACK)
    return await _threads.run(act)


def _answer(file: Reader, request: Request, headers: dict[str, str], threads: "Threads") -> Response:
    stored = file.stored
    if status := status_of_unmet_condition(request.headers, stored):
        file.close()
        return Response(None, status, headers)
    try:
        part = requested_part(request.headers, stored) if request.method == "GET" else None
    except Unsatisfiable as error:
        raise HTTPException(416, str(error), _SAFE | {"Content-Range": f"bytes */{stored.size}"}) from None
    if part:
        headers |= {"Content-Range": f"bytes {part.start}-{part.stop - 1}/{stored.size}"}
    status, part = (206, part) if part else (200, Part(0, stored.size))
    headers |= {"Content-Length": str(part.stop - part.start)}
    if request.method == "HEAD":
        file.close()
        return Response(None, status, headers)
    return Sending(file, part, status, headers, threads)


def disposition(name: str, *, download: bool) -> str:
    """The Content-Disposition for any file name, also one that contains a path, a second header, or invisible
    characters."""
    name = "".join(each if each.isprintable() and each not in "/\\" else "_" for each in name)[-150:]
    plain = re.sub(r"[^A-Za-z0-9 ._-]", "_", name)
    full = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'{"attachment" if download else "inline"}; filename="{plain}"{full}'


class Sending(TimelyResponse):
    """Sends a range of a file. It ends with the range, when the client disconnects, or when the client reads too
    slowly."""

    def __init__(self, file: Reader, part: Part, status: int, headers: Mapping[str, str], threads: "Threads") -> None:
        what = f"The file {file.stored.key}"
        super().__init__(_blocks(file, part, threads), dict(headers), what=what, send_within=SEND_WITHIN, status=status)
        self._file, self._part, self._threads = file, part, threads

    async def begin(self) -> None:
        """Reads the first block before the headers are sent, so that a failure can still be answered with an error."""
        try:
            await self._threads.run(self._file.seek, self._part.start)
            await self._threads.run(self._file.peek)
        except BaseException:
            self._file.close()
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except (StorageError, SourceError) as error:
            # the headers are sent; by the length the client notices that the rest is missing
            _log.warning("A file was cut: %s: %s", self._file.stored.key, error)
        finally:
            self._file.close()


async def _blocks(file: Reader, part: Part, threads: "Threads") -> AsyncIterator[bytes]:
    left = part.stop - part.start
    await threads.run(file.seek, part.start)
    while left:
        block = await threads.run(file.read, min(BLOCK, left))
        if not block:
            raise StorageError(f"{file.stored.key} ends before its {file.stored.size} bytes")
        left -= len(block)
        yield block


class Threads(Protocol):
    """Threads that run blocking calls."""

    async def run(self, act: Callable[..., T], *arguments: Any) -> T: ...


class _OwnThreads:
    """A limited number of threads."""

    def __init__(self, threads: int) -> None:
        self._limiter = CapacityLimiter(threads)

    @property
    def is_full(self) -> bool:
        return self._limiter.statistics().tasks_waiting >= WAITING

    async def run(self, act: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(act, *arguments, limiter=self._limiter)


_threads = _OwnThreads(READERS)


# --- the route --------------------------------------------------------------------------------------------------

_CONTENT: dict[str, Any] = {media_type: {} for media_type in [*TYPES.values(), UNKNOWN]}
_FILES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file.", "content": _CONTENT},
    206: {"description": "The part of it that `Range` asks for.", "content": _CONTENT},
    304: {"description": "The client has it already."},
}
RESPONSES = _FILES | may_be(
    _404="No such file, or the link was not made here.",
    _410="The link has expired.",
    _412="It is not the file that the condition names.",
    _416="The range starts past the end.",
)


@router.get("/media/{token}/{path:path}", response_class=Response, responses=RESPONSES)
@router.head("/media/{token}/{path:path}", include_in_schema=False)
async def media(
    token: Annotated[str, Path(description="Signed: names the files and when the link ends.")],
    path: Annotated[str, Path(description="The file's name.", examples=["frame_00001.jpg"])],
    request: Request,
    monolith: MonolithDep,
) -> Response:
    """A file of a snap or video. The link is the permission: it works without headers until it expires."""
    # async, so that a storage that hangs blocks only the reading threads
    return await _begin(partial(_answer_to_link, monolith, token, path, request))


_YEAR = timedelta(days=365)  # caches treat a longer time like a year


def _answer_to_link(monolith: Monolith, token: str, path: str, request: Request) -> Response:
    now = datetime.now(UTC)
    prefix, ends = media_links.opened(monolith, token, now)
    return answer(monolith.storage, prefix + path, request, fresh_for=min(ends - now, _YEAR))

"""Stored files over HTTP: one answer for every route that has some, with ranges, and safe for a browser to open. A slow
client keeps an open file and a block of it, never a thread."""

import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import APIRouter, HTTPException, Path, Request, Response
from starlette.types import Receive, Scope, Send

from snapapp.api.http.deps import House
from snapapp.api.http.errors import may_be
from snapapp.api.http.files import media_links
from snapapp.api.http.files.ranges import Part, Unsatisfiable, asked, last_modified, unmet
from snapapp.api.http.timely import TimelyResponse
from snapapp.process.monolith import Monolith
from snapapp.sources import SourceError
from snapapp.storage import InvalidKey, NotStored, Reader, Storage, StorageError

_log = logging.getLogger(__name__)

T = TypeVar("T")

BLOCK = 256 * 1024  # bytes on their way to one client
SEND_WITHIN = 60.0  # seconds that a client may take for a block
READERS = 8  # threads that read for all clients: a storage that hangs must not take those of the other routes

# By the name we gave, or what a probe found: never by what an upload said of itself.
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
    "Cross-Origin-Resource-Policy": "cross-origin",  # the link is the permission, whatever page shows it
    "Referrer-Policy": "no-referrer",
}

router = APIRouter(tags=["media"])


# --- the answer -------------------------------------------------------------------------------------------------


def answer(
    storage: Storage,
    key: str,
    request: Request,
    *,
    name: str | None = None,
    kind: str | None = None,
    download: bool = False,
    fresh_for: timedelta = timedelta(0),
) -> Response:
    """The file with this key, or the part of it that is asked for; 404 where there is none.

    `name` is what a person saves it as (the key's last part), `kind` a key of TYPES (the name's ending). `fresh_for` is
    how long the client need not ask again: nothing for what may be taken back. It reads, so call it from a `def` route.
    """
    try:
        file = storage.open(key)
    except (NotStored, InvalidKey):  # whose message says the key, and that is ours
        raise HTTPException(404, "Media not found") from None
    name = name or key.rpartition("/")[2]
    return answer_with(file, request, name=name, kind=kind, download=download, fresh_for=fresh_for)


def answer_with(
    file: Reader,
    request: Request,
    *,
    name: str,
    kind: str | None = None,
    download: bool = False,
    fresh_for: timedelta = timedelta(0),
    threads: "Threads | None" = None,
) -> Response:
    """The same of a file that is open, and is closed with the answer. `threads` are those that read it."""
    media_type = TYPES.get(kind or PurePosixPath(name).suffix.removeprefix(".").lower(), UNKNOWN)
    try:
        headers = _SAFE | {
            "Content-Type": media_type,
            "Content-Disposition": disposition(name, download=download or media_type == UNKNOWN),
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
    """The same for an `async def` route: a storage that hangs may only ever keep the threads that read."""
    return await _threads.run(partial(answer, storage, key, request, name=name, kind=kind))


async def is_there(storage: Storage, key: str) -> bool:
    return await _threads.run(storage.exists, key)


def _answer(file: Reader, request: Request, headers: dict[str, str], threads: "Threads") -> Response:
    stored = file.stored
    if status := unmet(request.headers, stored):
        file.close()
        return Response(None, status, headers)
    try:
        part = asked(request.headers, stored) if request.method == "GET" else None
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
    """Any name, also one that tries to be a second header, a path, or to look like another in somebody's language."""
    name = "".join(each if each.isprintable() and each not in "/\\" else "_" for each in name)[-150:]
    plain = re.sub(r"[^A-Za-z0-9 ._-]", "_", name)
    full = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'{"attachment" if download else "inline"}; filename="{plain}"{full}'


class Sending(TimelyResponse):
    """Ends with the part, when the client goes, and when it does not take what it is sent."""

    def __init__(self, file: Reader, part: Part, status: int, headers: Mapping[str, str], threads: "Threads") -> None:
        what = f"The file {file.stored.key}"
        super().__init__(_blocks(file, part, threads), dict(headers), what=what, send_within=SEND_WITHIN, status=status)
        self._file, self._part, self._threads = file, part, threads

    async def begin(self) -> None:
        """Reads the first block ahead of the headers: what fails until then can still be an answer."""
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
            # what is out is out; the length tells the client that the rest is missing
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
    """Threads for what may block."""

    async def run(self, act: Callable[..., T], *arguments: Any) -> T: ...


class _OwnThreads:
    """A limited number of threads, counted for each event loop."""

    def __init__(self, name: str, threads: int) -> None:
        self._limiter: RunVar[CapacityLimiter] = RunVar(name)
        self._threads = threads

    async def run(self, act: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(act, *arguments, limiter=self._counted())

    def _counted(self) -> CapacityLimiter:
        try:
            return self._limiter.get()
        except LookupError:
            self._limiter.set(CapacityLimiter(self._threads))
            return self._limiter.get()


_threads = _OwnThreads("media_readers", READERS)


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
    house: House,
) -> Response:
    """A file of a snap or video. The link is the permission: it works without headers until it expires."""
    # async: a storage that hangs may only ever keep the threads that read
    return await _threads.run(_linked, house, token, path, request)


_YEAR = timedelta(days=365)  # a longer one means the same to a cache


def _linked(house: Monolith, token: str, path: str, request: Request) -> Response:
    now = datetime.now(UTC)
    prefix, ends = media_links.opened(house, token, now)
    return answer(house.storage, prefix + path, request, fresh_for=min(ends - now, _YEAR))

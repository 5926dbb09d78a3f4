"""Plays remote videos, through our guard and cache. A remote server may be slow, so only a few threads of their own
wait for such servers, and fewer still for one tenant."""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Annotated, Any, TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, HTTPException, Request, Response

from snapapp.api.http.deps import of_process
from snapapp.api.http.errors import COME_BACK
from snapapp.api.http.files import media
from snapapp.api.http.files.ranges import date_of
from snapapp.domain.tables import Video
from snapapp.process.monolith import Monolith
from snapapp.sources import Limits, Reason, RemoteFile, SourceRefused, SourceUnavailable, open_remote
from snapapp.storage import Reader, Stored

THREADS = 16
THREADS_OF_ONE = 4  # of one tenant: a silent server holds a thread for 15 s
WAITING_OF_ONE = 16  # requests of one tenant that may wait for a thread
BEGIN_WITHIN = 10.0  # seconds that a request may wait for a thread
_BLOCK = 256 * 1024

T = TypeVar("T")


class Playback:
    """The threads for remote videos in this process. Used on the event loop's thread only."""

    def __init__(self) -> None:
        self._shared_places = CapacityLimiter(THREADS)
        self._of: WeakValueDictionary[str, TenantThreads] = WeakValueDictionary()  # of tenants that play something now

    def of(self, tenant: str) -> "TenantThreads":
        threads = self._of.get(tenant) or TenantThreads(self._shared_places)
        self._of[tenant] = threads
        return threads


class TenantThreads:
    """The threads of one tenant. A request takes one of the tenant's places first and then one of the shared ones, so
    that only few requests of a tenant can be in front of another tenant's."""

    def __init__(self, shared_places: CapacityLimiter) -> None:
        self._shared_places = shared_places
        self._own = CapacityLimiter(THREADS_OF_ONE)

    @property
    def is_full(self) -> bool:
        return self._own.statistics().tasks_waiting >= WAITING_OF_ONE

    async def run(self, act: Callable[..., T], *arguments: Any, within: float | None = None) -> T:
        """Runs a call in a thread. Raises TimeoutError if it could not begin `within` seconds."""
        async with AsyncExitStack() as turn:
            async with asyncio.timeout(within):
                await turn.enter_async_context(self._own)
                await turn.enter_async_context(self._shared_places)
            return await to_thread.run_sync(act, *arguments, limiter=CapacityLimiter(1))


async def _playback(request: Request) -> Playback:
    return of_process(request, "playback", Playback)


Played = Annotated[Playback, Depends(_playback)]


async def answer(monolith: Monolith, threads: TenantThreads, video: Video, request: Request, *, kind: str) -> Response:
    """The answer with the requested range, whose first block is read. Raises 502 with the reason if the remote server
    fails, 507 if our disk is full, and 503 if too many of the tenant's requests wait for remote servers."""
    if threads.is_full:
        raise too_many()
    try:
        file = await threads.run(_open_reader, monolith, video, within=BEGIN_WITHIN)
        response = media.answer_with(file, request, name=video.file_name or str(video.id), kind=kind, threads=threads)
        if isinstance(response, media.Sending):
            await response.begin()
    except TimeoutError:
        raise too_many() from None
    except (SourceRefused, SourceUnavailable) as error:
        raise HTTPException(507 if error.reason is Reason.NO_ROOM else 502, str(error)) from None
    return response


def too_many() -> HTTPException:
    return HTTPException(503, "Too many videos are being fetched, try again", COME_BACK)


def _open_reader(monolith: Monolith, video: Video) -> Reader:
    file = open_remote(video.url or "", Limits.of(monolith.settings))
    return Reader(file, _stored(file, video), block=_BLOCK)


def _stored(file: RemoteFile, video: Video) -> Stored:
    """The file's description for our headers, made from the remote server's headers, which are not passed on
    unchanged."""
    tag = hashlib.sha256(f"{file.etag}:{file.last_modified}:{file.size}".encode()).hexdigest()[:32]
    return Stored(video.url or "", file.size, f'"{tag}"', date_of(file.last_modified) or video.created_at)

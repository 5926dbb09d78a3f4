"""Remote videos for a player, through our guard and cache. Somebody else's server sets the pace, so few threads wait
for it, never those that everything else needs, and fewer still for one tenant."""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Annotated, Any, TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, HTTPException, Request, Response

from snapapp.api.http.files import media
from snapapp.api.http.files.ranges import date_of
from snapapp.domain.tables import Video
from snapapp.process.monolith import Monolith
from snapapp.sources import Limits, Reason, RemoteFile, SourceRefused, SourceUnavailable, open_remote
from snapapp.storage import Reader, Stored

THREADS = 16
THREADS_OF_ONE = 4  # of one tenant: a silent server keeps each for 15 s
WAITING_OF_ONE = 16  # requests of one tenant that wait for one of them
BEGIN_WITHIN = 10.0  # seconds that a request waits for its first turn
_BLOCK = 256 * 1024

T = TypeVar("T")


class Playback:
    """One a process, made by the first who plays. All of it is touched on the event loop's thread only."""

    def __init__(self) -> None:
        self._everybodys = CapacityLimiter(THREADS)
        self._of: WeakValueDictionary[str, TenantThreads] = WeakValueDictionary()  # tenants that play something

    def of(self, tenant: str) -> "TenantThreads":
        threads = self._of.get(tenant) or TenantThreads(self._everybodys)
        self._of[tenant] = threads
        return threads


class TenantThreads:
    """Takes one of the tenant's places first, then one of everybody's: so only few of a tenant's requests ever wait
    before another tenant's."""

    def __init__(self, everybodys: CapacityLimiter) -> None:
        self._everybodys = everybodys
        self._own = CapacityLimiter(THREADS_OF_ONE)

    @property
    def is_full(self) -> bool:
        return self._own.statistics().tasks_waiting >= WAITING_OF_ONE

    async def run(self, act: Callable[..., T], *arguments: Any, within: float | None = None) -> T:
        """`within` is how long it may take until it begins; TimeoutError says that it has not."""
        async with AsyncExitStack() as turn:
            async with asyncio.timeout(within):
                await turn.enter_async_context(self._own)
                await turn.enter_async_context(self._everybodys)
            return await to_thread.run_sync(act, *arguments, limiter=CapacityLimiter(1))


async def _playback(request: Request) -> Playback:
    state = request.app.state
    if not hasattr(state, "playback"):
        state.playback = Playback()
    playback: Playback = state.playback
    return playback


Played = Annotated[Playback, Depends(_playback)]


async def answer(house: Monolith, threads: TenantThreads, video: Video, request: Request, *, kind: str) -> Response:
    """The part that is asked for, begun; 502 with the reason where the other server does not give it, 507 where our
    disk has no room for it, and 503 where too many of the tenant's requests wait for such servers already."""
    if threads.is_full:
        raise too_many()
    try:
        file = await threads.run(_opened, house, video, within=BEGIN_WITHIN)
        found = media.answer_with(file, request, name=video.file_name or str(video.id), kind=kind, threads=threads)
        if isinstance(found, media.Sending):
            await found.begin()
    except TimeoutError:
        raise too_many() from None
    except (SourceRefused, SourceUnavailable) as error:
        raise HTTPException(507 if error.reason is Reason.NO_ROOM else 502, str(error)) from None
    return found


def too_many() -> HTTPException:
    return HTTPException(503, "Too many videos are being fetched, try again", {"Retry-After": "5"})


def _opened(house: Monolith, video: Video) -> Reader:
    file = open_remote(video.url or "", Limits.of(house.settings))
    return Reader(file, _stored(file, video), block=_BLOCK)


def _stored(file: RemoteFile, video: Video) -> Stored:
    """What the other server says of the file, checked: its headers are not passed on as they are."""
    tag = hashlib.sha256(f"{file.etag}:{file.last_modified}:{file.size}".encode()).hexdigest()[:32]
    return Stored(video.url or "", file.size, f'"{tag}"', date_of(file.last_modified) or video.created_at)

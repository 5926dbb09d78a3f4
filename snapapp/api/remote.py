"""Remote videos for a player, through our guard and cache. Somebody else's server sets the pace, so few threads wait
for it, and never those that everything else needs."""

import hashlib

from anyio import to_thread
from fastapi import HTTPException, Request, Response

from snapapp.api import media
from snapapp.api.ranges import date_of
from snapapp.monolith import Monolith
from snapapp.sources import Limits, RemoteFile, SourceRefused, SourceUnavailable, open_remote
from snapapp.storage import Reader, Stored
from snapapp.videos import Video

READERS = 4  # threads
_WAITING_MAX = 16  # requests that wait for one of them
_BLOCK = 256 * 1024
_turns = media.Turns("remote_readers", READERS)


async def answer(house: Monolith, video: Video, request: Request, *, kind: str) -> Response:
    """The part that is asked for; 502 with the reason where the other server does not give it."""
    turns = _turns()
    if turns.statistics().tasks_waiting >= _WAITING_MAX:
        raise HTTPException(503, "Too many videos are being fetched, try again", {"Retry-After": "5"})
    try:
        file = await to_thread.run_sync(_opened, house, video, limiter=turns)
    except (SourceRefused, SourceUnavailable) as error:
        raise HTTPException(502, str(error)) from None
    return media.answer_with(file, request, name=video.file_name or str(video.id), kind=kind, turns=turns)


def _opened(house: Monolith, video: Video) -> Reader:
    file = open_remote(video.url or "", Limits.of(house.settings))
    return Reader(file, _stored(file, video), block=_BLOCK)


def _stored(file: RemoteFile, video: Video) -> Stored:
    """As its server names it, in words of ours: what it says is nothing to be handed on as it is."""
    tag = hashlib.sha256(f"{file.etag}:{file.last_modified}:{file.size}".encode()).hexdigest()[:32]
    return Stored(video.url or "", file.size, f'"{tag}"', date_of(file.last_modified) or video.created_at)

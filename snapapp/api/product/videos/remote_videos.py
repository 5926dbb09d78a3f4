"""POST /v2/videos/remote: adds a video on another server, after looking at its first bytes there."""

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from fastapi import HTTPException
from starlette.concurrency import run_in_threadpool

from snapapp.api.http.deps import MonolithDep, RequestId
from snapapp.api.http.errors import may_be
from snapapp.api.http.files.upload_parser import NO_VIDEO, looks_like_a_video
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Stripped
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.http.tenancy import Begins, Code
from snapapp.api.product.lenient import LenientBody
from snapapp.api.product.snap_schema import VideoUrl
from snapapp.api.product.snaps import refuse_without_room
from snapapp.api.product.videos.remote_playback import BEGIN_WITHIN, Played, too_many
from snapapp.api.product.videos.videos import VideoShown
from snapapp.domain import videos
from snapapp.process.monolith import Monolith
from snapapp.processing.queue import QUEUE
from snapapp.sources import Limits, SourceRefused, SourceUnavailable, beginning

router = Router(prefix="/v2/videos/remote", tags=["videos"], route_class=StrictRoute)

_BEGINNING = 1024  # bytes, by which `looks_like_a_video` decides
_WITHIN = timedelta(seconds=15)  # short, because a person waits for the answer and playback for the thread


class RemoteVideo(LenientBody):
    """The address of a remote video."""

    video_url: Annotated[VideoUrl, Stripped]


@router.post(
    "",
    responses=may_be(
        _400="The address cannot be fetched, or has no video; the message says why.",
        _502="The other server does not answer as it should; the message says how.",
        _503="Too many videos of the tenant are being fetched.",
        _507="The disk is nearly full: no new work is taken.",
    ),
)
async def name_video(
    monolith: MonolithDep, code: Code, begin: Begins, playback: Played, wanted: RemoteVideo, request_id: RequestId
) -> VideoShown:
    """Adds a video by its address, without copying it. A job probes it. The same address sent twice is one video."""
    refuse_without_room(monolith)
    # async, because the remote server may be slow; remote videos have threads of their own
    threads = playback.of(code)
    if threads.is_full:
        raise too_many()
    try:
        first_bytes = await threads.run(_beginning, monolith, wanted.video_url, within=BEGIN_WITHIN)
    except TimeoutError:
        raise too_many() from None
    except SourceRefused as error:
        raise HTTPException(400, str(error)) from None
    except SourceUnavailable as error:
        raise HTTPException(502, str(error)) from None
    if not looks_like_a_video(first_bytes):
        raise HTTPException(400, NO_VIDEO)
    return VideoShown.of(await run_in_threadpool(videos.add_remote, begin, QUEUE, wanted.video_url, request_id))


def _beginning(monolith: Monolith, url: str) -> bytes:
    limits = Limits.of(monolith.settings)
    return beginning(url, replace(limits, timeout=min(limits.timeout, _WITHIN)), _BEGINNING)

"""POST /v2/videos: a file goes to storage as it arrives, counted and hashed on the way; memory does not grow."""

from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

from fastapi import APIRouter, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from snapapp import videos
from snapapp.api.deps import House, RequestId
from snapapp.api.errors import may_be
from snapapp.api.incoming import Incoming, looks_like_a_video
from snapapp.api.tenancy import Claim, Claimed, Visit, code_of, visiting
from snapapp.api.videos import VideoShown
from snapapp.jobs import enqueue
from snapapp.monolith import Monolith
from snapapp.processing import orders
from snapapp.storage import NoRoom, Received, StorageError, Upload, UploadTooLarge, keys
from snapapp.videos import Video

router = APIRouter(prefix="/v2/videos", tags=["videos"])

MB = 1024 * 1024

_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file itself, with its name in `X-File-Name`; or a form with one file in it.",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
        },
    },
    "parameters": [
        {
            "name": "X-File-Name",
            "in": "header",
            "required": False,
            "description": "What people call the file, URL-encoded.",
            "schema": {"type": "string", "maxLength": 1000, "pattern": "^[ -~]*$", "examples": ["brete-7.mp4"]},
        }
    ],
}
_RESPONSES = {
    200: {"model": VideoShown, "description": "The tenant has this file already: here it is."},
} | may_be(
    _400="It is empty, ends too early, or is no mp4, mov, mkv or webm.",
    _413="It is larger than `SNAPAPP_UPLOAD_MAX_MB`.",
    _507="The disk is nearly full.",
)


@router.post("", status_code=201, responses=_RESPONSES, openapi_extra=_BODY)
async def upload_video(
    house: House, claim: Claimed, request: Request, request_id: RequestId, response: Response
) -> VideoShown:
    """Takes a video. What it holds is found out by a job; the same file sent twice is kept once. Async, because it
    lasts as long as the client's line needs."""
    code = await run_in_threadpool(code_of, house, claim)
    incoming = Incoming(request)
    video_id = uuid4()
    try:
        received = await _received(house, keys.of_video(code, video_id) + "source", incoming, request)
    except (UploadTooLarge, NoRoom, HTTPException) as error:  # the rest of the body is not read
        raise _cut_short(error) from error
    except ClientDisconnect:
        raise HTTPException(400, "The upload ended too early") from None
    video = await run_in_threadpool(_keep, house, claim, video_id, received, incoming.name, request_id)
    response.status_code = 201 if video.id == video_id else 200
    response.headers["Location"] = f"{router.prefix}/{video.id}"
    return VideoShown.of(video)


async def _received(house: Monolith, key: str, incoming: Incoming, request: Request) -> Received:
    upload = await run_in_threadpool(_begun, house, key, request)
    try:
        async for piece in incoming.pieces():
            if not upload.size and not looks_like_a_video(piece):
                raise HTTPException(400, "The file is no video that can be used: send mp4, mov, mkv or webm")
            await run_in_threadpool(upload.write, piece)
        if not upload.size:
            raise HTTPException(400, "The upload is empty")
        return await run_in_threadpool(upload.finish)
    finally:
        await run_in_threadpool(upload.abort)  # after `finish` there is nothing left to remove


def _begun(house: Monolith, key: str, request: Request) -> Upload:
    length = request.headers.get("Content-Length", "")
    return house.storage.upload(
        key, max_bytes=house.settings.upload_max_mb * MB, announced=int(length) if length.isdigit() else None
    )


def _cut_short(error: Exception) -> HTTPException:
    status = {UploadTooLarge: 413, NoRoom: 507}.get(type(error), 400)
    if isinstance(error, HTTPException):
        return HTTPException(error.status_code, error.detail, {"Connection": "close"})
    return HTTPException(status, str(error), {"Connection": "close"})


def _keep(
    house: Monolith, claim: Claim, video_id: UUID, received: Received, name: str | None, request_id: str
) -> Video:
    """The bytes are there; now somebody knows of them. Should that be refused they are nobody's, and go again. Whether
    a commit that nobody heard of took place is not known here: then they stay, and the sweep finds out."""
    kept: Video | None = None
    try:
        with visiting(house, claim) as visit:
            upload = videos.Upload(
                id=video_id,
                storage_key=received.key,
                size_bytes=received.size,
                sha256=received.sha256,
                file_name=name,
            )
            with visit.as_tenant():
                video = videos.add_upload(visit.connection, visit.code, upload)
            if video.id == video_id:
                _order_probe(visit, video, request_id)
            kept = video
    finally:
        if kept is None:
            _delete(house, received.key)
    if kept.id != video_id:
        _hand_over(house, claim, kept, received.key, request_id)
    return kept


def _hand_over(house: Monolith, claim: Claim, kept: Video, key: str, request_id: str) -> None:
    """The tenant has these bytes under another key. Where that one lost them, these take their place."""
    assert kept.storage_key
    try:
        was_lost = not house.storage.exists(kept.storage_key)
        if was_lost:
            with house.storage.open(key) as file:
                house.storage.put(kept.storage_key, file)
    finally:
        _delete(house, key)
    if was_lost or kept.probe is None:
        with visiting(house, claim) as visit:
            _order_probe(visit, kept, request_id)


def _order_probe(visit: Visit, video: Video, request_id: str) -> None:
    order, name = orders.of_video(video), str(video.id)
    enqueue(visit.connection, orders.PROBE, order, tenant=visit.code, unique_key=name, request_id=request_id)


def _delete(house: Monolith, key: str) -> None:
    with suppress(StorageError):  # the sweeper comes by as well
        house.storage.delete(key)

"""POST /v2/videos: stores a file while it arrives, counted and hashed on the way, so that memory does not grow."""

from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

from fastapi import HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from snapapp.api.http.deps import MonolithDep, RequestId
from snapapp.api.http.errors import may_be, status_of
from snapapp.api.http.files.upload_parser import NO_VIDEO, Incoming, looks_like_a_video
from snapapp.api.http.routers import Router
from snapapp.api.http.tenancy import Begins
from snapapp.api.product.videos.videos import VideoShown
from snapapp.domain import storage_use, videos
from snapapp.domain.tables import Video
from snapapp.domain.transactions import Begin
from snapapp.errors import StorageUsedUp
from snapapp.jobs.rows.database import is_away
from snapapp.process.monolith import Monolith
from snapapp.processing.queue import QUEUE
from snapapp.storage import NoRoom, Received, StorageError, Upload, UploadTooLarge, keys

router = Router(prefix="/v2/videos", tags=["videos"])

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
    200: {"model": VideoShown, "description": "The tenant already has a video of the same bytes, which is returned."},
} | may_be(
    _400="It is empty, ends too early, or is no mp4, mov, mkv, webm, ts, flv or avi.",
    _413="It is larger than `SNAPAPP_UPLOAD_MAX_MB`.",
    _507="The disk is nearly full, or the tenant's storage is used up.",
)


@router.post("", status_code=201, responses=_RESPONSES, openapi_extra=_BODY)
async def upload_video(
    monolith: MonolithDep, begin: Begins, request: Request, request_id: RequestId, response: Response
) -> VideoShown:
    """Uploads a video. A job probes it. The same file sent twice is kept once."""
    # async, because it lasts as long as the client needs to send
    incoming = Incoming(request)
    video_id = uuid4()
    try:
        upload = await run_in_threadpool(_begin_upload, monolith, begin, video_id, request)
        received = await _receive(upload, incoming)
    except (UploadTooLarge, NoRoom, StorageUsedUp, HTTPException) as error:  # the rest of the body is not read
        raise closing_refusal(error) from error
    except ClientDisconnect:
        raise HTTPException(400, "The upload ended too early") from None
    video = await run_in_threadpool(_keep, monolith, begin, video_id, received, incoming.name, request_id)
    response.status_code = 201 if video.id == video_id else 200
    response.headers["Location"] = f"{router.prefix}/{video.id}"
    return VideoShown.of(video)


async def _receive(upload: Upload, incoming: Incoming) -> Received:
    try:
        async for piece in incoming.pieces():
            if not upload.size and not looks_like_a_video(piece):
                raise HTTPException(400, NO_VIDEO)
            await run_in_threadpool(upload.write, piece)
        if not upload.size:
            raise HTTPException(400, "The upload is empty")
        return await run_in_threadpool(upload.finish)
    finally:
        await run_in_threadpool(upload.abort)  # does nothing after `finish`


def _begin_upload(monolith: Monolith, begin: Begin, video_id: UUID, request: Request) -> Upload:
    length = request.headers.get("Content-Length", "")
    announced = int(length) if length.isdigit() else None
    max_mb = monolith.settings.upload_max_mb
    if announced is not None and announced > max_mb * storage_use.MB:
        raise UploadTooLarge(max_mb * storage_use.MB)
    with begin() as transaction, transaction.as_tenant() as db:
        code, most = transaction.code, monolith.settings.tenant_storage_max_mb
        storage_use.require(db, code, most, announced or 1)
    key = keys.of_video(code, video_id) + "source"
    return monolith.storage.upload(key, max_bytes=max_mb * storage_use.MB, announced=announced)


def closing_refusal(error: Exception) -> HTTPException:
    if isinstance(error, HTTPException):
        return HTTPException(error.status_code, error.detail, {**(error.headers or {}), "Connection": "close"})
    return HTTPException(status_of(error) or 400, str(error), {"Connection": "close"})


def _keep(
    monolith: Monolith, begin: Begin, video_id: UUID, received: Received, name: str | None, request_id: str
) -> Video:
    """Adds the row for stored bytes. If the row is refused, the bytes are deleted. If the database's answer to the
    commit was lost, the row may exist: then the bytes stay, and the sweep decides later."""
    try:
        return keep_stored(monolith, begin, video_id, received, name, request_id)
    except Exception as error:
        if not is_away(error):
            delete(monolith, received.key)
        raise


def keep_stored(
    monolith: Monolith, begin: Begin, video_id: UUID, received: Received, name: str | None, request_id: str
) -> Video:
    """The video of stored bytes: a new row, or the tenant's video that has the same bytes."""
    upload = videos.Upload(
        id=video_id, storage_key=received.key, size_bytes=received.size, sha256=received.sha256, file_name=name
    )
    kept = videos.keep(begin, QUEUE, upload, request_id, max_mb=monolith.settings.tenant_storage_max_mb)
    if kept.id != video_id:
        _hand_over(monolith, begin, kept, received.key, request_id)
    return kept


def _hand_over(monolith: Monolith, begin: Begin, kept: Video, key: str, request_id: str) -> None:
    """Handles bytes that the tenant already has under another key: deletes the new copy, after restoring the old one
    from it if that was lost."""
    assert kept.storage_key
    try:
        was_lost = not monolith.storage.exists(kept.storage_key)
        if was_lost:
            with monolith.storage.open(key) as file:
                monolith.storage.put(kept.storage_key, file)
    finally:
        delete(monolith, key)
    if was_lost or kept.probe is None:
        videos.probe_again(begin, QUEUE, kept, request_id)


def delete(monolith: Monolith, key: str) -> None:
    with suppress(StorageError):  # the sweep would delete it too
        monolith.storage.delete(key)

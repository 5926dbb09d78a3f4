"""/v2/videos: lists and shows videos, their snaps, their bytes for a player, and stills for stepping through them."""

from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from snapapp.api.http.deps import MonolithDep, RequestId
from snapapp.api.http.errors import may_be
from snapapp.api.http.files import media
from snapapp.api.http.lenient_query import LenientRoute
from snapapp.api.http.paging import Listed, listed, windows
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Decimals, Label, Shown
from snapapp.api.http.tenancy import Begins, Own, Presented, begun
from snapapp.api.product.job_waiting import WaitingDep, is_worked
from snapapp.api.product.snap_views import ProbeShown, VideoSnapList, lines_of
from snapapp.api.product.snaps import refuse_without_room
from snapapp.api.product.urls import Placed
from snapapp.api.product.videos import remote_playback
from snapapp.api.product.videos.remote_playback import Played
from snapapp.domain import kinds, payloads, storage_use, videos
from snapapp.domain.finding import search
from snapapp.domain.finding.paging import Window
from snapapp.domain.tables import Video
from snapapp.errors import error_for_client
from snapapp.jobs import enqueue
from snapapp.jobs.model import Status
from snapapp.jobs.rows.people import views
from snapapp.postgres.database import scope
from snapapp.process.monolith import Monolith
from snapapp.processing.queue import QUEUE
from snapapp.storage import keys

router = Router(prefix="/v2/videos", tags=["videos"], route_class=LenientRoute)

_URGENT = 100  # priority of previews and stills, for which a person waits
_RETRY_AFTER = timedelta(hours=1)  # after this a failed copy may be tried again, because a remote server may be back

VideoId = Annotated[UUID, Path(description="The video's id.")]
NO_VIDEO = may_be(_404="The tenant has no such video.")


# --- lists and descriptions -------------------------------------------------------------------------------------


class VideoShown(Shown):
    """A video, named by a URL or uploaded."""

    video_id: UUID
    video_url: str | None = Field(examples=["https://videos.example/brete-7.mp4"])
    is_upload: bool
    file_name: str | None = Field(examples=["brete-7.mp4"])
    size_bytes: int | None = Field(examples=[7340032])
    sha256: str | None
    content_path: str = Field(description="The address of the bytes for a player, which takes ranges.")
    video_probe: ProbeShown | None = Field(description="Null until a job has probed it.")
    operator_id: int | None = Field(
        description="The operator who added it. Null: the tenant's token did, and no `operator` may delete it.",
        examples=[7],
    )
    created_at: datetime

    @classmethod
    def of(cls, video: Video) -> "VideoShown":
        return cls(
            video_id=video.id,
            video_url=video.url,
            is_upload=video.is_upload,
            file_name=video.file_name,
            size_bytes=video.size_bytes,
            sha256=video.sha256,
            content_path=f"{router.prefix}/{video.id}/content",
            video_probe=ProbeShown.model_validate(video.probe) if video.probe else None,
            operator_id=video.created_by,
            created_at=video.created_at,
        )


class VideoList(Listed):
    """Videos, page by page."""

    items: list[VideoShown]


class MyVideo(Shown):
    """A video in which one person marked snaps."""

    video_id: UUID
    video_url: str | None
    snap_count: int = Field(examples=[12])
    latest_snap_id: UUID
    latest_snap_created_at: datetime


class MyVideoList(Listed):
    """The videos in which one person marked snaps."""

    nickname: str = Field(examples=["ana"])
    items: list[MyVideo]


@router.get("")
def list_videos(
    own: Own,
    page: Annotated[Window, Depends(windows(*videos.ORDER.columns))],
    q: Annotated[
        Label | None, Query(description="A part of the file name or URL, in any case.", examples=["brete"])
    ] = None,
) -> VideoList:
    """The videos of the tenant, newest first."""
    matches = videos.page(own.db, own.code, page, q=q)
    return VideoList(**listed(matches, [VideoShown.of(video) for video in matches.items]))


@router.get("/mine")
def list_my_videos(
    own: Own,
    page: Annotated[Window, Depends(windows("latestSnapCreatedAt", "snapCount", "videoUrl"))],
    nickname: Annotated[Label, Query(description="Who marked snaps in them, in any case.", examples=["ana"])],
) -> MyVideoList:
    """The videos in which one person marked snaps; the video marked last comes first."""
    matches = search.videos_mine(own.db, own.code, nickname, page)
    items = [MyVideo.model_validate(each) for each in matches.items]
    return MyVideoList(**listed(matches, items), nickname=nickname)


class StorageUseShown(Shown):
    """How much storage the tenant uses. Stills and copies for browsers do not count."""

    used_bytes: int = Field(examples=[7_840_032])
    video_bytes: int = Field(description="Bytes of uploads.", examples=[7_340_032])
    snap_bytes: int = Field(description="Bytes of frames, clips and other files of snaps.", examples=[500_000])
    max_bytes: int | None = Field(
        description="The limit, beyond which uploads are refused; null: no limit.", examples=[1_073_741_824]
    )


@router.get("/storage")
def show_storage(own: Own, monolith: MonolithDep) -> StorageUseShown:
    """How much of the storage the tenant uses, and how much it may: `SNAPAPP_TENANT_STORAGE_MAX_MB`."""
    use, max_mb = storage_use.of(own.db, own.code), monolith.settings.tenant_storage_max_mb
    return StorageUseShown(
        used_bytes=use.used_bytes,
        video_bytes=use.video_bytes,
        snap_bytes=use.snap_bytes,
        max_bytes=max_mb and max_mb * storage_use.MB,
    )


@router.get("/{video_id}", responses=NO_VIDEO)
def show_video(own: Own, video_id: VideoId) -> VideoShown:
    """One video."""
    return VideoShown.of(videos.read(own.db, own.code, video_id))


@router.delete(
    "/{video_id}",
    status_code=204,
    responses=NO_VIDEO
    | may_be(_409="The video has snaps. If one of them was ever shared, it cannot be deleted at all."),
)
def remove_video(begin: Begins, video_id: VideoId, request_id: RequestId) -> None:
    """Deletes a video, and its files a minute later. Its snaps must be deleted first."""
    videos.remove(begin, QUEUE, video_id, request_id)


_BY_MOMENT = windows(*search.BY_MOMENT.columns, direction=search.BY_MOMENT.default_dir)


@router.get("/{video_id}/snaps")
def list_snaps_of_video(
    own: Own,
    places: Placed,
    video_id: VideoId,
    page: Annotated[Window, Depends(_BY_MOMENT)],
    nickname: Annotated[Label | None, Query(description="Only snaps that this person marked, in any case.")] = None,
) -> VideoSnapList:
    """The snaps of a video, in the order of their moments. The list is empty if there is no such video."""
    matches = search.of_video(own.db, own.code, video_id, page, nickname=nickname)
    return VideoSnapList(**listed(matches, lines_of(matches.items, places)), video_id=video_id)


# --- its bytes --------------------------------------------------------------------------------------------------


def _read_video(monolith: MonolithDep, credentials: Presented, video_id: VideoId) -> tuple[str, Video]:
    """The tenant's code and the video, read in a transaction that ends at once, so that a slow client does not keep one
    open."""
    with begun(monolith, credentials) as transaction, transaction.as_tenant() as db:
        return transaction.code, videos.read(db, transaction.code, video_id)


Found = Annotated[tuple[str, Video], Depends(_read_video)]


class Making(Shown):
    """The file is being made; ask again in `Retry-After` seconds."""

    message: str = Field(examples=["The preview is being made, ask again"])
    job_id: int = Field(examples=[42])


_BEING_MADE: dict[int | str, dict[str, Any]] = {
    202: {"model": Making, "description": "The file is being made; ask again in `Retry-After` seconds."},
    **may_be(_507="The disk is nearly full, or the tenant's storage is used up: no new work is taken."),
}
_CONTENT = (
    media.RESPONSES
    | NO_VIDEO
    | _BEING_MADE
    | may_be(
        _400="No copy can be made of it; the message says why.",
        _502="The remote server fails; the message says why.",
        _503="Too many videos of the tenant are being fetched.",
        _507="The disk is full, or nearly, or the tenant's storage is used up; the message says which.",
    )
)


@router.get("/{video_id}/content", response_class=Response, responses=_CONTENT)
@router.head("/{video_id}/content", include_in_schema=False)
async def show_content(
    monolith: MonolithDep,
    found: Found,
    playback: Played,
    request: Request,
    request_id: RequestId,
    preview: Annotated[
        bool | None,
        Query(description="Whether to send a copy that every browser plays; by default if the video itself does not."),
    ] = None,
) -> Response:
    """The video for a player, in ranges. A copy has the timestamps of the original. It is made when it is first asked
    for; until it is ready the answer is 202 with `Retry-After`."""
    # async, because remote videos have threads of their own
    code, video = found
    wants_copy = (
        preview if preview is not None else bool(video.probe and not video.probe.get("plays_in_browsers", True))
    )
    if wants_copy:
        return await _copy(monolith, code, video, request, request_id)
    if video.storage_key:
        return await media.sent(monolith.storage, video.storage_key, request, name=video.file_name, kind=kind_of(video))
    return await remote_playback.answer(monolith, playback.of(code), video, request, kind=kind_of(video))


_BY_FORMAT = {"mpegts": "ts", "flv": "flv", "avi": "avi"}


def kind_of(video: Video) -> str:
    """The video's key in media.TYPES, by the probe, or before that by the name; always one of a video."""
    container_format = str((video.probe or {}).get("container_format") or "")
    name = (video.file_name or video.url or "").partition("?")[0].lower()
    if "matroska" in container_format:
        return "webm" if name.endswith(".webm") else "mkv"
    if container_format in _BY_FORMAT:
        return _BY_FORMAT[container_format]
    return next((kind for kind in ("mov", "webm", "mkv") if name.endswith(f".{kind}")), "mp4")


async def _copy(monolith: Monolith, code: str, video: Video, request: Request, request_id: str) -> Response:
    key = keys.of_preview(code, video.id)
    if await media.is_there(monolith.storage, key):
        return await media.sent(monolith.storage, key, request)
    await run_in_threadpool(_refuse_if_failed_lately, monolith, code, video)
    await run_in_threadpool(_refuse_beyond_storage, monolith, code)
    payload = payloads.of_preview(video, key)
    job_id = await run_in_threadpool(_start, monolith, code, kinds.PREVIEW, payload, str(video.id), request_id)
    return _making("preview", job_id)


def _refuse_if_failed_lately(monolith: Monolith, code: str, video: Video) -> None:
    """Refuses a copy that failed lately: a player asks every few seconds, and must not start a job each time."""
    if video.probe and video.probe.get("compatible") is False:
        raise HTTPException(400, error_for_client(video.probe.get("reason")) or "The video cannot be used")
    with monolith.web.connect() as connection:
        why = views.failure(connection, kinds.PREVIEW, code, str(video.id), _RETRY_AFTER)
    if why:
        raise HTTPException(400, error_for_client(why))


def _refuse_beyond_storage(monolith: Monolith, code: str) -> None:
    if monolith.settings.tenant_storage_max_mb is not None:
        with monolith.web.begin() as connection, scope(connection, code) as own:
            storage_use.require(own, code, monolith.settings.tenant_storage_max_mb, 1)


def _start(monolith: Monolith, code: str, kind: str, payload: dict[str, Any], unique_key: str, request_id: str) -> int:
    """Enqueues the job that makes a file, or finds the one that does already; returns its id."""
    refuse_without_room(monolith)
    with monolith.web.begin() as connection:
        job_id = enqueue(
            connection,
            kind,
            payload,
            priority=_URGENT,
            tenant=code,
            unique_key=unique_key,
            request_id=request_id,
        )
    assert job_id  # only `ignore` gives none
    return job_id


def _making(what: str, job_id: int) -> JSONResponse:
    making = Making(message=f"The {what} is being made, ask again", job_id=job_id)
    return JSONResponse(making.model_dump(by_alias=True), 202, {"Retry-After": "3", "Cache-Control": "no-store"})


# --- a still ----------------------------------------------------------------------------------------------------

_PATIENCE = timedelta(seconds=20)
_STILL: dict[int | str, dict[str, Any]] = {200: {"description": "The still.", "content": {"image/jpeg": {}}}}


@router.get(
    "/{video_id}/frame",
    response_class=Response,
    responses=_STILL | NO_VIDEO | _BEING_MADE | may_be(_400="The video has no such moment; the message says why."),
)
async def show_still(
    monolith: MonolithDep,
    found: Found,
    waiting: WaitingDep,
    request: Request,
    request_id: RequestId,
    at: Annotated[
        float,
        Query(ge=0, le=1e7, allow_inf_nan=False, description="The moment, in seconds.", examples=[12.48]),
        Decimals,
    ],
) -> Response:
    """The picture that the video shows at a moment. A job takes it, so the first request may take a second."""
    # async, because it waits for the job and must not hold a thread
    code, video = found
    # as exactly as the frames of a snap tell their times, each of which is a frame's beginning
    microseconds = round(at * 1_000_000)
    key = keys.of_still(code, video.id, microseconds)
    if not await media.is_there(monolith.storage, key):
        payload, unique_key = payloads.of_still(video, microseconds / 1_000_000, key), f"{video.id}:{microseconds}"
        job_id = await run_in_threadpool(_start, monolith, code, kinds.STILL, payload, unique_key, request_id)
        if await run_in_threadpool(is_worked, monolith, kinds.STILL):
            await waiting.wait(job_id, min(_PATIENCE, monolith.settings.sync_wait))
        if not await media.is_there(monolith.storage, key):
            await run_in_threadpool(_refuse_if_failed, monolith, job_id)
            return _making("still", job_id)
    return await media.sent(monolith.storage, key, request)


def _refuse_if_failed(monolith: Monolith, job_id: int) -> None:
    with monolith.web.connect() as connection:
        failed = [job for job in views.lines(connection, [job_id]) if job.status is Status.FAILED]
    if failed:
        raise HTTPException(400, error_for_client(failed[0].last_error))

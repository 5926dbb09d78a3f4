"""/v1/video-frames: frames of up to ten moments in one request, for clients of the first version. They are no snaps: no
list has them, and their files are deleted after a day or two."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import Body
from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool

from snapapp.api.http.deps import MonolithDep, RequestId
from snapapp.api.http.errors import may_be, reasons
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Shown
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.http.tenancy import Credentials, Presented, code_of
from snapapp.api.product.job_waiting import Waiting, WaitingDep, is_worked
from snapapp.api.product.snap_schema import EXAMPLE, FramesRequest, ReadableParts
from snapapp.api.product.snap_views import (
    ClipShown,
    Filmed,
    FrameShown,
    ProbeShown,
    SubjectShown,
    clip_of,
    frame_of,
    hashes_of,
    subject_of,
)
from snapapp.api.product.snaps import refuse_without_room, subject_meant
from snapapp.api.product.urls import signed
from snapapp.domain import kinds, payloads
from snapapp.errors import error_for_client
from snapapp.jobs import enqueue_many
from snapapp.jobs.errors import IllegalTransition, UnknownJob
from snapapp.jobs.model import Status as JobStatus
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.people import views
from snapapp.jobs.rows.people.views import JobDetail
from snapapp.process.monolith import Monolith
from snapapp.storage import keys

router = Router(prefix="/v1/video-frames", tags=["frames"], route_class=StrictRoute)

ITEMS_MAX = 10

_NOBODY = "There is no worker that takes frames at the moment: ask again later"
_LEAVING = "The server is being restarted: ask again"
_DELETED = "Its job was deleted before it was read: ask again"


class BatchStatus(StrEnum):
    COMPLETED = "COMPLETED"
    PARTIAL = "PARTIAL"  # some items failed
    FAILED = "FAILED"  # all items failed


class ItemStatus(StrEnum):
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class ItemShown(Shown):
    """The result of one item. For an invalid item it has the fields that could be read."""

    item_index: int = Field(description="Its place in the request, from 0.")
    status: ItemStatus
    data_filmagem: Filmed | None = None
    subject: SubjectShown | None = None
    video_url: str | None = None
    start_seconds: float | None = Field(default=None, examples=[12.48])
    start_frame: int | None = None
    resolved_start_seconds: float | None = Field(
        default=None, description="The moment as it was used.", examples=[12.48]
    )
    video_probe: ProbeShown | None = None
    output_dir: str | None = Field(
        default=None, description="The prefix of its files in our storage; not a path on a disk."
    )
    snapshot_video: ClipShown | None = None
    frame_count: int = Field(default=0, examples=[5])
    frames: list[FrameShown] = Field(default=[])
    error: str | None = Field(default=None, description="Why it failed.")


class Batch(Shown):
    """The results of all items."""

    request_id: UUID
    status: BatchStatus
    tmp_base_dir: str = Field(examples=["frames/"])
    request_dir: str = Field(examples=["frames/0f8fad5b-d9cb-469f-a165-70867728950e/"])
    processed_at: datetime
    filmagens: list[ItemShown]


# An invalid item must fail alone, so the schema takes anything and the description says what an item should be.
Items = Annotated[
    list[Any],
    Body(
        min_length=1,
        max_length=ITEMS_MAX,
        description="Each as the body of `POST /v2/snaps`, with `videoUrl` and `subject.id`, `nickname` and `email` or "
        "not. An invalid item fails alone.",
        examples=[[EXAMPLE]],
    ),
]


_REFUSALS = may_be(
    _401="A token is required here, or the one that was sent is wrong.",
    _403="A page of another site asks.",
    _404="There is no such tenant.",
    _503="The client waits for too many jobs already, or the database is away; come back after `Retry-After` seconds.",
    _507="The disk is nearly full: no new work is taken.",
)


@router.post("/process", responses=_REFUSALS)
@router.post("/mvp/process", responses=_REFUSALS, summary="Process frames, by its first name")
async def process_frames(
    monolith: MonolithDep, credentials: Presented, items: Items, waiting: WaitingDep, request_id: RequestId
) -> Batch:
    """Takes frames and a clip of each moment. The answer comes when all have ended, or after `SNAPAPP_SYNC_WAIT_MS`;
    items that are not finished then are cancelled and count as failed. The files can be fetched for a day."""
    # async, because it waits and must not hold a thread
    batch_id = uuid4()
    tenant = await run_in_threadpool(_tenant, monolith, credentials)
    with waiting.places(len(items)):
        enqueued = await run_in_threadpool(_enqueue_jobs, monolith, tenant, batch_id, items, request_id)
        ended = await asyncio.gather(*(_at_end(monolith, waiting, job_id) for job_id in enqueued.jobs.values()))
    return await run_in_threadpool(_batch, monolith, batch_id, enqueued, dict(zip(enqueued.jobs, ended, strict=True)))


def _tenant(monolith: Monolith, credentials: Credentials) -> str:
    """The tenant of the request. Clients of the first version send no headers; if the settings allow that, their frames
    belong to no tenant."""
    is_open = monolith.settings.v1_open or not monolith.settings.require_api_token
    return "" if is_open and credentials.is_empty else code_of(monolith, credentials)


# --- enqueueing them --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InvalidItem:
    """An invalid item: why, and the parts of it that could be read."""

    why: str
    readable: ReadableParts


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The items of a request, valid or not, and the jobs of the valid ones. There are no jobs if no worker runs the
    kind."""

    items: Sequence["FramesRequest | InvalidItem"]
    jobs: Mapping[int, int]  # the item's place -> the job's id


def _enqueue_jobs(monolith: Monolith, tenant: str, batch_id: UUID, given: Sequence[Any], request_id: str) -> Enqueued:
    refuse_without_room(monolith)
    items = [_parsed(item) for item in given]
    good = {place: item for place, item in enumerate(items) if isinstance(item, FramesRequest)}
    if not good or not is_worked(monolith, kinds.EXTRACT):
        return Enqueued(items, {})
    with monolith.web.begin() as connection:
        orders = (_job(batch_id, place, item, request_id) | {"tenant": tenant} for place, item in good.items())
        jobs = enqueue_many(connection, orders)
    return Enqueued(items, {place: job_id for place, job_id in zip(good, jobs, strict=True) if job_id is not None})


def _parsed(item: Any) -> FramesRequest | InvalidItem:
    try:
        return FramesRequest.model_validate(item)
    except ValidationError as error:
        parts = ReadableParts.model_validate(item if isinstance(item, dict) else {})
        return InvalidItem("; ".join(reasons(error.errors())), parts)


def _job(batch_id: UUID, place: int, item: FramesRequest, request_id: str) -> dict[str, Any]:
    folder, subject = _folder(batch_id, place), subject_meant(item.subject)
    return {
        "kind": kinds.EXTRACT,
        "payload": payloads.of_frames(item.video_url, item.values_used, item.overlay_drawn, subject, folder),
        "concurrency_key": payloads.host_at(item.video_url),
        "request_id": request_id,
    }


def _folder(batch_id: UUID, place: int) -> str:
    return f"{keys.of_request(batch_id)}{place}/"


# --- the results ------------------------------------------------------------------------------------------------


async def _at_end(monolith: Monolith, waiting: Waiting, job_id: int) -> JobDetail | None:
    """The job at its end, read at once and not with the last of its request: the retention may delete it meanwhile.
    None if it was deleted all the same."""
    await waiting.endings.wait(job_id, monolith.settings.sync_wait)  # its place is reserved
    return await run_in_threadpool(_read_at_end, monolith, job_id)


def _read_at_end(monolith: Monolith, job_id: int) -> JobDetail | None:
    """A job that has not ended is cancelled, because nobody waits for it any more."""
    try:
        with monolith.web.begin() as connection:
            with suppress(IllegalTransition):
                lifecycle.cancel(connection, job_id)
            return views.job(connection, job_id)
    except UnknownJob:
        return None


def _batch(monolith: Monolith, batch_id: UUID, enqueued: Enqueued, ended: Mapping[int, JobDetail | None]) -> Batch:
    now = datetime.now(UTC)
    items = [
        _shown(monolith, place, item, ended, now, _folder(batch_id, place)) for place, item in enumerate(enqueued.items)
    ]
    return Batch(
        request_id=batch_id,
        status=_status(items),
        tmp_base_dir=keys.FRAMES,
        request_dir=keys.of_request(batch_id),
        processed_at=now,
        filmagens=items,
    )


def _status(items: Sequence[ItemShown]) -> BatchStatus:
    succeeded = sum(item.status is ItemStatus.SUCCEEDED for item in items)
    if succeeded == len(items):
        return BatchStatus.COMPLETED
    return BatchStatus.PARTIAL if succeeded else BatchStatus.FAILED


def _shown(
    monolith: Monolith,
    place: int,
    item: FramesRequest | InvalidItem,
    ended: Mapping[int, JobDetail | None],
    now: datetime,
    folder: str,
) -> ItemShown:
    if isinstance(item, InvalidItem):
        return _invalid_item(place, item, folder)
    fields: dict[str, Any] = {
        "item_index": place,
        "data_filmagem": item.data_filmagem,
        "subject": subject_of(subject_meant(item.subject)),
        "video_url": item.video_url,
        "start_seconds": item.start_seconds,
        "start_frame": item.start_frame,
    }
    job = ended.get(place)
    if job and job.status is JobStatus.COMPLETED:
        results = _results_of(job.result, signed(monolith, job.result["media_prefix"], now))
        return ItemShown(**fields, **results, status=ItemStatus.SUCCEEDED)
    return ItemShown(
        **fields, status=ItemStatus.FAILED, output_dir=folder, error=_why(monolith, job) if ended else _NOBODY
    )


def _invalid_item(place: int, item: InvalidItem, folder: str) -> ItemShown:
    parts = item.readable
    return ItemShown(
        item_index=place,
        status=ItemStatus.FAILED,
        data_filmagem=parts.data_filmagem,
        subject=subject_of(subject_meant(parts.subject)) if parts.subject else None,
        video_url=parts.video_url,
        output_dir=folder,
        error=item.why,
    )


def _results_of(evidence: Mapping[str, Any], base: str) -> dict[str, Any]:
    hashes = hashes_of(evidence["extras"])
    return {
        "resolved_start_seconds": evidence["resolved_start_seconds"],
        "video_probe": ProbeShown.model_validate(evidence["probe"]),
        "output_dir": evidence["media_prefix"],
        "snapshot_video": clip_of(evidence["clip"], base, hashes),
        "frame_count": len(evidence["frames"]),
        "frames": [frame_of(frame, base, hashes) for frame in evidence["frames"]],
    }


def _why(monolith: Monolith, job: JobDetail | None) -> str | None:
    if job is None:
        return _DELETED
    if job.status is JobStatus.FAILED:
        return error_for_client(job.last_error)
    if monolith.is_leaving:
        return _LEAVING
    return (
        f"It was cancelled, because it had not ended within {monolith.settings.sync_wait.total_seconds():g} s: "
        "ask for fewer moments at once, or mark each with POST /v2/snaps, which does not wait"
    )

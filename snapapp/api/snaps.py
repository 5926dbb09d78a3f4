"""/v2/snaps: a moment is marked, looked at, found again, corrected, hidden; and its job is cancelled or tried again."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from snapapp import search, snaps, templates, videos
from snapapp.api.body import StrictRoute
from snapapp.api.deps import House, RequestId
from snapapp.api.endings import Ends, is_worked
from snapapp.api.errors import may_be
from snapapp.api.lists import listed, windows
from snapapp.api.places import Placed
from snapapp.api.schema import Asked, Decimals, Label, Moment, Shown
from snapapp.api.snap_schema import Attribute, Correction, Nickname, SnapRequest
from snapapp.api.snap_shown import MySnapList, SnapList, SnapStatus, SnapWhole, lines_of, whole_of
from snapapp.api.tenancy import Claim, Claimed, Own, Visit, Visiting, visiting
from snapapp.jobs import enqueue, queue
from snapapp.jobs.errors import IllegalTransition
from snapapp.jobs.model import Status as JobStatus
from snapapp.listing import Window
from snapapp.monolith import Monolith
from snapapp.processing import orders
from snapapp.search import Criteria
from snapapp.snaps import NewSnap, Removal, Snap
from snapapp.storage import room_of
from snapapp.subjects import Attribute as Said
from snapapp.subjects import Subject

router = APIRouter(prefix="/v2/snaps", tags=["snaps"], route_class=StrictRoute)


SnapId = Annotated[UUID, Path(description="The snap's id.")]
NO_SNAP = may_be(_404="The tenant has no such snap.")


# --- marking one ------------------------------------------------------------------------------------------------

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Sent again within 24 hours, it makes no second snap: the answer is the first one's.",
    ),
]

_MARKED = may_be(
    _404="The tenant has no such video or template.",
    _409="The Idempotency-Key came with another request before.",
    _507="The disk is nearly full: no new work is taken.",
) | {201: {"model": SnapWhole, "description": "It is finished, well or not. With `SNAPAPP_ASYNC_CREATE=false` only."}}


@router.post("", status_code=202, responses=_MARKED)
async def create_snap(
    house: House,
    claim: Claimed,
    wanted: SnapRequest,
    places: Placed,
    ends: Ends,
    request_id: RequestId,
    response: Response,
    key: Key = None,
) -> SnapWhole:
    """Marks a moment. The answer comes at once and its job does the rest; or, with `SNAPAPP_ASYNC_CREATE=false`, when
    that is done or `SNAPAPP_SYNC_WAIT_MS` is over. Async because it may wait, and then must not keep a thread."""
    marked, was_there = await run_in_threadpool(_mark, house, claim, wanted, key, request_id)
    if not house.settings.async_create:
        marked = await _finished(house, claim, marked, ends)
        response.status_code = 202 if marked.ended is None else 201
    response.headers["Location"] = f"{router.prefix}/{marked.id}"
    if was_there:
        response.headers["Idempotent-Replayed"] = "true"
    return whole_of(marked, places)


def _mark(house: Monolith, claim: Claim, wanted: SnapRequest, key: str | None, request_id: str) -> tuple[Snap, bool]:
    """The snap and its job, in one transaction that is committed when this returns; and whether it was there before."""
    refuse_without_room(house)
    with visiting(house, claim) as visit:
        snap_id = uuid4()
        with visit.as_tenant():
            held = snaps.hold_key(visit.connection, visit.code, key, _hash(wanted), snap_id) if key else snap_id
            if held != snap_id:
                return snaps.read(visit.connection, visit.code, held), True
            order, host = _create(visit, wanted, snap_id, request_id)
        enqueue(  # as the house: a tenant has no right on the queue
            visit.connection,
            orders.SNAP,
            order,
            tenant=visit.code,
            snap_id=snap_id,
            unique_key=str(snap_id),
            concurrency_key=host,
            request_id=request_id,
        )
        with visit.as_tenant():
            return snaps.read(visit.connection, visit.code, snap_id), False


def _create(visit: Visit, wanted: SnapRequest, snap_id: UUID, request_id: str) -> tuple[dict[str, Any], str | None]:
    """What its job is told, and whose server will be asked for the video."""
    db, tenant = visit.connection, visit.code
    video = videos.resolve(db, tenant, video_id=wanted.video_id, video_url=wanted.video_url)
    new = NewSnap(
        id=snap_id,
        video_id=video.id,
        template=templates.resolve(db, tenant, wanted.subject_template_id),
        nickname=wanted.nickname,
        email=wanted.email,
        subject=subject_meant(wanted.subject.id, wanted.subject.attributes) if wanted.subject else Subject(None, ()),
        filmed_at=wanted.data_filmagem,
        start_seconds=wanted.start_seconds,
        start_frame=wanted.start_frame,
        duration_seconds=wanted.duration_seconds,
        clip_seconds=wanted.clip_seconds,
        fps=wanted.fps,
        max_width=wanted.max_width,
        format=wanted.format,
        quality=wanted.quality_used,
        overlay=wanted.overlay_drawn,
        is_draft=wanted.is_draft,
        request_id=request_id,
    )
    return orders.of_snap(snaps.create(db, tenant, new), video), orders.host_of(video)


def refuse_without_room(house: Monolith) -> None:
    """New heavy work is not taken when its results could not be kept."""
    if why := room_of(house.settings).refusal():
        raise HTTPException(507, why)


def subject_meant(subject_id: str | None, attributes: list[Attribute]) -> Subject:
    """A field that was left empty says nothing."""
    said = (Said(each.key, each.value) for each in attributes if each.value is not None)
    return Subject(subject_id, tuple(said))


def _hash(wanted: SnapRequest) -> bytes:
    return hashlib.sha256(wanted.model_dump_json().encode()).digest()


async def _finished(house: Monolith, claim: Claim, marked: Snap, ends: Ends) -> Snap:
    """As it is when its job has ended, or when there is no more waiting for that."""
    if marked.ended is not None or marked.job is None or not await run_in_threadpool(is_worked, house, orders.SNAP):
        return marked
    await ends.wait(marked.job.id, house.settings.sync_wait)
    return await run_in_threadpool(_read, house, claim, marked.id)


def _read(house: Monolith, claim: Claim, snap_id: UUID) -> Snap:
    with visiting(house, claim) as visit, visit.as_tenant():
        return snaps.read(visit.connection, visit.code, snap_id)


# --- finding them -----------------------------------------------------------------------------------------------

_ORDERS = ("createdAt", "processedAt", "resolvedStartSeconds", "dataFilmagem", "subjectId", "nickname")
Paged = Annotated[Window, Depends(windows(*_ORDERS))]
Wanted = Annotated[SnapStatus | None, Query(description="Only snaps in this state.")]
Since = Annotated[Moment | None, Query(alias="from", description="Only snaps marked at that time or later.")]
Until = Annotated[Moment | None, Query(alias="to", description="Only snaps marked before.")]
Value = Annotated[str, Query(max_length=1000, pattern=r"^[^\x00]*$")]
Bound = Annotated[float, Query(allow_inf_nan=False), Decimals]


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Which snaps are wanted."""

    subject_id: str | None
    attr_key: str | None
    attr_value: str | None
    attr_min: float | None
    attr_max: float | None
    q: str | None
    status: SnapStatus | None
    since: datetime | None
    until: datetime | None

    @property
    def is_open(self) -> bool:
        """Nothing is said of the subject."""
        of_subject = (self.subject_id, self.attr_key, self.attr_value, self.attr_min, self.attr_max, self.q)
        return all(each is None for each in of_subject)

    @property
    def is_empty(self) -> bool:
        return self.is_open and all(each is None for each in (self.status, self.since, self.until))

    @property
    def state(self) -> snaps.Status | None:
        return _status(self.status)

    def criteria(self) -> Criteria:
        return Criteria(
            subject_id=self.subject_id,
            attr_key=self.attr_key,
            attr_value=self.attr_value,
            attr_min=self.attr_min,
            attr_max=self.attr_max,
            q=self.q,
            status=self.state,
            since=self.since,
            until=self.until,
        )


async def _narrowing(
    subject_id: Annotated[Label | None, Query(alias="subjectId", description="The subject's id.")] = None,
    attr_key: Annotated[
        Label | None, Query(alias="attrKey", description="An attribute's key, in any case. With one of the next three.")
    ] = None,
    attr_value: Annotated[Value | None, Query(alias="attrValue", description="Its value, a text or a number.")] = None,
    attr_min: Annotated[Bound | None, Query(alias="attrMin", description="The least that the number may be.")] = None,
    attr_max: Annotated[Bound | None, Query(alias="attrMax", description="The most that it may be.")] = None,
    q: Annotated[Label | None, Query(description="Words that stand in the subject, each from its beginning.")] = None,
    status: Wanted = None,
    since: Since = None,
    until: Until = None,
) -> Narrowing:
    return Narrowing(subject_id, attr_key, attr_value, attr_min, attr_max, q, status, since, until)


Narrowed = Annotated[Narrowing, Depends(_narrowing)]


@router.get("")
def list_snaps(
    own: Own, places: Placed, page: Paged, status: Wanted = None, since: Since = None, until: Until = None
) -> SnapList:
    """All snaps of the tenant, newest first."""
    found = search.recent(own.connection, own.code, page, status=_status(status), since=since, until=until)
    return SnapList(**listed(found, lines_of(found.items, places)))


@router.get("/search")
def search_snaps(own: Own, places: Placed, page: Paged, which: Narrowed) -> SnapList:
    """Snaps by their subject: its id, an attribute's value or range, or words in it. One of these is required."""
    found = search.by_subject(own.connection, own.code, which.criteria(), page)
    return SnapList(**listed(found, lines_of(found.items, places)))


@router.get("/mine")
def list_my_snaps(
    own: Own,
    places: Placed,
    page: Paged,
    nickname: Annotated[Label, Query(description="Who marked them, in any case.", examples=["ana"])],
) -> MySnapList:
    """The snaps that somebody marked."""
    found = search.mine(own.connection, own.code, nickname, page)
    return MySnapList(**listed(found, lines_of(found.items, places)), nickname=nickname)


def _status(wanted: SnapStatus | None) -> snaps.Status | None:
    return None if wanted is None else snaps.Status(wanted.value)


# --- one of them ------------------------------------------------------------------------------------------------


@router.get("/{snap_id}", responses=NO_SNAP)
def show_snap(own: Own, places: Placed, snap_id: SnapId) -> SnapWhole:
    """A snap as it is now, and its job. Ask again while it is PENDING, or listen to `/v2/events`."""
    return whole_of(snaps.read(own.connection, own.code, snap_id), places)


@router.patch(
    "/{snap_id}/subject", responses=NO_SNAP | may_be(_409="It was shared: what others have seen is not changed.")
)
def correct_subject(own: Own, places: Placed, snap_id: SnapId, wanted: Correction) -> SnapWhole:
    """Mends what was typed, and keeps what it was before; describes a draft."""
    snaps.lock(own.connection, own.code, snap_id)  # what is left out stays as it is now, whoever else corrects it
    snap = snaps.read(own.connection, own.code, snap_id)
    meant = subject_meant(wanted.id or snap.subject.id, wanted.attributes or [])
    if wanted.attributes is None:
        meant = Subject(meant.id, snap.subject.attributes)
    return whole_of(snaps.correct(own.connection, own.code, snap_id, meant, by=wanted.nickname), places)


class Corrected(Shown):
    """What a subject was, what it became, and who said so."""

    by: str = Field(examples=["ana"])
    at: datetime
    before: dict[str, object]
    after: dict[str, object]


class CorrectionList(Shown):
    items: list[Corrected]


@router.get("/{snap_id}/corrections", responses=NO_SNAP)
def list_corrections(own: Own, snap_id: SnapId) -> CorrectionList:
    """How the subject was corrected, in the order of time."""
    snaps.read(own.connection, own.code, snap_id)
    found = snaps.corrections(own.connection, own.code, snap_id)
    return CorrectionList(items=[Corrected.model_validate(each) for each in found])


_LAST_WRITES = timedelta(minutes=1)  # an attempt that is told to stop may still be storing what it has made


class Removed(Shown):
    snap_id: UUID
    removal: Literal["DELETED", "HIDDEN"] = Field(description="What was ever shared is hidden: its links still work.")


@router.delete("/{snap_id}", responses=NO_SNAP)
def remove_snap(visit: Visiting, snap_id: SnapId, request_id: RequestId) -> Removed:
    """Deletes a snap, and soon its files; hides it where it was ever shared. Its job, if it still has one to do, is
    cancelled."""
    with visit.as_tenant():
        job = snaps.read(visit.connection, visit.code, snap_id).job
    if job:
        queue.lock(visit.connection, job.id)
    with visit.as_tenant():
        removal = snaps.remove(visit.connection, visit.code, snap_id)
    if removal is Removal.DELETED:
        if job:
            with suppress(IllegalTransition):  # it has ended
                queue.cancel(visit.connection, job.id)
        order = {"snapId": str(snap_id)}
        enqueue(visit.connection, orders.FORGET, order, delay=_LAST_WRITES, tenant=visit.code, request_id=request_id)
    return Removed(snap_id=snap_id, removal="DELETED" if removal is Removal.DELETED else "HIDDEN")


# --- its job ----------------------------------------------------------------------------------------------------


class ByWhom(Asked):
    nickname: Nickname | None = Field(None, description="Who cancels it.")


_ASKED = {202: {"model": SnapWhole, "description": "It runs and was asked to stop; if it ends first, it has ended."}}


@router.post("/{snap_id}/cancel", responses=NO_SNAP | _ASKED | may_be(_409="It has ended already."))
def cancel_snap(
    visit: Visiting, places: Placed, snap_id: SnapId, response: Response, wanted: ByWhom | None = None
) -> SnapWhole:
    """Gives up a snap that is not finished. Its state is then FAILED, and `error` says by whom."""
    with visit.as_tenant():
        job = _job_of(snaps.read(visit.connection, visit.code, snap_id))
    queue.lock(visit.connection, job)
    with visit.as_tenant():
        snaps.note_cancel(visit.connection, visit.code, snap_id, (wanted and wanted.nickname) or visit.tenant.name)
    status = queue.cancel(visit.connection, job)
    response.status_code = 202 if status is JobStatus.RUNNING else 200
    return _now(visit, places, snap_id)


@router.post("/{snap_id}/retry", status_code=202, responses=NO_SNAP | may_be(_409="It has not failed."))
def retry_snap(visit: Visiting, places: Placed, house: House, snap_id: SnapId) -> SnapWhole:
    """Tries a failed or cancelled snap again, counting attempts from zero."""
    refuse_without_room(house)
    with visit.as_tenant():
        job = _job_of(snaps.read(visit.connection, visit.code, snap_id))
    queue.retry_by_person(visit.connection, job)
    return _now(visit, places, snap_id)


def _job_of(snap: Snap) -> int:
    if snap.job is None:
        raise HTTPException(409, f"Snap has no job any more: {snap.id}")
    return snap.job.id


def _now(visit: Visit, places: Placed, snap_id: UUID) -> SnapWhole:
    with visit.as_tenant():
        return whole_of(snaps.read(visit.connection, visit.code, snap_id), places)

"""/v2/snaps: marks moments, shows, finds, corrects and removes snaps, and cancels or retries their jobs."""

import hashlib
import re
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Depends, Header, HTTPException, Path, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from snapapp.api.http.deps import MonolithDep, RequestId
from snapapp.api.http.errors import may_be
from snapapp.api.http.lenient_query import LenientRoute
from snapapp.api.http.paging import listed, windows
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Asked, Decimals, Label, Moment, Shown
from snapapp.api.http.tenancy import Begins, Own
from snapapp.api.product.job_waiting import Waiting, WaitingDep, is_worked
from snapapp.api.product.snap_schema import Attribute, Correction, Nickname, SnapRequest, Subject
from snapapp.api.product.snap_views import MySnapList, SnapList, SnapWhole, lines_of, whole_of
from snapapp.api.product.urls import Placed
from snapapp.domain import kinds, marking, snaps
from snapapp.domain.finding import search
from snapapp.domain.finding.paging import Window
from snapapp.domain.finding.search import Criteria
from snapapp.domain.rules import subjects
from snapapp.domain.snaps import NewSnap, Removal
from snapapp.domain.tables import Snap, SnapStatus
from snapapp.domain.transactions import Begin
from snapapp.jobs.model import Status as JobStatus
from snapapp.process.monolith import Monolith
from snapapp.processing.queue import QUEUE
from snapapp.storage import room_of

router = Router(prefix="/v2/snaps", tags=["snaps"], route_class=LenientRoute)


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
        description="A request sent again with the same key within 24 hours makes no second snap, but gets the first. "
        "A snap that is deleted frees its key.",
    ),
]

_MARKED = may_be(
    _404="The tenant has no such video or template.",
    _409="The Idempotency-Key came with another request before.",
    _507="The disk is nearly full: no new work is taken.",
) | {201: {"model": SnapWhole, "description": "It has completed or failed. Only with `SNAPAPP_ASYNC_CREATE=false`."}}


@router.post("", status_code=202, responses=_MARKED)
async def create_snap(
    monolith: MonolithDep,
    begin: Begins,
    wanted: SnapRequest,
    places: Placed,
    waiting: WaitingDep,
    request_id: RequestId,
    response: Response,
    key: Key = None,
) -> SnapWhole:
    """Marks a moment. The answer comes at once, and a job makes the evidence. With `SNAPAPP_ASYNC_CREATE=false` the
    answer comes when the job has ended, or after `SNAPAPP_SYNC_WAIT_MS`."""
    # async, because it may wait and must not hold a thread
    marked, was_there = await run_in_threadpool(_mark, monolith, begin, wanted, key, request_id)
    if not monolith.settings.async_create:
        marked = await _wait_until_finished(monolith, begin, marked, waiting)
        response.status_code = 202 if marked.ended is None else 201
    response.headers["Location"] = f"{router.prefix}/{marked.id}"
    response.headers["ETag"] = _tag(marked)
    if was_there:
        response.headers["Idempotent-Replayed"] = "true"
    return whole_of(marked, places)


def _mark(monolith: Monolith, begin: Begin, wanted: SnapRequest, key: str | None, request_id: str) -> tuple[Snap, bool]:
    refuse_without_room(monolith)
    return marking.mark(begin, QUEUE, _new_snap(wanted, request_id), key, _hash(wanted))


def _new_snap(wanted: SnapRequest, request_id: str) -> NewSnap:
    return NewSnap(
        video_id=wanted.video_id,
        video_url=wanted.video_url,
        template_id=wanted.subject_template_id,
        nickname=wanted.nickname,
        email=wanted.email,
        subject=subject_meant(wanted.subject) if wanted.subject else subjects.Subject(None, ()),
        filmed_at=wanted.data_filmagem,
        **wanted.values_used,
        overlay=wanted.overlay_drawn,
        is_draft=wanted.is_draft,
        request_id=request_id,
    )


def refuse_without_room(monolith: Monolith) -> None:
    """Refuses new heavy work with 507 if the disk has no room for its results."""
    if why := room_of(monolith.settings).refusal():
        raise HTTPException(507, why)


def subject_meant(given: Subject) -> subjects.Subject:
    return subjects.Subject(given.id, attributes_meant(given.attributes))


def attributes_meant(given: list[Attribute]) -> tuple[subjects.Attribute, ...]:
    """The attributes for the domain, without those whose value is missing."""
    return tuple(subjects.Attribute(each.key, each.value) for each in given if each.value is not None)


def _hash(wanted: SnapRequest) -> bytes:
    """A hash of what was asked for. Fields with their defaults are not in it: a request that comes again after an
    update must be the same one, also if the update added a field."""
    return hashlib.sha256(wanted.model_dump_json(exclude_defaults=True).encode()).digest()


async def _wait_until_finished(monolith: Monolith, begin: Begin, marked: Snap, waiting: Waiting) -> Snap:
    """The snap after waiting for its job, if there is a worker for it; at the latest after `SNAPAPP_SYNC_WAIT_MS`."""
    if marked.ended is not None or marked.job is None or not await run_in_threadpool(is_worked, monolith, kinds.SNAP):
        return marked
    await waiting.wait(marked.job.id, monolith.settings.sync_wait)
    # hidden or not: a key that comes again finds its snap
    return await run_in_threadpool(marking.read, begin, marked.id, hidden_too=True)


# --- finding them -----------------------------------------------------------------------------------------------

Paged = Annotated[Window, Depends(windows(*search.BY_CREATION.columns))]
InState = Annotated[SnapStatus | None, Query(description="Only snaps in this state.")]
Since = Annotated[Moment | None, Query(alias="from", description="Only snaps marked at that time or later.")]
Until = Annotated[Moment | None, Query(alias="to", description="Only snaps marked before.")]
Marker = Annotated[Label | None, Query(description="Only snaps that this person marked, in any case.")]
Value = Annotated[str, Query(max_length=1000, pattern=r"^[^\x00]*$")]
Bound = Annotated[float, Query(allow_inf_nan=False), Decimals]


async def _narrowing(
    subject_id: Annotated[Label | None, Query(alias="subjectId", description="The subject's id.")] = None,
    attr_key: Annotated[
        Label | None,
        Query(alias="attrKey", description="An attribute's key, in any case. Needs attrValue, attrMin or attrMax."),
    ] = None,
    attr_value: Annotated[Value | None, Query(alias="attrValue", description="Its value, a text or a number.")] = None,
    attr_min: Annotated[Bound | None, Query(alias="attrMin", description="The least that the number may be.")] = None,
    attr_max: Annotated[Bound | None, Query(alias="attrMax", description="The most that the number may be.")] = None,
    q: Annotated[Label | None, Query(description="Words in the subject; the beginning of each word is enough.")] = None,
    status: InState = None,
    since: Since = None,
    until: Until = None,
) -> Criteria:
    return Criteria(
        subject_id=subject_id,
        attr_key=attr_key,
        attr_value=attr_value,
        attr_min=attr_min,
        attr_max=attr_max,
        q=q,
        status=status,
        since=since,
        until=until,
    )


Narrowed = Annotated[Criteria, Depends(_narrowing)]


@router.get("")
def list_snaps(
    own: Own,
    places: Placed,
    page: Paged,
    status: InState = None,
    since: Since = None,
    until: Until = None,
    nickname: Marker = None,
) -> SnapList:
    """All snaps of the tenant, newest first."""
    which = Criteria(status=status, since=since, until=until)
    matches = search.recent(own.db, own.code, page, which, nickname=nickname)
    return SnapList(**listed(matches, lines_of(matches.items, places)))


@router.get("/search")
def search_snaps(own: Own, places: Placed, page: Paged, which: Narrowed, nickname: Marker = None) -> SnapList:
    """Finds snaps by their subject: its id, an attribute's value or range, or words. One of these is required."""
    matches = search.by_subject(own.db, own.code, which, page, nickname=nickname)
    return SnapList(**listed(matches, lines_of(matches.items, places)))


@router.get("/mine")
def list_my_snaps(
    own: Own,
    places: Placed,
    page: Paged,
    nickname: Annotated[Label, Query(description="Who marked them, in any case.", examples=["ana"])],
) -> MySnapList:
    """The snaps that one person marked."""
    matches = search.recent(own.db, own.code, page, nickname=nickname)
    return MySnapList(**listed(matches, lines_of(matches.items, places)), nickname=nickname)


# --- one snap ---------------------------------------------------------------------------------------------------


@router.get("/{snap_id}", responses=NO_SNAP)
def show_snap(begin: Begins, places: Placed, snap_id: SnapId, response: Response) -> SnapWhole:
    """A snap with its job. While it is PENDING ask again, or listen to `/v2/events`. The ETag changes with each
    correction; `PATCH …/subject` takes it as `If-Match`."""
    snap = marking.read(begin, snap_id)
    response.headers["ETag"] = _tag(snap)
    return whole_of(snap, places)


def _tag(snap: Snap) -> str:
    return f'"{snap.version}"'


IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=2000,
        description="The snap's ETag as it was read: the answer is 412 if somebody has corrected the snap since.",
    ),
]


@router.patch(
    "/{snap_id}/subject",
    responses=NO_SNAP
    | may_be(
        _409="It was shared, and cannot be changed any more.",
        _412="Somebody else has corrected it meanwhile.",
    ),
)
def correct_subject(
    begin: Begins, places: Placed, snap_id: SnapId, wanted: Correction, response: Response, if_match: IfMatch = None
) -> SnapWhole:
    """Corrects the subject or the filming date, and keeps the old values; describes a draft. `attributes` replaces the
    whole list: with `If-Match` a correction that somebody else made meanwhile is not overwritten. The same correction
    sent again, because its answer was lost, is answered as the first one."""
    attributes = None if wanted.attributes is None else attributes_meant(wanted.attributes)
    versions = None if if_match is None or if_match.strip() == "*" else _versions(if_match)
    snap = marking.correct(
        begin, QUEUE, snap_id, wanted.id, attributes, wanted.data_filmagem, by=wanted.nickname, versions=versions
    )
    response.headers["ETag"] = _tag(snap)
    return whole_of(snap, places)


def _versions(if_match: str) -> list[str]:
    """The versions that an If-Match header names. Weak ETags count too, and names with something added: proxies that
    compress change an ETag so, and the version is the same."""
    return re.findall("[0-9a-f]{32}", if_match)


class Corrected(Shown):
    """A correction: the subject before and after, and who made it; with `dataFilmagem` if the filming date was
    corrected."""

    by: str = Field(examples=["ana"])
    operator_id: int | None = Field(
        description="Who was signed in; null: it came with the tenant's token, and `by` is what was sent.", examples=[7]
    )
    at: datetime
    before: dict[str, object]
    after: dict[str, object]


class CorrectionList(Shown):
    items: list[Corrected]


@router.get("/{snap_id}/corrections", responses=NO_SNAP)
def list_corrections(own: Own, snap_id: SnapId) -> CorrectionList:
    """The corrections of a snap, oldest first."""
    snaps.read(own.db, own.code, snap_id)
    corrections = snaps.corrections(own.db, own.code, snap_id)
    return CorrectionList(items=[Corrected.model_validate(each) for each in corrections])


class Removed(Shown):
    snap_id: UUID
    removal: Literal["DELETED", "HIDDEN"] = Field(
        description="A snap that was ever shared is hidden: its links still work."
    )


@router.delete("/{snap_id}", responses=NO_SNAP)
def remove_snap(begin: Begins, snap_id: SnapId, request_id: RequestId) -> Removed:
    """Deletes a snap, and its files a minute later, and cancels its job if that has not ended. A snap that was ever
    shared is hidden instead."""
    removal = marking.remove(begin, QUEUE, snap_id, request_id)
    return Removed(snap_id=snap_id, removal="DELETED" if removal is Removal.DELETED else "HIDDEN")


# --- its job ----------------------------------------------------------------------------------------------------


class ByWhom(Asked):
    nickname: Nickname | None = Field(None, description="Who cancels it.")


_ASKED = {
    202: {
        "model": SnapWhole,
        "description": "Its job runs and was asked to stop; if the job completes first, the snap is COMPLETED.",
    }
}


@router.post("/{snap_id}/cancel", responses=NO_SNAP | _ASKED | may_be(_409="It has ended already."))
def cancel_snap(
    begin: Begins, places: Placed, snap_id: SnapId, response: Response, wanted: ByWhom | None = None
) -> SnapWhole:
    """Cancels an unfinished snap. Its status is then FAILED, and `error` names who cancelled it."""
    snap = marking.cancel(begin, QUEUE, snap_id, wanted.nickname if wanted else None)
    response.status_code = 202 if snap.job and snap.job.status == JobStatus.RUNNING else 200
    return whole_of(snap, places)


@router.post("/{snap_id}/retry", status_code=202, responses=NO_SNAP | may_be(_409="It has not failed."))
def retry_snap(begin: Begins, places: Placed, monolith: MonolithDep, snap_id: SnapId) -> SnapWhole:
    """Runs the job of a failed or cancelled snap again, counting attempts from zero."""
    refuse_without_room(monolith)
    return whole_of(marking.retry(begin, QUEUE, snap_id), places)

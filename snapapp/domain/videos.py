"""Videos: the sources of snaps, known by URL or uploaded. A tenant has one for each URL and for the same bytes."""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from snapapp.domain import kinds, payloads, storage_use
from snapapp.domain.paging import FIRST, Order, Page, Window
from snapapp.domain.rules import validation
from snapapp.domain.rules.snaps import VIDEO_URL_LONGEST
from snapapp.domain.tables import Snap, Video
from snapapp.domain.transactions import Begin, Queue, TenantTransaction
from snapapp.errors import Invalid, VideoHasSnaps, VideoNotFound

_LARGEST = 2**63 - 1
_LAST_WRITES = timedelta(minutes=1)  # a job may still be storing what it makes of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Bytes that lie in storage and belong to no video yet."""

    id: UUID
    storage_key: str
    size_bytes: int
    sha256: str  # in hex
    file_name: str | None = None
    content_type: str | None = None

    def __post_init__(self) -> None:
        validation.insist(
            {
                "storageKey": validation.text(self.storage_key, 1000),
                "sizeBytes": validation.whole(self.size_bytes, 0, _LARGEST),
                "sha256": None if re.fullmatch("[0-9a-f]{64}", self.sha256) else "must be 64 hex digits",
                "fileName": None if self.file_name is None else validation.text(self.file_name, 500),
                "contentType": None if self.content_type is None else validation.text(self.content_type, 200),
            }
        )


_ORDER = Order(
    {"createdAt": Video.created_at, "fileName": Video.file_name, "sizeBytes": Video.size_bytes},
    default_dir="desc",
    tie=Video.id,
)
_IS_OURS_ALONE = Video.storage_key.is_not(None) & Video.url.is_(None)
_OF_TENANT = select(Video).where(Video.tenant == bindparam("tenant"))
_BY_ID = _OF_TENANT.where(Video.id == bindparam("id"))
_KEPT = _BY_ID.with_for_update(read=True, key_share=True)
_AT_URL = _OF_TENANT.where(Video.url_hash == bindparam("url_hash")).with_for_update(read=True, key_share=True)


def resolve(db: Session, tenant: str, *, video_id: UUID | None, video_url: str | None) -> Video:
    """The video that a request means, which nobody deletes in this transaction; one that its URL names for the first
    time is made."""
    if video_id is not None:
        return _found(video_id, db.scalar(_KEPT, {"tenant": tenant, "id": video_id}))
    if not video_url:
        raise Invalid(message="Provide at least one of videoId or videoUrl")
    return at_url(db, tenant, video_url)


def read(db: Session, tenant: str, video_id: UUID) -> Video:
    return _found(video_id, db.scalar(_BY_ID, {"tenant": tenant, "id": video_id}))


def _found(video_id: UUID, video: Video | None) -> Video:
    if video is None:
        raise VideoNotFound(video_id)
    return video


def at_url(db: Session, tenant: str, url: str) -> Video:
    validation.insist({"videoUrl": validation.text(url, VIDEO_URL_LONGEST)})
    url_hash = hashlib.sha256(url.encode()).digest()
    there = {"tenant": tenant, "url_hash": url_hash}
    while (found := db.scalar(_AT_URL, there)) is None:  # again where it is deleted between the two
        new = insert(Video).values(url=url, **there)
        db.execute(new.on_conflict_do_nothing(index_elements=[Video.tenant, Video.url_hash]))
    return found  # ours, or that of whoever made it at this moment and was waited for


def add_upload(db: Session, tenant: str, upload: Upload) -> Video:
    """The video of these bytes. Where the tenant has them already it is the older one, which has another id; then the
    new ones are not needed."""
    new = insert(Video).values(tenant=tenant, **asdict(upload))
    same = [Video.tenant, Video.sha256]
    new = new.on_conflict_do_nothing(index_elements=same, index_where=_IS_OURS_ALONE)
    there = select(Video).where(Video.tenant == tenant, Video.sha256 == upload.sha256, _IS_OURS_ALONE)
    there = there.with_for_update(read=True, key_share=True)
    db.execute(new)
    while (found := db.scalar(there)) is None:  # the older one was deleted between the two
        db.execute(new)
    return found


def keep(begin: Begin, queue: Queue, upload: Upload, request_id: str, *, max_mb: int | None = None) -> Video:
    """Somebody sent these bytes; what they hold is found out by a job, where they are new. Refused where the tenant
    has, with them, more than `max_mb` in the storage."""
    with begin() as transaction:
        with transaction.as_tenant() as db:
            storage_use.take_turns(db, transaction.code, max_mb)
            video = add_upload(db, transaction.code, upload)
            if video.id == upload.id:
                storage_use.require(db, transaction.code, max_mb)
        if video.id == upload.id:
            _order_probe(transaction, queue, video, request_id)
        return video


def remove(begin: Begin, queue: Queue, video_id: UUID, request_id: str) -> None:
    """Deletes the video, and its files a minute later. Refused while there are snaps of it."""
    with begin() as transaction:
        with transaction.as_tenant() as db:
            delete(db, transaction.code, video_id)
        order = {"videoId": str(video_id)}
        queue.enqueue(
            transaction.db,
            kinds.FORGET,
            order,
            delay=_LAST_WRITES,
            tenant=transaction.code,
            request_id=request_id,
        )


def delete(db: Session, tenant: str, video_id: UUID) -> None:
    """Locks the row first, so that a snap that is being created is waited for, or does not find the video any more."""
    video = _found(video_id, db.scalar(_BY_ID.with_for_update(), {"tenant": tenant, "id": video_id}))
    of_it = select(func.count(), func.count(Snap.hidden_at)).where(Snap.tenant == tenant, Snap.video_id == video_id)
    snaps, hidden = db.execute(of_it).one()
    if snaps:
        raise VideoHasSnaps(video_id, snaps - hidden, hidden)
    db.delete(video)
    db.flush()


def name(begin: Begin, queue: Queue, url: str, request_id: str) -> Video:
    """Somebody named its URL; what it holds is found out by a job, unless that is known and can be used: a server that
    was away may be back."""
    with begin() as transaction:
        with transaction.as_tenant() as db:
            video = at_url(db, transaction.code, url)
        if not (video.probe or {}).get("compatible"):
            _order_probe(transaction, queue, video, request_id)
        return video


def probe_again(begin: Begin, queue: Queue, video: Video, request_id: str) -> None:
    with begin() as transaction:
        _order_probe(transaction, queue, video, request_id)


def _order_probe(transaction: TenantTransaction, queue: Queue, video: Video, request_id: str) -> None:
    queue.enqueue(
        transaction.db,
        kinds.PROBE,
        payloads.of_video(video),
        tenant=transaction.code,
        unique_key=str(video.id),
        concurrency_key=payloads.host_of(video),
        request_id=request_id,
    )


def set_probe(db: Session, tenant: str, video_id: UUID, probe: Mapping[str, Any]) -> None:
    its = update(Video).where(Video.tenant == tenant, Video.id == video_id).values(probe=dict(probe))
    if db.scalar(its.returning(Video.id)) is None:
        raise VideoNotFound(video_id)


def page(db: Session, tenant: str, window: Window = FIRST, *, q: str | None = None) -> Page[Video]:
    """Those whose name or URL holds `q`, in any case. Where few do, all of the tenant's are read."""
    its = select(Video).where(Video.tenant == tenant)
    if q:
        its = its.where(func.coalesce(Video.file_name, Video.url).icontains(q, autoescape=True))
    cut = _ORDER.cut(its, window)
    return _ORDER.page(db.scalars(cut).all(), window)


def published(db: Session, tenant: str, after: UUID, at_most: int) -> list[tuple[UUID, str, frozenset[str]]]:
    """Those whose bytes are ours, in the order of ids from `after` on: in which folder the bytes lie, by which name."""
    stored = select(Video.id, Video.storage_key).where(Video.tenant == tenant, Video.storage_key.is_not(None))
    rows = db.execute(stored.where(Video.id > after).order_by(Video.id).limit(at_most))
    split = [(row.id, *row.storage_key.rpartition("/")) for row in rows]
    return [(video_id, folder + slash, frozenset([name])) for video_id, folder, slash, name in split]


def named(db: Session, tenant: str, keys: Collection[str]) -> set[str]:
    """Which of the keys are those of videos."""
    its = select(Video.storage_key).where(Video.tenant == tenant, Video.storage_key.in_(keys))
    return {key for key in db.scalars(its) if key}

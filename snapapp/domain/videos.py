"""Videos: the sources of snaps, named by a URL or uploaded. A tenant has one video for each URL, and one for equal
uploaded bytes."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Text, bindparam, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from snapapp.domain import kinds, payloads, storage_use
from snapapp.domain.finding.paging import FIRST, Order, Page, Window
from snapapp.domain.rules import rights
from snapapp.domain.rules.texts import composed
from snapapp.domain.tables import Operator, Snap, Video
from snapapp.domain.transactions import Begin, Queue, TenantTransaction
from snapapp.errors import Invalid, VideoHasSnaps, VideoNotFound

# how long a job that runs, or was cancelled, may go on writing files of what was removed
LAST_WRITES = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Bytes that are in the storage and belong to no video yet."""

    id: UUID
    storage_key: str
    size_bytes: int
    sha256: str  # in hex
    file_name: str | None = None


ORDER = Order(
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
    """The video that a request names, created where its URL is new. Nobody can delete it until this transaction
    ends."""
    if video_id is not None:
        return _require(video_id, db.scalar(_KEPT, {"tenant": tenant, "id": video_id}))
    if not video_url:
        raise Invalid(message="Provide at least one of videoId or videoUrl")
    return at_url(db, tenant, video_url)


def read(db: Session, tenant: str, video_id: UUID) -> Video:
    return _require(video_id, db.scalar(_BY_ID, {"tenant": tenant, "id": video_id}))


def _require(video_id: UUID, video: Video | None) -> Video:
    if video is None:
        raise VideoNotFound(video_id)
    return video


def at_url(db: Session, tenant: str, url: str, *, added_by: Operator | None = None) -> Video:
    url_hash = hashlib.sha256(url.encode()).digest()
    by_url = {"tenant": tenant, "url_hash": url_hash}
    while (video := db.scalar(_AT_URL, by_url)) is None:  # again where another one deletes the video in between
        new = insert(Video).values(url=url, created_by=added_by.id if added_by else None, **by_url)
        db.execute(new.on_conflict_do_nothing(index_elements=[Video.tenant, Video.url_hash]))
    return video  # inserted here, or by another transaction for which the INSERT waited


def add_upload(db: Session, tenant: str, upload: Upload, *, added_by: Operator | None = None) -> Video:
    """The video of these bytes. Where the tenant already has a video of equal bytes, that one is returned, which has
    another id; the new bytes are then not needed."""
    new = insert(Video).values(tenant=tenant, created_by=added_by.id if added_by else None, **asdict(upload))
    same = [Video.tenant, Video.sha256]
    new = new.on_conflict_do_nothing(index_elements=same, index_where=_IS_OURS_ALONE)
    same_bytes = select(Video).where(Video.tenant == tenant, Video.sha256 == upload.sha256, _IS_OURS_ALONE)
    same_bytes = same_bytes.with_for_update(read=True, key_share=True)
    video = None
    while video is None:  # again where another transaction deletes the older video in between
        db.execute(new)
        video = db.scalar(same_bytes)
    return video


def keep(begin: Begin, queue: Queue, upload: Upload, request_id: str, *, max_mb: int | None = None) -> Video:
    """Makes a video of uploaded bytes, with a job that probes them where they are new. Refuses bytes with which the
    tenant would have more than `max_mb` in the storage."""
    with begin() as transaction:
        with transaction.as_tenant() as db:
            storage_use.take_turns(db, transaction.code)
            if was_kept := db.scalar(_BY_ID, {"tenant": transaction.code, "id": upload.id}):
                return was_kept  # by an earlier request, whose answer was lost
            video = add_upload(db, transaction.code, upload, added_by=transaction.operator)
            if video.id == upload.id:
                storage_use.require(db, transaction.code, max_mb)
        if video.id == upload.id:
            _enqueue_probe(transaction, queue, video, request_id)
        return video


def remove(begin: Begin, queue: Queue, video_id: UUID, request_id: str) -> None:
    """Deletes the video, and its files a minute later. Refused while the video has snaps."""
    with begin() as transaction:
        with transaction.as_tenant() as db:
            rights.require_own(transaction.operator, read(db, transaction.code, video_id).created_by)
            delete(db, transaction.code, video_id)
        payload = {"videoId": str(video_id)}
        queue.enqueue(
            transaction.db, kinds.FORGET, payload, delay=LAST_WRITES, tenant=transaction.code, request_id=request_id
        )


def delete(db: Session, tenant: str, video_id: UUID) -> None:
    """Deletes the row. It is locked first: a snap that is being created is then either waited for, or finds no
    video."""
    video = _require(video_id, db.scalar(_BY_ID.with_for_update(), {"tenant": tenant, "id": video_id}))
    counts = select(func.count(), func.count(Snap.hidden_at)).where(Snap.tenant == tenant, Snap.video_id == video_id)
    snaps, hidden = db.execute(counts).one()
    if snaps:
        raise VideoHasSnaps(video_id, snaps - hidden, hidden)
    db.delete(video)
    db.flush()


def add_remote(begin: Begin, queue: Queue, url: str, request_id: str) -> Video:
    """The video at a URL, created where it is new. A job probes it unless an earlier probe found it usable: a server
    that could not be reached then may answer now."""
    with begin() as transaction:
        with transaction.as_tenant() as db:
            video = at_url(db, transaction.code, url, added_by=transaction.operator)
        if not (video.probe or {}).get("compatible"):
            _enqueue_probe(transaction, queue, video, request_id)
        return video


def probe_again(begin: Begin, queue: Queue, video: Video, request_id: str) -> None:
    with begin() as transaction:
        _enqueue_probe(transaction, queue, video, request_id)


def _enqueue_probe(transaction: TenantTransaction, queue: Queue, video: Video, request_id: str) -> None:
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
    change = update(Video).where(Video.tenant == tenant, Video.id == video_id).values(probe=dict(probe))
    if db.scalar(change.returning(Video.id)) is None:
        raise VideoNotFound(video_id)


def page(db: Session, tenant: str, window: Window = FIRST, *, q: str | None = None) -> Page[Video]:
    """A page of videos, of those whose file name or URL holds `q` in any case, however the accents of the file name are
    composed: those of a Mac may be characters of their own. A URL may have 4,000 of these, and PostgreSQL would put
    them in order in the square of their number. No index serves `q`: where few videos match, all of the tenant's are
    read."""
    videos = select(Video).where(Video.tenant == tenant)
    if q:
        name = func.coalesce(func.normalize(Video.file_name, type_=Text), Video.url)
        videos = videos.where(name.icontains(composed(q), autoescape=True))
    cut = ORDER.cut(videos, window)
    return ORDER.page(db.scalars(cut).all(), window)


def published(db: Session, tenant: str, after: UUID, at_most: int) -> list[tuple[UUID, str, frozenset[str]]]:
    """Videos whose bytes are in our storage, ordered by id, beginning after `after`: each one's id, the prefix of its
    bytes and their file name."""
    stored = select(Video.id, Video.storage_key).where(Video.tenant == tenant, Video.storage_key.is_not(None))
    rows = db.execute(stored.where(Video.id > after).order_by(Video.id).limit(at_most))
    split = [(row.id, *row.storage_key.rpartition("/")) for row in rows]
    return [(video_id, folder + slash, frozenset([name])) for video_id, folder, slash, name in split]


def named(db: Session, tenant: str, keys: Collection[str]) -> set[str]:
    """Those of the keys that belong to videos."""
    known = select(Video.storage_key).where(Video.tenant == tenant, Video.storage_key.in_(keys))
    return {key for key in db.scalars(known) if key}

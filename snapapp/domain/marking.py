"""What people do with a moment: they mark it, correct what is said of it, share it, cancel or retry its job, remove it.
Each is one transaction, begun here and committed when it returns."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from snapapp.domain import idempotency, kinds, payloads, sharing, snaps, webhooks
from snapapp.domain.rules.subjects import Attribute, Subject
from snapapp.domain.snaps import NewSnap, Removal
from snapapp.domain.tables import Share, Snap, Video
from snapapp.domain.transactions import Begin, Queue, TenantTransaction
from snapapp.errors import SnapHasChanged, SnapHasNoJob

_LAST_WRITES = timedelta(minutes=1)  # an attempt that is told to stop may still be storing what it has made


def mark(begin: Begin, queue: Queue, new: NewSnap, key: str | None, body_hash: bytes) -> tuple[Snap, bool]:
    """The snap and its job; or the snap that an equal request with this key made before, and True."""
    with begin() as transaction:
        db, tenant = transaction.db, transaction.code
        with transaction.as_tenant():
            holder = idempotency.hold_key(db, tenant, key, body_hash, new.id) if key else new.id
            if holder != new.id:
                return snaps.read(db, tenant, holder, hidden_too=True), True
            snap, video = snaps.create(db, tenant, new)
        enqueue(queue.enqueue, db, snap, video)
        return _as_it_is_now(transaction, new.id), False


def enqueue(put: Callable[..., int | None], db: Session | Connection, snap: Snap, video: Video) -> None:
    """Adds the job that makes the evidence. A snap has one."""
    put(
        db,
        kinds.SNAP,
        payloads.of_snap(snap, video),
        tenant=snap.tenant,
        snap_id=snap.id,
        unique_key=str(snap.id),
        concurrency_key=payloads.host_of(video),
        request_id=snap.request_id,
    )


def read(begin: Begin, snap_id: UUID) -> Snap:
    """The snap as it is now, and its job."""
    with begin() as transaction:
        return _as_it_is_now(transaction, snap_id)


def correct(
    begin: Begin,
    snap_id: UUID,
    subject_id: str | None,
    attributes: tuple[Attribute, ...] | None,
    filmed_at: datetime | None = None,
    *,
    by: str,
    versions: Collection[str] | None = None,
) -> Snap:
    """Mends what was typed, and describes a draft. What is left out stays as it is now, whoever else corrects it.
    With versions: only while the snap is one of these."""
    with begin() as transaction, transaction.as_tenant() as db:
        there = snaps.locked(db, transaction.code, snap_id)
        if versions is not None and there.version not in versions:
            raise SnapHasChanged(snap_id)
        meant = None
        if subject_id is not None or attributes is not None:
            kept = there.subject
            meant = Subject(subject_id or kept.id, kept.attributes if attributes is None else attributes)
        return snaps.correct(db, transaction.code, snap_id, meant, filmed_at, by=by)


def remove(begin: Begin, queue: Queue, snap_id: UUID, request_id: str) -> Removal:
    """Deletes it, and soon its files; hides it where it was ever shared."""
    with begin() as transaction:
        db, tenant = transaction.db, transaction.code
        job_id = queue.lock(db, tenant, snap_id)
        with transaction.as_tenant():
            removal = snaps.remove(db, tenant, snap_id)
        if removal is Removal.DELETED:
            if job_id is not None:
                queue.give_up(db, job_id)
            order = {"snapId": str(snap_id)}
            queue.enqueue(db, kinds.FORGET, order, delay=_LAST_WRITES, tenant=tenant, request_id=request_id)
        return removal


def cancel(begin: Begin, queue: Queue, snap_id: UUID, by: str | None) -> Snap:
    """Cancels the snap's job: at once while it waits; a running one is asked to stop."""
    with begin() as transaction:
        job_id = queue.lock(transaction.db, transaction.code, snap_id)
        with transaction.as_tenant() as db:
            snaps.read(db, transaction.code, snap_id)
            snaps.note_cancel(db, transaction.code, snap_id, by or transaction.tenant.name)
        queue.cancel(transaction.db, _there(job_id, snap_id))
        return _as_it_is_now(transaction, snap_id)


def retry(begin: Begin, queue: Queue, snap_id: UUID) -> Snap:
    """Tries a failed or cancelled one again, counting attempts from zero."""
    with begin() as transaction:
        job_id = queue.lock(transaction.db, transaction.code, snap_id)
        with transaction.as_tenant() as db:
            snaps.read(db, transaction.code, snap_id)
        queue.retry(transaction.db, _there(job_id, snap_id))
        return _as_it_is_now(transaction, snap_id)


def _there(job_id: int | None, snap_id: UUID) -> int:
    if job_id is None:
        raise SnapHasNoJob(snap_id)
    return job_id


def _as_it_is_now(transaction: TenantTransaction, snap_id: UUID) -> Snap:
    transaction.stay_tenant()
    return snaps.read(transaction.db, transaction.code, snap_id)


def share(begin: Begin, queue: Queue, snap_id: UUID, expires_at: datetime | None, request_id: str) -> Share:
    """The link in force, made if there is none. Webhooks are told of a new one."""
    with begin() as transaction:
        with transaction.as_tenant() as db:
            snaps.lock(db, transaction.code, snap_id)  # of two at once one makes the link and tells of it
            is_new = sharing.in_force(db, transaction.code, snap_id) is None
            link = sharing.share(db, transaction.code, snap_id, expires_at=expires_at)
        if is_new:
            webhooks.announce(queue.enqueue, db, transaction.code, snap_id, "snap.shared", request_id)
        return link


def revoke(begin: Begin, snap_id: UUID) -> None:
    """The link stops working. The next share makes another one."""
    with begin() as transaction, transaction.as_tenant() as db:
        snaps.read(db, transaction.code, snap_id)
        sharing.revoke(db, transaction.code, snap_id)

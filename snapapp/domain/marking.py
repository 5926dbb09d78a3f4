"""The use cases of a snap: mark a moment, correct its description, share it, cancel or retry its job, remove it. Each
function is one transaction, which begins here and is committed when the function returns; only `enqueue` works in its
caller's."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from snapapp.domain import idempotency, kinds, payloads, sharing, snaps, videos, webhooks
from snapapp.domain.rules import rights
from snapapp.domain.rules.subjects import Attribute, Subject
from snapapp.domain.snaps import NewSnap, Removal
from snapapp.domain.tables import Share, Snap, Video
from snapapp.domain.transactions import Begin, Queue, TenantTransaction
from snapapp.errors import SnapHasChanged, SnapHasNoJob


def mark(begin: Begin, queue: Queue, new: NewSnap, key: str | None, body_hash: bytes) -> tuple[Snap, bool]:
    """Creates a snap and its job. Returns the snap, and whether an equal request with this key had already created
    it."""
    with begin() as transaction:
        db, tenant, operator = transaction.db, transaction.code, transaction.operator
        rights.require_name(operator, new.nickname, new.email)
        if operator is not None:  # as it is stored, so that the snap becomes this operator's
            new = replace(new, email=operator.email)
        with transaction.as_tenant():
            holder = idempotency.hold_key(db, tenant, key, body_hash, new.id) if key else new.id
            if holder != new.id:
                return snaps.read(db, tenant, holder, hidden_too=True), True
            snap, video = snaps.create(db, tenant, new)
        job_id = enqueue(queue.enqueue, db, snap, video)
        assert job_id  # None only with on_conflict="ignore"
        return snaps.with_job(snap, queue.enqueued(db, job_id)), False


def enqueue(put: Callable[..., int | None], db: Session | Connection, snap: Snap, video: Video) -> int | None:
    """Adds the job that makes the snap's evidence; a snap has one such job."""
    return put(
        db,
        kinds.SNAP,
        payloads.of_snap(snap, video),
        tenant=snap.tenant,
        snap_id=snap.id,
        unique_key=str(snap.id),
        concurrency_key=payloads.host_of(video),
        request_id=snap.request_id,
    )


def read(begin: Begin, snap_id: UUID, *, hidden_too: bool = False) -> Snap:
    """The snap with its job."""
    with begin() as transaction:
        return _read_current(transaction, snap_id, hidden_too=hidden_too)


def correct(
    begin: Begin,
    queue: Queue,
    snap_id: UUID,
    subject_id: str | None,
    attributes: tuple[Attribute, ...] | None,
    filmed_at: datetime | None = None,
    *,
    by: str,
    versions: Collection[str] | None = None,
) -> Snap:
    """Corrects the subject or the filming date, and describes a draft. An argument that is None keeps what the row has
    at that moment, also where somebody else corrects the snap meanwhile. Where `versions` are given, the snap must have
    one of them. Where the subject is drawn on the frames, the snap's job is given the new one."""
    with begin() as transaction:
        db, tenant, operator = transaction.db, transaction.code, transaction.operator
        rights.require_name(operator, by)
        job_id = queue.lock(db, tenant, snap_id)
        with transaction.as_tenant():
            snap = snaps.locked(db, tenant, snap_id)
            rights.require_own(operator, snap.operator_id)
            subject = None
            if subject_id is not None or attributes is not None:
                current = snap.subject
                subject = Subject(subject_id or current.id, current.attributes if attributes is None else attributes)
            if versions is not None and snap.version not in versions:
                if _has_already(snap, subject, filmed_at):  # the same correction again, whose answer was lost
                    return snap
                raise SnapHasChanged(snap_id)
            snap = snaps.correct(db, tenant, snap_id, subject, filmed_at, by=by, operator=operator)
            video = videos.read(db, tenant, snap.video_id)
        if job_id is not None and subject is not None and snap.overlay:
            queue.order_anew(db, job_id, payloads.of_snap(snap, video))
        return snap


def _has_already(snap: Snap, subject: Subject | None, filmed_at: datetime | None) -> bool:
    is_described = subject is None or (subject == snap.subject and not snap.is_draft)
    return is_described and filmed_at in (None, snap.filmed_at)


def remove(begin: Begin, queue: Queue, snap_id: UUID, request_id: str) -> Removal:
    """Deletes the snap at once, and its files a minute later. A snap that was ever shared is hidden instead."""
    with begin() as transaction:
        db, tenant = transaction.db, transaction.code
        job_id = queue.lock(db, tenant, snap_id)
        with transaction.as_tenant():
            _require_own(transaction, snap_id)
            removal = snaps.remove(db, tenant, snap_id)
        if removal is Removal.DELETED:
            if job_id is not None:
                queue.give_up(db, job_id)
            columns = {"tenant": tenant, "snap_id": snap_id, "request_id": request_id}
            # by this job open lists learn of the removal, too
            queue.enqueue(db, kinds.FORGET, {"snapId": str(snap_id)}, delay=videos.LAST_WRITES, **columns)
        return removal


def cancel(begin: Begin, queue: Queue, snap_id: UUID, by: str | None) -> Snap:
    """Cancels the snap's job: a waiting job ends at once, a running job is asked to stop."""
    with begin() as transaction:
        rights.require_name(transaction.operator, by)
        job_id = queue.lock(transaction.db, transaction.code, snap_id)
        with transaction.as_tenant() as db:
            _require_own(transaction, snap_id)
            snaps.note_cancel(db, transaction.code, snap_id, by or transaction.name)
        queue.cancel(transaction.db, _require_job(job_id, snap_id))
        return _read_current(transaction, snap_id)


def retry(begin: Begin, queue: Queue, snap_id: UUID) -> Snap:
    """Runs a failed or cancelled job of the snap again, counting its attempts from zero."""
    with begin() as transaction:
        job_id = queue.lock(transaction.db, transaction.code, snap_id)
        with transaction.as_tenant():
            _require_own(transaction, snap_id)
        queue.retry(transaction.db, _require_job(job_id, snap_id))
        return _read_current(transaction, snap_id)


def _require_own(transaction: TenantTransaction, snap_id: UUID, *, hidden_too: bool = False) -> None:
    """Raises where there is no such snap, or who signed in may not change it."""
    snap = snaps.read(transaction.db, transaction.code, snap_id, hidden_too=hidden_too)
    rights.require_own(transaction.operator, snap.operator_id)


def _require_job(job_id: int | None, snap_id: UUID) -> int:
    if job_id is None:
        raise SnapHasNoJob(snap_id)
    return job_id


def _read_current(transaction: TenantTransaction, snap_id: UUID, *, hidden_too: bool = False) -> Snap:
    transaction.stay_tenant()
    return snaps.read(transaction.db, transaction.code, snap_id, hidden_too=hidden_too)


def share(begin: Begin, queue: Queue, snap_id: UUID, expires_at: datetime | None, request_id: str) -> Share:
    """The link in force, created if there is none. Webhooks hear of a new link."""
    with begin() as transaction:
        with transaction.as_tenant() as db:
            _require_own(transaction, snap_id)
            snaps.lock(db, transaction.code, snap_id)  # of two requests at once only one makes and announces the link
            is_new = sharing.in_force(db, transaction.code, snap_id) is None
            link = sharing.share(db, transaction.code, snap_id, expires_at=expires_at)
        if is_new:
            webhooks.announce(queue.enqueue, db, transaction.code, snap_id, webhooks.Event.SHARED, request_id)
        return link


def revoke(begin: Begin, snap_id: UUID) -> None:
    """Ends the link in force, also that of a hidden snap. Sharing the snap again creates a different link."""
    with begin() as transaction, transaction.as_tenant() as db:
        _require_own(transaction, snap_id, hidden_too=True)
        sharing.revoke(db, transaction.code, snap_id)

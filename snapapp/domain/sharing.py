"""Public links to snaps. A snap has at most one link in force, which can be revoked. From its first link on the snap's
evidence never changes."""

import secrets
from datetime import datetime
from uuid import UUID

from sqlalchemy import Update, func, literal, or_, select, update
from sqlalchemy.orm import Session

from snapapp.domain import snaps
from snapapp.domain.rules import validation
from snapapp.domain.tables import Share, Snap, Tenant
from snapapp.errors import Invalid, PublicSnapNotFound, SnapIsDraft, SnapNotFound
from snapapp.postgres import database

_TOKEN_LONGEST = 200


_IS_IN_FORCE = Share.revoked_at.is_(None) & or_(Share.expires_at.is_(None), Share.expires_at > func.now())


def share(db: Session, tenant: str, snap_id: UUID, *, expires_at: datetime | None = None) -> Share:
    """The link in force, created if there is none, also for a snap that is still being processed. A given `expires_at`
    replaces the link's own."""
    _insist_on_future(db, expires_at)
    if snaps.locked(db, tenant, snap_id).is_draft:  # of two at once the second waits here, then finds the first's link
        raise SnapIsDraft(snap_id)
    _end_expired(db, tenant, snap_id)
    link = in_force(db, tenant, snap_id)
    if link is None:
        link = Share(token=secrets.token_hex(16), tenant=tenant, snap_id=snap_id)
        db.add(link)
    if expires_at is not None:
        link.expires_at = expires_at
    db.flush()
    return link


def _insist_on_future(db: Session, expires_at: datetime | None) -> None:
    if expires_at is not None and db.scalar(select(literal(expires_at) <= func.now())):
        raise Invalid("expiresAt: must be in the future")


def _end_expired(db: Session, tenant: str, snap_id: UUID) -> None:
    """Marks an expired link as revoked, so that the snap can get another one."""
    expired = _not_revoked(tenant, snap_id).where(Share.expires_at <= func.now())
    db.execute(expired.values(revoked_at=Share.expires_at))


def _not_revoked(tenant: str, snap_id: UUID) -> Update:
    return update(Share).where(Share.tenant == tenant, Share.snap_id == snap_id, Share.revoked_at.is_(None))


def in_force(db: Session, tenant: str, snap_id: UUID) -> Share | None:
    link = select(Share).where(Share.tenant == tenant, Share.snap_id == snap_id, _IS_IN_FORCE)
    return db.scalar(link.execution_options(populate_existing=True))


def revoke(db: Session, tenant: str, snap_id: UUID) -> bool:
    """Ends the link for ever, also that of a hidden snap. Returns whether there was a link in force."""
    was_in_force = in_force(db, tenant, snap_id) is not None
    revoked = db.scalars(_not_revoked(tenant, snap_id).values(revoked_at=func.now()).returning(Share.token)).all()
    if not revoked:
        snaps.read(db, tenant, snap_id, hidden_too=True)  # raises where there is no such snap
    return was_in_force and bool(revoked)


# --- for anonymous readers of a link: outside of any tenant's scope ---------------------------------------------


def find(db: Session, token: str) -> Share:
    """The link with this token; its row tells which tenant it belongs to. A tenant that is not active has none."""
    if validation.text(token, _TOKEN_LONGEST):
        raise PublicSnapNotFound(token)
    by_token = select(Share).join(Tenant, Tenant.code == Share.tenant).where(Share.token == token, _IS_IN_FORCE)
    link = db.scalar(by_token.where(Tenant.status == "ACTIVE"))
    if link is None:
        raise PublicSnapNotFound(token)
    return link


def read_public(db: Session, token: str) -> Snap:
    """The snap behind a link, hidden or not. The API's public answer chooses which of its fields are shown."""
    link = find(db, token)
    try:
        with database.scope(db, link.tenant):
            return snaps.read(db, link.tenant, link.snap_id, hidden_too=True)
    except SnapNotFound as error:
        raise PublicSnapNotFound(token) from error

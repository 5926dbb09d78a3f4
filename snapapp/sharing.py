"""Public links to snaps: one in force at a time, revocable, and the snap's evidence immutable from the first one on."""

import secrets
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from snapapp import checks, snaps
from snapapp import db as database
from snapapp.errors import Invalid, PublicSnapNotFound, SnapIsDraft, SnapNotFound
from snapapp.snaps import Snap

_TOKEN_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Share:
    token: str
    tenant: str
    snap_id: UUID
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


_IN_FORCE = """
SELECT token, tenant, snap_id, created_at, expires_at, revoked_at FROM share
 WHERE tenant = %(tenant)s AND snap_id = %(id)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
"""

# One that has expired is over for good, so that another can take its place.
_REVOKE_EXPIRED = """
UPDATE share SET revoked_at = expires_at
 WHERE tenant = %(tenant)s AND snap_id = %(id)s AND revoked_at IS NULL AND expires_at <= now()
"""

_SHARE = """
INSERT INTO share (token, tenant, snap_id, expires_at) VALUES (%(token)s, %(tenant)s, %(id)s, %(expires_at)s)
RETURNING token, tenant, snap_id, created_at, expires_at, revoked_at
"""

_EXTEND = """
UPDATE share SET expires_at = %(expires_at)s WHERE tenant = %(tenant)s AND token = %(token)s
RETURNING token, tenant, snap_id, created_at, expires_at, revoked_at
"""

_REVOKE = """
UPDATE share SET revoked_at = now() WHERE tenant = %(tenant)s AND snap_id = %(id)s AND revoked_at IS NULL
RETURNING token
"""

_FIND = """
SELECT token, tenant, snap_id, created_at, expires_at, revoked_at FROM share
 WHERE token = %(token)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
"""

_IS_PAST = "SELECT %(expires_at)s::timestamptz <= now()"


def share(db: Connection, tenant: str, snap_id: UUID, *, expires_at: datetime | None = None) -> Share:
    """The link in force, made if there is none; also of a snap that is still being processed. A time given is from now
    on when it ends."""
    of_snap = {"tenant": tenant, "id": snap_id, "expires_at": expires_at}
    _insist_on_future(db, expires_at)
    snaps.lock(db, tenant, snap_id)  # two at once: the second finds what the first one made
    if snaps.read(db, tenant, snap_id).is_draft:
        raise SnapIsDraft(snap_id)
    db.exec_driver_sql(_REVOKE_EXPIRED, of_snap)
    rows = db.exec_driver_sql(_IN_FORCE, of_snap).fetchall()
    if not rows:
        rows = db.exec_driver_sql(_SHARE, of_snap | {"token": secrets.token_hex(16)}).fetchall()
    elif expires_at is not None:
        rows = db.exec_driver_sql(_EXTEND, of_snap | {"token": rows[0][0]}).fetchall()
    return Share(*rows[0])


def _insist_on_future(db: Connection, expires_at: datetime | None) -> None:
    if expires_at is None:
        return
    checks.insist({"expiresAt": checks.moment(expires_at)})
    if db.exec_driver_sql(_IS_PAST, {"expires_at": expires_at}).scalar():
        raise Invalid("expiresAt: must be in the future")


def in_force(db: Connection, tenant: str, snap_id: UUID) -> Share | None:
    rows = db.exec_driver_sql(_IN_FORCE, {"tenant": tenant, "id": snap_id}).fetchall()
    return Share(*rows[0]) if rows else None


def revoke(db: Connection, tenant: str, snap_id: UUID) -> bool:
    """The link is dead for ever; also a hidden snap's. False: there was none in force."""
    was_in_force = in_force(db, tenant, snap_id) is not None
    revoked = db.exec_driver_sql(_REVOKE, {"tenant": tenant, "id": snap_id}).fetchall()
    if not revoked:
        snaps.read(db, tenant, snap_id, hidden_too=True)  # a snap that is not there is an error
    return was_in_force and bool(revoked)


# --- for whoever holds a link: outside of any scope -------------------------------------------------------------


def find(db: Connection, token: str) -> Share:
    """By its token alone, which is how it is found out whose it is."""
    if checks.text(token, _TOKEN_LONGEST):
        raise PublicSnapNotFound(token)
    rows = db.exec_driver_sql(_FIND, {"token": token}).fetchall()
    if not rows:
        raise PublicSnapNotFound(token)
    return Share(*rows[0])


def read_public(db: Connection, token: str) -> Snap:
    """The snap behind a link, hidden or not. What of it may be shown is for the public answer to choose."""
    link = find(db, token)
    try:
        with database.scope(db, link.tenant):
            return snaps.read(db, link.tenant, link.snap_id, hidden_too=True)
    except SnapNotFound as error:
        raise PublicSnapNotFound(token) from error

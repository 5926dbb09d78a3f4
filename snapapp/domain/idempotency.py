"""The same request again: whoever sends one twice with one Idempotency-Key gets the snap of the first."""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from snapapp.domain.rules import validation
from snapapp.domain.tables import IdempotencyKey
from snapapp.errors import KeyReused

_LONGEST = 200
_KEPT_FOR = timedelta(hours=24)


def hold_key(db: Session, tenant: str, key: str, body_hash: bytes, snap_id: UUID) -> UUID:
    """Whose the key is: `snap_id`, which the caller is to create in this transaction, or the snap that an equal
    request made in the last 24 hours."""
    validation.insist({"Idempotency-Key": validation.text(key, _LONGEST)})
    values = {"body_hash": body_hash, "snap_id": snap_id, "created_at": func.now()}
    # an update where it is too old to be anybody's, so that of two that come at once the second sees the first
    its = insert(IdempotencyKey).values(tenant=tenant, key=key, **values)
    its = its.on_conflict_do_update(
        index_elements=[IdempotencyKey.tenant, IdempotencyKey.key],
        set_=values,
        where=IdempotencyKey.created_at < func.now() - _KEPT_FOR,
    )
    if db.scalar(its.returning(IdempotencyKey.snap_id)):
        return snap_id
    there = select(IdempotencyKey).where(IdempotencyKey.tenant == tenant, IdempotencyKey.key == key)
    held = db.scalars(there).one()
    if held.body_hash != body_hash:
        raise KeyReused(key)
    return held.snap_id


def forget_keys(db: Session, tenant: str) -> int:
    """Those older than 24 hours; returns how many."""
    old = delete(IdempotencyKey).where(
        IdempotencyKey.tenant == tenant, IdempotencyKey.created_at < func.now() - _KEPT_FOR
    )
    return len(db.scalars(old.returning(IdempotencyKey.key)).all())

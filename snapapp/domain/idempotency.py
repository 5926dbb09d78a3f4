"""Idempotency keys: a client that sends the same request twice with one Idempotency-Key gets the snap of the first
request both times."""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from snapapp.domain.tables import IdempotencyKey
from snapapp.errors import KeyReused

_KEPT_FOR = timedelta(hours=24)


def hold_key(db: Session, tenant: str, key: str, body_hash: bytes, snap_id: UUID) -> UUID:
    """Takes the key for `snap_id`, and returns the id of the snap that holds the key. That is `snap_id` itself, which
    the caller then creates in this transaction, or a snap that an equal request created in the last 24 hours."""
    values = {"body_hash": body_hash, "snap_id": snap_id, "created_at": func.now()}
    # A key older than 24 hours is free: the upsert takes it over. Of two requests at once the second waits here for the
    # first, and then sees its key.
    claim = insert(IdempotencyKey).values(tenant=tenant, key=key, **values)
    claim = claim.on_conflict_do_update(
        index_elements=[IdempotencyKey.tenant, IdempotencyKey.key],
        set_=values,
        where=IdempotencyKey.created_at < func.now() - _KEPT_FOR,
    )
    if db.scalar(claim.returning(IdempotencyKey.snap_id)):
        return snap_id
    by_key = select(IdempotencyKey).where(IdempotencyKey.tenant == tenant, IdempotencyKey.key == key)
    holder = db.scalars(by_key).one()
    if holder.body_hash != body_hash:
        raise KeyReused(key)
    return holder.snap_id


def forget_keys(db: Session, tenant: str) -> int:
    """Deletes keys older than 24 hours; returns how many."""
    expired = delete(IdempotencyKey).where(
        IdempotencyKey.tenant == tenant, IdempotencyKey.created_at < func.now() - _KEPT_FOR
    )
    return len(db.scalars(expired.returning(IdempotencyKey.key)).all())

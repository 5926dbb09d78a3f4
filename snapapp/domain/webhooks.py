"""Webhooks: the URLs that a tenant wants called, and for which events. Each call is a job."""

import secrets
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Connection, any_, literal, select, update
from sqlalchemy.orm import Session

from snapapp.domain import kinds, turns
from snapapp.domain.tables import Tenant, Webhook
from snapapp.errors import Conflict, WebhookNotFound
from snapapp.postgres.database import scope

MOST = 20  # of a tenant
_BY_HAND, _GONE = "It was paused by hand.", "Its receiver answered 410."


class Event(StrEnum):
    COMPLETED = "snap.completed"
    FAILED = "snap.failed"
    SHARED = "snap.shared"


def every(db: Session, tenant: str) -> Sequence[Webhook]:
    return db.scalars(select(Webhook).where(Webhook.tenant == tenant).order_by(Webhook.id)).all()


def read(db: Session, tenant: str, webhook_id: int, *, lock: bool = False) -> Webhook:
    by_id = select(Webhook).where(Webhook.tenant == tenant, Webhook.id == webhook_id)
    by_id = by_id.with_for_update() if lock else by_id
    webhook = db.scalar(by_id)
    if webhook is None:
        raise WebhookNotFound(webhook_id)
    return webhook


def add(db: Session, tenant: str, url: str, events: Collection[str]) -> Webhook:
    """Adds a webhook, with a new secret that signs what is sent to it. The API shows the secret in this answer only."""
    turns.take(db, tenant, "webhooks")
    if len(every(db, tenant)) >= MOST:
        raise Conflict(f"There are {MOST} webhooks already, remove one first")
    new = Webhook(tenant=tenant, url=url, secret=secrets.token_urlsafe(32), events=_distinct(events))
    db.add(new)
    db.flush()
    return new


def change(
    db: Session,
    tenant: str,
    webhook_id: int,
    *,
    url: str | None = None,
    events: Collection[str] | None = None,
    is_active: bool | None = None,
) -> Webhook:
    """Changes the given values and keeps the others, the secret included."""
    hook = read(db, tenant, webhook_id, lock=True)
    if url is not None:
        hook.url = url
    if events is not None:
        hook.events = _distinct(events)
    if is_active is not None and is_active is not hook.is_active:
        hook.is_active, hook.paused_because = is_active, None if is_active else _BY_HAND
    db.flush()
    return hook


def remove(db: Session, tenant: str, webhook_id: int) -> None:
    db.delete(read(db, tenant, webhook_id, lock=True))
    db.flush()


def end(db: Session, tenant: str, webhook_id: int, url: str) -> None:
    """Pauses a webhook whose receiver at this URL wants no more; not one that was moved to another URL meanwhile."""
    its = update(Webhook).where(Webhook.tenant == tenant, Webhook.id == webhook_id, Webhook.url == url)
    db.execute(its.values(is_active=False, paused_because=_GONE))


def wanting(db: Session, tenant: str, event: str) -> Sequence[Webhook]:
    """The active webhooks that want this event. A tenant that is not active has none."""
    active = select(Webhook).join(Tenant, Tenant.code == Webhook.tenant).where(Tenant.status == "ACTIVE")
    active = active.where(Webhook.tenant == tenant, Webhook.is_active, literal(event) == any_(Webhook.events))
    return db.scalars(active.order_by(Webhook.id)).all()


def announce(
    enqueue: Callable[..., object],
    db: Session | Connection,
    tenant: str,
    snap_id: UUID,
    event: str,
    request_id: str | None,
) -> None:
    """Adds a job for each webhook that wants the event, in the transaction in which the event happened: an event that
    is rolled back calls nobody."""
    with scope(db, tenant) as as_tenant:
        hooks = wanting(as_tenant, tenant, event)
    for hook in hooks:
        payload = {"webhook_id": hook.id, "event": event, "snap_id": str(snap_id)}
        enqueue(db, kinds.WEBHOOK, payload, tenant=tenant, request_id=request_id)


def _distinct(events: Collection[str]) -> list[str]:
    return [event.value for event in Event if event in events]

"""Webhooks: whom a tenant wants told of what. Telling them is a job."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from sqlalchemy import Connection

from snapapp import checks
from snapapp.errors import Conflict, WebhookNotFound

EVENTS = ("snap.completed", "snap.failed", "snap.shared")
MOST = 20  # of a tenant
_URL_LONGEST = 4096
_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Webhook:
    id: int
    url: str
    events: tuple[str, ...]
    is_active: bool
    created_at: datetime


_EVERY = """
SELECT id, url, events, is_active, created_at FROM webhook WHERE tenant = %(tenant)s ORDER BY id
"""

_READ = """
SELECT id, url, events, is_active, created_at FROM webhook WHERE tenant = %(tenant)s AND id = %(id)s
"""

_ADD = """
INSERT INTO webhook (tenant, url, secret, events) VALUES (%(tenant)s, %(url)s, %(secret)s, %(events)s)
RETURNING id, url, events, is_active, created_at
"""

_CHANGE = """
UPDATE webhook
   SET url = coalesce(%(url)s, url), events = coalesce(%(events)s::text[], events),
       is_active = coalesce(%(is_active)s, is_active), updated_at = now()
 WHERE tenant = %(tenant)s AND id = %(id)s
RETURNING id, url, events, is_active, created_at
"""

_REMOVE = "DELETE FROM webhook WHERE tenant = %(tenant)s AND id = %(id)s RETURNING id"

_WANTING = """
SELECT id, url, events, is_active, created_at, secret FROM webhook
 WHERE tenant = %(tenant)s AND is_active AND %(event)s = ANY (events) ORDER BY id
"""


def every(db: Connection, tenant: str) -> list[Webhook]:
    return [_webhook(*row) for row in db.exec_driver_sql(_EVERY, {"tenant": tenant}).fetchall()]


def read(db: Connection, tenant: str, webhook_id: int) -> Webhook:
    return _one(db, _READ, tenant, webhook_id)


def add(db: Connection, tenant: str, url: str, events: Sequence[str]) -> tuple[Webhook, str]:
    """The webhook, and the secret that signs what it is sent: shown this once."""
    checks.insist({"url": checks.text(url, _URL_LONGEST), "events": _flaw_of_events(events)})
    if len(every(db, tenant)) >= MOST:
        raise Conflict(f"There are {MOST} webhooks already, remove one first")
    secret = secrets.token_urlsafe(32)
    values = {"tenant": tenant, "url": url, "secret": secret, "events": _distinct(events)}
    return _webhook(*db.exec_driver_sql(_ADD, values).fetchall()[0]), secret


def change(
    db: Connection,
    tenant: str,
    webhook_id: int,
    *,
    url: str | None = None,
    events: Sequence[str] | None = None,
    is_active: bool | None = None,
) -> Webhook:
    """What is given, the rest stays; the secret too."""
    flaws = {"url": None if url is None else checks.text(url, _URL_LONGEST)}
    checks.insist(flaws | {"events": None if events is None else _flaw_of_events(events)})
    changes = {"url": url, "events": None if events is None else _distinct(events), "is_active": is_active}
    return _one(db, _CHANGE, tenant, webhook_id, changes)


def remove(db: Connection, tenant: str, webhook_id: int) -> None:
    if not _is_id(webhook_id) or not _removed(db, tenant, webhook_id):
        raise WebhookNotFound(webhook_id)


def _removed(db: Connection, tenant: str, webhook_id: int) -> bool:
    return bool(db.exec_driver_sql(_REMOVE, {"tenant": tenant, "id": webhook_id}).fetchall())


def wanting(db: Connection, tenant: str, event: str) -> list[tuple[Webhook, str]]:
    """Those to be told of this event, each with its secret."""
    rows = db.exec_driver_sql(_WANTING, {"tenant": tenant, "event": event}).fetchall()
    return [(_webhook(*row), secret) for *row, secret in rows]


def _one(
    db: Connection, statement: str, tenant: str, webhook_id: int, values: Mapping[str, object] = MappingProxyType({})
) -> Webhook:
    if not _is_id(webhook_id):
        raise WebhookNotFound(webhook_id)
    rows = db.exec_driver_sql(statement, {"tenant": tenant, "id": webhook_id, **values}).fetchall()
    if not rows:
        raise WebhookNotFound(webhook_id)
    return _webhook(*rows[0])


def _is_id(number: int) -> bool:
    return 0 < number <= _HIGHEST


def _flaw_of_events(events: Sequence[str]) -> str | None:
    if not events:
        return "must name one at least"
    unknown = [event for event in events if event not in EVENTS]
    return f"must be among {', '.join(EVENTS)}" if unknown else None


def _distinct(events: Sequence[str]) -> list[str]:
    return [event for event in EVENTS if event in events]


def _webhook(webhook_id: int, url: str, events: list[str], is_active: bool, created_at: datetime) -> Webhook:
    return Webhook(webhook_id, url, tuple(events), is_active, created_at)

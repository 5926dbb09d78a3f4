"""Telling others what became of a snap: a job for each webhook, so a receiver that is away is told when it is back."""

import hashlib
import hmac
import json
from datetime import timedelta
from http import HTTPStatus
from time import time
from typing import Any
from uuid import UUID

from sqlalchemy import Connection
from tenacity import wait_random_exponential

from snapapp import snaps, sources, webhooks
from snapapp.db import scope
from snapapp.errors import SnapNotFound
from snapapp.jobs import Job, Permanent, enqueue, processor
from snapapp.processing import surroundings

KIND = "snap.webhook"
_WITHIN = timedelta(seconds=15)  # for an answer


def announce(db: Connection, tenant: str, snap_id: UUID, event: str, request_id: str | None) -> None:
    """In the transaction in which it happened, so nobody is told of what was rolled back."""
    with scope(db, tenant):
        wanting = webhooks.wanting(db, tenant, event)
    for webhook, _secret in wanting:
        payload = {"webhook_id": webhook.id, "event": event, "snap_id": str(snap_id)}
        enqueue(db, KIND, payload, tenant=tenant, request_id=request_id)


@processor(
    KIND,
    queue="light",
    timeout=timedelta(seconds=30),
    max_attempts=10,
    wait=wait_random_exponential(multiplier=5, max=timedelta(hours=1)),  # ten attempts: some two hours
)
def send(job: Job) -> dict[str, Any]:
    """Signed over its time and its body: `X-Snapapp-Signature: t=…,v1=HMAC-SHA256("t.body")`."""
    told = _told(job)
    if told is None:
        return {"sent": False}
    url, secret, body = told
    moment = int(time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "snapapp",
        "X-Snapapp-Event": job.payload["event"],
        "X-Snapapp-Delivery": str(job.id),
        "X-Snapapp-Signature": f"t={moment},v1={signature(secret, moment, body)}",
    }
    try:
        status = sources.post(url, body, headers, _limits())
    except sources.SourceRefused as error:
        raise Permanent(str(error)) from error
    if status == HTTPStatus.GONE:
        raise Permanent("the receiver answered 410: it wants no more of this")
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise sources.SourceUnavailable(sources.Reason.BUSY, f"the receiver answered {status}")
    return {"sent": True, "status": status}


def signature(secret: str, moment: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()


def _told(job: Job) -> tuple[str, str, bytes] | None:
    """To whom, signed with what, and what: as things are now. None: nobody wants it any more, or there is no snap."""
    event, snap_id = job.payload["event"], UUID(job.payload["snap_id"])
    with job.connection() as db, scope(db, job.tenant):
        wanting = webhooks.wanting(db, job.tenant, event)
        found = [(hook, secret) for hook, secret in wanting if hook.id == job.payload["webhook_id"]]
        try:
            snap = snaps.read(db, job.tenant, snap_id)
        except SnapNotFound:
            return None
    if not found:
        return None
    body = {
        "event": event,
        "snapId": str(snap.id),
        "videoId": str(snap.video_id),
        "subjectId": snap.subject.id,
        "status": snap.status.value,
        "error": snap.error,
        "processedAt": snap.processed_at.isoformat() if snap.processed_at else None,
    }
    [(hook, secret)] = found
    return hook.url, secret, json.dumps(body, ensure_ascii=False).encode()


def _limits() -> sources.Limits:
    allowed = frozenset(surroundings.settings().fetch_allowed_hosts)
    return sources.Limits(timeout=_WITHIN, stall=_WITHIN, allowed_hosts=allowed)

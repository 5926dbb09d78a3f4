"""Calls webhooks, one job for each call, so a receiver that cannot be reached is called again later."""

import hashlib
import hmac
import json
from datetime import timedelta
from http import HTTPStatus
from time import time
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from snapapp import sources
from snapapp.domain import snaps, webhooks
from snapapp.errors import SnapNotFound, error_for_client
from snapapp.jobs import Job, Permanent, tracing
from snapapp.postgres.database import scope
from snapapp.processing import child_settings

_WITHIN = timedelta(seconds=15)  # for an answer


def send(job: Job) -> dict[str, Any]:
    """Sends one call. Its signature covers the time and the body: `X-Snapapp-Signature:
    t=…,v1=HMAC-SHA256("t.body")`."""
    call = _call_of(job)
    if call is None:
        return {"sent": False}
    url, secret, body = call
    moment = int(time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "snapapp",
        "X-Snapapp-Event": job.payload["event"],
        "X-Snapapp-Delivery": str(job.id),
        "X-Snapapp-Signature": f"t={moment},v1={signature(secret, moment, body)}",
    }
    with tracing.span("send", job.payload["event"]) as span:
        try:
            status = sources.post(url, body, headers | tracing.header(), _limits())
        except sources.SourceRefused as error:
            raise Permanent(str(error)) from error
        span.tell({"http.request.method": "POST", "http.response.status_code": status})
    host = urlsplit(url).hostname  # no more of the address: some receivers have a secret in its path
    if status == HTTPStatus.GONE:
        with job.connection() as db, scope(db, job.tenant) as as_tenant:
            webhooks.end(as_tenant, job.tenant, job.payload["webhook_id"], url)
        raise Permanent(f"{host} answered 410: it wants no more, so the webhook is not active any more")
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise sources.SourceUnavailable(sources.Reason.BUSY, f"{host} answered {status}")
    return {"sent": True, "status": status}


def signature(secret: str, moment: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()


def _call_of(job: Job) -> tuple[str, str, bytes] | None:
    """The URL, the secret and the body of the call, from the rows as they are now. None if the webhook or the snap is
    gone."""
    event, snap_id = job.payload["event"], UUID(job.payload["snap_id"])
    with job.connection() as db, scope(db, job.tenant) as as_tenant:
        wanting = webhooks.wanting(as_tenant, job.tenant, event)
        hook = next((each for each in wanting if each.id == job.payload["webhook_id"]), None)
        try:
            snap = snaps.read(as_tenant, job.tenant, snap_id)
        except SnapNotFound:
            return None
    if hook is None:
        return None
    body = {
        "event": event,
        "snapId": str(snap.id),
        "videoId": str(snap.video_id),
        "subjectId": snap.subject.id,
        "status": snap.status.value,
        "error": error_for_client(snap.error),
        "processedAt": snap.processed_at.isoformat() if snap.processed_at else None,
    }
    return hook.url, hook.secret, json.dumps(body, ensure_ascii=False).encode()


def _limits() -> sources.Limits:
    allowed = frozenset(child_settings.settings().fetch_allowed_hosts)
    return sources.Limits(timeout=_WITHIN, stall=_WITHIN, allowed_hosts=allowed)

"""/v2/events: state changes of a tenant's snaps, live, as server-sent events. It uses the watcher of the queue's
stream: one thread looks at the database for all clients, and only while there are clients."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import Request
from pydantic import Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from snapapp.api.http.deps import MonolithDep, of_process
from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Shown
from snapapp.api.http.streams import STREAMS_MAX, EventStream, StreamClient, Watcher, described, event, refuse
from snapapp.api.http.tenancy import Code, Presented, code_of
from snapapp.domain.kinds import FORGET, SNAP
from snapapp.domain.tables import SnapStatus
from snapapp.errors import NotFound, Unauthorized, error_for_client
from snapapp.jobs.model import Status
from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.people import views
from snapapp.jobs.rows.people.changes import Change, Interest, News, Tail, What
from snapapp.jobs.rows.people.views import JobSummary

router = Router(prefix="/v2", tags=["events"])

OF_ONE_MAX = 20  # streams of one tenant, so that no tenant can take all streams
_SNAPSHOT = 50  # snaps
ASK_EVERY = 5.0  # seconds between two checks of the token: so long may a stream outlive it

_log = logging.getLogger(__name__)

# REMOVED is not among them: when a finished job is deleted, its snap does not change.
_NAMES = {
    (SNAP, What.ADDED): "snap.created",
    (SNAP, What.CLAIMED): "snap.started",
    (SNAP, What.PROGRESS): "snap.progress",
    (SNAP, What.STOPPING): "snap.stopping",
    (SNAP, What.RETRIED): "snap.retried",
    (SNAP, What.WAITING): "snap.waiting",
    (SNAP, What.COMPLETED): "snap.completed",
    (SNAP, What.FAILED): "snap.failed",
    (SNAP, What.CANCELLED): "snap.cancelled",
    (FORGET, What.ADDED): "snap.deleted",
}


class SnapNews(Shown):
    """The state of a snap, as its job has it. The snap itself is at `/v2/snaps/{snapId}`."""

    snap_id: UUID
    status: SnapStatus
    job_id: int
    job_status: str
    attempts: int
    max_attempts: int
    next_run_at: datetime | None
    progress: Any = Field(examples=[{"percent": 40, "note": "frames"}])
    error: str | None


class SnapGone(Shown):
    """A snap that was deleted. One that is only hidden, because it was shared, is not told."""

    snap_id: UUID


class SnapEvents:
    """The events for a tenant: the state of its snaps, without the workers."""

    def told(self, db: Db, news: News) -> bytes:
        changes = [change for change in news.changes if (change.job.kind, change.what) in _NAMES]
        owners = views.snaps(db, [change.job.id for change in changes]) if changes else {}
        events = [_told(change, owners[change.job.id]) for change in changes if change.job.id in owners]
        if news.skipped:
            events.append(event("stream.skipped", "{}"))  # without the number, which would count other tenants' changes
        return b"".join(events)

    def snapshot(self, db: Db, tail: Tail) -> bytes:
        jobs = [job for job in tail.jobs if job.kind == SNAP][:_SNAPSHOT]
        owners = views.snaps(db, [job.id for job in jobs])
        lines = [_news(job, owners[job.id]).model_dump_json(by_alias=True) for job in jobs if job.id in owners]
        return event("snapshot", f'{{"items":[{",".join(lines)}]}}')


def _told(change: Change, snap_id: UUID) -> bytes:
    of = SnapGone(snap_id=snap_id) if change.job.kind == FORGET else _news(change.job, snap_id)
    return event(_NAMES[change.job.kind, change.what], of.model_dump_json(by_alias=True))


def _news(job: JobSummary, snap_id: UUID) -> SnapNews:
    return SnapNews(
        snap_id=snap_id,
        status=_STATES.get(job.status, SnapStatus.PENDING),
        job_id=job.id,
        job_status=job.status,
        attempts=job.attempt_count,
        max_attempts=job.max_attempts,
        next_run_at=job.next_retry_at if job.status in (Status.PENDING, Status.RETRY_WAIT) else None,
        progress=job.progress,
        error=error_for_client(job.last_error) if job.status is not Status.COMPLETED else None,
    )


_STATES = {
    Status.COMPLETED: SnapStatus.COMPLETED,
    Status.FAILED: SnapStatus.FAILED,
    Status.CANCELLED: SnapStatus.FAILED,
}


# --- the route --------------------------------------------------------------------------------------------------


_EVENTS = described(
    "`snapshot` first, with the newest snaps, then `snap.created`, `snap.started`, `snap.progress`, `snap.stopping`, "
    "`snap.retried`, `snap.waiting`, `snap.completed`, `snap.failed`, `snap.cancelled` and `snap.deleted`; "
    "`stream.skipped` when more came and went than a look sees; `database.away` and `database.back`, after which comes "
    "another `snapshot`.",
    'event: snap.completed\ndata: {"snapId":"…","status":"COMPLETED"}\n\n',
)
_RESPONSES = _EVENTS | may_be(_503=f"{OF_ONE_MAX} streams of the tenant are open, or {STREAMS_MAX} in all.")


@router.get("/events", response_class=EventStream, status_code=200, responses=_RESPONSES)
async def listen(request: Request, monolith: MonolithDep, credentials: Presented, code: Code) -> EventStream:
    """State changes of the tenant's snaps, live."""
    # async, because it lasts as long as the client is connected
    listeners = of_process(
        request, "listeners", lambda: Watcher(monolith.url, asyncio.get_running_loop(), SnapEvents())
    )
    leaving = request.app.state.shutdown.begun
    theirs = sum(client.interest.tenant == code for client in listeners.clients)
    if leaving.is_set() or listeners.is_full or theirs >= OF_ONE_MAX:
        refuse(leaving)
    return _TenantStream(
        listeners,
        StreamClient(Interest(frozenset({SNAP, FORGET}), tenant=code)),
        leaving,
        lambda: code_of(monolith, credentials),
    )


class _TenantStream(EventStream):
    """A stream that also ends when the tenant's token is changed."""

    def __init__(self, watcher: Watcher, client: StreamClient, leaving: asyncio.Event, code: Callable[[], str]) -> None:
        super().__init__(watcher, client, leaving)
        self._code = code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token_watch = asyncio.create_task(self._watch_token())
        try:
            await super().__call__(scope, receive, send)
        finally:
            token_watch.cancel()

    async def _watch_token(self) -> None:
        is_theirs = True
        while is_theirs:
            await asyncio.sleep(ASK_EVERY)
            try:
                is_theirs = await run_in_threadpool(self._code) == self._client.interest.tenant
            except (NotFound, Unauthorized):
                is_theirs = False
            except SQLAlchemyError:
                _log.info("Whether a stream is still its tenant's is asked again: the database does not answer.")
        self._client.end()

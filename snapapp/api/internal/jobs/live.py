"""/internal/jobs/stream: the queue, live, as server-sent events."""

import asyncio
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import Query, Request
from pydantic import Field

from snapapp.api.http.deps import MonolithDep, of_process
from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Id, Label, Name, Shown
from snapapp.api.http.streams import STREAMS_MAX, EventStream, StreamClient, Watcher, described, event, refuse
from snapapp.api.internal.jobs.shown import PREFIX, JobLine, LogLine
from snapapp.jobs.rows.database import Db, run
from snapapp.jobs.rows.people import lists, views
from snapapp.jobs.rows.people.changes import IDS_MAX, Change, Interest, News, Tail, What
from snapapp.jobs.rows.people.lists import Filter
from snapapp.jobs.rows.people.views import LogEntry

_PAGE = 50

_NAMES = {What.CLAIMED: "job.active"} | {what: f"job.{what}" for what in What if what is not What.CLAIMED}

router = InternalRouter(prefix=PREFIX, tags=["jobs"])


# --- the events -------------------------------------------------------------------------------------------------


class Snapshot(Shown):
    """The first event of a stream, which is sent again after the database could not be reached."""

    items: list[JobLine] = Field(description="The newest jobs that match, newest first.")
    running: list[JobLine] = Field(description="Running jobs that are older than those.")
    next: int | None = Field(description="The `before` of the next page of the list.", examples=[951])
    now: datetime = Field(description="The database's time.")


class Said(LogLine):
    """A log line of a watched job."""

    job_id: int


class JobEvents:
    """The events for operators: jobs with all their fields."""

    def told(self, _db: Db, news: News) -> bytes:
        parts = [event(_NAMES[change.what], _job(change)) for change in news.changes]
        parts += [event("job.log", _line(line.job_id, line.entry)) for line in news.lines]
        if news.skipped:
            parts.append(event("stream.skipped", f'{{"atMost":{news.skipped}}}'))
        return b"".join(parts)

    def snapshot(self, db: Db, tail: Tail) -> bytes:
        return event("snapshot", _snapshot(db, tail).model_dump_json(by_alias=True))


def _job(change: Change) -> str:
    return JobLine.model_validate(change.job).model_dump_json(by_alias=True)


def _line(job_id: int, entry: LogEntry) -> str:
    return Said(job_id=job_id, **asdict(entry)).model_dump_json(by_alias=True)


def _snapshot(db: Db, tail: Tail) -> Snapshot:
    """The snapshot for an interest. It is read after the tail's look, so that whatever it misses comes as a change."""
    interest = tail.interest
    running = [job for job in tail.jobs if job.status == "RUNNING"]
    if interest.ids:
        [(now,)] = run(db, "SELECT clock_timestamp()", {})
        return _shown(tail.jobs, [], None, now)
    kind = next(iter(interest.kinds), None)  # of this stream there is at most one
    page = lists.jobs(db, Filter(kind=kind, queue=interest.queue, tenant=interest.tenant), limit=_PAGE)
    listed = {job.id for job in page.jobs}
    return _shown(page.jobs, [job for job in running if job.id not in listed][:_PAGE], page.before, page.now)


def _shown(items: list[views.JobSummary], running: list[views.JobSummary], rest: int | None, now: datetime) -> Snapshot:
    lines = [[JobLine.model_validate(job) for job in jobs] for jobs in (items, running)]
    return Snapshot(items=lines[0], running=lines[1], next=rest, now=now)


# --- the route --------------------------------------------------------------------------------------------------


_EVENTS = described(
    "`snapshot` first, then `job.added`, `job.active`, `job.progress`, `job.stopping`, `job.retried`, `job.waiting`, "
    "`job.completed`, `job.failed`, `job.cancelled` and `job.removed`, each with the job as in the list (a large "
    "progress or error cut); `job.log` for jobs named by `id`; `stream.skipped` when more jobs came and went than a "
    "look sees; `database.away` and `database.back`. A job that went several steps between two looks is told by the "
    "last of them.",
    'event: job.active\ndata: {"id":7,"kind":"demo.sleep","status":"RUNNING"}\n\n',
)
_RESPONSES = _EVENTS | may_be(_503=f"{STREAMS_MAX} streams are open, or the process is leaving.")


@router.get("/stream", response_class=EventStream, status_code=200, responses=_RESPONSES)
async def stream(
    request: Request,
    monolith: MonolithDep,
    kind: Annotated[Name | None, Query(description="Only jobs of this kind.", examples=["demo.sleep"])] = None,
    queue: Annotated[Name | None, Query(description="Only jobs of this queue.", examples=["demo"])] = None,
    tenant: Annotated[Label | None, Query(description="Only jobs of this tenant; empty: those of no tenant.")] = None,
    id: Annotated[  # noqa: A002 - the parameter's name
        list[Id], Query(description="Only these jobs, and their log lines too. May be repeated.", max_length=IDS_MAX)
    ] = [],  # noqa: B006 - FastAPI copies it
) -> EventStream:
    """The changes of jobs, live, as server-sent events."""
    # async, because it lasts as long as the client is connected
    watcher = of_process(request, "watcher", lambda: Watcher(monolith.url, asyncio.get_running_loop(), JobEvents()))
    leaving = request.app.state.shutdown.begun
    if watcher.is_full or leaving.is_set():
        refuse(leaving)
    kinds = frozenset([] if kind is None else [kind])
    return EventStream(watcher, StreamClient(Interest(kinds, queue, tenant, frozenset(id))), leaving)

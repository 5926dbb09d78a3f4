"""/internal/schedules: recurring jobs, when each fires next, and what happened at each slot."""

from datetime import datetime
from typing import Annotated

from fastapi import Path, Query, Response
from pydantic import Field

from snapapp.api.http.deps import Reading, Who, Writing
from snapapp.api.http.errors import may_be
from snapapp.api.http.paging import BEFORE, Limit
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Digits, Json, Moment, Sent, Shown, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.jobs.model import Status
from snapapp.jobs.rows.people import audit
from snapapp.jobs.schedules import views
from snapapp.jobs.schedules.slots import Missed, Outcome, zone_of

router = InternalRouter(prefix="/internal/schedules", tags=["schedules"], route_class=StrictRoute)

_LEDGER = 20  # slots that are shown with a schedule

ScheduleName = Annotated[
    str,
    Path(
        description="The schedule's name, which is the kind of its jobs.",
        examples=["reports.nightly"],
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00/]+$",
    ),
]
_NO_SCHEDULE = may_be(_404="No worker ever declared such a schedule.")


class ScheduleLine(Shown):
    """A schedule, its last slot and its next one."""

    name: str = Field(examples=["reports.nightly"])
    spec: str = Field(
        description="Five cron fields, or `every Ns`; then perhaps `from` and `until` a time.", examples=["0 3 * * *"]
    )
    tz: str = Field(description="The time zone of the cron fields.", examples=["America/Sao_Paulo"])
    queue: str = Field(description="Which queue its jobs wait in.", examples=["default"])
    payload: Json = Field(description="The payload of its jobs, without schedule and slot.")
    max_attempts: int
    missed: Missed = Field(description="What happens to slots that no worker noticed in time.")
    at_most: int = Field(description="How many missed slots run where `missed` is `all`.")
    overlap: bool = Field(description="Whether a slot fires while the job of the one before has not ended.")
    workers: int = Field(description="How many live workers declare it; 0: nothing fires.")
    paused_at: datetime | None
    paused_reason: str | None
    last_slot: datetime | None
    last_outcome: Outcome | None
    last_why: str | None
    last_fired: datetime | None
    last_job: int | None
    last_job_status: Status | None = Field(description="Null also when the job was pruned.")
    settled_until: datetime = Field(description="Up to this time every slot is in the ledger.")
    created_at: datetime
    declared_at: datetime
    next_slot: datetime | None = Field(
        description="Its next slot, even while it is paused or no worker declares it; null: never."
    )
    now: datetime = Field(description="The database's time.")


class ScheduleList(Shown):
    items: list[ScheduleLine]


class LedgerLine(Shown):
    """A slot, and what happened at it."""

    slot: datetime
    outcome: Outcome
    why: str | None = Field(description="The reason, unless the slot fired in time.")
    job_id: int | None
    job_status: Status | None = Field(description="Null also when the job was pruned.")
    worker: str | None = Field(description="The worker that recorded this; null: a person.")
    recorded_at: datetime


class SchedulePage(ScheduleLine):
    """A schedule with its ledger."""

    slots: list[LedgerLine] = Field(description="The last 20 slots, newest first.")


class Ledger(Shown):
    items: list[LedgerLine]
    next: datetime | None = Field(description="`before` of the next page; null: there is none.")


class ComingSlot(Shown):
    at: datetime = Field(description="In UTC.")
    local: datetime = Field(description="The same moment on the schedule's clocks.")
    note: str = Field(description="How a clock change affects it, if it does.", examples=[""])


class Preview(Shown):
    """The slots to come."""

    name: str
    spec: str
    tz: str
    items: list[ComingSlot]


class SchedulePausing(Sent):
    reason: Text | None = Field(None, description="It is recorded with each skipped slot.", examples=["stocktaking"])


class Run(Shown):
    job_id: int = Field(description="The job that was enqueued.", examples=[42])


@router.get("")
def list_schedules(db: Reading) -> ScheduleList:
    """All schedules that were ever declared, by name."""
    return ScheduleList(items=[ScheduleLine.model_validate(each) for each in views.schedules(db)])


@router.get("/{name}", responses=_NO_SCHEDULE)
def show_schedule(db: Reading, name: ScheduleName) -> SchedulePage:
    """A schedule, and what happened at its last slots."""
    line = ScheduleLine.model_validate(views.schedule(db, name))
    slots = [LedgerLine.model_validate(entry) for entry in views.ledger(db, name, limit=_LEDGER)]
    return SchedulePage(**{field: getattr(line, field) for field in ScheduleLine.model_fields}, slots=slots)


@router.get("/{name}/slots", responses=_NO_SCHEDULE)
def list_slots(
    db: Reading,
    name: ScheduleName,
    before: Annotated[Moment | None, BEFORE] = None,
    limit: Limit = 50,
) -> Ledger:
    """The slots of a schedule and what happened at each, newest first."""
    views.schedule(db, name)
    items = [LedgerLine.model_validate(entry) for entry in views.ledger(db, name, before=before, limit=limit)]
    return Ledger(items=items, next=items[-1].slot if len(items) == limit else None)


@router.get("/{name}/preview", responses=_NO_SCHEDULE | may_be(_409="Only a newer release can read when it fires."))
def preview_schedule(
    db: Reading,
    name: ScheduleName,
    count: Annotated[int, Field(ge=1, le=1000), Digits, Query(description="How many slots.")] = 20,
    after: Annotated[
        Moment | None, Query(alias="from", description="Only slots later than this; default: now.")
    ] = None,
) -> Preview:
    """The next slots of a schedule, with clock changes taken into account."""
    schedule = views.schedule(db, name)
    slots = views.preview(schedule, after=after, count=count)
    zone = zone_of(schedule.tz)
    items = [ComingSlot(at=slot.at, local=slot.at.astimezone(zone), note=slot.note) for slot in slots]
    return Preview(name=schedule.name, spec=schedule.spec, tz=schedule.tz, items=items)


@router.post("/{name}/pause", responses=_NO_SCHEDULE)
def pause_schedule(db: Writing, name: ScheduleName, who: Who, wanted: SchedulePausing | None = None) -> ScheduleLine:
    """Pauses a schedule: its slots are skipped, with the reason in the ledger, until it is resumed."""
    reason = wanted.reason if wanted else None
    views.pause(db, name, reason)
    audit.write(db, who, "schedule.pause", f"schedule {name}", detail={"reason": reason})
    return ScheduleLine.model_validate(views.schedule(db, name))


@router.post("/{name}/resume", responses=_NO_SCHEDULE)
def resume_schedule(db: Writing, name: ScheduleName, who: Who) -> ScheduleLine:
    """Resumes a schedule. Slots that passed meanwhile are not made up for."""
    views.resume(db, name)
    audit.write(db, who, "schedule.resume", f"schedule {name}")
    return ScheduleLine.model_validate(views.schedule(db, name))


@router.post("/{name}/run", status_code=201, responses=_NO_SCHEDULE)
def run_schedule(db: Writing, name: ScheduleName, who: Who, response: Response) -> Run:
    """Enqueues the schedule's job now, independent of its slots, even while it is paused."""
    job_id = views.run(db, name)
    audit.write(db, who, "schedule.run", f"schedule {name}", jobs=1, detail={"job": job_id})
    response.headers["Location"] = f"/internal/jobs/{job_id}"
    return Run(job_id=job_id)

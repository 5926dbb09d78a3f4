"""/internal/fleet: the supervisors and their pools, the commands sent to them, and why pools were scaled."""

from datetime import datetime
from typing import Annotated

from fastapi import Path
from pydantic import Field

from snapapp.api.http.deps import Reading, Who, Writing
from snapapp.api.http.errors import may_be
from snapapp.api.http.paging import Before, Limit
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import HIGHEST_ID, Digits, Json, Name, NotText, Sent, Shown, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.jobs.fleet import commands, overview
from snapapp.jobs.fleet.commands import Action, CommandStatus, Source
from snapapp.jobs.rows.people import audit

router = InternalRouter(prefix="/internal/fleet", tags=["fleet"], route_class=StrictRoute)

CommandId = Annotated[int, Path(description="The command's id.", ge=1, le=HIGHEST_ID), Digits]
Amount = Annotated[int, Field(ge=0, le=1000), NotText]


class PoolLine(Shown):
    """A pool of a host, as its supervisor reported it last; without `pool`, a host that has none yet."""

    host: str = Field(examples=["box-1"])
    master: str = Field(description="ACTIVE, STOPPING, or LOST: its heartbeat stopped.", examples=["ACTIVE"])
    pool: str | None = Field(examples=["mail-supervisor"])
    state: str | None = Field(description="ACTIVE, PAUSED or DRAINED.", examples=["ACTIVE"])
    state_reason: str | None
    queues: list[str] | None = Field(description="The queues it works; none named: all of them.")
    balance: str | None = Field(description="off, simple or auto.", examples=["auto"])
    fixed_at: int | None = Field(description="The number of processes that somebody fixed; null: its balance decides.")
    min_processes: int | None
    max_processes: int | None
    wanted: int | None = Field(description="How many processes it should have now.")
    present: int | None = Field(description="How many processes it has, without those that are leaving.")
    leaving: int | None = Field(description="How many are finishing their last jobs.")
    slots: int = Field(description="Jobs that its workers can run at once, over all their executors.")
    running: int
    memory_mb: int
    jobs_completed: int
    jobs_failed: int
    note: str | None = Field(description="What holds it back, if anything does.")
    pid: int = Field(description="Of the supervisor.")
    started_at: datetime
    beat_at: datetime


class PoolList(Shown):
    items: list[PoolLine]


class NewCommand(Sent):
    action: Action = Field(description="What to do.", examples=["scale"])
    host: Name | None = Field(None, description="Which host; may be left out where there is only one.")
    pool: Name | None = Field(None, description="Which pool; null: all of the host.", examples=["mail-supervisor"])
    amount: Amount | None = Field(
        None, description="Of scale: how many processes; null gives the decision back to the balance.", examples=[4]
    )
    reason: Text | None = Field(None, description="Why, for other people.")


class CommandLine(Shown):
    """A command to a supervisor, and its result."""

    id: int
    host: str
    action: str = Field(examples=["scale"])
    pool: str | None
    amount: int | None
    reason: str | None
    source: str = Field(description="sql, cli, api or autoscaler.", examples=["api"])
    status: CommandStatus
    output: str | None = Field(description="The result, or that the host does not answer.")
    created_at: datetime
    expires_at: datetime
    taken_at: datetime | None
    finished_at: datetime | None


class CommandList(Shown):
    """Commands, newest first."""

    items: list[CommandLine]
    next: int | None = Field(description="`before` of the next page; null: there is none.")


class DecisionLine(Shown):
    """Why a pool was scaled."""

    id: int
    at: datetime
    host: str
    pool: str
    balance: str
    present: int
    wanted: int
    reason: str
    inputs: Json = Field(description="What was measured.")


class DecisionList(Shown):
    """Decisions of the autoscaler, newest first."""

    items: list[DecisionLine]
    next: int | None = Field(description="`before` of the next page; null: there is none.")


_REFUSED = may_be(
    _404="There is no such host or pool.",
    _409="The fields do not go together: `scale` needs a pool, `stop` none, and with several hosts one must be named.",
)


@router.get("")
def list_pools(db: Reading) -> PoolList:
    """The hosts that have a supervisor, and their pools."""
    return PoolList(items=[PoolLine.model_validate(each) for each in overview.fleet(db)])


@router.post("/commands", status_code=202, responses=_REFUSED)
def tell_supervisor(db: Writing, wanted: NewCommand, who: Who) -> CommandLine:
    """Sends a command to the supervisor of a host, which carries it out within a second. `GET …/commands/{command}`
    shows the result."""
    detail = wanted.model_dump(include={"pool", "amount", "reason"})
    command = commands.send(db, wanted.action, host=wanted.host, source=Source.API, **detail)
    sent = commands.one(db, command)
    audit.write(db, who, f"fleet.{wanted.action}", f"host {sent.host}", detail=detail | {"command": command})
    return CommandLine.model_validate(sent)


@router.get("/commands")
def list_commands(db: Reading, before: Before = None, limit: Limit = 50) -> CommandList:
    """The commands to supervisors, newest first, including the autoscaler's."""
    items = [CommandLine.model_validate(each) for each in commands.sent(db, before=before, limit=limit)]
    return CommandList(items=items, next=items[-1].id if len(items) == limit else None)


@router.get("/commands/{command}", responses=may_be(_404="There is no such command."))
def show_command(db: Reading, command: CommandId) -> CommandLine:
    """One command, and its result."""
    return CommandLine.model_validate(commands.one(db, command))


@router.get("/decisions")
def list_decisions(db: Reading, before: Before = None, limit: Limit = 50) -> DecisionList:
    """Why pools were scaled, newest first."""
    items = [DecisionLine.model_validate(each) for each in overview.decisions(db, before=before, limit=limit)]
    return DecisionList(items=items, next=items[-1].id if len(items) == limit else None)

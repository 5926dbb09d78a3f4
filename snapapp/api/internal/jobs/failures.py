"""/internal/failures: dead letters by what went wrong, and what a person does about many of them, step by step."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field, StrictBool

from snapapp.api.http.deps import Reading, Who
from snapapp.api.http.schema import HIGHEST_ID, Number, Sent, Shown, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.internal.jobs.many import Refusal, WhichFailed, discarded, witnessed
from snapapp.jobs.model import Status
from snapapp.jobs.rows.people import bulk, failures

router = APIRouter(prefix="/internal/failures", tags=["jobs"], route_class=StrictRoute)

_COMPLAINTS = 20  # refusals that a step explains


class GroupLine(Shown):
    """Dead letters of one kind whose errors begin with the same line."""

    kind: str = Field(examples=["demo.fail"])
    line: str = Field(description="The first line of their last error.", examples=["ValueError: no such file"])
    jobs: int
    queues: list[str]
    last_ten_minutes: int = Field(description="How many of them failed since then.")
    last_hour: int
    first_at: datetime
    last_at: datetime
    newest: int = Field(description="The id of one.")


class GroupList(Shown):
    items: list[GroupLine] = Field(description=f"The largest {failures.GROUPS}.")
    seen: int = Field(description="How many dead letters were looked at.")
    more: bool = Field(description=f"There are older ones: only the newest {failures.NEWEST:,} are grouped.")


@router.get("")
def list_failures(db: Reading) -> GroupList:
    """What failed, by kind and by the first line of the error."""
    found = failures.groups(db)
    return GroupList(items=[GroupLine.model_validate(each) for each in found.groups], seen=found.seen, more=found.more)


class Stepping(Sent):
    """The next piece of what is done to many dead letters. Ask with the `next` and `upTo` of each answer until `next`
    is null; whoever stops asking has stopped it."""

    action: Literal["retry", "discard"]
    filter: WhichFailed
    preview: StrictBool | None = Field(None, description="Else true: count, and change nothing.")
    after: Annotated[int, Field(ge=0, le=HIGHEST_ID), Number] | None = Field(
        None, description="`next` of the step before."
    )
    up_to: Annotated[int, Field(ge=0, le=HIGHEST_ID), Number] | None = Field(
        None, description="Likewise; null: the newest dead letter. What fails later is left alone."
    )
    run: UUID = Field(description="Yours to choose: all steps of one run are one line of the audit.")
    reason: Text | None = Field(None, description="Of discard: it stands as each job's last error.")


class Stepped(Shown):
    """What the step did, or found."""

    matching: int = Field(description="How many jobs matched.")
    seen: int = Field(description="How many dead letters it looked at.")
    done: int
    refused: int = Field(description="How many had moved on meanwhile, or are held back by a unique key.")
    refusals: list[Refusal] = Field(description=f"The first {_COMPLAINTS} of these, with the reason.")
    next: int | None = Field(description="`after` of the next step; null: that was all.")
    up_to: int


@router.post("/step")
def step(db: Reading, wanted: Stepping, who: Who) -> Stepped:
    """Counts, retries or discards the next of them, a hundred in a transaction."""
    up_to = failures.newest(db) if wanted.up_to is None else wanted.up_to
    most = failures.WINDOW if wanted.preview is not False else failures.STEP
    found = failures.step(db, wanted.filter.narrowed(Status.FAILED), after=wanted.after or 0, up_to=up_to, limit=most)
    done, refused = bulk.Answers({}, {}) if wanted.preview is not False else _change(db, wanted, found.ids, who)
    return Stepped(
        matching=len(found.ids),
        seen=found.seen,
        done=len(done),
        refused=len(refused),
        refusals=[Refusal(id=job_id, why=why) for job_id, why in list(refused.items())[:_COMPLAINTS]],
        next=found.last,
        up_to=up_to,
    )


def _change(db: Reading, wanted: Stepping, ids: list[int], who: Who) -> bulk.Answers:
    if wanted.action == "retry":
        return bulk.retry(db, ids, witness=witnessed(who, "jobs.retry", wanted.filter, wanted.run))
    witness = witnessed(who, "jobs.discard", wanted.filter, wanted.run, reason=wanted.reason)
    return bulk.discard(db, ids, discarded(wanted.reason), witness=witness)

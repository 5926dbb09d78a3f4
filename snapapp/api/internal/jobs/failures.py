"""/internal/failures: dead letters grouped by their error, and changes to many of them, step by step."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, StrictBool

from snapapp.api.http.deps import Reading, Who
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import HIGHEST_ID, NotText, Sent, Shown, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.internal.jobs.many import Refusal, WhichFailed, change
from snapapp.jobs.rows.people import bulk, failures

router = InternalRouter(prefix="/internal/failures", tags=["jobs"], route_class=StrictRoute)

_COMPLAINTS = 20  # refusals that an answer explains; others are only counted


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
    newest: int = Field(description="The id of the newest.")


class GroupList(Shown):
    items: list[GroupLine] = Field(description=f"The largest {failures.GROUPS}.")
    seen: int = Field(description="How many dead letters were looked at.")
    more: bool = Field(description=f"Whether there are older ones: only the newest {failures.NEWEST:,} are grouped.")


@router.get("")
def list_failures(db: Reading) -> GroupList:
    """Dead letters, grouped by kind and by the first line of the error."""
    page = failures.groups(db)
    return GroupList(items=[GroupLine.model_validate(each) for each in page.groups], seen=page.seen, more=page.more)


class Stepping(Sent):
    """One step of a change to many dead letters. Repeat with the `next` and `upTo` of each answer until `next` is null;
    to stop, send no further step."""

    action: Literal["retry", "discard"]
    filter: WhichFailed
    preview: StrictBool | None = Field(None, description="True (the default): count, and change nothing.")
    after: Annotated[int, Field(ge=0, le=HIGHEST_ID), NotText] | None = Field(
        None, description="`next` of the step before."
    )
    up_to: Annotated[int, Field(ge=0, le=HIGHEST_ID), NotText] | None = Field(
        None,
        description="`upTo` of the step before; null: the newest dead letter. Jobs that fail later are left alone.",
    )
    run: UUID = Field(description="An id that you choose: all steps with one id are one line of the audit.")
    reason: Text | None = Field(None, description="For `discard`: becomes each job's last error.")


class Stepped(Shown):
    """The result of a step."""

    matching: int = Field(description="How many jobs matched.")
    seen: int = Field(description="How many dead letters it looked at.")
    done: int
    refused: int = Field(
        description="How many were not changed: their status had changed, or another job holds their unique key."
    )
    refusals: list[Refusal] = Field(description=f"The first {_COMPLAINTS} refusals, with the reason.")
    next: int | None = Field(description="`after` of the next step; null: this was the last.")
    up_to: int


@router.post("/step")
def step(db: Reading, wanted: Stepping, who: Who) -> Stepped:
    """Counts, retries or discards the next dead letters, a hundred in a transaction."""
    up_to = failures.newest(db) if wanted.up_to is None else wanted.up_to
    most = failures.WINDOW if wanted.preview is not False else failures.STEP
    window = failures.step(db, wanted.filter.narrowed, after=wanted.after or 0, up_to=up_to, limit=most)
    done, refused = bulk.Answers({}, {})
    if wanted.preview is False:
        reason = wanted.reason if wanted.action == "discard" else None
        done, refused = change(db, who, wanted.action, wanted.filter, window.ids, run=wanted.run, reason=reason)
    return Stepped(
        matching=len(window.ids),
        seen=window.seen,
        done=len(done),
        refused=len(refused),
        refusals=[Refusal(id=job_id, why=why) for job_id, why in list(refused.items())[:_COMPLAINTS]],
        next=window.last,
        up_to=up_to,
    )

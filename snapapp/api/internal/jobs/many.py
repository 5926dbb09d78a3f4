"""POST /internal/jobs/bulk: retries, cancels, discards or replays all jobs that match."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self
from uuid import UUID, uuid4

from fastapi import Body
from pydantic import ConfigDict, Field, StrictBool, model_validator

from snapapp.api.http.deps import Reading, Who
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Label, Moment, Name, NotText, Sent, Shown, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.internal.jobs.shown import LONGEST_AGE, PREFIX, Hash, JobLine, lines, span
from snapapp.jobs.model import Status
from snapapp.jobs.rows.people import audit, bulk, lists, views
from snapapp.jobs.rows.people.audit import Actor
from snapapp.jobs.rows.people.lists import Filter

router = InternalRouter(prefix=PREFIX, tags=["jobs"], route_class=StrictRoute)

_SAMPLE = 10  # jobs that a preview shows
_COMPLAINTS = 100  # refusals that an answer explains; the others are counted
Age = Annotated[int, Field(ge=0, le=LONGEST_AGE), NotText]

_NARROWING = {
    "kind": "string",
    "queue": "string",
    "tenant": "string",
    "error": "string",
    "errorLine": "string",
    "olderThanMs": "integer",
    "hash": "string",
    "finishedFrom": "string",
    "finishedUntil": "string",
}

_NARROWED_OR_ALL: dict[str, Any] = {
    "anyOf": [
        {
            "required": ["all"],
            "properties": {"all": {"const": True}} | {name: {"type": "null"} for name in _NARROWING},
        },
        {
            "anyOf": [{"required": [name], "properties": {name: {"type": kind}}} for name, kind in _NARROWING.items()],
            "properties": {"all": {"enum": [False, None]}},
        },
    ]
}


class _Which(Sent):
    """A filter for jobs. An unknown field is refused, because ignoring it would make the filter wider."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_NARROWED_OR_ALL)
    by_default: ClassVar[Status | None] = Status.FAILED  # the status where none is named; None: those that wait

    kind: Name | None = Field(None, examples=["demo.fail"])
    queue: Name | None = None
    tenant: Label | None = Field(None, description="Empty: those of no tenant.")
    error: Name | None = Field(None, description="Their last error contains this text, in any case.")
    error_line: Text | None = Field(None, description="Their last error has exactly this first line.")
    older_than_ms: Age | None = Field(None, description="They were enqueued at least so long ago.")
    hash: Hash | None = Field(None, description="Their `specHash` begins with this.")
    finished_from: Moment | None = Field(None, description="They ended at that time or later.")
    finished_until: Moment | None = Field(None, description="They ended before that time.")
    all: StrictBool | None = Field(None, description="True: all jobs are meant, without any other filter.")

    @model_validator(mode="after")
    def _says_what_it_means(self) -> Self:
        is_narrow = not replace(self.narrowed, status=None).is_open
        if not self.all and not is_narrow:
            raise ValueError('name a kind, a queue, a tenant, …; if every job is meant, say "all": true')
        if self.all and is_narrow:
            raise ValueError('"all": true and a kind, a queue, a tenant, … do not go together')
        return self

    @property
    def narrowed(self) -> Filter:
        status, age = getattr(self, "status", None) or self.by_default, span(self.older_than_ms)
        within = (self.finished_from, self.finished_until)
        return Filter(status, self.kind, self.queue, self.tenant, self.error, age, self.hash, self.error_line, *within)


class WhichFailed(_Which):
    pass


class WhichOver(_Which):
    by_default = Status.COMPLETED
    status: Literal[Status.COMPLETED, Status.FAILED, Status.CANCELLED] | None = Field(
        None, description="Default COMPLETED."
    )


class WhichEnded(_Which):
    status: Literal[Status.FAILED, Status.CANCELLED] | None = Field(None, description="Default FAILED.")


class WhichLive(_Which):
    by_default = None
    status: Literal[Status.PENDING, Status.RETRY_WAIT, Status.RUNNING] | None = Field(
        None, description="By default both that wait: PENDING and RETRY_WAIT."
    )


class _Many(Sent):
    preview: StrictBool | None = Field(None, description="True (the default): count, show some, and change nothing.")
    limit: Annotated[int, Field(ge=1, le=10_000), NotText] | None = Field(
        None, description="How many jobs at most; default 1000.", examples=[1000]
    )


class RetryMany(_Many):
    """Runs jobs again, counting attempts from zero. Nothing is done unless `preview` is false."""

    action: Literal["retry"]
    filter: WhichEnded


class CancelMany(_Many):
    """Cancels waiting jobs, and asks running ones to stop. Nothing is done unless `preview` is false."""

    action: Literal["cancel"]
    filter: WhichLive


class DiscardMany(_Many):
    """Makes FAILED jobs CANCELLED, because nobody wants them any more. Nothing is done unless `preview` is false."""

    action: Literal["discard"]
    filter: WhichFailed
    reason: Text = Field(description="Why; it becomes their last error.", examples=["of no use"])


class ReplayMany(_Many):
    """Adds copies of finished jobs. Nothing is done unless `preview` is false."""

    action: Literal["replay"]
    filter: WhichOver


_Action = Literal["retry", "cancel", "discard", "replay"]
_Change = RetryMany | CancelMany | DiscardMany | ReplayMany


class Refusal(Shown):
    id: int
    why: str = Field(examples=["job 42 is RUNNING: only a FAILED or CANCELLED job can be retried"])


class BulkAnswer(Shown):
    """What was done, or in a preview would be done."""

    action: _Action
    preview: bool = Field(description="True: nothing was changed.")
    matching: int = Field(description="How many jobs match; never above the limit.")
    more: bool = Field(description="Whether others match, or may match, beyond the limit.")
    sample: list[JobLine] = Field(description="In a preview, the newest jobs that match.")
    done: int = Field(description="How many jobs were changed.")
    asked_to_stop: int = Field(description="How many of these run, and were asked to stop.")
    refused: int = Field(
        description="How many were not changed: their status had changed, or another job holds their unique key."
    )
    refusals: list[Refusal] = Field(description="The first 100 refusals, with the reason.")


@router.post("/bulk")
def change_many(db: Reading, wanted: Annotated[_Change, Body(discriminator="action")], who: Who) -> BulkAnswer:
    """Retries, cancels, discards or replays all jobs that match, a hundred in a transaction. By default it is a
    preview, which counts, shows some, and changes nothing."""
    matches = lists.matching(db, wanted.filter.narrowed, wanted.limit or 1000)
    if wanted.preview is not False:
        sample = lines(views.lines(db, sorted(matches.ids)[-_SAMPLE:]))
        return _answer(wanted.action, matches, None, sample)
    reason = wanted.reason if isinstance(wanted, DiscardMany) else None
    answers = change(db, who, wanted.action, wanted.filter, matches.ids, run=uuid4(), reason=reason)
    return _answer(wanted.action, matches, answers, [])


def change(
    db: Reading, who: Actor, action: _Action, which: _Which, ids: list[int], *, run: UUID, reason: str | None
) -> bulk.Answers:
    """Changes these jobs. All pages of a run are summed up in one row of the audit. `reason` is for discarding."""
    detail = which.model_dump(mode="json", by_alias=True, exclude_none=True) | {"reason": reason}
    witness = audit.writer_of_run(who, f"jobs.{action}", detail, run)
    if action == "discard":
        return bulk.discard(db, ids, discarded(reason), witness=witness)
    return _STEPS[action](db, ids, witness=witness)


_STEPS: Mapping[str, Callable[..., bulk.Answers]] = {
    "retry": bulk.retry,
    "cancel": bulk.cancel,
    "replay": bulk.replay,
}


def discarded(reason: str | None) -> str:
    """The last error of a discarded job."""
    return f"discarded: {reason}" if reason else "discarded"


def _answer(action: _Action, found: lists.Matching, answers: bulk.Answers | None, sample: list[JobLine]) -> BulkAnswer:
    done, refused = answers or bulk.Answers({}, {})
    return BulkAnswer(
        action=action,
        preview=answers is None,
        matching=len(found.ids),
        more=found.more,
        sample=sample,
        done=len(done),
        asked_to_stop=sum(status is Status.RUNNING for status in done.values()),
        refused=len(refused),
        refusals=[Refusal(id=job_id, why=why) for job_id, why in list(refused.items())[:_COMPLAINTS]],
    )

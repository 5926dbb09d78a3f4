"""/internal/jobs: what waits, runs, failed; and what a person may do about it."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self
from uuid import UUID, uuid4

from fastapi import APIRouter, Body, Depends, Path, Query, Response
from pydantic import ConfigDict, Field, StrictBool, model_validator

from snapapp.api.http.deps import Reading, RequestId, Who, Writing
from snapapp.api.http.errors import may_be
from snapapp.api.http.schema import (
    HIGHEST_ID,
    Digits,
    Id,
    Json,
    Label,
    Moment,
    Name,
    Number,
    PageSize,
    Sent,
    Shown,
    Text,
)
from snapapp.api.http.strict_json import StrictRoute
from snapapp.jobs.enqueue import OnConflict, OnParentFailure, Scope, UniqueBy, enqueue
from snapapp.jobs.model import Status
from snapapp.jobs.rows import costs, lifecycle
from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.people import audit, bulk, overviews, relatives, views
from snapapp.jobs.rows.people.audit import Actor
from snapapp.jobs.rows.people.views import Arrival, Filter, JobSummary

router = APIRouter(prefix="/internal/jobs", tags=["jobs"], route_class=StrictRoute)

_SAMPLE = 10  # jobs that a preview shows
_COMPLAINTS = 100  # refusals that an answer explains; the others are counted
_LOG_LINES = 20

JobId = Annotated[Id, Path(description="The job's id.", examples=[42])]
_LONGEST_AGE = 3_153_600_000_000  # ms: a hundred years
Age = Annotated[int, Field(ge=0, le=_LONGEST_AGE), Number]
SentAge = Annotated[int, Field(ge=0, le=_LONGEST_AGE), Digits]
Hash = Annotated[str, Field(pattern="^[0-9a-fA-F]{6,64}$", examples=["9f86d081"])]
_NO_JOB = may_be(_404="There is no such job.")


# --- a job as it is shown ---------------------------------------------------------------------------------------


class JobLine(Shown):
    """A job as a line of a list."""

    id: int = Field(examples=[42])
    kind: str = Field(description="Which processor runs it.", examples=["demo.hello"])
    queue: str = Field(examples=["default"])
    tenant: str = Field(description="On whose behalf; empty: the house's own.", examples=[""])
    status: Status
    priority: int = Field(description="Higher first.", examples=[0])
    attempt_count: int = Field(description="Attempts begun.", examples=[1])
    max_attempts: int = Field(examples=[3])
    suspect: bool = Field(description="It begins with nothing beside it: its worker died twice, or memory ran short.")
    cancel_requested_at: datetime | None
    claimed_by: str | None = Field(description="The worker that holds it.")
    progress: Json = Field(
        description="What its processor reported last.", examples=[{"percent": 40, "note": "frames"}]
    )
    last_error: str | None = Field(examples=["ValueError: no such file"])
    next_retry_at: datetime = Field(description="When it may run, or might have.")
    created_at: datetime
    started_at: datetime | None = Field(description="When its last attempt began to run.")
    finished_at: datetime | None
    waits_for: int | None = Field(description="How many of its parents are not over; null: it has none.")


class JobWhole(JobLine):
    """Every column of a job."""

    payload: Json = Field(description="What its processor is given.", examples=[{"name": "Ana"}])
    result: Json = Field(description="What its processor returned.")
    errors: Json = Field(description="One entry for each failed attempt, the last 20.")
    snap_id: UUID | None
    gate: str = Field(
        description="How it gets in: open (any worker takes it), held (a limit or a fair queue lets it in), later (the"
        " same, not due yet), alone (a suspect) or after (its parents have to end first)."
    )
    lane: str = Field(description="Its concurrency key, else its tenant, where a limit or a fair queue covers it.")
    concurrency_key: str | None
    unique_key: str | None
    unique_scope: str | None
    spec_hash: str | None = Field(description="Of its work, where it was enqueued with `uniqueBy: spec`.")
    timeout_ms: int | None = Field(description="Its own time limit; its kind's when null.")
    memory_mb: int | None = Field(description="Its own memory limit, since an attempt ran short; its kind's when null.")
    interruptions: int = Field(description="How often a shutdown handed it back while it ran.")
    losses: int = Field(description="How often its worker died while it ran, since it last ended by itself.")
    lease_seq: int = Field(description="The fence: raised by every change of status.")
    locked_at: datetime | None = Field(description="The last heartbeat of its holder.")
    lock_expires_at: datetime | None
    replay_of: int | None = Field(description="The job that this one repeats.")
    has_children: bool = Field(description="Other jobs wait for it, or did.")
    request_id: str | None = Field(description="The request that caused it.")
    traceparent: str | None = Field(description="Where in its trace it was enqueued, as W3C Trace Context writes it.")


class Parents(Shown):
    """How far the jobs are that a job waits for, or has waited for."""

    expected: int
    succeeded: int
    failed: int = Field(description="Or cancelled.")
    open: int = Field(description="Not over.")


class LogLine(Shown):
    """A line that a job said."""

    id: int
    attempt: int
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    message: str
    at: datetime


class AttemptCost(Shown):
    """What an attempt waited, took and needed."""

    attempt: int
    lease_seq: int
    outcome: str = Field(description="The status that it led to.", examples=["COMPLETED"])
    started_at: datetime
    wait_ms: float | None = Field(description="From when it was due to when it began.")
    wall_ms: float = Field(description="How long it ran.")
    cpu_ms: float | None = Field(description="Processor time; null: not known, as for async.")
    peak_mb: float | None = Field(description="The most memory its process had; null where it had none of its own.")
    stands_for: int = Field(description="Of so many quick attempts of its kind this one was written down.")


class JobPage(JobWhole):
    """All that is known of a job."""

    explain: str = Field(
        description="Why it is where it is, and what comes next, in words.",
        examples=["It waits and is due since 3 s.\nNobody of its kind stands before it: it is next."],
    )
    waited_ms: float | None = Field(description="From when it was enqueued to the start of its last attempt.")
    ran_ms: float | None = Field(description="How long its last attempt ran, where it has ended.")
    costs: list[AttemptCost] = Field(description="What its last attempts cost, as far as they were written down.")
    parents: Parents | None = Field(description="How far its parents are; null: it has none.")
    logs: list[LogLine] = Field(description="The last 20 lines it said, in the order it said them.")


class JobList(Shown):
    """Jobs, newest first."""

    items: list[JobLine]
    next: int | None = Field(
        description="`before` of the next page; null: there is none. A page that is short, or empty, and has a `next` "
        "looked through as many jobs as one call may.",
        examples=[1234],
    )
    now: datetime = Field(description="The database's time, to which all others compare.")


class LogList(Shown):
    """Lines of a log, in the order they were said."""

    items: list[LogLine]
    next: int | None = Field(description="`before` of the lines said earlier; null: there are none.")


# --- looking ----------------------------------------------------------------------------------------------------


async def _filter(
    status: Annotated[Status | None, Query(description="Only jobs in this status.")] = None,
    kind: Annotated[Name | None, Query(description="Only jobs of this kind.", examples=["demo.hello"])] = None,
    queue: Annotated[Name | None, Query(description="Only jobs of this queue.", examples=["default"])] = None,
    tenant: Annotated[Label | None, Query(description="Only jobs of this tenant; empty: the house's own.")] = None,
    error: Annotated[Name | None, Query(description="Only jobs whose last error has this in it.")] = None,
    older_than_ms: Annotated[
        SentAge | None, Query(alias="olderThanMs", description="Only jobs enqueued so long ago.")
    ] = None,
    work: Annotated[
        Hash | None, Query(alias="hash", description="Only jobs of this work, or how its hash begins.")
    ] = None,
    error_line: Annotated[
        Text | None, Query(alias="errorLine", description="Only jobs whose last error has this first line, exactly.")
    ] = None,
    finished_from: Annotated[
        Moment | None, Query(alias="finishedFrom", description="Only jobs that ended then or later.")
    ] = None,
    finished_until: Annotated[
        Moment | None, Query(alias="finishedUntil", description="Only jobs that ended before.")
    ] = None,
) -> Filter:
    age = _span(older_than_ms)
    return Filter(status, kind, queue, tenant, error, age, work, error_line, finished_from, finished_until)


Before = Annotated[Id | None, Query(description="`next` of the page before.")]
Limit = Annotated[PageSize, Query(description="How many at most.")]


@router.get("")
def list_jobs(
    db: Reading, which: Annotated[Filter, Depends(_filter)], before: Before = None, limit: Limit = 50
) -> JobList:
    """Jobs page by page, newest first; quick however many there are."""
    page = views.jobs(db, which, before=before, limit=limit)
    return JobList(items=_lines(page.jobs), next=page.before, now=page.now)


@router.get("/{job_id}", responses=_NO_JOB)
def show_job(db: Reading, job_id: JobId) -> JobPage:
    """All that is known of a job, and why it is where it is."""
    job = views.job(db, job_id)
    known = JobWhole.model_validate(job)
    logs = views.logs(db, job_id, limit=_LOG_LINES)
    counted = relatives.parents(db, job_id)
    return JobPage(
        **{name: getattr(known, name) for name in JobWhole.model_fields},
        explain=views.explain(db, job_id),
        waited_ms=_milliseconds(job.created_at, job.started_at),
        ran_ms=_milliseconds(job.started_at, job.finished_at),
        costs=[AttemptCost.model_validate(cost) for cost in costs.of_job(db, job_id)],
        parents=Parents.model_validate(counted) if counted else None,
        logs=[LogLine.model_validate(line) for line in logs],
    )


@router.get("/{job_id}/logs", responses=_NO_JOB)
def list_logs(db: Reading, job_id: JobId, before: Before = None, limit: Limit = 50) -> LogList:
    """What a job said: the last lines, or those before the line `before`."""
    lines = views.logs(db, job_id, before=before, limit=limit)
    if not lines:
        views.job(db, job_id)
    return LogList(
        items=[LogLine.model_validate(line) for line in lines], next=lines[0].id if len(lines) == limit else None
    )


def _milliseconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else round((end - start).total_seconds() * 1000, 3)


def _lines(jobs: Iterable[JobSummary]) -> list[JobLine]:
    return [JobLine.model_validate(job) for job in jobs]


# --- adding one -------------------------------------------------------------------------------------------------

_LONGEST_DELAY = 315_360_000_000  # ms: ten years
_LONGEST_TIMEOUT = 604_800_000  # ms: seven days

_AGREEING: dict[str, Any] = {
    "allOf": [
        {"anyOf": [{"properties": {"delayMs": {"type": "null"}}}, {"properties": {"runAt": {"type": "null"}}}]},
        {
            "anyOf": [
                {"properties": {"uniqueScope": {"type": "null"}}},
                {"required": ["uniqueKey"], "properties": {"uniqueKey": {"type": "string"}}},
                {"required": ["uniqueBy"], "properties": {"uniqueBy": {"type": "string"}}},
            ]
        },
        {"anyOf": [{"properties": {"uniqueKey": {"type": "null"}}}, {"properties": {"uniqueBy": {"type": "null"}}}]},
    ]
}


class NewJob(Sent):
    """A job to be enqueued. `X-Request-Id` rides along into its row and its log lines."""

    model_config = ConfigDict(json_schema_extra=_AGREEING)

    kind: Name = Field(description="Which processor is to run it.", examples=["demo.hello"])
    payload: dict[str, Any] | None = Field(
        None, description="What the processor is given; at most 1 MiB as JSON.", examples=[{"name": "Ana"}]
    )
    queue: Name | None = Field(None, description="Where it waits; else the queue that its kind declares.")
    priority: Annotated[int, Field(ge=-1000, le=1000), Number] | None = Field(None, description="Higher first; else 0.")
    delay_ms: Annotated[int, Field(ge=0, le=_LONGEST_DELAY), Number] | None = Field(
        None, description="It may run so much later, by the database's clock."
    )
    run_at: Moment | None = Field(None, description="It may run from then on. Not together with `delayMs`.")
    unique_key: Text | None = Field(None, description="Another job of its kind and tenant with this key keeps it out.")
    unique_scope: Scope | None = Field(None, description="How long the key is held; else `live`. Needs a key.")
    unique_by: UniqueBy | None = Field(
        None, description="`spec`: its work (kind, payload, tenant, snap) is its unique key. Not with `uniqueKey`."
    )
    on_conflict: OnConflict | None = Field(
        None,
        description="What happens where the key is held: `existing` (or null) answers with its holder, `ignore` with "
        "no job, `replace` changes the holder while it waits.",
    )
    max_attempts: Annotated[int, Field(ge=1, le=1000), Number] | None = Field(
        None, description="Attempts before it is a dead letter; else what its kind declares."
    )
    timeout_ms: Annotated[int, Field(ge=1, le=_LONGEST_TIMEOUT), Number] | None = Field(
        None, description="The longest that an attempt may run; else what its kind declares."
    )
    concurrency_key: Text | None = Field(None, description="A label: jobs with one key share the limits that name it.")
    tenant: Label | None = Field(None, description="On whose behalf; else the house's own.")
    snap_id: UUID | None = Field(None, description="The snap it works for.")
    after: list[Annotated[int, Field(ge=1, le=HIGHEST_ID), Number]] | None = Field(
        None, description="Jobs that must complete before. Not with `onConflict: replace`.", max_length=10_000
    )
    on_parent_failure: OnParentFailure | None = Field(
        None, description="Where one of these fails: `cancel` (or null) cancels this one, `run` runs it all the same."
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.after and self.on_conflict == "replace":
            raise ValueError("give after or onConflict replace, not both")
        if self.delay_ms is not None and self.run_at is not None:
            raise ValueError("give delayMs or runAt, not both")
        if self.unique_by is not None and self.unique_key is not None:
            raise ValueError("give uniqueKey or uniqueBy, not both")
        if self.unique_scope is not None and self.unique_key is None and self.unique_by is None:
            raise ValueError("uniqueScope needs a uniqueKey or uniqueBy")
        return self


class Enqueued(Shown):
    """What became of it."""

    id: int | None = Field(description="Null where `onConflict` is `ignore` and the key is held.", examples=[42])
    outcome: Arrival = Field(description="Whether a job was added, or the holder of its unique key was met.")
    kind_is_known: bool = Field(description="Whether a worker that is alive runs this kind.")
    note: str | None = Field(description="What to know about it.", examples=[None])


_HELD: dict[int | str, dict[str, Any]] = {
    200: {"model": Enqueued, "description": "The unique key is held; the outcome says what was done."}
}


@router.post(
    "",
    status_code=201,
    responses=_HELD | may_be(_404="`after` names no job.", _409="`replace` met a holder that does not wait any more."),
)
def enqueue_job(db: Writing, wanted: NewJob, request_id: RequestId, response: Response) -> Enqueued:
    """Adds a job. A kind that no worker knows is accepted: the job waits for one, and the answer says so."""
    job_id = enqueue(
        db,
        wanted.kind,
        wanted.payload,
        queue=wanted.queue,
        priority=wanted.priority or 0,
        delay=_span(wanted.delay_ms),
        run_at=wanted.run_at,
        unique_key=wanted.unique_key,
        unique_scope=wanted.unique_scope,
        unique_by=wanted.unique_by,
        on_conflict=wanted.on_conflict or "existing",
        max_attempts=wanted.max_attempts,
        timeout=_span(wanted.timeout_ms),
        concurrency_key=wanted.concurrency_key,
        tenant=wanted.tenant or "",
        snap_id=wanted.snap_id,
        request_id=request_id,
        after=wanted.after or (),
        on_parent_failure=wanted.on_parent_failure or "cancel",
    )
    outcome = views.arrival(db, job_id)
    response.status_code = 201 if outcome is Arrival.CREATED else 200
    if job_id:
        response.headers["Location"] = _place(job_id)
    is_known = overviews.is_known(db, wanted.kind)
    note = None if is_known else f"No worker that is alive knows the kind {wanted.kind}: the job waits for one."
    return Enqueued(id=job_id, outcome=outcome, kind_is_known=is_known, note=note)


def _span(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def _place(job_id: int) -> str:
    return f"{router.prefix}/{job_id}"


# --- changing many ----------------------------------------------------------------------------------------------

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
    """Which jobs. A field that is not known here is refused, because without it the filter would be wider."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_NARROWED_OR_ALL)

    kind: Name | None = Field(None, examples=["demo.fail"])
    queue: Name | None = None
    tenant: Label | None = Field(None, description="Empty: the house's own.")
    error: Name | None = Field(None, description="Their last error has this in it, in upper or lower case.")
    error_line: Text | None = Field(None, description="The first line of their last error, exactly.")
    older_than_ms: Age | None = Field(None, description="Enqueued so long ago, or longer.")
    hash: Hash | None = Field(None, description="Of their work (`specHash`), or how that begins.")
    finished_from: Moment | None = Field(None, description="They ended then, or later.")
    finished_until: Moment | None = Field(None, description="They ended before.")
    all: StrictBool | None = Field(None, description="True says that nothing narrows it.")

    @model_validator(mode="after")
    def _says_what_it_means(self) -> Self:
        is_narrow = not self.narrowed(None).is_open
        if not self.all and not is_narrow:
            raise ValueError('name a kind, a queue, a tenant, …; if every job is meant, say "all": true')
        if self.all and is_narrow:
            raise ValueError('"all": true and a kind, a queue, a tenant, … do not go together')
        return self

    def narrowed(self, status: Status | None) -> Filter:
        age = _span(self.older_than_ms)
        within = (self.finished_from, self.finished_until)
        return Filter(status, self.kind, self.queue, self.tenant, self.error, age, self.hash, self.error_line, *within)


class WhichFailed(_Which):
    pass


class WhichOver(_Which):
    status: Literal[Status.COMPLETED, Status.FAILED, Status.CANCELLED] | None = Field(
        None, description="Else COMPLETED."
    )


class WhichEnded(_Which):
    status: Literal[Status.FAILED, Status.CANCELLED] | None = Field(None, description="Else FAILED.")


class WhichLive(_Which):
    status: Literal[Status.PENDING, Status.RETRY_WAIT, Status.RUNNING] | None = Field(
        None, description="Else those that wait: PENDING and RETRY_WAIT."
    )


class _Many(Sent):
    preview: StrictBool | None = Field(None, description="Else true: count, show some, and change nothing.")
    limit: Annotated[int, Field(ge=1, le=10_000), Number] | None = Field(
        None, description="How many jobs at most; else 1000.", examples=[1000]
    )


class RetryMany(_Many):
    """Runs jobs again, counting from zero. Nothing is done unless `preview` is false."""

    action: Literal["retry"]
    filter: WhichEnded

    @property
    def which(self) -> Filter:
        return self.filter.narrowed(self.filter.status or Status.FAILED)

    def step(self, db: Reading, ids: list[int], witness: bulk.Witness) -> bulk.Answers:
        return bulk.retry(db, ids, witness=witness)


class CancelMany(_Many):
    """Ends jobs that wait, asks those that run to stop. Nothing is done unless `preview` is false."""

    action: Literal["cancel"]
    filter: WhichLive

    @property
    def which(self) -> Filter:
        return self.filter.narrowed(self.filter.status)

    def step(self, db: Reading, ids: list[int], witness: bulk.Witness) -> bulk.Answers:
        return bulk.cancel(db, ids, witness=witness)


class DiscardMany(_Many):
    """Gives up jobs that FAILED: they are CANCELLED then. Nothing is done unless `preview` is false."""

    action: Literal["discard"]
    filter: WhichFailed
    reason: Text = Field(description="For whoever wonders; it becomes their last error.", examples=["of no use"])

    @property
    def which(self) -> Filter:
        return self.filter.narrowed(Status.FAILED)

    def step(self, db: Reading, ids: list[int], witness: bulk.Witness) -> bulk.Answers:
        return bulk.discard(db, ids, discarded(self.reason), witness=witness)


class ReplayMany(_Many):
    """Runs copies of jobs that are over. Nothing is done unless `preview` is false."""

    action: Literal["replay"]
    filter: WhichOver

    @property
    def which(self) -> Filter:
        return self.filter.narrowed(self.filter.status or Status.COMPLETED)

    def step(self, db: Reading, ids: list[int], witness: bulk.Witness) -> bulk.Answers:
        return bulk.replay(db, ids, witness=witness)


_Action = Literal["retry", "cancel", "discard", "replay"]
_Change = RetryMany | CancelMany | DiscardMany | ReplayMany


class Refusal(Shown):
    id: int
    why: str = Field(examples=["job 42 is RUNNING: only a FAILED or CANCELLED job can be retried"])


class BulkAnswer(Shown):
    """What was done, or would be."""

    action: _Action
    preview: bool = Field(description="True: nothing was changed.")
    matching: int = Field(description="How many jobs match; never above the limit.")
    more: bool = Field(description="Whether others match, or may match, beyond the limit.")
    sample: list[JobLine] = Field(description="In a preview, the newest of them.")
    done: int = Field(description="For how many it was done.")
    asked_to_stop: int = Field(description="How many of them run, and were asked to stop.")
    refused: int = Field(description="How many had moved on meanwhile, or are held back by a unique key.")
    refusals: list[Refusal] = Field(description="The first 100 of these, with the reason.")


@router.post("/bulk")
def change_many(db: Reading, wanted: Annotated[_Change, Body(discriminator="action")], who: Who) -> BulkAnswer:
    """Retries, cancels, discards or replays all that match, a hundred in a transaction. First as a preview: it counts,
    shows some, and changes nothing."""
    found = views.matching(db, wanted.which, wanted.limit or 1000)
    if wanted.preview is not False:
        sample = _lines(views.lines(db, sorted(found.ids)[-_SAMPLE:]))
        return _answer(wanted.action, found, None, sample)
    said = {"reason": getattr(wanted, "reason", None)}
    witness = witnessed(who, f"jobs.{wanted.action}", wanted.filter, uuid4(), **said)
    return _answer(wanted.action, found, wanted.step(db, found.ids, witness), [])


def witnessed(who: Actor, action: str, which: _Which, run: UUID, **said: str | None) -> bulk.Witness:
    """Each page of what is done to many counts on in the audit's row of this run."""
    detail = which.model_dump(mode="json", by_alias=True, exclude_none=True) | said

    def witness(db: Db, jobs: Collection[int]) -> None:
        audit.write(db, who, action, "jobs", jobs=len(jobs), detail=detail, run=run)

    return witness


def discarded(reason: str | None) -> str:
    """As the job's last error."""
    return f"discarded: {reason}" if reason else "discarded"


def _answer(action: _Action, found: views.Matching, answers: bulk.Answers | None, sample: list[JobLine]) -> BulkAnswer:
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


# --- changing one -----------------------------------------------------------------------------------------------


@router.post("/{job_id}/retry", responses=_NO_JOB | may_be(_409="It is not FAILED or CANCELLED, or its key is held."))
def retry_job(db: Writing, job_id: JobId, who: Who) -> JobLine:
    """Runs a FAILED or CANCELLED job again, counting from zero."""
    lifecycle.retry_by_person(db, job_id)
    audit.write(db, who, "job.retry", f"job {job_id}", jobs=1)
    return _line(db, job_id)


@router.post("/{job_id}/replay", status_code=201, responses=_NO_JOB)
def replay_job(db: Writing, job_id: JobId, who: Who, response: Response) -> JobLine:
    """Adds a copy of a job, in whatever state that is."""
    copy = lifecycle.replay(db, job_id)
    audit.write(db, who, "job.replay", f"job {job_id}", jobs=1, detail={"copy": copy})
    response.headers["Location"] = _place(copy)
    return _line(db, copy)


_ASKED: dict[int | str, dict[str, Any]] = {
    202: {"model": JobLine, "description": "It runs and was asked to stop; a completion that arrives first wins."}
}


@router.post(
    "/{job_id}/cancel",
    responses=_NO_JOB | _ASKED | may_be(_409="It is over: there is nothing to cancel."),
)
def cancel_job(db: Writing, job_id: JobId, who: Who, response: Response) -> JobLine:
    """Ends a job that waits at once; asks one that runs to stop."""
    status = lifecycle.cancel(db, job_id)
    audit.write(db, who, "job.cancel", f"job {job_id}", jobs=1)
    response.status_code = 202 if status is Status.RUNNING else 200
    return _line(db, job_id)


class Discarding(Sent):
    reason: Text | None = Field(None, description="It stands as the job's last error.", examples=["a test"])


@router.post("/{job_id}/discard", responses=_NO_JOB | may_be(_409="It runs, or it is over and not FAILED."))
def discard_job(db: Writing, job_id: JobId, who: Who, wanted: Discarding | None = None) -> JobLine:
    """Nobody wants it any more: a waiting job is cancelled, and a FAILED one is no dead letter any longer."""
    reason = wanted.reason if wanted else None
    lifecycle.discard(db, job_id, discarded(reason))
    audit.write(db, who, "job.discard", f"job {job_id}", jobs=1, detail={"reason": reason})
    return _line(db, job_id)


def _line(db: Writing, job_id: int) -> JobLine:
    return JobLine.model_validate(views.job(db, job_id))

"""POST /internal/jobs: adds a job."""

from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import Response
from pydantic import ConfigDict, Field, model_validator

from snapapp.api.http.deps import RequestId, Writing
from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import HIGHEST_ID, Label, Moment, Name, NotText, Sent, Shown, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.internal.jobs.shown import PREFIX, place, span
from snapapp.jobs.adding import OnConflict, OnParentFailure, Scope, UniqueBy, enqueue
from snapapp.jobs.rows.people import overviews, views
from snapapp.jobs.rows.people.views import Arrival

router = InternalRouter(prefix=PREFIX, tags=["jobs"], route_class=StrictRoute)

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
    """A job to be enqueued. `X-Request-Id` is stored in its row and written with its log lines."""

    model_config = ConfigDict(json_schema_extra=_AGREEING)

    kind: Name = Field(description="Which processor is to run it.", examples=["demo.hello"])
    payload: dict[str, Any] | None = Field(
        None, description="What the processor is given; at most 1 MiB as JSON.", examples=[{"name": "Ana"}]
    )
    queue: Name | None = Field(None, description="The queue; by default the one that its kind declares.")
    priority: Annotated[int, Field(ge=-1000, le=1000), NotText] | None = Field(
        None, description="Higher runs first; default 0."
    )
    delay_ms: Annotated[int, Field(ge=0, le=_LONGEST_DELAY), NotText] | None = Field(
        None, description="How much later it may run, by the database's clock."
    )
    run_at: Moment | None = Field(None, description="From when on it may run. Not together with `delayMs`.")
    unique_key: Text | None = Field(
        None, description="While a job of its kind and tenant has this key, no second one is added."
    )
    unique_scope: Scope | None = Field(None, description="How long the key is held; default `live`. Needs a key.")
    unique_by: UniqueBy | None = Field(
        None, description="`spec`: a hash of kind, payload, tenant and snap is the unique key. Not with `uniqueKey`."
    )
    on_conflict: OnConflict | None = Field(
        None,
        description="What happens if the key is held: `existing` (or null) answers with the holder, `ignore` with no "
        "job, `replace` changes the holder if it still waits.",
    )
    max_attempts: Annotated[int, Field(ge=1, le=1000), NotText] | None = Field(
        None, description="Attempts before it becomes a dead letter; by default what its kind declares."
    )
    timeout_ms: Annotated[int, Field(ge=1, le=_LONGEST_TIMEOUT), NotText] | None = Field(
        None, description="The time limit of an attempt; by default what its kind declares."
    )
    concurrency_key: Text | None = Field(None, description="A label: jobs with one key share the limits that name it.")
    tenant: Label | None = Field(None, description="The tenant it works for; by default none.")
    snap_id: UUID | None = Field(None, description="The snap it works for.")
    after: list[Annotated[int, Field(ge=1, le=HIGHEST_ID), NotText]] | None = Field(
        None, description="Jobs that must complete before. Not with `onConflict: replace`.", max_length=10_000
    )
    on_parent_failure: OnParentFailure | None = Field(
        None, description="If one of the `after` jobs fails: `cancel` (or null) cancels this one, `run` runs it anyway."
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
    """The result of enqueueing."""

    id: int | None = Field(description="Null where `onConflict` is `ignore` and the key is held.", examples=[42])
    outcome: Arrival = Field(description="Whether a job was added, or the holder of its unique key was met.")
    kind_is_known: bool = Field(description="Whether a worker that is alive runs this kind.")
    note: str | None = Field(description="A remark, if there is one.", examples=[None])


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
    options = wanted.model_dump(exclude={"kind", "payload", "delay_ms", "timeout_ms"}, exclude_none=True)
    delay, timeout = span(wanted.delay_ms), span(wanted.timeout_ms)
    job_id = enqueue(db, wanted.kind, wanted.payload, delay=delay, timeout=timeout, request_id=request_id, **options)
    outcome = views.arrival(db, job_id)
    response.status_code = 201 if outcome is Arrival.CREATED else 200
    if job_id:
        response.headers["Location"] = place(job_id)
    is_known = overviews.is_known(db, wanted.kind)
    note = None if is_known else f"No worker that is alive knows the kind {wanted.kind}: the job waits for one."
    return Enqueued(id=job_id, outcome=outcome, kind_is_known=is_known, note=note)

"""/internal/audit: what people did through /internal, which the page /ops uses, and in terminals."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from snapapp.api.http.deps import Reading
from snapapp.api.http.paging import Before, Limit
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Shown, Text
from snapapp.jobs.rows.people import audit

router = InternalRouter(prefix="/internal/audit", tags=["observability"])


class DeedLine(Shown):
    """Who did what, and when."""

    id: int
    at: datetime
    who: str = Field(
        description="The name that they gave, unchecked; in a terminal the system's account; empty: none.",
        examples=["ana"],
    )
    door: str = Field(description="How they got in: `token`, `this machine` or `terminal`.", examples=["token"])
    action: str = Field(examples=["job.retry"])
    subject: str = Field(description="What it was done to.", examples=["job 42"])
    jobs: int = Field(description="How many jobs it changed or made.")
    detail: dict[str, Any] = Field(
        description="Further details, such as the reason.", examples=[{"reason": "stocktaking"}]
    )
    last_at: datetime = Field(description="When the last step was, for a change that is made in steps.")
    request_id: str | None


class DeedList(Shown):
    """Deeds, newest first."""

    items: list[DeedLine]
    next: int | None = Field(description="`before` of the next page; null: there is none.")


@router.get("")
def list_deeds(
    db: Reading,
    subject: Annotated[Text | None, Query(description="Only what was done to this.", examples=["job 42"])] = None,
    before: Before = None,
    limit: Limit = 50,
) -> DeedList:
    """Who did what, newest first."""
    items = [DeedLine.model_validate(each) for each in audit.deeds(db, subject=subject, before=before, limit=limit)]
    return DeedList(items=items, next=items[-1].id if len(items) == limit else None)

"""/internal/retention: how long and how many finished jobs are kept, by kind and by how they ended."""

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import HTTPException, Path, Query, Response
from pydantic import AfterValidator, Field

from snapapp.api.http.deps import MonolithDep, Reading, Who, Writing
from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Label, NotText, Sent, Shown
from snapapp.api.http.strict_json import StrictRoute
from snapapp.jobs.model import Status
from snapapp.jobs.rows import retention
from snapapp.jobs.rows.people import audit
from snapapp.jobs.rows.retention import Rule

router = InternalRouter(prefix="/internal/retention", tags=["queues"], route_class=StrictRoute)

_LONGEST_MS = 365_000 * 86_400_000  # the limit of the table's column
_MOST = 2**31 - 1
_LONGEST_KIND = 200  # bytes, the limit of the table's column


def _fits(kind: str) -> str:
    if len(kind.encode()) > _LONGEST_KIND:
        raise ValueError(f"String should have at most {_LONGEST_KIND} bytes")
    return kind


End = Literal[Status.COMPLETED, Status.FAILED, Status.CANCELLED]
OfEnd = Annotated[End, Path(description="How they ended.")]
OfKind = Annotated[
    Label,
    AfterValidator(_fits),
    Query(description="Of which kind; empty: of every kind without a rule of its own.", examples=["report"]),
]
Keep = Annotated[int, Field(ge=0, le=_LONGEST_MS), NotText]
Newest = Annotated[int, Field(ge=0, le=_MOST), NotText]
_KEEP = "How long they are kept after their end; null: their age is no reason to delete them."
_NEWEST = "How many of a kind are kept, the newest; null: their number is no reason to delete them."


class Keeping(Sent):
    """A rule to set."""

    keep_ms: Keep | None = Field(description=_KEEP, examples=[2592000000])
    newest: Newest | None = Field(None, description=_NEWEST, examples=[1000])


class RuleLine(Shown):
    """The rule for finished jobs of one kind with one status."""

    kind: str = Field(description="Empty: every kind that has no rule of its own.", examples=["report"])
    status: End
    keep_ms: int | None = Field(description=_KEEP)
    newest: int | None = Field(description=_NEWEST)


class RuleList(Shown):
    items: list[RuleLine]
    otherwise_ms: int = Field(description="How long jobs without a rule are kept: `SNAPAPP_JOB_RETENTION_HOURS`.")


@router.get("")
def list_rules(db: Reading, monolith: MonolithDep) -> RuleList:
    """The rules, by kind and end."""
    kept = monolith.settings.job_retention
    return RuleList(items=[_line(rule) for rule in retention.rules(db)], otherwise_ms=_milliseconds(kept))


@router.put("/{status}")
def set_rule(db: Writing, status: OfEnd, who: Who, wanted: Keeping, kind: OfKind = "") -> RuleLine:
    """Sets a rule. Jobs that are too old by it are deleted within minutes, jobs that are too many within an hour."""
    keep = None if wanted.keep_ms is None else timedelta(milliseconds=wanted.keep_ms)
    rule = Rule(kind, Status(status), keep, wanted.newest)
    retention.set_rule(db, rule)
    detail = {"keepMs": wanted.keep_ms, "newest": wanted.newest}
    audit.write(db, who, "retention.set", _subject(status, kind), detail=detail)
    return _line(rule)


@router.delete("/{status}", status_code=204, response_class=Response, responses=may_be(_404="There is no such rule."))
def remove_rule(db: Writing, status: OfEnd, who: Who, kind: OfKind = "") -> None:
    """Removes a rule. The rule for every kind applies then, or else the setting."""
    if not retention.remove_rule(db, kind, Status(status)):
        raise HTTPException(404, f"There is no rule for {status} jobs of {kind or 'every kind'}")
    audit.write(db, who, "retention.remove", _subject(status, kind))


def _subject(status: End, kind: str) -> str:
    return f"retention {status} {kind}".rstrip()


def _line(rule: Rule) -> RuleLine:
    kept = None if rule.keep is None else _milliseconds(rule.keep)
    return RuleLine(kind=rule.kind, status=rule.status, keep_ms=kept, newest=rule.newest)  # type: ignore[arg-type]


def _milliseconds(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)

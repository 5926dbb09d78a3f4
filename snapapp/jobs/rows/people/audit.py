"""The audit: who did what, and when. A row is written in the transaction of the change itself, so that neither exists
without the other."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from snapapp.jobs.errors import IllegalTransition
from snapapp.jobs.rows.database import Db, value_of
from snapapp.jobs.rows.database import run as _run


@dataclass(frozen=True, slots=True)
class Actor:
    """Who makes a change. `name` is what they call themselves, unchecked; `door` is how the request came in."""

    name: str
    door: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Deed:
    id: int
    at: datetime
    who: str
    door: str
    action: str
    subject: str
    jobs: int
    detail: dict[str, Any]
    last_at: datetime
    request_id: str | None


_WRITE = """
INSERT INTO job_audit AS its (who, door, action, subject, jobs, detail, run, request_id)
VALUES (%(who)s, %(door)s, %(action)s, %(subject)s, %(jobs)s, %(detail)s::jsonb, %(run)s::uuid, %(request_id)s)
ON CONFLICT (run) DO UPDATE SET jobs = its.jobs + excluded.jobs, last_at = now()
 WHERE (its.who, its.door, its.action, its.subject, its.detail)
     = (excluded.who, excluded.door, excluded.action, excluded.subject, excluded.detail)
RETURNING id
"""


def write(
    db: Db,
    who: Actor,
    action: str,
    subject: str,
    *,
    jobs: int = 0,
    detail: Mapping[str, Any] | None = None,
    run: UUID | None = None,
) -> None:
    """Writes one audit row. Further steps of the same `run` add their jobs to its row; IllegalTransition when that row
    has another actor, action, subject or detail."""
    detail_json = json.dumps({name: value for name, value in (detail or {}).items() if value is not None})
    values: dict[str, Any] = {
        "who": who.name,
        "door": who.door,
        "request_id": who.request_id,
        "action": action,
        "subject": subject,
    }
    values |= {"jobs": jobs, "detail": detail_json, "run": run and str(run)}
    if not _run(db, _WRITE, values):
        raise IllegalTransition(f"the run {run} is of something else that was done")


def writer_of_run(
    who: Actor, action: str, detail: Mapping[str, Any], run: UUID
) -> Callable[[Db, Collection[int]], None]:
    """Writes one row for all jobs of a change that is made in pages: their number grows with each page."""

    def write_page(db: Db, jobs: Collection[int]) -> None:
        write(db, who, action, "jobs", jobs=len(jobs), detail=detail, run=run)

    return write_page


_DEEDS = """
SELECT id, at, who, door, action, subject, jobs, detail::text, last_at, request_id FROM job_audit
 WHERE id < %(before)s ORDER BY id DESC LIMIT %(limit)s
"""

_DEEDS_OF = """
SELECT id, at, who, door, action, subject, jobs, detail::text, last_at, request_id FROM job_audit
 WHERE subject = %(subject)s AND id < %(before)s ORDER BY id DESC LIMIT %(limit)s
"""


def deeds(db: Db, *, subject: str | None = None, before: int | None = None, limit: int = 50) -> list[Deed]:
    """A page of audit rows, newest first; `before` is the id of the last one seen."""
    statement = _DEEDS if subject is None else _DEEDS_OF
    rows = _run(db, statement, {"subject": subject, "before": before or 2**63 - 1, "limit": limit})
    return [value_of(Deed, row, detail=json.loads) for row in rows]

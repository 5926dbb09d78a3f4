"""/internal/doctor: what is wrong with the queue and its database, what to do about it, and the safe repairs."""

import threading
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Annotated, Any

import psycopg
import sqlalchemy.exc
from fastapi import Depends, Query, Request
from pydantic import Field

from snapapp.api.http.deps import MonolithDep, Who, of_process
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Sent, Shown, Text
from snapapp.api.http.strict_json import StrictRoute
from snapapp.jobs import doctor
from snapapp.jobs.doctor import Finding, Severity
from snapapp.process.monolith import Monolith
from snapapp.processing import checks

router = InternalRouter(prefix="/internal/doctor", tags=["observability"], route_class=StrictRoute)

_FRESH_FOR = timedelta(seconds=2)


class FindingLine(Shown):
    """What one check saw."""

    check: str = Field(examples=["xmin"])
    id: str = Field(examples=["XMIN_HELD"])
    severity: Severity = Field(description="ok, notice, warning (somebody should do something) or critical (now).")
    saw: str = Field(
        examples=["pid 4711 (psql, role ana) holds back vacuum: its transaction is 9 min old, idle in transaction."]
    )
    numbers: dict[str, Any] = Field(examples=[{"pid": 4711}])
    why: str = Field(description="Why it matters.")
    do: str = Field(description="What to do about it.")
    paste: str | None = Field(description="A command or a statement that does it.")
    can_fix: bool = Field(description="Whether `snapapp doctor --fix` does it, and `POST /internal/doctor/fix`.")


class Diagnosis(Shown):
    generated_at: datetime
    worst: Severity
    findings: list[FindingLine]


class Examinations:
    """Runs one examination at a time, on a connection of its own. Requests that come meanwhile, or just after, get the
    same answer."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._began = self._ended = float("-inf")  # these three are written by the thread that holds `_turn`
        self._diagnosis: Diagnosis | None = None

    def diagnosis(self, monolith: Monolith, *, anew: bool = False) -> Diagnosis:
        """The last diagnosis, or a new one if that is too old. With `anew` from an examination that began after this
        call."""
        asked_at = monotonic()
        with self._turn:
            is_old = self._began < asked_at if anew else monotonic() - self._ended > _FRESH_FOR.total_seconds()
            if self._diagnosis is None or is_old:
                self._diagnosis = None  # so that a failed examination leaves no old answer
                self._began = monotonic()
                self._diagnosis = _diagnosis_of(_examine(monolith))
                self._ended = monotonic()
            return self._diagnosis


def _examine(monolith: Monolith) -> list[Finding]:
    try:
        return doctor.examine(monolith.url, checks.facts(monolith.settings, monolith.url))
    except psycopg.OperationalError as error:  # answered like errors of the web's own connections
        raise sqlalchemy.exc.OperationalError(None, None, error) from error


def _diagnosis_of(findings: list[Finding]) -> Diagnosis:
    lines = [FindingLine.model_validate(finding) for finding in findings]
    return Diagnosis(generated_at=datetime.now(UTC), worst=doctor.worst(findings), findings=lines)


def _examinations(request: Request) -> Examinations:
    return of_process(request, "examinations", Examinations)


@router.get("")
def examine(
    monolith: MonolithDep,
    examinations: Annotated[Examinations, Depends(_examinations)],
    anew: Annotated[
        bool, Query(description="Whether to examine again, instead of repeating an answer of a moment ago.")
    ] = False,
) -> Diagnosis:
    """The findings of every check, in order, including those that are well. `worst` is the worst severity."""
    return examinations.diagnosis(monolith, anew=anew)


class Fixing(Sent):
    check: Text = Field(description="As the finding says.", examples=["stuck"])
    id: Text = Field(description="Of the finding.", examples=["QUEUE_STUCK_JOBS"])


class CureLine(Shown):
    said: str = Field(examples=["Took 3 jobs back whose leases had ended; they run again."])
    has_worked: bool


class Fixed(Shown):
    items: list[CureLine] = Field(description="What was done; empty: the finding no longer holds.")


@router.post("/fix")
def fix(monolith: MonolithDep, wanted: Fixing, who: Who) -> Fixed:
    """Repairs one finding as `snapapp doctor --fix` does. This only does what workers or autovacuum would do by
    themselves, sooner or later. It is recorded in the audit."""
    facts = checks.facts(monolith.settings, monolith.url)
    findings = [each for each in doctor.examine(monolith.url, facts, only=[wanted.check]) if each.id == wanted.id]
    deeds = doctor.mend(monolith.url, findings, facts, who)
    return Fixed(items=[CureLine.model_validate(each) for each in deeds])

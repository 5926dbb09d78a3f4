"""/internal/doctor: what is wrong with the queue and its database, and what to do. It only looks."""

import threading
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Annotated, Any

import psycopg
import sqlalchemy.exc
from fastapi import APIRouter, Depends, Request
from pydantic import Field

from snapapp.api.http.deps import House
from snapapp.api.http.schema import Shown
from snapapp.backup import check
from snapapp.jobs import doctor
from snapapp.jobs.doctor import Finding, Severity
from snapapp.postgres import database, schema
from snapapp.process.monolith import Monolith

router = APIRouter(prefix="/internal/doctor", tags=["observability"])

_FRESH_FOR = timedelta(seconds=2)


class FindingLine(Shown):
    """What one check saw."""

    check: str = Field(examples=["xmin"])
    id: str = Field(examples=["XMIN_HELD"])
    severity: Severity = Field(description="ok, notice, warning (somebody should do something) or critical (now).")
    saw: str = Field(
        examples=["pid 4711 (psql, role ana) holds it: its transaction is 9 min old, idle in transaction."]
    )
    numbers: dict[str, Any] = Field(examples=[{"pid": 4711}])
    why: str = Field(description="Why it matters.")
    do: str = Field(description="What to do about it.")
    paste: str | None = Field(description="A command or a statement that does it.")
    can_fix: bool = Field(description="Whether `snapapp doctor --fix` does it.")


class Diagnosis(Shown):
    generated_at: datetime
    worst: Severity
    findings: list[FindingLine]


class Visits:
    """One examination at a time, on a connection of its own; requests that come meanwhile, or just after, get the same
    answer."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._looked_at = float("-inf")  # these two are written by whoever has the turn
        self._diagnosis: Diagnosis | None = None

    def diagnosis(self, house: Monolith) -> Diagnosis:
        with self._turn:
            if self._diagnosis is None or monotonic() - self._looked_at > _FRESH_FOR.total_seconds():
                self._diagnosis = None  # an old answer is none
                self._diagnosis = _told(_examined(house))
                self._looked_at = monotonic()
            return self._diagnosis


def _examined(house: Monolith) -> list[Finding]:
    try:
        return doctor.examine(house.url, _described(house))
    except psycopg.OperationalError as error:  # on a connection of its own, but the same to whoever asks
        raise sqlalchemy.exc.OperationalError(None, None, error) from error


def _told(findings: list[Finding]) -> Diagnosis:
    lines = [FindingLine.model_validate(finding) for finding in findings]
    return Diagnosis(generated_at=datetime.now(UTC), worst=doctor.worst(findings), findings=lines)


def _described(house: Monolith) -> doctor.House:
    return doctor.House(
        jobs=house.settings.jobs(house.url),
        connections=database.connections_needed(house.settings),
        disk_free_min_mb=house.settings.disk_free_min_mb,
        schema=schema.wanted(),
        checks={check.NAME: check.check_of(house.settings)},
    )


def _visits(request: Request) -> Visits:
    """One a process: made when the first asks."""
    state = request.app.state
    if not hasattr(state, "visits"):
        state.visits = Visits()
    visits: Visits = state.visits
    return visits


@router.get("")
def examine(house: House, visits: Annotated[Visits, Depends(_visits)]) -> Diagnosis:
    """Every check, in order. What is well is told too; `worst` says at a glance."""
    return visits.diagnosis(house)

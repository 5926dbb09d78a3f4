"""/actuator/health, and the checks that load balancers and systemd use. These routes run on the event loop, so that
busy routes cannot delay them. Anybody may ask; reasons are shown only on this machine or with the internal token."""

from typing import Annotated, Any, cast

from fastapi import Depends, Request, Response

from snapapp.api.http.deps import MonolithDep
from snapapp.api.http.requests.tokens import may_know
from snapapp.api.http.routers import Router
from snapapp.process.health import Health, Part

router = Router(prefix="/actuator", tags=["actuator"])


async def _health(request: Request) -> Health:
    return cast(Health, request.app.state.health)


async def _may_know(request: Request) -> bool:
    return may_know(request.scope, request.app.state.keys)


Checks = Annotated[Health, Depends(_health)]
MayKnow = Annotated[bool, Depends(_may_know)]
_DOWN: dict[int | str, dict[str, Any]] = {503: {"description": "DOWN; the body says which part and why."}}


@router.get("/health", responses=_DOWN)
async def health(checks: Checks, with_reasons: MayKnow, response: Response) -> dict[str, Any]:
    """Every part of the process, and whether all of them are UP."""
    parts = await checks.parts()
    return _status_answer(
        response, all(part.is_up for part in parts), {"components": _components(parts, with_reasons=with_reasons)}
    )


@router.get("/readiness", responses=_DOWN)
@router.get("/health/readiness", responses=_DOWN)
async def readiness(checks: Checks, with_reasons: MayKnow, monolith: MonolithDep, response: Response) -> dict[str, Any]:
    """Whether requests should be sent here: not without a database, and not while the process is stopping. While the
    database takes no writes, what is only read is answered."""
    database = await checks.database()
    facts = {"components": _components([database], with_reasons=with_reasons)} | (
        {"reason": "leaving"} if monolith.is_leaving else {}
    )
    return _status_answer(response, database.can_be_read and not monolith.is_leaving, facts)


@router.get("/liveness", responses=_DOWN)
@router.get("/health/liveness", responses=_DOWN)
async def liveness(checks: Checks, response: Response) -> dict[str, Any]:
    """DOWN if a restart would help. An unreachable database is no reason, because a restart would not bring it back."""
    why = checks.is_worth_a_restart()
    return _status_answer(response, why is None, {"reason": why} if why else {})


def _status_answer(response: Response, is_up: bool, facts: dict[str, Any]) -> dict[str, Any]:
    response.status_code = 200 if is_up else 503
    response.headers["Cache-Control"] = "no-store"
    return {"status": "UP" if is_up else "DOWN", **facts}


def _components(parts: list[Part], *, with_reasons: bool) -> dict[str, Any]:
    return {
        part.name: {"status": "UP" if part.is_up else "DOWN", **(part.facts if with_reasons else {})} for part in parts
    }

"""/actuator/metrics and /metrics: the numbers of this process. These routes run on the event loop, where most numbers
are written."""

import asyncio
from typing import Annotated, cast

from fastapi import Depends, HTTPException, Path, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field

from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Shown
from snapapp.api.internal.actuator.health import Checks
from snapapp.api.internal.actuator.process_metrics import Numbers
from snapapp.jobs.metrics.exposition import CONTENT_TYPE, render

router = Router(tags=["metrics"])


async def _numbers(request: Request) -> Numbers:
    return cast(Numbers, request.app.state.numbers)


Counted = Annotated[Numbers, Depends(_numbers)]


class MetricNames(Shown):
    names: list[str] = Field(examples=[["snap.jobs.claimed", "snap.jobs.completed"]])


class Measurement(Shown):
    statistic: str = Field(examples=["VALUE"])
    value: float = Field(examples=[42])


class Metric(Shown):
    """A number that this process counted since its start, or holds now."""

    name: str = Field(examples=["snap.jobs.completed"])
    description: str = "Of this process: counted since its start, or as it is now."
    base_unit: str | None = Field(examples=[None])
    measurements: list[Measurement]
    available_tags: list[str] = Field(default=[], description="Always empty: a number has no parts.")


@router.get("/actuator/metrics")
async def metric_names(counted: Counted) -> MetricNames:
    """The names of all metrics. A name that ends in `.ms` says its unit; the rest are counts and bytes."""
    return MetricNames(names=sorted(counted.by_name()))


@router.get("/actuator/metrics/{name}", responses=may_be(_404="No metric has the name."))
async def metric(
    counted: Counted, name: Annotated[str, Path(description="With its dots.", examples=["snap.jobs.completed"])]
) -> Metric:
    """One metric."""
    value = counted.by_name().get(name)
    if value is None:
        raise HTTPException(404, f"Metric not found: {name}")
    unit = _UNITS.get(name.rpartition(".")[2])
    shown = round(value) if unit == "milliseconds" else value
    return Metric(name=name, base_unit=unit, measurements=[Measurement(statistic="VALUE", value=shown)])


_UNITS = {"ms": "milliseconds", "seconds": "seconds", "rss": "bytes"}  # by the last part of a name


_TEXT = {200: {"description": "Prometheus's text, version 0.0.4.", "content": {"text/plain": {}}}}


@router.get("/metrics", response_class=PlainTextResponse, responses=_TEXT)  # type: ignore[arg-type]
async def prometheus(counted: Counted, checks: Checks) -> Response:
    """The metrics for Prometheus. Numbers from the database are up to 15 s old, and left out while it cannot be
    reached."""
    database = await checks.database()
    if database.can_be_read:
        # At once: where requests hold every connection each waits 5 s for one, and Prometheus no longer than 10.
        depth, backups = await asyncio.gather(
            asyncio.to_thread(counted.depth.look), asyncio.to_thread(counted.backups.look)
        )
    else:
        depth, backups = None, None
    text = render(counted.families(depth, backups, is_database_up=database.can_be_read))
    return Response(text, media_type=CONTENT_TYPE, headers={"Cache-Control": "no-store"})

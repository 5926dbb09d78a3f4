"""/internal/observability: health, metrics and alerts as JSON, for people and for clients of the old service."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Depends
from pydantic import Field
from pydantic.alias_generators import to_camel

from snapapp.api.http.deps import MonolithDep
from snapapp.api.http.requests.route_counts import RouteCounts, Traffic
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Shown
from snapapp.api.internal.actuator.alerts import Alert, alerts
from snapapp.api.internal.actuator.health import Checks
from snapapp.api.internal.actuator.metrics import Counted
from snapapp.backup.judgement import troubles
from snapapp.jobs.metrics.depth import Depth
from snapapp.jobs.metrics.work import PREFIX
from snapapp.jobs.rows.people.overviews import CAP
from snapapp.process.health import Part

router = InternalRouter(prefix="/internal/observability", tags=["observability"])

_FRESH_FOR = timedelta(seconds=2)
_PARAMETER = re.compile(r"(?<={)\w+(?=})")  # camelCase as in the rest of the contract: {snapId}


def _now() -> datetime:
    return datetime.now(UTC)


class Snapshot(Shown):
    generated_at: datetime = Field(default_factory=_now)


class RouteLine(Shown):
    """The requests of one route since the start of the process."""

    method: str = Field(examples=["GET"])
    route_pattern: str = Field(examples=["/v2/snaps/{snapId}"])
    requests: int
    errors: int = Field(description="4xx and 5xx.")
    status2xx: int = Field(serialization_alias="status2xx")
    status4xx: int = Field(serialization_alias="status4xx")
    status5xx: int = Field(serialization_alias="status5xx")
    status_other: int
    avg_duration_ms: int
    max_duration_ms: int

    @classmethod
    def of(cls, route: RouteCounts) -> "RouteLine":
        by_class = {f"status{number}xx": route.of_class(number) for number in (2, 4, 5)}
        return cls(
            method=route.method,
            route_pattern=_PARAMETER.sub(lambda found: to_camel(found[0]), route.pattern),
            requests=route.requests,
            errors=route.errors,
            **by_class,
            status_other=route.requests - sum(by_class.values()),
            avg_duration_ms=round(route.seconds / max(route.requests, 1) * 1000),
            max_duration_ms=round(route.longest * 1000),
        )


class HttpMetrics(Snapshot):
    total_requests: int
    total_errors: int
    routes_count: int
    routes: list[RouteLine] = Field(description="The busiest first.")


class JobMetrics(Snapshot):
    """What the worker of this process did since it started."""

    claimed_count: int
    retry_scheduled_count: int
    stale_recovered_count: int
    cleanup_deleted_count: int
    completed_count: int
    failed_count: int
    avg_terminal_duration_ms: int
    max_terminal_duration_ms: int
    terminal_by_status: dict[str, int] = Field(examples=[{"COMPLETED": 41, "FAILED": 1, "CANCELLED": 0}])


class QueueNumbers(Shown):
    """The numbers of all queues, from the database."""

    pending_count: int = Field(description=f"Waiting, counted up to {CAP} a queue: one more means more.")
    processing_count: int
    failed_count: int = Field(description=f"Dead letters, counted up to {CAP}.")
    stuck_count: int = Field(description="Running without a lease, and kinds that no worker alive knows.")
    avg_job_duration_ms24h: float | None = Field(
        serialization_alias="avgJobDurationMs24h",
        description="The mean over jobs that finished in the last 24 h, among the 10,000 up to the newest running one; "
        "null: none did.",
    )

    @classmethod
    def of(cls, depth: Depth) -> "QueueNumbers":
        return cls(
            pending_count=sum(queue.waiting for queue in depth.queues),
            processing_count=sum(queue.running for queue in depth.queues),
            failed_count=depth.dead_letters,
            stuck_count=depth.stuck,
            avg_job_duration_ms24h=None if depth.mean_ms is None else round(depth.mean_ms, 1),
        )


class HealthSnapshot(Snapshot):
    status: str = Field(examples=["UP"])
    queue: QueueNumbers | None = Field(description="null while the database is away.")
    components: dict[str, dict[str, Any]]


class Alerts(Snapshot):
    alerts: list[Alert] = Field(description="Empty: none of these is wrong. `snapapp doctor` knows more.")


async def _traffic(counted: Counted) -> Traffic:
    return counted.traffic


@router.get("/http-metrics")
async def http_metrics(traffic: Annotated[Traffic, Depends(_traffic)]) -> HttpMetrics:
    """Requests by route since the start of the process."""
    # async: on the event loop, where they are counted
    routes = traffic.routes()
    return HttpMetrics(
        total_requests=sum(route.requests for route in routes),
        total_errors=sum(route.errors for route in routes),
        routes_count=len(routes),
        routes=[RouteLine.of(route) for route in routes],
    )


@router.get("/snap-job-metrics")
async def snap_job_metrics(counted: Counted) -> JobMetrics:
    """What the worker of this process did since it started."""
    numbers = counted.of_jobs()

    def count(name: str) -> int:
        return round(numbers[PREFIX + name])

    return JobMetrics(
        claimed_count=count("claimed"),
        retry_scheduled_count=count("retry.scheduled"),
        stale_recovered_count=count("stale.recovered"),
        cleanup_deleted_count=count("cleanup.deleted"),
        completed_count=count("completed"),
        failed_count=count("failed"),
        avg_terminal_duration_ms=count("terminal.avg.duration.ms"),
        max_terminal_duration_ms=count("terminal.max.duration.ms"),
        terminal_by_status={name.upper(): count(name) for name in ("completed", "failed", "cancelled")},
    )


@router.get("/health")
async def health_snapshot(checks: Checks, counted: Counted) -> HealthSnapshot:
    """Every part of the process, and how full the queues are. Always 200: `status` says whether all parts are UP."""
    parts, depth = await _parts_and_depth(checks, counted)
    return HealthSnapshot(
        status="UP" if all(part.is_up for part in parts.values()) else "DOWN",
        queue=QueueNumbers.of(depth) if depth else None,
        components={name: {"status": "UP" if part.is_up else "DOWN", **part.facts} for name, part in parts.items()},
    )


@router.get("/alerts")
async def current_alerts(checks: Checks, counted: Counted, monolith: MonolithDep) -> Alerts:
    """What an operator should look at now, and what to do about it."""
    parts, depth = await _parts_and_depth(checks, counted)
    if not parts["database"].is_up:
        return Alerts(alerts=alerts(parts, None, None))
    states = await asyncio.to_thread(counted.backups.look, fresh_for=_FRESH_FOR)
    wrong = list(troubles(states, monolith.settings)) if states else []
    return Alerts(alerts=alerts(parts, depth, counted.depth.trouble, wrong))


async def _parts_and_depth(checks: Checks, counted: Counted) -> tuple[dict[str, Part], Depth | None]:
    parts = {part.name: part for part in await checks.parts()}
    if not parts["database"].is_up:
        return parts, None
    return parts, await asyncio.to_thread(counted.depth.look, fresh_for=_FRESH_FOR)

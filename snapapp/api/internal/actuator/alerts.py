"""Alerts: pure functions from measured values to what an operator should look at now."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field

from snapapp.api.http.schema import Shown
from snapapp.backup.judgement import Trouble, hours
from snapapp.jobs.metrics.depth import Depth
from snapapp.jobs.rows.people.overviews import LONG_WAIT
from snapapp.process.health import Part

MEAN_AT_MOST_MS = 5000.0
ANSWER_AT_MOST_MS = 250.0


class AlertSeverity(StrEnum):
    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


class Threshold(Shown):
    expected: str = Field(examples=["at most 0"])
    actual: str = Field(examples=["3"])


class Alert(Shown):
    """A problem, and what to do about it."""

    id: str = Field(examples=["QUEUE_STUCK_JOBS"])
    severity: AlertSeverity
    message: str = Field(examples=["3 jobs are stuck."])
    metrics: dict[str, Any] = Field(examples=[{"stuckCount": 3}])
    suggested_action: str
    threshold: Threshold


def alerts(
    parts: Mapping[str, Part], depth: Depth | None, trouble: str | None, backups: Iterable[Trouble] = ()
) -> list[Alert]:
    """All alerts. `trouble` is why the queues could not be counted although the database answers."""
    return [
        *_of_database(parts["database"], trouble),
        *(_of_queue(depth) if depth else ()),
        *_of_disk(parts["disk"]),
        *map(_of_backups, (each for each in backups if each.is_serious)),
    ]


def _of_database(part: Part, trouble: str | None) -> Iterator[Alert]:
    if not part.is_up:
        yield Alert(
            id="DB_UNHEALTHY",
            severity=AlertSeverity.CRITICAL,
            message=f"The database does not answer: {part.facts.get('error')}",
            metrics=part.facts,
            suggested_action="Is PostgreSQL running, its disk full, its connections used up? Jobs and requests wait.",
            threshold=Threshold(expected="an answer", actual="none"),
        )
        return
    answered = float(part.facts.get("answeredInMs", 0.0))
    if trouble or answered > ANSWER_AT_MOST_MS:
        yield Alert(
            id="DB_DEGRADED",
            severity=AlertSeverity.MEDIUM,
            message=f"The queues cannot be counted: {trouble}" if trouble else "The database answers slowly.",
            metrics=part.facts,
            suggested_action="Look in pg_stat_activity for old transactions and locks, and at the disk's load.",
            threshold=Threshold(
                expected=f"an answer within {ANSWER_AT_MOST_MS:g} ms", actual=trouble or f"{answered:g} ms"
            ),
        )


def _of_queue(depth: Depth) -> Iterator[Alert]:
    if depth.stuck:
        yield Alert(
            id="QUEUE_STUCK_JOBS",
            severity=AlertSeverity.HIGH,
            message=f"Running jobs without a worker: {depth.overdue}; kinds without one: {len(depth.unknown_kinds)}.",
            metrics={"stuckCount": depth.stuck, "overdue": depth.overdue, "unknownKinds": depth.unknown_kinds},
            suggested_action="SELECT * FROM queue_stuck; then start a worker that knows the kinds, or cancel the jobs.",
            threshold=Threshold(expected="at most 0", actual=str(depth.stuck)),
        )
    for queue in (each for each in depth.queues if each.waits_long and each.oldest_due):
        waits = queue.oldest_due or LONG_WAIT
        yield Alert(
            id="QUEUE_LONG_WAIT",
            severity=AlertSeverity.MEDIUM,
            message=f"A job waits in the queue {queue.queue} since {waits.total_seconds():.0f} s.",
            metrics={"queue": queue.queue, "oldestDueSeconds": round(waits.total_seconds()), "due": queue.due},
            suggested_action="Ask it why with `snapapp jobs explain`, see what the workers run, or start more of them.",
            threshold=Threshold(
                expected=f"at most {(queue.long_wait or LONG_WAIT).total_seconds():g} s",
                actual=f"{waits.total_seconds():.0f} s",
            ),
        )
    if depth.mean_ms is not None and depth.mean_ms > MEAN_AT_MOST_MS:
        yield Alert(
            id="QUEUE_AVG_DURATION_HIGH",
            severity=AlertSeverity.MEDIUM,
            message="Jobs take long.",
            metrics={"avgJobDurationMs24h": round(depth.mean_ms, 1)},
            suggested_action="SELECT * FROM queue_throughput; says which kind it is.",
            threshold=Threshold(expected=f"at most {MEAN_AT_MOST_MS:g} ms", actual=f"{depth.mean_ms:.0f} ms"),
        )


def _of_disk(part: Part) -> Iterator[Alert]:
    if not part.is_up:
        free = f"{part.facts['freeMb']} MB" if "freeMb" in part.facts else "unknown"
        error = part.facts.get("error")
        saw = f"The data directory cannot be read: {error}" if error else f"{free} are free below the data directory."
        yield Alert(
            id="DISK_LOW",
            severity=AlertSeverity.HIGH,
            message=saw,
            metrics=part.facts,
            suggested_action="Make room before PostgreSQL stops: old backups, logs, media. New heavy work is refused.",
            threshold=Threshold(expected=f"at least {part.facts['floorMb']} MB", actual=free),
        )


def _of_backups(problem: Trouble) -> Alert:
    age = "none" if problem.age is None else f"{hours(problem.age)} old"
    return Alert(
        id=problem.id,
        severity=AlertSeverity.HIGH,
        message=problem.saw,
        metrics={} if problem.age is None else {"ageSeconds": round(problem.age.total_seconds())},
        suggested_action=problem.do,
        threshold=Threshold(expected="a good one in time", actual=age),
    )

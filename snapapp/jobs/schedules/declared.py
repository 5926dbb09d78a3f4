"""Schedules as the code declares them, and the checks of their parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from snapapp.jobs.errors import JobsError
from snapapp.jobs.model import to_json
from snapapp.jobs.schedules.slots import AN_INSTANT, EPOCH, ONE_BY_ONE, InvalidSchedule, Missed, bounds, upcoming

_LATEST = datetime(9900, 1, 1, tzinfo=UTC)  # as for a job's run_at
_LONGEST_EVERY = timedelta(days=366)
_SHORTEST_ROUTINE = timedelta(milliseconds=100)
_SOME_DAY = datetime(2027, 1, 1, tzinfo=UTC)  # a cron expression that has a slot has one after any day
_MOST_TIMES = 10_000


class DuplicateSchedule(JobsError):
    """Two schedules were declared with one name."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule of the whole fleet: each slot enqueues one job, whose kind has the schedule's name."""

    name: str
    spec: str  # five cron fields, or `every 60s`; then optionally `from TIME` and `until TIME`
    tz: str
    missed: Missed
    at_most: int  # with missed="all": how many missed slots run
    overlap: bool  # whether a slot's job is enqueued while the job of an earlier slot has not ended
    payload_json: str


@dataclass(frozen=True, slots=True)
class Routine:
    """A function that every worker process calls at an interval, without a job and without the database."""

    name: str
    every: timedelta
    function: Callable[[], object]


def a_schedule(
    name: str,
    cron: str | None,
    every: timedelta | None,
    tz: str | None,
    *,
    missed: str | None = None,
    at_most: int | None = None,
    overlap: bool | None = None,
    payload: Mapping[str, Any] | None = None,
    starts: datetime | None = None,
    ends: datetime | None = None,
    times: int | None = None,
) -> Schedule:
    """A schedule with checked parameters; InvalidSchedule says what is wrong with them."""
    try:
        schedule = Schedule(
            name=_name(name),
            spec=_spec(cron, every),
            tz=_tz(tz, every),
            missed=Missed(missed or Missed.ONCE),
            at_most=_at_most(at_most),
            overlap=_overlap(overlap, missed),
            payload_json=_payload(payload),
        )
        if next(upcoming(schedule.spec, schedule.tz, _SOME_DAY), None) is None:
            raise InvalidSchedule(f"cron {schedule.spec!r} never comes")
        schedule = replace(schedule, spec=_bounded(schedule.spec, schedule.tz, starts, ends, times))
    except ValueError as error:
        raise InvalidSchedule(f"{name:.200}: {error}") from None
    return schedule


def a_routine(name: str, every: timedelta | None, function: Callable[[], object]) -> Routine:
    if every is None or every < _SHORTEST_ROUTINE:
        raise InvalidSchedule(f"{name:.200}: a schedule of the process needs every, at least 100 ms")
    return Routine(_name(name), every, function)


def spec_of(every: timedelta) -> str:
    """The spec of an interval. Its slots are the multiples of the interval since 1970 in UTC: so all workers agree on
    them without storing anything, and an hourly schedule is due on the hour."""
    if every % timedelta(seconds=1) or not timedelta(seconds=1) <= every <= _LONGEST_EVERY:
        raise InvalidSchedule(f"every must be whole seconds, at least one and at most 366 days, not {every!s}")
    return f"every {every // timedelta(seconds=1)}s"


def _name(name: str) -> str:
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise InvalidSchedule("a schedule's name must be 1 to 200 printable characters")
    return name


def _spec(cron: str | None, every: timedelta | None) -> str:
    if (cron is None) == (every is None):
        raise InvalidSchedule("a schedule needs either cron or every")
    spec = spec_of(every) if every is not None else " ".join((cron or "").split())
    if spec != bounds(spec)[0]:
        raise InvalidSchedule(f"cron {spec!r} has a from or an until in it: say starts and ends")
    return spec


def _bounded(spec: str, tz: str, starts: datetime | None, ends: datetime | None, times: int | None) -> str:
    """Adds the bounds to a spec. `times` becomes an end, the slot with that number, which is the same in every
    worker."""
    for bound in (starts, ends):
        _check_bound(bound)
    if times is not None:
        if starts is None or not 1 <= times <= _MOST_TIMES:
            raise InvalidSchedule(f"times must be 1 to {_MOST_TIMES}, and needs starts: from when they are counted")
        *_, last = islice(upcoming(spec, tz, starts - AN_INSTANT), times)
        ends = min(last.at, ends or last.at)
    since = f" from {starts.astimezone(UTC).isoformat()}" if starts else ""
    until = f" until {ends.astimezone(UTC).isoformat()}" if ends else ""
    if next(upcoming(f"{spec}{since}{until}", tz, starts or EPOCH), None) is None and times is None:
        raise InvalidSchedule(f"{spec!r} has no slot{since}{until}")
    return f"{spec}{since}{until}"


def _check_bound(bound: object) -> None:
    if bound is None:
        return
    if not isinstance(bound, datetime) or bound.utcoffset() is None:
        raise InvalidSchedule(f"starts and ends must be datetimes with a time zone, not {bound!r:.100}")
    if not EPOCH <= bound < _LATEST:
        raise InvalidSchedule(f"starts and ends must lie between {EPOCH.year} and {_LATEST.year - 1}, not {bound}")


def _tz(tz: str | None, every: timedelta | None) -> str:
    if tz is not None and every is not None:
        raise InvalidSchedule("an interval has no time zone; every=timedelta(days=1) is midnight in UTC")
    return tz or "UTC"


def _at_most(at_most: int | None) -> int:
    if at_most is not None and not 1 <= at_most <= ONE_BY_ONE:
        raise InvalidSchedule(f"at_most must be 1 to {ONE_BY_ONE}, not {at_most}")
    return at_most or 10


def _overlap(overlap: bool | None, missed: str | None) -> bool:
    if overlap is False and missed == Missed.ALL:
        raise InvalidSchedule('missed="all" runs several at once, which overlap=False forbids')
    return missed == Missed.ALL if overlap is None else overlap


def _payload(payload: Mapping[str, Any] | None) -> str:
    reserved = {"schedule", "slot"} & (payload or {}).keys()
    if reserved:
        raise InvalidSchedule(f"the payload's {' and '.join(sorted(reserved))} will be filled in for each slot")
    return to_json(dict(payload or {}))

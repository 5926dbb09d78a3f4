"""Schedules: what happens again and again, and when. Pure: the database says what time it is, this says which slots
that makes due and which of them still run. APScheduler's CronTrigger finds the times on a wall clock; what becomes of
times that a change of the clock leaves out or repeats is decided here."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from heapq import heappop, heappush
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from snapapp.jobs.errors import JobsError
from snapapp.jobs.model import to_json

IN_TIME = timedelta(minutes=1)  # a slot that is noticed within it is not late: workers look at least that often

ONE_BY_ONE = 1000  # of the slots that were missed, so many are written down: no fewer than may run at once

_AN_INSTANT = timedelta(microseconds=1)  # so that a slot at the very start is one
_BOUNDED = re.compile(r"(.*?)(?: from (\S+))?(?: until (\S+))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9900, 1, 1, tzinfo=UTC)  # as for a job's run_at
_LONGEST_SHIFT = timedelta(hours=26)  # Samoa once left out a whole day
_LONGEST_EVERY = timedelta(days=366)
_SHORTEST_ROUTINE = timedelta(milliseconds=100)
_SOME_DAY = datetime(2027, 1, 1, tzinfo=UTC)  # a cron expression that has a slot has one after any day
_MOST_TIMES = 10_000
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class InvalidSchedule(JobsError, ValueError):
    """A schedule was declared that cannot be read, or would never come."""


class DuplicateSchedule(JobsError):
    """Two schedules were declared with one name."""


class UnknownSchedule(JobsError, LookupError):
    """No worker ever declared a schedule of this name."""


class Missed(StrEnum):
    """What becomes of slots that nobody noticed in time."""

    SKIP = "skip"
    ONCE = "once"  # the newest of them runs, late
    ALL = "all"  # the newest few of them run, late


class Outcome(StrEnum):
    """What became of a slot."""

    FIRED = "fired"
    LATE = "late"  # fired, later than it should
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Schedule:
    """One firing across the whole fleet: a job of the kind that is named as the schedule."""

    name: str
    spec: str  # five cron fields, or `every 60s`; then perhaps `from` and `until` a time
    tz: str
    missed: Missed
    at_most: int  # so many missed slots run, where all do
    overlap: bool  # may a slot's job be enqueued while the last one's has not ended?
    payload_json: str


@dataclass(frozen=True, slots=True)
class Routine:
    """What every worker process does for itself, without a job and without the database."""

    name: str
    every: timedelta
    function: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Slot:
    """When a schedule is due. The note says what a change of the clock has to do with it."""

    at: datetime
    note: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to become of a slot, and why."""

    slot: datetime
    outcome: Outcome
    why: str | None = None


# --- slots ------------------------------------------------------------------------------------------------------


def slots(spec: str, tz: str, after: datetime, until: datetime) -> list[datetime]:
    """The slots later than `after` and not later than `until`, the earliest first."""
    return [slot.at for slot in takewhile(lambda slot: slot.at <= until, upcoming(spec, tz, after))]


def newest(spec: str, tz: str, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The last few of them. Looked for from the end, further and further back: there may be millions."""
    _, _, ends = _bounds(spec)
    until = min(until, ends or until)  # else millions are gone through where it ended long ago
    window = timedelta(minutes=10)
    while True:
        since = max(after, until - window)
        found = slots(spec, tz, since, until)
        if since == after or len(found) >= limit:
            return found[-limit:]
        window *= 4


def upcoming(spec: str, tz: str, after: datetime) -> Iterator[Slot]:
    """The slots later than `after`, without an end for almost every spec."""
    rhythm, starts, ends = _bounds(spec)
    coming = _rhythmic(rhythm, tz, max(after, starts - _AN_INSTANT) if starts else after)
    return takewhile(lambda slot: slot.at <= ends, coming) if ends else coming


def _bounds(spec: str) -> tuple[str, datetime | None, datetime | None]:
    """What comes again, and between which times."""
    found = _BOUNDED.fullmatch(spec)
    rhythm, *bounds = found.groups() if found else (spec, None, None)
    try:
        starts, ends = (datetime.fromisoformat(bound) if bound else None for bound in bounds)
    except ValueError:
        raise InvalidSchedule(f"{spec!r} has a time in it that cannot be read") from None
    return rhythm, starts, ends


def _rhythmic(spec: str, tz: str, after: datetime) -> Iterator[Slot]:
    reader = _reader(spec)
    if isinstance(reader, timedelta):
        return _multiples(reader, after.astimezone(UTC))
    return _on_the_clock(reader, zone_of(tz), after.astimezone(UTC))


def _multiples(every: timedelta, after: datetime) -> Iterator[Slot]:
    number = (after - _EPOCH) // every
    while True:
        number += 1
        yield Slot(_EPOCH + number * every)


def _on_the_clock(cron: "_Cron", zone: tzinfo, after: datetime) -> Iterator[Slot]:
    """In the order in which they come, which is not that of the wall clock on the night when the clocks change."""
    wall = after.astimezone(zone).replace(tzinfo=None)
    coming: list[tuple[datetime, str]] = []
    for time in cron.times(wall - _shift_around(wall, zone)):
        yield from _until(_earliest(time, zone), coming, after)
        for slot in _meanings(time, zone, cron.repeats):
            heappush(coming, slot)
    yield from _until(None, coming, after)


def _until(moment: datetime | None, coming: list[tuple[datetime, str]], after: datetime) -> Iterator[Slot]:
    """Takes out what no later time of the clock can precede; two times that mean one moment are one slot."""
    while coming and (moment is None or coming[0][0] < moment):
        at, note = heappop(coming)
        while coming and coming[0][0] == at:
            note = "; ".join(filter(None, [note, heappop(coming)[1]]))
        if at > after:
            yield Slot(at, note)


def _meanings(time: datetime, zone: tzinfo, repeats: bool) -> list[tuple[datetime, str]]:
    """The moments that a time on the wall means: one, for almost all of them."""
    first, second = (time.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    shown = f"{time:%H:%M}"
    if first == second:
        return [(first, "")]
    if first > second:  # by the offset before the change: as long after it as it would have been without it
        return [(first, f"{shown} does not exist that day: it runs at {first.astimezone(zone):%H:%M}")]
    if repeats:
        return [(first, f"{shown} comes twice: the first"), (second, f"{shown} comes twice: the second")]
    return [(first, f"{shown} comes twice: only the first runs")]


def _earliest(time: datetime, zone: tzinfo) -> datetime:
    """Nothing that this time or a later one on the wall can mean is earlier."""
    return (time - max(_offsets_around(time, zone))).replace(tzinfo=UTC)


def _shift_around(time: datetime, zone: tzinfo) -> timedelta:
    offsets = _offsets_around(time, zone)
    return max(offsets) - min(offsets)


def _offsets_around(time: datetime, zone: tzinfo) -> tuple[timedelta, timedelta]:
    before, behind = ((time + way * _LONGEST_SHIFT).replace(tzinfo=zone).utcoffset() for way in (-1, 1))
    assert before is not None
    assert behind is not None
    return before, behind


# --- reading ----------------------------------------------------------------------------------------------------


class _Cron:
    """A cron expression, on a wall clock of which it does not know where it hangs."""

    def __init__(self, expression: str) -> None:
        minute, hour, day, month, weekday = expression.split()
        # as crontab does: an hour that is named comes once a day, one that is * as often as the clock shows it
        self.repeats = hour.startswith("*")
        self._trigger = CronTrigger(
            minute=minute, hour=hour, day=day, month=month, day_of_week=_weekdays(weekday), timezone=UTC
        )

    def times(self, since: datetime) -> Iterator[datetime]:
        time = self._trigger.get_next_fire_time(None, since.replace(tzinfo=UTC))
        while time is not None:
            yield time.replace(tzinfo=None)
            time = self._trigger.get_next_fire_time(None, time + timedelta(microseconds=1))


@lru_cache(maxsize=256)
def _reader(spec: str) -> _Cron | timedelta:
    interval = re.fullmatch(r"every ([0-9]{1,9})s", spec)
    if interval:
        return timedelta(seconds=int(interval[1]))
    fields = spec.split()
    if len(fields) != 5:
        raise InvalidSchedule(f"cron {spec!r} must have five fields: minute, hour, day, month, day of the week")
    if fields[2] != "*" and fields[4] != "*":
        # crontab would take either, APScheduler both: whoever reads it should not have to know whose cron this is
        raise InvalidSchedule(f"cron {spec!r} names days of the month and of the week: declare two schedules instead")
    try:
        return _Cron(spec)
    except (ValueError, TypeError) as error:
        raise InvalidSchedule(f"cron {spec!r} cannot be read: {error}") from None


def _weekdays(field: str) -> str:
    """As crontab counts them, from Sunday as 0 or 7 (APScheduler counts from Monday), written out by name."""
    if field == "*":
        return field
    return ",".join(_DAYS[day] for part in field.lower().split(",") for day in _weekdays_of(part))


def _weekdays_of(part: str) -> Iterator[int]:
    found = re.fullmatch(r"(?:(\*)|([a-z]{3}|[0-7])(?:-([a-z]{3}|[0-7]))?)(?:/([1-7]))?", part)
    if not found:
        raise ValueError(f"{part!r} is no day of the week: write 0 to 7 or sun to sat")
    everything, first, last, step = found.groups()
    start = 0 if everything else _weekday(first)
    end = 6 if everything or (step and not last) else _weekday(last or first)
    if end < start:  # fri-mon, 5-7 is taken care of below
        end += 7
    return (day % 7 for day in range(start, end + 1, int(step or 1)))


def _weekday(name: str) -> int:
    if name.isdigit():
        return int(name)
    try:
        return _DAYS.index(name)
    except ValueError:
        raise ValueError(f"{name!r} is no day of the week: write 0 to 7 or sun to sat") from None


def zone_of(tz: str) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (ValueError, OSError, LookupError):
        raise InvalidSchedule(f"{tz!r} is no time zone that is known here, such as America/Sao_Paulo") from None


# --- declaring --------------------------------------------------------------------------------------------------


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
    """What was said of it, checked; InvalidSchedule says what is wrong."""
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
    """An interval across the fleet. Its slots are the multiples since 1970 in UTC: all workers agree on them without
    having to remember anything, and an hourly one fires on the hour."""
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
    if spec != _bounds(spec)[0]:
        raise InvalidSchedule(f"cron {spec!r} has a from or an until in it: say starts and ends")
    return spec


def _bounded(spec: str, tz: str, starts: datetime | None, ends: datetime | None, times: int | None) -> str:
    """So many `times` are so many slots, whoever noticed them: the last is the end, the same in every worker."""
    for bound in (starts, ends):
        _check_bound(bound)
    if times is not None:
        if starts is None or not 1 <= times <= _MOST_TIMES:
            raise InvalidSchedule(f"times must be 1 to {_MOST_TIMES}, and needs starts: from when they are counted")
        *_, last = islice(upcoming(spec, tz, starts - _AN_INSTANT), times)
        ends = min(last.at, ends or last.at)
    since = f" from {starts.astimezone(UTC).isoformat()}" if starts else ""
    until = f" until {ends.astimezone(UTC).isoformat()}" if ends else ""
    if next(upcoming(f"{spec}{since}{until}", tz, starts or _EPOCH), None) is None and times is None:
        raise InvalidSchedule(f"{spec!r} has no slot{since}{until}")
    return f"{spec}{since}{until}"


def _check_bound(bound: object) -> None:
    if bound is None:
        return
    if not isinstance(bound, datetime) or bound.utcoffset() is None:
        raise InvalidSchedule(f"starts and ends must be datetimes with a time zone, not {bound!r:.100}")
    if not _EPOCH <= bound < _LATEST:
        raise InvalidSchedule(f"starts and ends must lie between {_EPOCH.year} and {_LATEST.year - 1}, not {bound}")


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
    taken = {"schedule", "slot"} & (payload or {}).keys()
    if taken:
        raise InvalidSchedule(f"the payload's {' and '.join(sorted(taken))} will be filled in for each slot")
    return to_json(dict(payload or {}))


# --- what becomes of them ---------------------------------------------------------------------------------------


def decide(due: list[datetime], now: datetime, missed: Missed, at_most: int) -> list[Entry]:
    """Which of the slots that are due still run. Only the newest can be in time; the others were missed. Of very many
    the newest thousand are written down, after one that stands for all before them."""
    running = _running(due, now, missed, at_most)
    entries = [_run(slot, now) if slot in running else _skip(slot, missed, at_most) for slot in due[-ONE_BY_ONE:]]
    return [*map(_skip_all, due[-ONE_BY_ONE - 1 : -ONE_BY_ONE]), *entries]


def _running(due: list[datetime], now: datetime, missed: Missed, at_most: int) -> set[datetime]:
    match missed:
        case Missed.SKIP:
            return {slot for slot in due[-1:] if now - slot <= IN_TIME}
        case Missed.ONCE:
            return {*due[-1:]}
        case Missed.ALL:
            return {*due[-at_most:]}


def _run(slot: datetime, now: datetime) -> Entry:
    if now - slot <= IN_TIME:
        return Entry(slot, Outcome.FIRED)
    return Entry(slot, Outcome.LATE, "no worker was there for it in time")


def _skip_all(slot: datetime) -> Entry:
    why = "missed: no worker was there for it in time, nor for those before it"
    return Entry(slot, Outcome.SKIPPED, f"{why}; only the newest {ONE_BY_ONE} have lines of their own")


def _skip(slot: datetime, missed: Missed, at_most: int) -> Entry:
    why = {
        Missed.SKIP: "no worker was there for it in time",
        Missed.ONCE: "no worker was there for it in time, and a later slot stands for it",
        Missed.ALL: f"no worker was there for it in time, and only the newest {at_most} are made up for",
    }
    return Entry(slot, Outcome.SKIPPED, f"missed: {why[missed]}")

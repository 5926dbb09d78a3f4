"""When a schedule is due, and which of its due slots still run: pure functions, called with the database's time.
APScheduler's CronTrigger finds the times on a wall clock; this module decides about times that a change of the clock
leaves out or repeats."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from heapq import heappop, heappush
from itertools import takewhile
from zoneinfo import ZoneInfo

from snapapp.jobs.errors import JobsError

IN_TIME = timedelta(minutes=1)  # a slot noticed within this time is not late: workers look at least that often

ONE_BY_ONE = 1000  # how many missed slots get a line each in the ledger; `at_most` may not be larger

AN_INSTANT = timedelta(microseconds=1)  # subtracted from a start, because slots are searched after a time
_BOUNDED = re.compile(r"(.*?)(?: from (\S+))?(?: until (\S+))?")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_SHIFT = timedelta(hours=26)  # Samoa once left out a whole day
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class InvalidSchedule(JobsError, ValueError):
    """A schedule was declared that cannot be read, or that has no slot."""


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
class Slot:
    """A time at which a schedule is due. The note says whether a change of the clock moved or repeated it."""

    at: datetime
    note: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """The outcome that a slot should get, and the reason."""

    slot: datetime
    outcome: Outcome
    why: str | None = None


# --- slots ------------------------------------------------------------------------------------------------------


def slots(spec: str, tz: str, after: datetime, until: datetime) -> list[datetime]:
    """The slots later than `after` and not later than `until`, the earliest first."""
    return [slot.at for slot in takewhile(lambda slot: slot.at <= until, upcoming(spec, tz, after))]


def newest(spec: str, tz: str, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The newest `limit` slots between two times. It searches backwards in growing windows, because there may be
    millions of slots."""
    _, _, ends = bounds(spec)
    until = min(until, ends or until)  # without this, the windows would grow over all the time since the end
    window = timedelta(minutes=10)
    while True:
        since = max(after, until - window)
        found = slots(spec, tz, since, until)
        if since == after or len(found) >= limit:
            return found[-limit:]
        window *= 4


def upcoming(spec: str, tz: str, after: datetime) -> Iterator[Slot]:
    """The slots later than `after`. For a spec without `until` they never end."""
    rhythm, starts, ends = bounds(spec)
    coming = _rhythmic(rhythm, tz, max(after, starts - AN_INSTANT) if starts else after)
    return takewhile(lambda slot: slot.at <= ends, coming) if ends else coming


def bounds(spec: str) -> tuple[str, datetime | None, datetime | None]:
    """Splits a spec into its cron or interval, its start and its end."""
    match = _BOUNDED.fullmatch(spec)
    rhythm, *within = match.groups() if match else (spec, None, None)
    try:
        starts, ends = (datetime.fromisoformat(bound) if bound else None for bound in within)
    except ValueError:
        raise InvalidSchedule(f"{spec!r} has a time in it that cannot be read") from None
    return rhythm, starts, ends


def _rhythmic(spec: str, tz: str, after: datetime) -> Iterator[Slot]:
    reader = _reader(spec)
    if isinstance(reader, timedelta):
        return _multiples(reader, after.astimezone(UTC))
    return _on_the_clock(reader, zone_of(tz), after.astimezone(UTC))


def _multiples(every: timedelta, after: datetime) -> Iterator[Slot]:
    number = (after - EPOCH) // every
    while True:
        number += 1
        yield Slot(EPOCH + number * every)


def _on_the_clock(cron: "_Cron", zone: tzinfo, after: datetime) -> Iterator[Slot]:
    """The slots of a cron expression in the order of real time, which differs from the order of the wall clock on the
    night when the clocks change."""
    wall = after.astimezone(zone).replace(tzinfo=None)
    coming: list[tuple[datetime, str]] = []
    for time in cron.times(wall - _shift_around(wall, zone)):
        yield from _take_before(_earliest(time, zone), coming, after)
        for slot in _meanings(time, zone, cron.repeats):
            heappush(coming, slot)
    yield from _take_before(None, coming, after)


def _take_before(moment: datetime | None, coming: list[tuple[datetime, str]], after: datetime) -> Iterator[Slot]:
    """Takes the slots before `moment` from the heap. Two clock times that mean the same moment become one slot."""
    while coming and (moment is None or coming[0][0] < moment):
        at, note = heappop(coming)
        while coming and coming[0][0] == at:
            note = "; ".join(filter(None, [note, heappop(coming)[1]]))
        if at > after:
            yield Slot(at, note)


def _meanings(time: datetime, zone: tzinfo, repeats: bool) -> list[tuple[datetime, str]]:
    """The moments that a time of the wall clock means: usually one; two if the clock shows it twice."""
    first, second = (time.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    shown = f"{time:%H:%M}"
    if first == second:
        return [(first, "")]
    if first > second:  # the clock skips this time: it is read with the offset from before the change
        return [(first, f"{shown} does not exist that day: it runs at {first.astimezone(zone):%H:%M}")]
    if repeats:
        return [(first, f"{shown} comes twice: the first"), (second, f"{shown} comes twice: the second")]
    return [(first, f"{shown} comes twice: only the first runs")]


def _earliest(time: datetime, zone: tzinfo) -> datetime:
    """The earliest moment that this or a later time of the wall clock can mean."""
    return (time - max(_offsets_around(time, zone))).replace(tzinfo=UTC)


def _shift_around(time: datetime, zone: tzinfo) -> timedelta:
    offsets = _offsets_around(time, zone)
    return max(offsets) - min(offsets)


def _offsets_around(time: datetime, zone: tzinfo) -> tuple[timedelta, timedelta]:
    before, behind = ((time + way * _LONGEST_SHIFT).replace(tzinfo=zone).utcoffset() for way in (-1, 1))
    assert before is not None
    assert behind is not None
    return before, behind


# --- parsing ----------------------------------------------------------------------------------------------------


class _Cron:
    """A cron expression, read as times of a wall clock without a time zone."""

    def __init__(self, expression: str) -> None:
        from apscheduler.triggers.cron import CronTrigger  # brings asyncio, which a child without schedules can spare

        minute, hour, day, month, weekday = expression.split()
        # As crontab does: a named hour comes once a day, the hour * as often as the clock shows it.
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
    interval = re.fullmatch(r"every ([1-9][0-9]{0,8})s", spec)
    if interval:
        return timedelta(seconds=int(interval[1]))
    fields = spec.split()
    if len(fields) != 5:
        raise InvalidSchedule(f"cron {spec!r} must have five fields: minute, hour, day, month, day of the week")
    if fields[2] != "*" and fields[4] != "*":
        # crontab runs it if either field matches, APScheduler if both do. Refusing it leaves no room for a mistake.
        raise InvalidSchedule(f"cron {spec!r} names days of the month and of the week: declare two schedules instead")
    try:
        return _Cron(spec)
    except (ValueError, TypeError) as error:
        raise InvalidSchedule(f"cron {spec!r} cannot be read: {error}") from None


def _weekdays(field: str) -> str:
    """The days of the week by name: crontab counts them from Sunday (0 or 7), APScheduler from Monday."""
    if field == "*":
        return field
    return ",".join(_DAYS[day] for part in field.lower().split(",") for day in _weekdays_of(part))


def _weekdays_of(part: str) -> Iterator[int]:
    match = re.fullmatch(r"(?:(\*)|([a-z]{3}|[0-7])(?:-([a-z]{3}|[0-7]))?)(?:/([1-7]))?", part)
    if not match:
        raise ValueError(f"{part!r} is no day of the week: write 0 to 7 or sun to sat")
    everything, first, last, step = match.groups()
    start = 0 if everything else _weekday(first)
    end = 6 if everything or (step and not last) else _weekday(last or first)
    if end < start:  # such as fri-mon; the modulo below turns 7 into 0
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


# --- outcomes of slots ------------------------------------------------------------------------------------------


def decide(due: list[datetime], now: datetime, missed: Missed, at_most: int) -> list[Entry]:
    """Decides which due slots still run. Only the newest one can be in time; the others were missed. Of very many
    slots the newest ONE_BY_ONE get an entry each, and one more entry stands for all before them."""
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

"""Which slots a schedule has, on the nights when clocks change too, and what becomes of those that were missed."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapapp.jobs.registry import Registry
from snapapp.jobs.schedules.declared import spec_of
from snapapp.jobs.schedules.slots import InvalidSchedule, Missed, Outcome, decide, newest, slots, upcoming
from tests.jobs.schedules.looking import HOUR, MINUTE, SECOND

# Nights on which the clocks change: forward, back, by half an hour, at midnight, by a whole day, twice within weeks.
NIGHTS = [
    ("Europe/Berlin", date(2026, 3, 29)),
    ("Europe/Berlin", date(2026, 10, 25)),
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("America/Sao_Paulo", date(2018, 11, 4)),
    ("America/Sao_Paulo", date(2018, 2, 18)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),
    ("Africa/Casablanca", date(2026, 2, 15)),
    ("Africa/Casablanca", date(2026, 3, 22)),
    ("Antarctica/Troll", date(2026, 3, 29)),
    ("Asia/Kathmandu", date(2026, 3, 29)),
]


def local(tz: str, *when: int) -> datetime:
    return datetime(*when, tzinfo=ZoneInfo(tz))  # type: ignore[arg-type, misc]


def on_the_wall(spec: str, tz: str, after: datetime, count: int) -> list[str]:
    return [f"{slot.at.astimezone(ZoneInfo(tz)):%d %H:%M%z}" for slot in islice(upcoming(spec, tz, after), count)]


def test_a_cron_schedule_goes_by_the_clocks_of_its_zone() -> None:
    """R41."""
    since = datetime(2026, 1, 1, tzinfo=UTC)
    assert slots("0 3 * * *", "America/Sao_Paulo", since, since + timedelta(days=2)) == [
        datetime(2026, 1, 1, 6, tzinfo=UTC),
        datetime(2026, 1, 2, 6, tzinfo=UTC),
    ]


def test_a_slot_is_after_the_one_end_and_not_after_the_other() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert slots("0 12 * * *", "UTC", noon, noon + timedelta(days=1)) == [noon + timedelta(days=1)]
    assert slots("* * * * *", "UTC", noon, noon + 2 * MINUTE) == [noon + MINUTE, noon + 2 * MINUTE]


def test_a_time_that_the_clocks_leave_out_runs_as_much_later() -> None:
    """FB3."""
    after = local("Europe/Berlin", 2026, 3, 28)
    days = ["28 02:30+0100", "29 03:30+0200", "30 02:30+0200"]
    assert on_the_wall("30 2 * * *", "Europe/Berlin", after, 3) == days


def test_a_time_that_comes_twice_runs_once_where_its_hour_is_named() -> None:
    """FB3."""
    after = local("Europe/Berlin", 2026, 10, 24)
    days = ["24 02:30+0200", "25 02:30+0200", "26 02:30+0100"]
    assert on_the_wall("30 2 * * *", "Europe/Berlin", after, 3) == days


def test_a_schedule_of_every_hour_runs_in_both_of_the_hours_that_come_twice() -> None:
    """FB3: an hour of silence would be worse."""
    after = local("Europe/Berlin", 2026, 10, 25, 1)
    hours = ["25 01:30+0200", "25 02:30+0200", "25 02:30+0100", "25 03:30+0100"]
    assert on_the_wall("30 * * * *", "Europe/Berlin", after, 4) == hours


def test_a_whole_day_that_is_left_out_makes_no_second_slot() -> None:
    """FB3: Samoa had no 30 December 2011."""
    after = local("Pacific/Apia", 2011, 12, 29)
    days = ["29 12:00-1000", "31 12:00+1400", "01 12:00+1400"]
    assert on_the_wall("0 12 * * *", "Pacific/Apia", after, 3) == days


def test_days_of_the_week_are_counted_as_crontab_counts_them() -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday

    def days(field: str) -> str:
        within_a_week = slots(f"0 0 * * {field}", "UTC", since - SECOND, since + timedelta(days=6))
        return " ".join(sorted(f"{slot:%a}" for slot in within_a_week))

    assert days("0") == days("7") == days("sun") == "Sun"
    assert days("1-5") == days("mon-fri") == "Fri Mon Thu Tue Wed"
    assert days("fri-mon") == days("5-7,1") == "Fri Mon Sat Sun"
    assert days("*/2") == days("0/2") == "Sat Sun Thu Tue"


def test_a_schedule_has_a_start_an_end_or_so_many_times() -> None:
    """W52: both bounds are slots; what is over stays declared, and nothing refuses to start for it."""
    known = Registry()
    start, end = datetime(2027, 3, 1, 3, tzinfo=UTC), datetime(2027, 3, 3, 3, tzinfo=UTC)
    known.scheduled(cron="0 3 * * *", name="between", starts=start, ends=end)(lambda job: None)
    known.scheduled(every=timedelta(hours=6), name="thrice", starts=start, times=3)(lambda job: None)
    known.scheduled(cron="0 3 * * *", name="over", ends=datetime(2020, 1, 1, tzinfo=UTC))(lambda job: None)
    by_name = {its.name: its.spec for its in known.schedules()}
    early, late = start - timedelta(days=40), end + timedelta(days=40)
    assert slots(by_name["between"], "UTC", early, late) == [start, start + timedelta(days=1), end]
    assert newest(by_name["between"], "UTC", early, late, 2) == [start + timedelta(days=1), end]
    assert [slot.hour for slot in slots(by_name["thrice"], "UTC", early, late)] == [6, 12, 18]
    assert [slot.at for slot in upcoming(by_name["between"], "UTC", start)] == [start + timedelta(days=1), end]
    assert next(upcoming(by_name["over"], "UTC", early), None) is None
    assert by_name["between"] == "0 3 * * * from 2027-03-01T03:00:00+00:00 until 2027-03-03T03:00:00+00:00"


def test_the_newest_slots_of_what_ended_years_ago_are_looked_for_from_its_end() -> None:
    """Back from now in ever longer steps, the step that meets the end goes through years of seconds."""
    end = datetime(2020, 1, 1, tzinfo=UTC)
    spec = f"every 1s until {end.isoformat()}"
    assert newest(spec, "UTC", end - timedelta(days=9999), end + timedelta(days=2500), 2) == [end - SECOND, end]


NEVER: list[dict[str, Any]] = [
    {"starts": datetime(2027, 1, 1)},  # noqa: DTZ001 - that is what is wrong
    {"cron": "0 3 * * * until 2027-01-01T00:00:00"},
    {"starts": datetime(2027, 1, 2, tzinfo=UTC), "ends": datetime(2027, 1, 1, tzinfo=UTC)},
    {"times": 3},
    {"starts": datetime(2027, 1, 1, tzinfo=UTC), "times": 0},
    {"starts": datetime.min.replace(tzinfo=UTC)},
    {"starts": datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), "times": 2},
    {"ends": datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))},
    {"starts": "2027-01-01T00:00:00Z"},
    {"ends": 1_798_761_600},
]


@pytest.mark.parametrize("bounds", NEVER)
def test_bounds_between_which_nothing_comes_are_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchedule):
        Registry().scheduled(**({"cron": "0 3 * * *", "name": "never"} | bounds))(lambda job: None)


def test_an_interval_is_the_multiples_since_1970() -> None:
    after = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
    spec = spec_of(timedelta(hours=6))
    assert slots(spec, "UTC", after, after + timedelta(hours=12)) == [
        datetime(2026, 1, 1, 6, tzinfo=UTC),
        datetime(2026, 1, 1, 12, tzinfo=UTC),
    ]


class Fields:
    """A cron expression and what it means, said in another way."""

    def __init__(self, minutes: set[int], hours: set[int] | None) -> None:
        self.spec = f"{','.join(map(str, sorted(minutes)))} {_listed(hours)} * * *"
        self._minutes = minutes
        self._hours = hours

    def due(self, tz: str, start: datetime, end: datetime) -> list[datetime]:
        """Minute by minute: what the wall shows, and what it would have shown had it not been changed."""
        return [minute for minute in _minutes(start, end) if self._is_due(minute, ZoneInfo(tz))]

    def _is_due(self, minute: datetime, zone: ZoneInfo) -> bool:
        wall = minute.astimezone(zone)
        if self._names(wall) and not (wall.fold and self._hours is not None):
            return True
        before = (minute - 3 * HOUR).astimezone(zone).utcoffset() or timedelta(0)
        unchanged = (minute + before).replace(tzinfo=zone)
        is_left_out = unchanged.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != unchanged.replace(tzinfo=None)
        return is_left_out and self._names(unchanged)

    def _names(self, wall: datetime) -> bool:
        return wall.minute in self._minutes and (self._hours is None or wall.hour in self._hours)


def _listed(hours: set[int] | None) -> str:
    return "*" if hours is None else ",".join(map(str, sorted(hours)))


def _minutes(start: datetime, end: datetime) -> Iterator[datetime]:
    minute = start
    while minute < end:
        minute += MINUTE
        yield minute


fields = st.builds(
    Fields, st.sets(st.integers(0, 59), min_size=1, max_size=4), st.none() | st.sets(st.integers(0, 4), min_size=1)
)

nights = st.sampled_from(NIGHTS)


def midnight(night: tuple[str, date]) -> datetime:
    return datetime(night[1].year, night[1].month, night[1].day, tzinfo=UTC) - timedelta(hours=12)


@given(fields, nights)
def test_on_the_nights_when_clocks_change_the_slots_are_those_of_the_wall(its: Fields, night: tuple[str, date]) -> None:
    """FB3: counted once more, minute by minute."""
    start = midnight(night)
    end = start + timedelta(hours=36)
    assert slots(its.spec, night[0], start, end) == its.due(night[0], start, end)


@given(fields, nights, st.lists(st.integers(0, 36 * 60), max_size=6))
def test_whenever_somebody_looks_no_slot_is_lost_or_seen_twice(
    its: Fields, night: tuple[str, date], looks: list[int]
) -> None:
    """FB3: what was due until a look and what is due after it are all there is."""
    start = midnight(night)
    ends = [start, *(start + look * MINUTE for look in sorted(looks)), start + timedelta(hours=36)]
    seen = [slot for after, until in pairwise(ends) for slot in slots(its.spec, night[0], after, until)]
    assert seen == slots(its.spec, night[0], start, ends[-1])


@pytest.mark.parametrize(
    ("spec", "tz", "after", "notes"),
    [
        ("30 2 * * *", "Europe/Berlin", (2026, 3, 29), "02:30 does not exist that day: it runs at 03:30"),
        ("30 2 * * *", "Europe/Berlin", (2026, 10, 25), "02:30 comes twice: only the first runs"),
        ("30 * * * *", "Europe/Berlin", (2026, 10, 25, 2), "02:30 comes twice: the first"),
        ("30 2,3 * * *", "Europe/Berlin", (2026, 3, 29), "02:30 does not exist that day: it runs at 03:30"),
    ],
)
def test_a_preview_says_what_a_change_of_the_clocks_does(
    spec: str, tz: str, after: tuple[int, ...], notes: str
) -> None:
    assert next(upcoming(spec, tz, local(tz, *after))).note == notes


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

DUE = [NOON - 3 * HOUR, NOON - 2 * HOUR, NOON - HOUR, NOON]


@pytest.mark.parametrize(
    ("missed", "looked", "outcomes"),
    [
        (Missed.SKIP, NOON + SECOND, "skipped skipped skipped fired"),
        (Missed.SKIP, NOON + HOUR / 2, "skipped skipped skipped skipped"),
        (Missed.ONCE, NOON + SECOND, "skipped skipped skipped fired"),
        (Missed.ONCE, NOON + HOUR / 2, "skipped skipped skipped late"),
        (Missed.ALL, NOON + SECOND, "skipped late late fired"),
        (Missed.ALL, NOON + HOUR / 2, "skipped late late late"),
    ],
)
def test_missed_slots_are_dealt_with_as_declared(missed: Missed, looked: datetime, outcomes: str) -> None:
    """R41: missed runs collapse to one, unless somebody wants something else."""
    entries = decide(DUE, looked, missed, at_most=3)
    assert [entry.slot for entry in entries] == DUE
    assert [entry.outcome.value for entry in entries] == outcomes.split()
    assert all(entry.why for entry in entries if entry.outcome is not Outcome.FIRED)


@given(fields, nights, st.integers(1, 36 * 60), st.integers(1, 50))
def test_the_newest_slots_are_the_last_ones(its: Fields, night: tuple[str, date], minutes: int, limit: int) -> None:
    start = midnight(night)
    span = (its.spec, night[0], start, start + minutes * MINUTE)
    assert newest(*span, limit) == slots(*span)[-limit:]

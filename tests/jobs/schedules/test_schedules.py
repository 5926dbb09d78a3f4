"""Schedules: which slots there are, who fires them, and what the ledger says of those that were not fired."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st

from snapapp.jobs import Job, events
from snapapp.jobs.events import Events
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.database import Line, connect
from snapapp.jobs.rows.roster import Member, Report
from snapapp.jobs.schedules import ledger as schedule_ledger
from snapapp.jobs.schedules import scheduler, views
from snapapp.jobs.schedules.ledger import Declaration
from snapapp.jobs.schedules.scheduler import Watch
from snapapp.jobs.schedules.slots import (
    DuplicateSchedule,
    Entry,
    InvalidSchedule,
    Missed,
    Outcome,
    UnknownSchedule,
    decide,
    newest,
    slots,
    spec_of,
    upcoming,
)
from tests import ROOT
from tests.factory import Db, at_once, statuses
from tests.jobs.working import Heard, until, working
from tests.labs.schedules.clock import LIBRARIES, Clock

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


# --- which slots there are ----------------------------------------------------------------------------------------

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


# --- what becomes of them -------------------------------------------------------------------------------------------

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


# --- declaring ------------------------------------------------------------------------------------------------------


def work(job: Job) -> None: ...
def routine() -> None: ...
async def work_async(job: Job) -> None: ...


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "needs either cron or every"),
        ({"cron": "* * * * *", "every": HOUR}, "needs either cron or every"),
        ({"cron": "0 3 * *"}, "must have five fields"),
        ({"cron": "61 * * * *"}, "cannot be read: .* higher than the maximum value"),
        ({"cron": "0 0 * * 8"}, "'8' is no day of the week"),
        ({"cron": "0 0 * * foo"}, "'foo' is no day of the week"),
        ({"cron": "0 0 1 * mon"}, "declare two schedules instead"),
        ({"cron": "0 0 31 2 *"}, "never comes"),
        ({"cron": "0 3 * * *", "tz": "Mars/Olympus"}, "'Mars/Olympus' is no time zone"),
        ({"cron": "0 3 * * *", "tz": "../etc/passwd"}, "is no time zone"),
        ({"every": HOUR, "tz": "Europe/Berlin"}, "an interval has no time zone"),
        ({"every": timedelta(milliseconds=1500)}, "whole seconds"),
        ({"every": timedelta(0)}, "at least one"),
        ({"every": timedelta(days=400)}, "at most 366 days"),
        ({"every": HOUR, "missed": "sometimes"}, "sometimes"),
        ({"every": HOUR, "missed": "all", "at_most": 0}, "at_most must be 1 to 1000"),
        ({"every": HOUR, "missed": "all", "overlap": False}, "which overlap=False forbids"),
        ({"every": HOUR, "payload": {"slot": 1}}, "the payload's slot will be filled in"),
        ({"every": HOUR, "payload": {"a": object()}}, "is not JSON"),
        ({"every": HOUR, "name": "x" * 201}, "1 to 200 printable characters"),
        ({"cron": "* * * * *", "scope": "process"}, "a schedule of the process needs every"),
        ({"every": HOUR, "scope": "process", "queue": "media"}, "is no job and has no queue"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_where_it_is_declared(options: dict[str, Any], why: str) -> None:
    function = routine if options.get("scope") == "process" else work
    declared = Registry()
    with pytest.raises(InvalidSchedule, match=why):
        declared.scheduled(**options)(function)
    assert (declared.schedules(), declared.routines(), len(declared)) == ((), (), 0)


def test_a_function_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match=r"routine: .*takes one argument, the job"):
        Registry().scheduled(every=HOUR)(routine)
    with pytest.raises(InvalidSchedule, match=r"work: .*takes no arguments"):
        Registry().scheduled(every=HOUR, scope="process")(work)
    with pytest.raises(InvalidSchedule, match="not `async def`"):
        Registry().scheduled(every=HOUR, scope="process")(work_async)


def test_two_schedules_of_one_name_are_refused_and_the_same_one_again_is_not() -> None:
    declared = Registry()
    declared.scheduled(every=HOUR)(work)
    declared.scheduled(every=HOUR)(work)
    with pytest.raises(DuplicateSchedule, match=r"every 3600s \(UTC\) by .*:work and every 60s \(UTC\) by .*:work"):
        declared.scheduled(every=MINUTE)(work)
    declared.scheduled(every=MINUTE, name="other")(work)
    assert [its.name for its in declared.schedules()] == [f"{__name__}.work", "other"]


def test_a_scheduled_function_is_a_processor_like_any_other() -> None:
    declared = Registry()
    declared.scheduled(cron=" 0  3 * * * ", name="nightly", queue="media", timeout=HOUR, max_attempts=7)(work)
    declared.scheduled(every=HOUR, name="async")(work_async)
    its = declared.get("nightly")
    assert (its.function, its.queue, its.timeout, its.max_attempts) == (work, "media", HOUR, 7)
    assert declared.get("async").executor == "async"
    assert declared.schedules()[0].spec == "0 3 * * *"


# --- one worker looks -----------------------------------------------------------------------------------------------

Look = Callable[[], float]


@pytest.fixture
def known() -> Registry:
    return Registry()


class Looker:
    """What a worker has for its schedules, without the worker: it looks when the test says so."""

    def __init__(self, url: str, known: Registry, name: str = "worker") -> None:
        self.events = Events()
        self.heard = Heard(self.events)
        self._line = Line(lambda: connect(url, name=name))
        declarations = [
            Declaration(its, known.get(its.name).queue, known.get(its.name).max_attempts or 3, name)
            for its in known.schedules()
        ]
        watch = Watch(name, self._line, declarations, self.events)
        self._watch, self.close = watch, watch.close

    def look(self) -> float:
        """The first one declares, as it does in a worker, whose thread then looks again at once."""
        if not self._watch._declared:
            self._watch.look()
        return self._watch.look()


@pytest.fixture
def looker(url: str) -> Iterator[Callable[..., Looker]]:
    made: list[Looker] = []

    def make(known: Registry, name: str = "worker") -> Looker:
        made.append(Looker(url, known, name))
        return made[-1]

    yield make
    for each in made:
        each.close()


def enlist(db: Db, name: str, *, dead: bool = False) -> None:
    """On the roster, where those who look find out who is alive."""
    member = Member(id=name, name=name, host="box", machine="boot", pid=1, pid_started=1, queues=(), kinds=(), slots=1)
    roster.beat(db, member, Report(), lives_for=-HOUR if dead else HOUR)


def move_back(db: Db, by: timedelta) -> None:
    """As if nobody had looked for so long."""
    db.execute(
        "UPDATE job_schedule SET settled_until = settled_until - %(by)s, created_at = created_at - %(by)s", {"by": by}
    )


def forget_what_fired(db: Db) -> None:
    """A second may pass between a declaration and the look that follows it: its slot would come twice."""
    db.execute("DELETE FROM job_schedule_slot")
    db.execute("DELETE FROM snap_processing_job")


def ledger(db: Db, name: str = "its") -> list[tuple[datetime, str, str | None, int | None]]:
    return db.execute(
        "SELECT slot, outcome, why, job_id FROM job_schedule_slot WHERE schedule = %s ORDER BY slot", [name]
    ).fetchall()


def outcomes(db: Db, name: str = "its") -> Counter[str]:
    return Counter(outcome for _, outcome, _, _ in ledger(db, name))


def all_slots(db: Db, name: str = "its") -> list[datetime]:
    """Every slot from the creation of the schedule to where it stands."""
    [row] = db.execute(
        "SELECT spec, tz, created_at, settled_until FROM job_schedule WHERE name = %s", [name]
    ).fetchall()
    return slots(*row)


def payloads(db: Db) -> list[str]:
    return [text for (text,) in db.execute("SELECT payload::text FROM snap_processing_job ORDER BY id").fetchall()]


def test_the_first_slot_is_after_the_creation(db: Db, known: Registry, looker: Callable[..., Looker]) -> None:
    known.scheduled(every=24 * HOUR, name="its")(work)
    waits = looker(known).look()
    assert ledger(db) == []
    assert statuses(db) == {}
    assert 0 < waits <= 60


@pytest.mark.both_servers_at_length
def test_a_slot_is_fired_with_its_job_and_everything_that_was_declared(
    db: Db, known: Registry, looker: Callable[..., Looker]
) -> None:
    """R41: the job and the note that the slot is done are one transaction."""
    known.scheduled(every=HOUR, name="its", queue="media", max_attempts=7, payload={"a": 1})(work)
    one = looker(known)
    one.look()
    move_back(db, HOUR)
    one.look()
    [(slot, outcome, why, job_id)] = ledger(db)
    assert outcome in ("fired", "late")  # by how far the hour has gone
    assert (why is None) == (outcome == "fired")
    [job] = db.execute("SELECT id, kind, queue, max_attempts, status FROM snap_processing_job").fetchall()
    assert job == (job_id, "its", "media", 7, "PENDING")
    assert payloads(db) == [f'{{"a": 1, "slot": "{slot:%Y-%m-%dT%H:%M:%SZ}", "schedule": "its"}}']
    one.look()
    assert len(ledger(db)) == 1


def test_a_look_says_when_the_next_slot_comes_by_the_databases_clock(
    db: Db, known: Registry, looker: Callable[..., Looker]
) -> None:
    known.scheduled(every=10 * SECOND, name="its")(work)
    waits = looker(known).look()
    [(left,)] = db.execute("SELECT 10 - extract(epoch FROM clock_timestamp())::float8::numeric %% 10", {}).fetchall()
    assert abs(waits - float(left)) < 1 or abs(waits - float(left)) > 9


@pytest.mark.both_servers_at_length
def test_of_many_that_look_at_once_one_fires(db: Db, known: Registry, looker: Callable[..., Looker]) -> None:
    """FB5, R41: without a leader."""
    known.scheduled(every=SECOND, name="its", missed="all", at_most=50)(work)
    crowd = [looker(known, f"worker-{number}") for number in range(8)]
    for number, each in enumerate(crowd):
        enlist(db, f"worker-{number}")
        each.look()
    for _ in range(10):
        db.execute("TRUNCATE job_schedule_slot, snap_processing_job")
        db.execute("UPDATE job_schedule SET settled_until = clock_timestamp() - interval '20 s'")
        at_once(*[each.look for each in crowd])
        fired = [job_id for _, _, _, job_id in ledger(db) if job_id is not None]
        assert len(fired) >= 20
        assert sorted(fired) == list(statuses(db))
        assert max(Counter(payloads(db)).values()) == 1


def test_whoever_settles_slots_that_are_settled_changes_nothing(
    db: Db, known: Registry, looker: Callable[..., Looker]
) -> None:
    """FB5: what the loser of a race holds in its hands."""
    known.scheduled(every=HOUR, name="its")(work)
    one = looker(known)
    one.look()
    move_back(db, HOUR)
    [stale] = schedule_ledger.look(db, ["its"], "worker")
    one.look()
    again = [Entry(ledger(db)[0][0], Outcome.FIRED)]
    assert schedule_ledger.settle(db, stale, again, "worker") == []
    assert len(statuses(db)) == 1


def test_a_worker_ahead_of_the_databases_clock_fires_nothing(
    db: Db, known: Registry, looker: Callable[..., Looker]
) -> None:
    """FB1: whatever a worker takes for now, the database decides."""
    known.scheduled(every=HOUR, name="its")(work)
    looker(known).look()
    [standing] = schedule_ledger.look(db, ["its"], "worker")
    early = slots("every 3600s", "UTC", standing.now, standing.now + 2 * HOUR)[:1]
    assert schedule_ledger.settle(db, standing, [Entry(early[0], Outcome.FIRED)], "worker") == []
    assert (ledger(db), statuses(db)) == ([], {})


@pytest.mark.parametrize(
    ("missed", "run"),
    [("skip", 0), ("once", 1), ("all", 10)],
)
def test_after_an_absence_every_slot_stands_in_the_ledger(
    db: Db, known: Registry, looker: Callable[..., Looker], missed: Any, run: int
) -> None:
    """R41, FB7."""
    elsewhere = f"Etc/GMT{datetime.now(UTC).hour - 12:+}"  # where it is about noon, so that the last midnight is past
    known.scheduled(cron="0 0 * * *", tz=elsewhere, name="its", missed=missed)(work)
    one = looker(known)
    one.look()
    move_back(db, timedelta(days=29))
    one.look()
    assert [slot for slot, *_ in ledger(db)] == all_slots(db)
    assert len(ledger(db)) == 29
    assert all(why for _, outcome, why, _ in ledger(db) if outcome != "fired")
    assert outcomes(db) == Counter(skipped=29 - run, late=run) - Counter()
    assert len(statuses(db)) == run


@pytest.mark.parametrize(("missed", "run"), [("skip", 1), ("once", 1), ("all", 1000)])
def test_of_a_very_long_absence_only_the_newest_slots_are_written_down_one_by_one(
    db: Db, known: Registry, looker: Callable[..., Looker], missed: Any, run: int
) -> None:
    """Two and a half million seconds of a month were inserted, and all but 10,000 deleted again."""
    known.scheduled(every=SECOND, name="its", missed=missed, at_most=1000)(work)
    one = looker(known)
    one.look()
    forget_what_fired(db)
    move_back(db, 2 * HOUR)
    assert one.look() > 0.0
    written = [slot for slot, *_ in ledger(db)]
    assert len(written) == 1001
    assert written == all_slots(db)[-1001:]
    assert "nor for those before it" in (ledger(db)[0][2] or "")
    assert len(statuses(db)) == run  # the newest was in time
    assert len(one.heard.all(events.SCHEDULE_SKIPPED)) == 1


def test_of_a_spec_that_changes_after_a_long_absence_only_the_newest_slots_are_written_down(
    db: Db, looker: Callable[..., Looker]
) -> None:
    looker(another(SECOND), "old").look()
    forget_what_fired(db)
    move_back(db, 2 * HOUR)
    looker(another(24 * HOUR), "new").look()
    assert len(ledger(db)) == 1000


@given(fields, nights, st.integers(1, 36 * 60), st.integers(1, 50))
def test_the_newest_slots_are_the_last_ones(its: Fields, night: tuple[str, date], minutes: int, limit: int) -> None:
    start = midnight(night)
    span = (its.spec, night[0], start, start + minutes * MINUTE)
    assert newest(*span, limit) == slots(*span)[-limit:]


def test_a_clock_that_is_set_back_fires_no_slot_again(db: Db, known: Registry, looker: Callable[..., Looker]) -> None:
    """FB1: seen from a database that is an hour behind, the slots that were settled lie ahead."""
    known.scheduled(every=SECOND, name="its")(work)
    one = looker(known)
    one.look()
    before = ledger(db)  # a second may have begun during the look
    db.execute("UPDATE job_schedule SET settled_until = clock_timestamp() + interval '1 hour'")
    assert one.look() == scheduler.LOOK_EVERY
    assert ledger(db) == before


def test_while_its_job_has_not_ended_a_schedule_is_skipped(
    db: Db, known: Registry, looker: Callable[..., Looker]
) -> None:
    known.scheduled(every=SECOND, name="its")(work)
    one = looker(known)
    one.look()
    move_back(db, SECOND)
    one.look()
    [job_id] = statuses(db)
    for status in ("PENDING", "RETRY_WAIT"):
        db.execute("UPDATE snap_processing_job SET status = %s", [status])
        seen = len(ledger(db))
        until(lambda: one.look() >= 0 and len(ledger(db)) > seen)  # noqa: B023
        assert ledger(db)[-1][1:3] == ("skipped", f"overlap: job {job_id} of the slot before had not ended")
    assert list(statuses(db)) == [job_id]
    db.execute("UPDATE snap_processing_job SET status = 'FAILED', finished_at = now()")
    until(lambda: one.look() >= 0 and len(statuses(db)) == 2)


def test_with_overlap_it_fires_whatever_still_runs(db: Db, known: Registry, looker: Callable[..., Looker]) -> None:
    known.scheduled(every=SECOND, name="its", overlap=True)(work)
    one = looker(known)
    one.look()
    until(lambda: one.look() >= 0 and len(statuses(db)) >= 2)
    assert outcomes(db)["skipped"] == 0


def test_what_is_wrong_with_one_schedule_is_no_trouble_of_the_others(
    db: Db, known: Registry, looker: Callable[..., Looker]
) -> None:
    """R41: each on its own."""
    for name in ("broken", "its", "zealous"):
        known.scheduled(every=HOUR, name=name)(work)
    one = looker(known)
    one.look()
    move_back(db, HOUR)
    db.execute("ALTER TABLE snap_processing_job ADD CHECK (kind <> 'broken')")
    assert one.look() <= 5
    assert [len(ledger(db, name)) for name in ("broken", "its", "zealous")] == [0, 1, 1]
    assert "look at the schedule broken" in one.heard.all("worker.error")[0].facts["doing"]
    db.execute("ALTER TABLE snap_processing_job DROP CONSTRAINT snap_processing_job_kind_check")
    one.look()
    assert [slot for slot, *_ in ledger(db, "broken")] == all_slots(db, "broken")


# --- pause, resume, run ---------------------------------------------------------------------------------------------


@pytest.mark.both_servers_at_length
def test_the_slots_of_a_pause_are_skipped_with_its_reason(
    db: Db, known: Registry, looker: Callable[..., Looker]
) -> None:
    known.scheduled(every=SECOND, name="its")(work)
    one = looker(known)
    one.look()
    views.pause(db, "its", "the printer burns")
    until(lambda: one.look() >= 0 and len(ledger(db)) >= 2)
    assert {(outcome, why) for _, outcome, why, _ in ledger(db)} == {("skipped", "paused: the printer burns")}
    views.resume(db, "its")
    until(lambda: one.look() >= 0 and len(statuses(db)) == 1)
    assert [slot for slot, *_ in ledger(db)] == all_slots(db)


def test_slots_of_a_pause_that_nobody_saw_are_not_made_up_for(
    db: Db, known: Registry, looker: Callable[..., Looker]
) -> None:
    known.scheduled(every=HOUR, name="its")(work)
    one = looker(known)
    one.look()
    views.pause(db, "its")
    db.execute("UPDATE job_schedule SET paused_at = paused_at - interval '5 hours'")
    views.resume(db, "its")
    move_back(db, 4 * HOUR)
    one.look()
    assert {why for _, _, why, _ in ledger(db)} == {"paused"}
    assert len(ledger(db)) == 4
    assert statuses(db) == {}


@pytest.mark.both_servers_at_length
def test_a_person_runs_it_now_even_while_it_is_paused(db: Db, known: Registry, looker: Callable[..., Looker]) -> None:
    """R41."""
    known.scheduled(every=24 * HOUR, name="its", queue="media")(work)
    looker(known).look()
    views.pause(db, "its")
    job_id = views.run(db, "its")
    [(slot, outcome, why, ledgers_job)] = ledger(db)
    assert (outcome, why, ledgers_job) == ("fired", "a person wanted it now", job_id)
    assert statuses(db) == {job_id: "PENDING"}
    assert f'"slot": "{slot:%Y-%m-%dT%H:%M:%SZ}"' in payloads(db)[0]


@pytest.mark.both_servers_at_length
def test_a_schedule_that_is_not_there_is_said_not_to_be(db: Db, engine: sqlalchemy.Engine) -> None:
    for act in (views.pause, views.resume, views.run, views.schedule):
        with pytest.raises(UnknownSchedule, match="there is no schedule nothing"):
            act(db, "nothing")
        with engine.begin() as connection, pytest.raises(UnknownSchedule, match="there is no schedule nothing"):
            act(connection, "nothing")


@pytest.mark.both_servers_at_length
def test_people_read_and_change_schedules_on_either_carrier(
    db: Db, engine: sqlalchemy.Engine, known: Registry, looker: Callable[..., Looker]
) -> None:
    known.scheduled(every=HOUR, name="its", payload={"a": 1})(work)
    looker(known).look()
    with engine.begin() as connection:
        views.pause(connection, "its", "why not")
        job_id = views.run(connection, "its")
        [its] = views.schedules(connection)
        [entry] = views.ledger(connection, "its")
    assert (its.payload, its.paused_reason, its.last_job, its.last_job_status) == (
        {"a": 1},
        "why not",
        job_id,
        "PENDING",
    )
    assert (entry.job_id, entry.job_status, entry.worker) == (job_id, "PENDING", None)
    assert views.ledger(db, "its") == [entry]
    assert views.ledger(db, "its", before=entry.slot) == []


@pytest.mark.both_servers_at_length
def test_schedules_go_on_while_a_new_release_adds_a_column(
    url: str, db: Db, known: Registry, looker: Callable[..., Looker]
) -> None:
    """FC18: the statements are prepared, and one of them hands on a whole row."""
    known.scheduled(every=SECOND, name="its", overlap=True)(work)
    one = looker(known)
    one.look()

    def fire() -> None:
        db.execute("TRUNCATE job_schedule_slot")
        db.execute("UPDATE job_schedule SET settled_until = clock_timestamp() - interval '3 s'")
        one.look()
        assert outcomes(db)["fired"] == 1

    for _ in range(6):
        fire()
    with connect(url, name="release") as release:
        release.execute("ALTER TABLE job_schedule ADD COLUMN colour text NOT NULL DEFAULT 'green'")
        fire()
        release.execute("ALTER TABLE job_schedule DROP COLUMN colour")
        fire()
    assert one.heard.all("worker.error") == []


# --- what is declared, by whom --------------------------------------------------------------------------------------


def another(every: timedelta) -> Registry:
    """The same schedule in another release."""
    release = Registry()
    release.scheduled(every=every, name="its")(work)
    return release


def test_whoever_declares_last_wins_and_the_other_says_so(db: Db, looker: Callable[..., Looker]) -> None:
    old, new = looker(another(SECOND), "old"), looker(another(24 * HOUR), "new")
    for name in ("old", "new"):
        enlist(db, name)
    old.look()
    move_back(db, 3 * SECOND)
    new.look()
    left = ledger(db)
    assert {why for _, _, why, _ in left} == {
        "changed: the schedule became every 86400s (UTC) before this slot was fired"
    }
    assert len(left) >= 3
    for _ in range(3):
        assert old.look() == scheduler.LOOK_EVERY
    assert ledger(db) == left
    assert statuses(db) == {}
    [told] = old.heard.all(events.SCHEDULE_SUPERSEDED)
    assert (told.facts["ours"], told.facts["theirs"]) == ("every 1s (UTC)", "every 86400s (UTC)")


def test_the_slots_of_a_new_spec_begin_when_it_is_declared(db: Db, looker: Callable[..., Looker]) -> None:
    looker(another(24 * HOUR), "old").look()
    move_back(db, 10 * HOUR)
    old_slots = len(all_slots(db))
    looker(another(HOUR), "new").look()
    assert len(ledger(db)) - old_slots <= 1  # not the ten that the new spec would have had meanwhile
    assert statuses(db) == {}


def test_when_the_last_one_that_declares_it_so_is_gone_others_take_it_over(
    db: Db, looker: Callable[..., Looker]
) -> None:
    """A release that was rolled back: who still runs must not wait for who never comes again."""
    stays, leaves = looker(another(SECOND), "stays"), looker(another(24 * HOUR), "leaves")
    for name in ("stays", "leaves"):
        enlist(db, name)
    stays.look()
    leaves.look()
    stays.look()
    assert views.schedule(db, "its").spec == "every 86400s"
    enlist(db, "leaves", dead=True)
    stays.look()
    assert views.schedule(db, "its").spec == "every 1s"
    until(lambda: stays.look() >= 0 and len(statuses(db)) == 1)


def test_a_schedule_that_nobody_alive_declares_stays_and_is_shown_so(db: Db, looker: Callable[..., Looker]) -> None:
    enlist(db, "first")
    enlist(db, "second")
    for name in ("first", "second"):
        looker(another(HOUR), name).look()
    assert views.schedule(db, "its").workers == 2
    enlist(db, "first", dead=True)
    assert views.schedule(db, "its").workers == 1
    roster.leave(db, "second", "done")
    assert [(its.name, its.workers) for its in views.schedules(db)] == [("its", 0)]


def test_a_schedule_that_was_deleted_by_hand_is_declared_again(db: Db, looker: Callable[..., Looker]) -> None:
    one = looker(another(HOUR))
    one.look()
    db.execute("DELETE FROM job_schedule")
    one.look()
    assert [its.name for its in views.schedules(db)] == ["its"]


def test_many_that_declare_at_once_agree(db: Db, looker: Callable[..., Looker]) -> None:
    """FD5: as when a web server starts several processes."""
    crowd = [looker(another(HOUR), f"worker-{number}") for number in range(8)]
    for number in range(8):
        enlist(db, f"worker-{number}")
    at_once(*[each.look for each in crowd])
    assert views.schedule(db, "its").workers == 8
    assert [each.heard.all(events.SCHEDULE_DECLARED) for each in crowd] == [[]] * 8


def test_payload_and_queue_may_change_without_a_new_beginning(db: Db, looker: Callable[..., Looker]) -> None:
    looker(another(HOUR), "old").look()
    move_back(db, HOUR)
    new = Registry()
    new.scheduled(every=HOUR, name="its", queue="media", payload={"b": 2})(work)
    looker(new, "new").look()
    [queue] = db.execute("SELECT queue FROM snap_processing_job").fetchall()
    assert queue == ("media",)
    assert [outcome for _, outcome, _, _ in ledger(db)][-1] in ("fired", "late")


# --- the ledger -----------------------------------------------------------------------------------------------------


@pytest.mark.both_servers_at_length
def test_the_ledger_forgets_what_is_old_and_what_is_too_much(db: Db, looker: Callable[..., Looker]) -> None:
    looker(another(HOUR)).look()
    add = """
        INSERT INTO job_schedule_slot (schedule, slot, outcome, why)
        SELECT 'its', now() - day * interval '1 day', 'skipped', 'test' FROM generate_series(1, 20) AS day
        """
    db.execute(add)
    assert schedule_ledger.prune(db) == 0
    assert schedule_ledger.prune(db, kept=timedelta(days=15, hours=1)) == 5
    assert schedule_ledger.prune(db, at_most=12) == 3
    assert schedule_ledger.prune(db, kept=HOUR, at_least=10) == 2
    assert len(ledger(db)) == 10


def test_a_worker_prunes_the_ledger(url: str, db: Db, known: Registry) -> None:
    known.scheduled(every=24 * HOUR, name="its")(work)
    with working(url, known) as (worker, _):
        until(lambda: views.schedules(db))
        db.execute(
            "INSERT INTO job_schedule_slot (schedule, slot, outcome, why)"
            " SELECT 'its', now() - day * interval '1 day', 'skipped', 'test' FROM generate_series(80, 100) AS day"
        )
        until(lambda: worker.prune() == 0 and len(ledger(db)) == 10)  # of 90 days, and the newest ten of all


# --- workers --------------------------------------------------------------------------------------------------------


def test_a_worker_fires_and_runs_it_in_time(url: str, db: Db, known: Registry) -> None:
    ran: list[Any] = []
    known.scheduled(every=SECOND, name="its", payload={"a": 1})(lambda job: ran.append(job.payload))
    with working(url, known) as (worker, heard):
        heard.wait_for(events.SCHEDULE_FIRED, times=3)
        until(lambda: len(ran) >= 3)
    lates = db.execute("SELECT recorded_at - slot FROM job_schedule_slot WHERE outcome = 'fired'").fetchall()
    assert all(timedelta(0) <= late < SECOND for (late,) in lates)
    assert ran[0] == {"a": 1, "schedule": "its", "slot": f"{ledger(db)[0][0]:%Y-%m-%dT%H:%M:%SZ}"}
    assert heard.all(events.SCHEDULE_FIRED)[0].facts["worker_id"] == worker.id


def test_several_workers_fire_each_slot_once(url: str, db: Db, known: Registry) -> None:
    """FB5, FD5."""
    known.scheduled(every=SECOND, name="its")(work)
    with working(url, known), working(url, known), working(url, known):
        until(lambda: [its.workers for its in views.schedules(db)] == [3] and len(statuses(db)) >= 4)
    assert max(Counter(payloads(db)).values()) == 1
    assert [slot for slot, *_ in ledger(db)] == all_slots(db)


def test_a_worker_that_stops_fires_no_more(url: str, db: Db, known: Registry) -> None:
    known.scheduled(every=SECOND, name="its")(work)
    with working(url, known) as (worker, heard):
        heard.wait_for(events.SCHEDULE_FIRED)
        worker.stop_claiming()
        stood = ledger(db)
        assert "schedules" not in {thread.name for thread in threading.enumerate()}
    assert ledger(db) == stood


@pytest.mark.direct
def test_a_database_that_goes_away_is_waited_for(url: str, db: Db, known: Registry) -> None:
    known.scheduled(every=SECOND, name="its")(work)
    with working(url, known) as (_, heard):
        heard.wait_for(events.SCHEDULE_FIRED)
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'snapapp schedules'"
        assert db.execute(ended).fetchall() == [(True,)]
        fired = len(heard.all(events.SCHEDULE_FIRED))
        heard.wait_for(events.SCHEDULE_FIRED, times=fired + 2)


def test_a_worker_without_schedules_asks_nothing_about_them(url: str, db: Db, known: Registry) -> None:
    known.processor("other")(work)
    with working(url, known) as (worker, _):
        worker.beat()
        assert "schedules" not in {thread.name for thread in threading.enumerate()}
    assert views.schedules(db) == []


MODULE = """
from datetime import timedelta
from snapapp.jobs import scheduled

@scheduled(every=timedelta(seconds=1), name="its", overlap=True)
def its(job): ...
"""


@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed")
def test_a_worker_on_a_host_with_a_wrong_clock_fires_in_time_all_the_same(url: str, db: Db, tmp_path: Path) -> None:
    """FB1: the command itself, an hour ahead."""
    (tmp_path / "declaring.py").write_text(MODULE)
    clock = Clock(tmp_path / "clock")
    clock.set(datetime.now(UTC) + HOUR)
    settings = {"SNAPAPP_DATABASE_URL": url, "SNAPAPP_PROCESSORS": "declaring", "PYTHONPATH": str(ROOT)}
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "snapapp", "worker"],
            cwd=tmp_path,
            env=os.environ | settings | clock.environment(),
            stdout=said,
            stderr=said,
        )
    try:
        until(lambda: process.poll() is None and outcomes(db)["fired"] >= 3, within=60)
        clock.set(datetime.now(UTC) - HOUR)
        until(lambda: outcomes(db)["fired"] >= 6, within=30)
    finally:
        process.terminate()
        process.wait(timeout=30)
    assert outcomes(db)["late"] == 0, (tmp_path / "said").read_text()
    assert max(Counter(payloads(db)).values()) == 1
    assert [slot for slot, *_ in ledger(db)] == all_slots(db)


# --- schedules of the process ---------------------------------------------------------------------------------------


def test_a_schedule_of_the_process_runs_in_each_worker_without_a_job(url: str, db: Db, known: Registry) -> None:
    ran = threading.Semaphore(0)
    known.scheduled(every=timedelta(milliseconds=100), scope="process")(lambda: ran.release())
    with working(url, known):
        for _ in range(3):
            assert ran.acquire(timeout=20)
    assert (statuses(db), views.schedules(db), known.kinds()) == ({}, [], ())


def test_an_error_in_it_is_an_event_and_the_next_call_comes(url: str, known: Registry) -> None:
    known.scheduled(every=timedelta(milliseconds=100), scope="process", name="its")(lambda: 1 / 0)
    with working(url, known) as (_, heard):
        until(lambda: [event.facts["doing"] for event in heard.all("worker.error")].count("schedule its") >= 2)
    assert "ZeroDivisionError" in heard.all("worker.error")[0].facts["error"]


def test_a_call_that_takes_too_long_is_told_and_followed_by_one_not_by_many(url: str, known: Registry) -> None:
    """FB4: T9c: nothing is left out in silence, and nothing piles up."""
    entered, free = threading.Semaphore(0), threading.Event()
    calls: list[int] = []

    def slow() -> None:
        calls.append(1)
        entered.release()
        free.wait(20)

    known.scheduled(every=timedelta(milliseconds=100), scope="process", name="its")(slow)
    with working(url, known) as (_, heard):
        assert entered.acquire(timeout=20)
        heard.wait_for(events.ROUTINE_SKIPPED, times=10)
        assert calls == [1]
        free.set()
        assert entered.acquire(timeout=20)
    told = heard.all(events.ROUTINE_SKIPPED)
    assert {event.facts["schedule"] for event in told} == {"its"}


def test_apscheduler_stays_below_its_pre_release() -> None:
    """FB6."""
    [pin] = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line.startswith("apscheduler==")]
    assert pin.startswith("apscheduler==3.")

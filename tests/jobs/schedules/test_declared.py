"""How schedules are declared, and what is done where two processes declare one otherwise."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from snapapp.jobs import events
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import roster
from snapapp.jobs.schedules import scheduler, views
from snapapp.jobs.schedules.declared import DuplicateSchedule
from snapapp.jobs.schedules.slots import InvalidSchedule
from tests.factory import Db, at_once, statuses
from tests.jobs.schedules.looking import (
    HOUR,
    MINUTE,
    SECOND,
    Looker,
    all_slots,
    another,
    enlist,
    ledger,
    move_back,
    routine,
    work,
    work_async,
)
from tests.jobs.working import until


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
    assert [its.name for its in declared.schedules()] == [f"{work.__module__}.work", "other"]


def test_a_scheduled_function_is_a_processor_like_any_other() -> None:
    declared = Registry()
    declared.scheduled(cron=" 0  3 * * * ", name="nightly", queue="media", timeout=HOUR, max_attempts=7)(work)
    declared.scheduled(every=HOUR, name="async")(work_async)
    its = declared.get("nightly")
    assert (its.function, its.queue, its.timeout, its.max_attempts) == (work, "media", HOUR, 7)
    assert declared.get("async").executor == "async"
    assert declared.schedules()[0].spec == "0 3 * * *"


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


@pytest.mark.parametrize(
    "options", [{"queue": "media"}, {"payload": {"b": 1e300}}, {"missed": "skip"}, {"overlap": True}]
)
def test_who_stays_takes_a_schedule_over_that_differed_in_other_things_than_its_times(
    db: Db, looker: Callable[..., Looker], options: dict[str, Any]
) -> None:
    """A release that was rolled back sent the jobs of this schedule to a queue of its own, which nobody works now."""
    enlist(db, "stays")
    enlist(db, "leaves")
    newer = Registry()
    newer.scheduled(every=HOUR, name="its", **options)(work)
    stays, leaves = looker(another(HOUR), "stays"), looker(newer, "leaves")
    standing = "SELECT queue, payload, missed, overlap FROM job_schedule"
    stays.look()
    [before] = db.execute(standing).fetchall()
    leaves.look()
    [between] = db.execute(standing).fetchall()
    for _ in range(2):
        stays.look()
    assert db.execute(standing).fetchall() == [between] != [before]
    [told] = stays.heard.all(events.SCHEDULE_SUPERSEDED)
    assert (told.facts["theirs"], told.facts["by"]) == ("every 3600s (UTC) with other options", ["leaves"])
    enlist(db, "leaves", dead=True)
    stays.look()
    assert db.execute(standing).fetchall() == [before]


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

"""What a look does: which slots it fires, what the ledger says of the others, and what a pause changes."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy

from snapapp.jobs import events
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import connect
from snapapp.jobs.schedules import ledger as schedule_ledger
from snapapp.jobs.schedules import scheduler, views
from snapapp.jobs.schedules.slots import Entry, Outcome, UnknownSchedule, slots
from tests.factory import Db, ago, as_it_runs, at_once, move, statuses, until_blocking
from tests.jobs.schedules.looking import (
    HOUR,
    SECOND,
    Looker,
    all_slots,
    another,
    enlist,
    ledger,
    move_back,
    outcomes,
    payloads,
    work,
)
from tests.jobs.working import until


def test_the_first_slot_is_after_the_creation(db: Db, known: Registry, looker: Callable[..., Looker]) -> None:
    known.scheduled(every=24 * HOUR, name="its")(work)
    waits = looker(known).look()
    assert ledger(db) == []
    assert statuses(db) == {}
    assert 0 < waits <= 60


@pytest.mark.both_servers_at_length
def test_a_slot_is_fired_with_its_job_and_everything_that_was_declared(
    db: Db, scheduled: Callable[..., Looker]
) -> None:
    """R41: the job and the note that the slot is done are one transaction."""
    one = scheduled(every=HOUR, queue="media", max_attempts=7, payload={"a": 1})
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


def test_whoever_settles_slots_that_are_settled_changes_nothing(db: Db, scheduled: Callable[..., Looker]) -> None:
    """FB5: what the loser of a race holds in its hands."""
    one = scheduled(every=HOUR)
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
    db: Db, missed: Any, run: int, scheduled: Callable[..., Looker]
) -> None:
    """R41."""
    elsewhere = f"Etc/GMT{datetime.now(UTC).hour - 12:+}"  # where it is about noon, so that the last midnight is past
    one = scheduled(cron="0 0 * * *", tz=elsewhere, missed=missed)
    move_back(db, timedelta(days=29))
    one.look()
    assert [slot for slot, *_ in ledger(db)] == all_slots(db)
    assert len(ledger(db)) == 29
    assert all(why for _, outcome, why, _ in ledger(db) if outcome != "fired")
    assert outcomes(db) == Counter(skipped=29 - run, late=run) - Counter()
    assert len(statuses(db)) == run


@pytest.mark.parametrize(("missed", "run"), [("skip", 1), ("once", 1), ("all", 1000)])
def test_of_a_very_long_absence_only_the_newest_slots_are_written_down_one_by_one(
    db: Db, missed: Any, run: int, scheduled: Callable[..., Looker]
) -> None:
    """Two and a half million seconds of a month were inserted, and all but 10,000 deleted again."""
    one = scheduled(every=SECOND, missed=missed, at_most=1000)
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
    move_back(db, 2 * HOUR)
    looker(another(24 * HOUR), "new").look()
    assert len(ledger(db)) == 1000


def test_a_clock_that_is_set_back_fires_no_slot_again(db: Db, scheduled: Callable[..., Looker]) -> None:
    """FB1: seen from a database that is an hour behind, the slots that were settled lie ahead."""
    one = scheduled(every=SECOND)
    before = ledger(db)  # a second may have begun during the look
    db.execute("UPDATE job_schedule SET settled_until = clock_timestamp() + interval '1 hour'")
    assert one.look() == scheduler.LOOK_EVERY
    assert ledger(db) == before


@pytest.mark.parametrize("column", ["settled_until", "paused_at"])
@pytest.mark.parametrize("time", ["infinity", "-infinity", "9999-12-31 23:59:59Z"])
def test_a_time_that_python_cannot_read_is_refused(
    db: Db, column: str, time: str, scheduled: Callable[..., Looker]
) -> None:
    """Somebody writes it by hand to stop a schedule for good. No worker could read any schedule beside it."""
    one = scheduled(every=SECOND)
    with pytest.raises(psycopg.errors.CheckViolation, match="times_are_moments"):
        db.execute(f"UPDATE job_schedule SET {column} = %s", [time])
    one.look()
    assert views.schedules(db)[0].paused_at is None


def test_an_interval_of_nothing_is_no_spec_and_hides_no_other_schedule(db: Db) -> None:
    db.execute("INSERT INTO job_schedule (name, spec) VALUES ('its', 'every 0s'), ('other', 'every 1s')")
    assert [each.next_slot is None for each in views.schedules(db)] == [True, False]


def test_while_its_job_has_not_ended_a_schedule_is_skipped(db: Db, scheduled: Callable[..., Looker]) -> None:
    one = scheduled(every=SECOND)
    move_back(db, SECOND)
    one.look()
    [job_id] = statuses(db)
    for status in ("PENDING", "RETRY_WAIT"):
        db.execute("UPDATE snap_processing_job SET status = %s", [status])
        seen = len(ledger(db))
        until(lambda: one.look() >= 0 and len(ledger(db)) > seen)  # noqa: B023
        assert ledger(db)[-1][1:3] == ("skipped", f"overlap: job {job_id} of an earlier slot had not ended")
    assert list(statuses(db)) == [job_id]
    db.execute("UPDATE snap_processing_job SET status = 'FAILED', finished_at = now()")
    until(lambda: one.look() >= 0 and len(statuses(db)) == 2)


def test_a_job_that_a_person_started_since_hides_none_that_still_runs(db: Db, scheduled: Callable[..., Looker]) -> None:
    one = scheduled(every=HOUR)
    move_back(db, HOUR)
    one.look()
    [runs_long] = statuses(db)
    by_a_person = views.run(db, "its")
    move(db, by_a_person, status="COMPLETED", finished_at=ago())
    move(db, runs_long, **as_it_runs())
    db.execute("UPDATE job_schedule_slot SET slot = slot - interval '2 hours'")
    move_back(db, HOUR)
    one.look()
    assert ledger(db)[-1][1:3] == ("skipped", f"overlap: job {runs_long} of an earlier slot had not ended")
    assert list(statuses(db)) == [runs_long, by_a_person]


def test_a_look_that_waits_for_a_person_who_runs_the_schedule_sees_the_job(
    db: Db, other: Db, scheduled: Callable[..., Looker]
) -> None:
    """A statement that waits for a lock goes on with what it saw before: a second job began beside the person's."""
    one = scheduled(every=HOUR)
    move_back(db, HOUR)
    with ThreadPoolExecutor(1) as thread:
        with other.transaction():
            by_a_person = views.run(other, "its")
            look = thread.submit(one.look)
            until_blocking(other)
        look.result(timeout=60)
    assert "skipped" in {outcome for _, outcome, why, _ in ledger(db) if why and f"job {by_a_person}" in why}
    assert list(statuses(db)) == [by_a_person]


def test_with_overlap_it_fires_whatever_still_runs(db: Db, scheduled: Callable[..., Looker]) -> None:
    one = scheduled(every=SECOND, overlap=True)
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


@pytest.mark.both_servers_at_length
def test_the_slots_of_a_pause_are_skipped_with_its_reason(db: Db, scheduled: Callable[..., Looker]) -> None:
    one = scheduled(every=SECOND)
    views.pause(db, "its", "the printer burns")
    fired = len(ledger(db))  # a second may have begun
    until(lambda: one.look() >= 0 and len(ledger(db)) >= fired + 2)
    assert {each[1:3] for each in ledger(db)[fired:]} == {("skipped", "paused: the printer burns")}
    with pytest.raises(psycopg.errors.CheckViolation):
        views.pause(db, "its", "r" * 501)
    views.resume(db, "its")
    until(lambda: one.look() >= 0 and len(statuses(db)) == fired + 1)
    assert [slot for slot, *_ in ledger(db)] == all_slots(db)


def test_slots_of_a_pause_that_nobody_saw_are_not_made_up_for(db: Db, scheduled: Callable[..., Looker]) -> None:
    one = scheduled(every=HOUR)
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
def test_schedules_go_on_while_a_new_release_adds_a_column(url: str, db: Db, scheduled: Callable[..., Looker]) -> None:
    """FC18: the statements are prepared, and one of them hands on a whole row."""
    one = scheduled(every=SECOND, overlap=True)

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

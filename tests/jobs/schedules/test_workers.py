"""Schedules in workers: fired once and in time, whatever clock and database do; and schedules of the process itself."""

import os
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from snapapp.jobs import Worker, events
from snapapp.jobs.registry import Registry
from snapapp.jobs.schedules import views
from tests import ROOT
from tests.factory import Db, statuses
from tests.jobs.schedules.looking import HOUR, SECOND, all_slots, ledger, outcomes, payloads, work
from tests.jobs.working import until, working
from tests.labs.schedules.clock import LIBRARIES, Clock


def test_a_worker_prunes_the_ledger(url: str, db: Db, known: Registry) -> None:
    known.scheduled(every=24 * HOUR, name="its")(work)
    with working(url, known) as (worker, _):
        until(lambda: views.schedules(db))
        db.execute(
            "INSERT INTO job_schedule_slot (schedule, slot, outcome, why)"
            " SELECT 'its', now() - day * interval '1 day', 'skipped', 'test' FROM generate_series(80, 100) AS day"
        )
        until(lambda: worker.prune() == 0 and len(ledger(db)) == 10)  # of 90 days, and the newest ten of all


def test_a_worker_fires_and_runs_it_in_time(url: str, db: Db, known: Registry) -> None:
    ran: list[Any] = []
    known.scheduled(every=SECOND, name="its", payload={"a": 1})(lambda job: ran.append(job.payload))
    with working(url, known) as (worker, heard):
        heard.wait_for(events.SCHEDULE_FIRED, times=3)
        until(lambda: len(ran) >= 3)
    lates = db.execute("SELECT recorded_at - slot FROM job_schedule_slot WHERE outcome = 'fired'").fetchall()
    assert all(timedelta(0) <= late < 10 * SECOND for (late,) in lates)
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


@pytest.mark.at_length  # test_scheduler has a worker whose clock is ahead, in every run
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


def test_a_schedule_of_the_process_runs_in_each_worker_without_a_job(url: str, db: Db, known: Registry) -> None:
    ran = threading.Semaphore(0)
    known.scheduled(every=timedelta(milliseconds=100), scope="process")(lambda: ran.release())
    with working(url, known):
        for _ in range(3):
            assert ran.acquire(timeout=20)
    assert (statuses(db), views.schedules(db), known.kinds()) == ({}, [], ())


def test_a_schedule_of_the_process_runs_once_in_a_process_with_two_workers(url: str, known: Registry) -> None:
    ran_by: list[int] = []  # by ident of the thread
    known.scheduled(every=timedelta(milliseconds=100), scope="process")(lambda: ran_by.append(threading.get_ident()))
    first, second = (Worker(url, registry=known) for _ in range(2))
    with second:
        with first:
            until(lambda: len(ran_by) >= 6)
        by_one = len(ran_by)
        until(lambda: len(ran_by) >= by_one + 2)
    assert len({*ran_by[:6]}) == 1


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

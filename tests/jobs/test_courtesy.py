"""Guests of the process go first, and the queue never stops for good because of them."""

import threading
from datetime import timedelta
from time import monotonic

import pytest

from snapapp.jobs import courtesy as courtesies
from snapapp.jobs.courtesy import Courtesy
from snapapp.jobs.registry import Registry
from snapapp.jobs.runtime import Runtime
from tests.factory import Db, make_jobs
from tests.jobs.working import quick_settings, until


def test_without_a_guest_nobody_waits() -> None:
    courtesy = Courtesy(patience=60)
    began = monotonic()
    for _ in range(1000):
        courtesy.give_way()
    assert monotonic() - began < 5
    assert courtesy.held_back == 0


def test_who_gives_way_goes_on_when_the_last_guest_has_left() -> None:
    courtesy, went_on = Courtesy(patience=60), threading.Event()
    courtesy.arrive()
    courtesy.arrive()

    def wait_and_go_on() -> None:
        courtesy.give_way()
        went_on.set()

    threading.Thread(target=wait_and_go_on, daemon=True).start()
    courtesy.depart()
    assert not went_on.wait(0.1)
    courtesy.depart()
    assert went_on.wait(10)


def test_a_house_that_is_never_empty_slows_the_queue_and_does_not_stop_it(url: str, db: Db) -> None:
    """Promise 10: by doing less, not nothing."""
    registry, courtesy = Registry(), Courtesy(patience=0.01)
    registry.processor("quick")(lambda job: None)
    runtime = Runtime(quick_settings(url), registry=registry, courtesy=courtesy)
    worker = runtime.worker()
    courtesy.arrive()
    make_jobs(db, 20, kind="quick")
    worker.start()
    try:
        until(lambda: worker.counts.completed == 20)
    finally:
        worker.stop(timedelta(seconds=1))
        runtime.close()


def test_the_roster_says_that_the_web_held_the_worker_back(url: str, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courtesies, "_WINDOW", 0.05)
    registry, courtesy = Registry(), Courtesy(patience=0.01)
    registry.processor("quick")(lambda job: None)
    runtime = Runtime(quick_settings(url, beat_every=timedelta(milliseconds=50)), registry=registry, courtesy=courtesy)
    worker = runtime.worker()
    worker.start()
    try:

        def a_guest_comes_and_the_roster_tells() -> bool:
            courtesy.arrive()
            make_jobs(db, 5, kind="quick")
            courtesy.give_way()
            courtesy.depart()
            [(note,)] = db.execute("SELECT note FROM job_worker").fetchall() or [(None,)]
            return "held back by the web" in (note or "")

        until(a_guest_comes_and_the_roster_tells)
        assert "held back by the web" in (worker.vitals().note or "")
    finally:
        worker.stop(timedelta(seconds=1))
        runtime.close()

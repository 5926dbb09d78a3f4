"""Guests of the process go first, and the queue never stops for good because of them."""

import threading
from datetime import timedelta
from time import monotonic

import pytest

from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.worker.capacity import web_priority as courtesies
from snapapp.jobs.worker.capacity.web_priority import WebPriority
from tests.factory import Db, make_jobs
from tests.jobs.working import quick_settings, until


def test_without_a_request_nobody_waits() -> None:
    web_priority = WebPriority(patience=60)
    began = monotonic()
    for _ in range(1000):
        web_priority.give_way()
    assert monotonic() - began < 5
    assert web_priority.held_back == 0


def test_who_gives_way_goes_on_when_the_last_request_is_answered() -> None:
    web_priority, went_on = WebPriority(patience=60), threading.Event()
    web_priority.arrive()
    web_priority.arrive()

    def wait_and_go_on() -> None:
        web_priority.give_way()
        went_on.set()

    threading.Thread(target=wait_and_go_on, daemon=True).start()
    web_priority.depart()
    assert not went_on.wait(0.1)
    web_priority.depart()
    assert went_on.wait(10)


def test_a_house_that_is_never_empty_slows_the_queue_and_does_not_stop_it(url: str, db: Db) -> None:
    """Promise 10: by doing less, not nothing."""
    registry, web_priority = Registry(), WebPriority(patience=0.01)
    registry.processor("quick")(lambda job: None)
    runtime = Runtime(quick_settings(url), registry=registry, web_priority=web_priority)
    worker = runtime.worker()
    web_priority.arrive()
    make_jobs(db, 20, kind="quick")
    worker.start()
    try:
        until(lambda: worker.counts.completed == 20)
    finally:
        worker.stop(timedelta(seconds=1))
        runtime.close()


def test_the_roster_says_that_the_web_held_the_worker_back(url: str, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courtesies, "_WINDOW", 0.05)
    registry, web_priority = Registry(), WebPriority(patience=0.01)
    registry.processor("quick")(lambda job: None)
    runtime = Runtime(
        quick_settings(url, beat_every=timedelta(milliseconds=50)), registry=registry, web_priority=web_priority
    )
    worker = runtime.worker()
    worker.start()
    try:

        def a_request_comes_and_the_roster_tells() -> bool:
            web_priority.arrive()
            make_jobs(db, 5, kind="quick")
            web_priority.give_way()
            web_priority.depart()
            [(note,)] = db.execute("SELECT note FROM job_worker").fetchall() or [(None,)]
            return "held back by the web" in (note or "")

        until(a_request_comes_and_the_roster_tells)
        assert "held back by the web" in (worker.vitals().note or "")
    finally:
        worker.stop(timedelta(seconds=1))
        runtime.close()

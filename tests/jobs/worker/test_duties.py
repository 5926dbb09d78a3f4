"""The duties, whatever somebody does to the host's clock."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo

import pytest
from apscheduler.job import Job

from snapapp.jobs.worker.duties import Duties

OFTEN = timedelta(milliseconds=50)


class HostClock(datetime):
    ahead = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "HostClock":
        return super().now(tz) + cls.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[HostClock]:
    """A clock to set, by `ahead`."""
    for module in ("apscheduler.schedulers.base", "apscheduler.triggers.interval", "snapapp.jobs.worker.duties"):
        monkeypatch.setattr(f"{module}.datetime", HostClock)
    monkeypatch.setattr(HostClock, "ahead", timedelta(0))
    return HostClock


@contextmanager
def beating() -> Iterator[threading.Semaphore]:
    """A duty of every 50 ms; released at each of its runs."""
    beaten = threading.Semaphore(0)
    duties = Duties(lambda name, error: pytest.fail(f"{name}: {error}"))
    duties.add("beat", beaten.release, OFTEN)
    duties.start()
    try:
        yield beaten
    finally:
        duties.stop()


def wait_for(beaten: threading.Semaphore, times: int) -> None:
    for _ in range(times):
        assert beaten.acquire(timeout=10)


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1), timedelta(days=4000)])
def test_duties_go_on_when_the_clock_of_the_host_is_set(clock: type[HostClock], step: timedelta) -> None:
    """FB1: leases end without beats, and after a step forward APScheduler counted each run of that time."""
    with beating() as beaten:
        wait_for(beaten, 2)
        clock.ahead = step
        wait_for(beaten, 3)
        clock.ahead = timedelta(0)
        wait_for(beaten, 3)


def test_who_brings_a_duty_forward_the_most_wins_whoever_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NOTIFY that came while a retry was planned: the claim waited for the retry's time."""
    ran, as_ever = threading.Semaphore(0), Job.modify
    planning, soon = threading.Event(), threading.Event()

    def modify(job: Job, **changes: object) -> Job:
        if threading.current_thread() is slow:
            planning.set()
            soon.wait(1)  # the other one may have to wait for us
        return as_ever(job, **changes)

    duties = Duties(lambda name, error: pytest.fail(f"{name}: {error}"))
    duties.add("claim", ran.release, timedelta(hours=1))
    duties.start()
    duties._scheduler.pause()  # so that it starts nothing between the two
    monkeypatch.setattr(Job, "modify", modify)
    slow = threading.Thread(target=duties.bring_forward, args=["claim", 600])
    try:
        slow.start()
        assert planning.wait(10)
        duties.bring_forward("claim", 0.01)
        soon.set()
        slow.join()
        duties._scheduler.resume()
        assert ran.acquire(timeout=10)
    finally:
        duties.stop()


def test_a_duty_that_is_wanted_at_once_never_runs_twice_at_the_same_time_and_no_wish_is_lost() -> None:
    at_work, most, runs = 0, 0, 0
    begun, go_on = threading.Event(), threading.Event()

    def duty() -> None:
        nonlocal at_work, most, runs
        at_work += 1
        most = max(most, at_work)
        begun.set()
        go_on.wait(10)
        at_work -= 1
        runs += 1

    duties = Duties(lambda name, error: pytest.fail(f"{name}: {error}"))
    duties.add("claim", duty, timedelta(hours=1))
    duties.start()
    try:
        duties.bring_forward("claim")
        assert begun.wait(10)
        for _ in range(5):
            duties.bring_forward("claim")
        begun.clear()
        go_on.set()
        assert begun.wait(10)
        thread = next(one for one in threading.enumerate() if one.name == "duty claim")
    finally:
        duties.stop()
    thread.join(10)  # whatever was submitted has run
    assert (most, runs) == (1, 2)  # one run for the five


def test_a_duty_that_hangs_delays_no_stop() -> None:
    begun, released = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        released.wait(60)

    duties = Duties(lambda name, error: pytest.fail(f"{name}: {error}"))
    duties.add("hangs", hang, timedelta(hours=1), at_once=True)
    duties.start()
    assert begun.wait(10)
    duties.stop()
    duties.bring_forward("hangs")  # after the stop it raises nothing
    thread = next(one for one in threading.enumerate() if one.name == "duty hangs")
    released.set()
    thread.join(10)
    assert not thread.is_alive()

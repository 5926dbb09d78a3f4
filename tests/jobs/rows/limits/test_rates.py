"""Limits of how fast jobs start."""

import threading
from datetime import datetime

import pytest

from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.claim import Wanted
from snapapp.jobs.rows.database import connect
from tests.factory import BY, Db, ago, at_once, make_jobs, row, scalar
from tests.jobs.rows.limits.limiting import WAITING, both_servers, keyed, limit, take, turn


@both_servers
def test_a_rate_lets_a_burst_start_and_says_when_the_next_may(db: Db) -> None:
    """R42."""
    limit(db, "key:k", rate=0.5, burst=4)
    keyed(db, 10)
    assert len(take(db)) == 4
    seen = turn(db)
    assert seen.jobs == []
    assert seen.again_in == pytest.approx(2, abs=0.5)
    db.execute("UPDATE job_limit_key SET full_at = full_at - interval '4 s'")
    assert len(take(db)) == 2
    db.execute("UPDATE job_limit_key SET full_at = now() - interval '1 hour'")
    assert len(take(db)) == 4  # what was not used is not saved up


@both_servers
def test_the_slowest_rate_that_can_be_set_can_be_claimed_under(db: Db) -> None:
    """One in 30 years. Slower ones end the calendar: the claim failed, and with it that of every other job."""
    limit(db, "key:k", rate=1e-9, burst=5)
    keyed(db, 10)
    assert [len(take(db)), len(take(db))] == [5, 0]


@both_servers
def test_a_rate_holds_for_jobs_that_are_run_now(db: Db) -> None:
    limit(db, "key:k", rate=0.001, burst=1)
    first, second = keyed(db, 2, next_retry_at=ago(hours=-1))
    lifecycle.run_now(db, first)
    lifecycle.run_now(db, second)
    assert [take(db), take(db), take(db)] == [[first], [], []]


@both_servers
def test_without_a_burst_a_rate_lets_a_second_of_it_start_at_once(db: Db) -> None:
    limit(db, "key:a", rate=2.5)
    limit(db, "key:b", rate=0.001)
    keyed(db, 9, "a")
    keyed(db, 9, "b")
    assert sorted(row(db, job_id).lane for job_id in take(db)) == ["a", "a", "a", "b"]


@pytest.mark.at_length  # a rate lets a burst start and says when the next may, above, in every run
def test_no_window_sees_more_than_the_burst_and_its_time_at_the_rate(db: Db, url: str) -> None:
    """R42: by the database's clock, however many claim."""
    rate, burst, over = 60.0, 5, threading.Event()
    limit(db, "key:k", rate=rate, burst=burst)
    keyed(db, 75)
    started: list[tuple[datetime, int]] = []

    def work() -> None:
        with connect(url, name="worker") as mine:
            while not over.is_set():
                with mine.transaction():
                    taken = len(turn(mine, 10).jobs)
                    started.append((scalar(mine, "SELECT clock_timestamp()"), taken))
                if not scalar(mine, WAITING):
                    over.set()

    at_once(work, work, work)
    times = sorted(at for at, taken in started for _ in range(taken))
    assert len(times) == 75
    slack = 0.1  # seconds: between the claim's look at the clock and ours
    for first in range(75):
        for last in range(first, 75):
            lasted = (times[last] - times[first]).total_seconds() + slack
            assert last - first + 1 <= burst + rate * lasted
    assert (times[-1] - times[0]).total_seconds() >= (75 - burst) / rate - slack


@both_servers
def test_what_a_limit_covers_never_waits_in_memory(db: Db) -> None:
    """It would hold the place of one that could begin elsewhere, and tokens that a stop would lose."""
    limit(db, "key:k", 50)
    keyed(db, 10, next_retry_at=ago(hours=1))
    make_jobs(db, 10)
    taken = claim_rows.claim(db, BY, [Wanted("test", 0, 10, 2)]).jobs
    assert sum(job.id <= 10 for job in taken) == 2
    assert len(taken) == 10

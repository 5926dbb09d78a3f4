"""The labs of the process that serves and works, in small; their modules say how to run them in full."""

import pytest

from tests.conftest import OLDEST, PROGRAMS, needs_oldest
from tests.labs import departures, failover, outage, takes, traces


@pytest.mark.at_length  # process/test_shutdown has its parts in every run: requests, streams and jobs under way
def test_departures_under_load_cut_nobody_off_and_lose_nothing() -> None:
    """W41, FD6, FD7: in full, a hundred times."""
    tally = departures.run(times=2)
    assert departures.problems(tally) == []
    assert tally.requests["200"] > 10
    assert tally.requests["201"] >= 1
    assert tally.jobs["COMPLETED"] >= 40


@pytest.mark.at_length  # as departures, but for what is uploaded meanwhile
def test_departures_while_films_come_in_lose_none_and_leave_nothing() -> None:
    """W41, FD6: in full, twenty times."""
    tally = takes.run(times=1)
    assert takes.problems(tally) == []
    assert len(tally.films) >= 3
    assert len(tally.snaps) >= 1


@pytest.mark.at_length  # jobs/worker/test_outage and process/test_monolith have its halves in every run
def test_an_outage_of_the_database_costs_no_running_job_anything() -> None:
    """Promise 7: health answers throughout, every job lands once, the process stays."""
    seen = outage.run(jobs=100, seconds=3)
    assert (seen.missing, set(seen.answers), set(seen.alive)) == (0, {503}, {200})
    assert (seen.effects, seen.distinct, seen.most_attempts) == (100, 100, 1)
    assert seen.same_process


@pytest.mark.at_length  # jobs/tracing/test_traces has what is traced in every run
def test_what_traces_cost_is_measured_with_each_of_their_spans() -> None:
    [(plain, traced)] = traces.run(jobs=500, rounds=1)
    assert (plain.spans, traced.spans) == (0, 3 * 500 + 2)
    assert min(plain.enqueued, plain.run, traced.enqueued, traced.run) > 0


@pytest.mark.at_length  # jobs/rows/test_database reads the address, jobs/worker/test_outage finds the server again
@needs_oldest
def test_a_standby_takes_over_and_no_acknowledged_job_is_lost() -> None:
    seen = failover.run(PROGRAMS[OLDEST or ""])
    assert failover.is_well(seen), seen

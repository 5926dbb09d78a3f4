"""What a hook writes is written once, whatever happens to the processes; and who may be buried for a killer."""

from collections import Counter

import pytest

from tests.labs.chaos.directed import a_job_that_ends_its_worker, exactly_once, exactly_once_under_fire


@pytest.mark.at_length  # tests/docs/test_documents has three workers and a hundred jobs in every run
def test_each_of_many_jobs_leaves_one_row_though_three_processes_compete_for_them(everything: bool) -> None:
    """W29, Q31."""
    jobs = 3000 if everything else 600
    tally = exactly_once(jobs)
    assert tally.statuses == Counter(COMPLETED=jobs)
    assert (tally.effects, tally.doubles, tally.attempts) == (jobs, 0, jobs)


@pytest.mark.at_length  # labs/chaos has it in every run, with more that breaks
def test_each_job_leaves_one_row_though_workers_are_killed_and_stopped_and_the_server_restarts() -> None:
    tally = exactly_once_under_fire(1200, seconds=0.08)
    assert tally.statuses == Counter(COMPLETED=1200)
    assert (tally.effects, tally.doubles) == (1200, 0)
    assert tally.kills >= 3


def test_a_job_that_ends_its_worker_is_dead_after_its_attempts_and_takes_no_neighbour_with_it() -> None:
    poisoned = a_job_that_ends_its_worker(100)
    assert (poisoned.status, poisoned.attempts, poisoned.last_error) == ("FAILED", 3, "worker lost")
    assert poisoned.runs == 3
    assert [error["error"] for error in poisoned.errors] == ["worker lost"] * 3
    assert poisoned.others == Counter(COMPLETED=100)

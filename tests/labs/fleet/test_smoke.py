"""The lab in small, with a few supervisors that are killed for real."""

import pytest

from tests.labs.fleet import lab


@pytest.mark.at_length  # jobs/fleet/test_supervisor kills one of each in every run, labs/chaos workers and the server
@pytest.mark.timeout(300)
def test_under_fire_every_job_lands_once_and_nothing_is_left() -> None:
    """M1, M9, M14, M37, M57, D19, FD2, promises 1 to 4."""
    report = lab.run(600, seconds=0.05, seed=3, within=200.0)
    assert report.problems == [], str(report)
    assert (report.faults["master killed"], report.faults["server restarted"]) == (2, 1), "this proves nothing"
    assert report.faults["worker killed"] >= 3  # one a second: a quick machine is done before there are more
    assert report.attempts > 600, "nobody was hit"

"""The lab in small, so that every test run breaks a few things for real."""

from tests.labs.chaos.lab import Options, experiment


def test_nothing_is_lost_doubled_or_stuck_while_workers_and_the_server_are_broken() -> None:
    report = experiment(Options(seconds=8.0, seed=11, workers=4, rate=40.0, drain=60.0, late=15.0))
    assert [str(violation) for violation in report.verdict.violations] == []
    counts = report.verdict.counts
    assert report.faults.total() >= 10, "nothing was broken: this proves nothing"
    assert counts["recovered"] + counts["refused stale"] > 0, "nobody was hit"
    assert counts["completed"] >= 100

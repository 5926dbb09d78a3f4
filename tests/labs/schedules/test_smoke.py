"""The lab itself, for half a day."""

import pytest

from tests.labs.schedules.clock import LIBRARIES
from tests.labs.schedules.week import Options, experiment


@pytest.mark.at_length  # jobs/schedules has changes of the clock, rivals and a wrong clock in every run
@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed")
def test_the_night_when_the_clocks_change_goes_by_under_fire() -> None:
    """FB1, FB3, FB5."""
    report = experiment(Options(seed=3, days=0.4, kills=0.3, absences=0.1))
    assert report.violations == []
    assert report.slots >= 20
    assert report.faults["kills"]
    assert report.faults["absences"]

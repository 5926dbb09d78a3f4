"""The lab itself, with each kind at least once."""

import subprocess
import sys

import pytest

from tests import ROOT
from tests.labs.executors import kinds


@pytest.mark.at_length  # jobs/executors/test_bad_jobs has each bad kind in every run
@pytest.mark.timeout(300)
def test_good_and_bad_jobs_side_by_side_end_as_they_should_and_leave_no_process() -> None:
    """FA5, FD1-FD4, FD12, FD13, D5, D13: in full, a thousand jobs."""
    jobs = len(kinds.GOOD) + len(kinds.BAD)
    lab = [sys.executable, "-m", "tests.labs", "executors", "--jobs", str(jobs), "--attempts", "1"]
    ended = subprocess.run(lab, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert f"{jobs} jobs of {jobs} kinds" in ended.stdout

"""The measurement itself, in small."""

from pathlib import Path

import pytest

from tests.labs.media import speed


@pytest.mark.at_length  # media/ makes the same pictures in every run
def test_both_ways_are_measured_and_compared(tmp_path: Path) -> None:
    source = tmp_path / "180.mp4"
    speed.child("make", source, "180")
    lines = speed.compared(source, runs=1)
    assert lines[0].startswith("180p: one pass")
    assert ("times as fast" in lines[-1]) == speed.commands_are_there()

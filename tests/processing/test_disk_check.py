"""The doctor's check of the disk of SNAPAPP_DATA_DIR."""

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from snapapp.jobs.doctor.finding import Severity
from snapapp.processing.disk_check import finding
from snapapp.storage import Room


def test_a_data_disk_below_the_floor_is_critical_and_named(tmp_path: Path) -> None:
    """Where PostgreSQL has another one, nobody was told of it."""
    well, low = finding(Room(tmp_path, 0)), finding(Room(tmp_path / "not/yet", 2**40))
    assert (well.id, well.severity) == ("DATA_DISK", Severity.OK)
    assert (low.id, low.severity, low.numbers["freeMb"] > 0) == ("DATA_DISK_LOW", Severity.CRITICAL, True)
    assert str(tmp_path) in low.saw


def test_a_data_disk_that_cannot_be_looked_at_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", Mock(side_effect=PermissionError(13, "Permission denied")))
    hidden = finding(Room(tmp_path, 0))
    assert (hidden.id, hidden.severity) == ("DATA_DISK_HIDDEN", Severity.WARNING)

"""Copies of the files for a box."""

import shutil
from pathlib import Path

import pytest

from tests.ops.linode import BOX


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A copy of the units whose commands exist, so that systemd has only the units to complain of."""
    code = tmp_path / "current"
    (code / ".venv/bin").mkdir(parents=True)
    (code / ".venv/bin/snapapp").symlink_to("/bin/true")
    folder = tmp_path / "units"
    shutil.copytree(BOX, folder)
    for file in [*folder.glob("snapapp*.service"), *folder.glob("snapapp-.service.d/*")]:
        file.write_text(file.read_text().replace("/opt/snapapp/current", str(code)))
    return folder

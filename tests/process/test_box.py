"""What the machine says of itself, also where it says it badly."""

import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from snapapp.process import box


def test_a_folder_whose_disk_cannot_be_told_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> NoReturn:
        raise ValueError("a size that is none")

    monkeypatch.setattr(shutil, "disk_usage", refuse)
    asked = box._ask(tmp_path)
    assert isinstance(asked.exception(timeout=10), ValueError)

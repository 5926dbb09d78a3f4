"""Which program dumps and restores; that they do is in tests/backup."""

import shutil
from pathlib import Path

import pytest

from snapapp.postgres import dump


@pytest.mark.parametrize(("name", "is_asked"), [("pg_wrapper", False), ("pg_dump-17", True)])
def test_a_program_on_the_path_is_asked_for_its_version_unless_it_is_debians_wrapper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_asked: bool
) -> None:
    """The wrapper is Perl, which takes 50 ms to say its version, and runs a program that we find anyway."""
    (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / name).chmod(0o755)
    (tmp_path / "pg_dump").symlink_to(name)
    monkeypatch.setattr(shutil, "which", lambda _name: str(tmp_path / "pg_dump"))
    assert (tmp_path / "pg_dump" in dump._programs("pg_dump")) == is_asked

"""docs/testing.md takes a newcomer from nothing to a tested job kind; here its code runs as it stands in the page."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.conftest import guarded_folder

PAGE = ROOT / "docs" / "testing.md"
PIECE = re.compile(r"^    # (\w+\.py)\n((?:    .*\n|\n)+)", re.MULTILINE)


def files_of(page: str) -> dict[str, str]:
    """What somebody who follows the page has in the folder at its end."""
    files: dict[str, str] = {}
    for name, piece in PIECE.findall(page):
        files[name] = files.get(name, "") + textwrap.dedent(piece).rstrip() + "\n\n\n"
    return files


@pytest.fixture
def memory() -> Iterator[Path]:
    """Where the page's server is made several times as quickly as on a busy disk."""
    with guarded_folder() as folder:
        yield folder


@pytest.mark.at_length  # jobs/test_testing has what the page uses in every run
def test_the_code_of_the_page_runs_as_it_stands_there(tmp_path: Path, memory: Path) -> None:
    files = files_of(PAGE.read_text())
    assert set(files) >= {"mailer.py", "conftest.py", "test_mailer.py", "test_later.py", "test_turns.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SNAPAPP_", "PYTEST_"))}
    tested = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"),
            *(f"--basetemp={memory / 'base'}", str(tmp_path)),
        ],
        cwd=tmp_path,
        env=clean | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    written = sum(text.count("def test_") for text in files.values())
    assert re.search(rf"\b{written} passed\b", tested.stdout), tested.stdout


def test_its_code_is_in_the_shape_of_ours() -> None:
    for name, text in files_of(PAGE.read_text()).items():
        formatted = subprocess.run(
            [sys.executable, "-m", "ruff", "format", "--line-length", "120", "-"],
            input=text,
            capture_output=True,
            text=True,
        )
        assert formatted.stdout.rstrip() == text.rstrip(), name

"""What holds for the whole house: the locks, the generated documentation, what no file may say."""

import re
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs import requirements, settings_page

LOCKS = [f"requirements{its}.lock" for its in ("", "-dev", "-peers", "-pip", "-telemetry")]
PINNED = re.compile(r"[a-z0-9-]+(\[[a-z0-9,-]+\])?==[^\s;]+( ; [^\\]+?)?( --hash=sha256:[0-9a-f]{64})+")

# Put together here, so that this file does not name them either.
INDEX_HOSTS = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "registry." + "npm",
    "npm" + "js.org",
    "deb." + "debian.org",
    "ftp." + "debian.org",
]


def house_files() -> list[Path]:
    """What is in git or would be added to it next."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def pins_in(lock: str) -> list[str]:
    text = (ROOT / lock).read_text().replace(" \\\n    ", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_place_to_download_from(lock: str) -> None:
    assert "://" not in (ROOT / lock).read_text()


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_is_requirements_with_version_and_hashes_and_nothing_else(lock: str) -> None:
    lines = pins_in(lock)
    assert lines
    assert [line for line in lines if not PINNED.fullmatch(line)] == []


def test_the_locks_agree_with_each_other() -> None:
    pins = {lock: dict(line.split()[0].split("==") for line in pins_in(lock)) for lock in LOCKS}
    base = pins["requirements-dev.lock"]
    for lock in LOCKS:
        assert {name: pin for name, pin in pins[lock].items() if base.get(name, pin) != pin} == {}


def test_every_setting_is_documented_as_it_is() -> None:
    assert (ROOT / "docs/settings.md").read_text() == settings_page.page(), "type: make docs"


def test_the_page_of_requirements_is_what_the_tests_say() -> None:
    assert (ROOT / "docs/requirements.md").read_text() == requirements.document(), "type: make docs"


def test_every_row_of_the_documents_is_there_once_and_in_order() -> None:
    known = [row.id for row in requirements.rows() if not row.id.startswith("F")]
    assert known == [f"{letters}{n + 1}" for letters, (_, last) in requirements.DOCUMENTS.items() for n in range(last)]


def test_every_row_has_a_test_or_a_reason_and_every_test_a_row_that_is_there() -> None:
    known = requirements.rows()
    assert [row.id for row in known if not row.tests and not row.otherwise] == []
    assert set(requirements.tests_by_row()) - {row.id for row in known} == set()


@pytest.mark.parametrize("line", ["W1", "W1 no sentence", "X1 A sentence.", "W1 A sentence. |", "W1 A sentence. | why"])
def test_a_line_that_is_no_row_is_no_row(line: str) -> None:
    assert requirements.LINE.fullmatch("W1 A sentence. | A reason.")
    assert requirements.LINE.fullmatch(line) is None


def test_no_file_names_a_package_index() -> None:
    naming = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in house_files()
        for host in INDEX_HOSTS
        if host.encode() in path.read_bytes()
    ]
    assert naming == []

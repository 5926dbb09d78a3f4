"""Known defects, planted one by one in a copy of the source tree (`defects`): the tests of their rows must notice each.

A test that has never failed proves little. `make mutants` plants them all, and `make mutants ARGS="no-fence no-poll"`
some; both write their lines of docs/mutants.md. Exits with 1 when one survives, or when the tests fail on the copy as
it is.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT
from tests.conftest import OLDEST
from tests.docs import requirements
from tests.labs.defects import MUTANTS
from tests.labs.defects.model import Edit

_SIDE_BY_SIDE = 2
_WAIT = "25"  # seconds for what will not happen; `_is_sound` waits as long, so it is long enough
PAGE = ROOT / "docs" / "mutants.md"
_LINE = re.compile(r"\| (?P<row>\w+) \| (?P<defect>[\w-]+): .* \| (?P<by>`[^`]+`|\*\*nothing\*\*) \| (?P<at>\S+) \|")
_HEAD = """\
# Planted defects

<!-- Made by `make mutants`; do not edit. -->

A test that has never failed proves little. So for the rows of [requirements.md](requirements.md) a small defect of the
code that a row is about is planted in a copy of the source, and a test that names the row must fail: here is which one
did, and on which commit. The defects are in `tests/labs/defects/`. Where a row was decided otherwise there is nothing
to break.

"""


@dataclass(frozen=True, slots=True)
class Noticed:
    """That a row's test has failed."""

    by: str  # the test; empty: none has
    at: str  # commit


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    seconds: float
    by: dict[str, str]  # row -> the first test that names it and failed; empty: none has


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="of a defect; none: all of them")
    chosen = parser.parse_args().names or [*MUTANTS]
    if unknown := [name for name in chosen if name not in MUTANTS]:
        print(f"no defect {', '.join(unknown)}; there are {', '.join(MUTANTS)}", file=sys.stderr)
        return 2
    with _copied_tree() as tree:
        if not _is_sound(tree, chosen):
            return 1
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:  # tests mostly wait
        verdicts = [*threads.map(verdict_on, chosen)]
    survivors = [each.name for each in verdicts if not all(each.by.values())]
    print(f"{len(chosen) - len(survivors)}/{len(chosen)} defects noticed")
    commit = _commit()
    new = {(each.name, row): Noticed(by, commit) for each in verdicts for row, by in each.by.items()}
    PAGE.write_text(page(known() | new), encoding="utf-8")
    return 1 if survivors else 0


# --- planting ---------------------------------------------------------------------------------------------------


@contextmanager
def _copied_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "node_modules", "var"))
        yield tree


def _is_sound(tree: Path, chosen: list[str]) -> bool:
    """All their tests at once, on the source tree as it is."""
    tests = dict.fromkeys(test for name in chosen for test in MUTANTS[name].tests)
    run = _run(tree, tuple(tests), "-x", "-n", str(_SIDE_BY_SIDE), "--dist", "loadfile")
    if run.returncode:
        print(f"the tests fail on the source tree as it is\n{run.stdout[-2000:]}{run.stderr[-2000:]}", flush=True)
    return not run.returncode


def verdict_on(name: str) -> Verdict:
    mutant = MUTANTS[name]
    with _copied_tree() as tree:
        for edit in mutant.edits:
            plant(tree / edit.file, edit)
        began = time.monotonic()
        run = _run(tree, mutant.tests)
    # an ERROR would say that the tests could not start, and nothing of what the defect is about
    failed = [_test(line) for line in run.stdout.splitlines() if line.startswith("FAILED")]
    named = requirements.tests_by_row()
    by = {row: next((test for test in failed if test in named[row]), "") for row in mutant.rows}
    verdict = Verdict(name, time.monotonic() - began, by)
    told = ", ".join(f"{row} by {by[row] or 'NOTHING'}" for row in mutant.rows)
    print(f"{name} ({mutant.what}): {verdict.seconds:.0f} s, {told}", flush=True)
    if not all(by.values()):
        print(run.stdout[-1500:], run.stderr[-500:], flush=True)
    return verdict


def plant(file: Path, edit: Edit) -> None:
    text = file.read_text()
    if edit.says not in text:
        raise ValueError(f"{edit.file} does not say {edit.says!r} any more")
    file.write_text(text.replace(edit.says, edit.instead))


def file_of(test: str) -> Path:
    """Of a test as docs/requirements.md names it."""
    return Path("tests", test.partition("::")[0]).with_suffix(".py")


def _run(tree: Path, tests: tuple[str, ...], *options: str) -> subprocess.CompletedProcess[str]:
    named = [f"{file_of(test)}{''.join(test.partition('::')[1:])}" for test in tests]
    on_one = ["-k", f"not {OLDEST}"] if OLDEST else []  # a defect is noticed on one server as on the other
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *on_one, *options, *named]
    environment = os.environ | {
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SNAPAPP_TESTS_WAIT": _WAIT,
    }
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def _test(line: str) -> str:
    """As docs/requirements.md names the test of which pytest says that it has failed."""
    file, *_, function = line.removeprefix("FAILED ").split(" - ")[0].split("[")[0].split("::")
    return f"{Path(file).relative_to('tests').with_suffix('').as_posix()}::{function}"


# --- the page ---------------------------------------------------------------------------------------------------

Results = Mapping[tuple[str, str], Noticed]  # (defect, row) -> whether it was noticed


def known() -> dict[tuple[str, str], Noticed]:
    """What the page says already."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    found = [its for line in lines if (its := _LINE.fullmatch(line))]
    return {(its["defect"], its["row"]): Noticed(its["by"].strip("`*"), its["at"].strip("`")) for its in found}


def page(results: Results) -> str:
    """Row by row: the defects that are about it, and the tests that have noticed them."""
    rows = requirements.rows()
    of_row = {row.id: [name for name, its in MUTANTS.items() if row.id in its.rows] for row in rows}
    titles = {letters: title for letters, (title, _) in requirements.DOCUMENTS.items()} | requirements.FAILURES
    chapters = []
    for letters, title in titles.items():
        of_it = [row for row in rows if row.id.rstrip("0123456789") == letters]
        lines = [line for row in of_it for line in _lines(row, of_row[row.id], results)]
        chapters.append("\n".join([f"## {title}", "", "| | defect | noticed by | at |", "|---|---|---|---|", *lines]))
    return _HEAD + _counted(rows, of_row) + "\n" + "\n\n".join(chapters) + "\n"


def _counted(rows: list[requirements.Row], of_row: Mapping[str, list[str]]) -> str:
    """How many of the five documents' rows, and of the others."""
    said = ""
    for what, some in (
        ("rows of the five documents", [row for row in rows if not row.id.startswith("F")]),
        ("rows of the catalogue of failures", [row for row in rows if row.id.startswith("F")]),
    ):
        broken = sum(bool(of_row[row.id]) for row in some)
        otherwise = sum(bool(row.otherwise) and not of_row[row.id] for row in some)
        none = len(some) - broken - otherwise
        said += (
            f"Of the {len(some)} {what} {broken} have a defect, {otherwise} were decided otherwise, {none} have none"
        )
        said += " yet.\n"
    return said


def _lines(row: requirements.Row, defects: list[str], results: Results) -> Iterator[str]:
    if not defects:
        yield f"| {row.id} | {'decided otherwise' if row.otherwise else 'none yet'} | | |"
    for name in defects:
        noticed = results.get((name, row.id), Noticed("", "never"))
        by = f"`{noticed.by}`" if noticed.by and noticed.by != "nothing" else "**nothing**"
        yield f"| {row.id} | {name}: {MUTANTS[name].what} | {by} | `{noticed.at}` |"


def _commit() -> str:
    ask = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

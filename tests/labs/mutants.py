"""Known defects, planted one by one in a copy of the house (`defects`): the everyday tests must notice each.

A test that has never failed proves little. `make mutants` plants them all and writes docs/mutants.md; `make mutants
ARGS="no-fence no-poll"` some. Exits with 1 when one survives, or when the tests fail on the copy as it is.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT
from tests.labs.defects import MUTANTS, Edit

_SIDE_BY_SIDE = 2
PAGE = ROOT / "docs" / "mutants.md"
_HEAD = """\
# Planted defects

<!-- Made by `make mutants`; do not edit. -->

A test that has never failed proves little. Each of these defects was planted in a copy of commit {commit}, and tests
that are about its rows of [requirements.md](requirements.md) were run: {caught} of {all} were noticed, each by the test
that is named. The defects are in `tests/labs/defects.py`.

| defect | rows | noticed by |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    seconds: float
    by: str | None  # the first test that failed; None: it survives


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of them: {', '.join(MUTANTS)}")
    names = parser.parse_args().names
    chosen = names or [*MUTANTS]
    if unknown := [name for name in chosen if name not in MUTANTS]:
        print(f"no mutant {', '.join(unknown)}", file=sys.stderr)
        return 2
    with _house() as house:
        if not _is_sound(house, chosen):
            return 1
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:  # tests mostly wait
        verdicts = [*threads.map(_verdict, chosen)]
    survivors = [each.name for each in verdicts if each.by is None]
    print(f"{len(chosen) - len(survivors)}/{len(chosen)} mutants caught")
    if not names:
        PAGE.write_text(_page(verdicts), encoding="utf-8")
    return 1 if survivors else 0


@contextmanager
def _house() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        house = Path(folder) / "house"
        shutil.copytree(ROOT, house, ignore=shutil.ignore_patterns(".*", "__pycache__", "docs", "node_modules", "var"))
        yield house


def _is_sound(house: Path, chosen: list[str]) -> bool:
    """All their tests at once, on the house as it is."""
    tests = dict.fromkeys(test for name in chosen for test in MUTANTS[name].tests)
    run = _run(house, tuple(tests))
    if run.returncode:
        print(f"the tests fail on the house as it is\n{run.stdout[-2000:]}", flush=True)
    return not run.returncode


def _verdict(name: str) -> Verdict:
    mutant = MUTANTS[name]
    with _house() as house:
        for edit in mutant.edits:
            plant(house / edit.file, edit)
        began = time.monotonic()
        run = _run(house, mutant.tests)
    # an ERROR would say that the house does not stand, and nothing of what the defect is about
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED")]
    by = failed[0].split(" - ")[0].split("::")[-1].split("[")[0] if run.returncode == 1 and failed else None
    verdict = Verdict(name, time.monotonic() - began, by)
    noticed = f"by {by}" if by else "by nothing: it survives"
    print(f"{name} ({mutant.rows}: {mutant.what}): {verdict.seconds:.0f} s, {noticed}", flush=True)
    return verdict


def plant(file: Path, edit: Edit) -> None:
    text = file.read_text()
    if edit.says not in text:
        raise ValueError(f"{edit.file} does not say {edit.says!r} any more")
    file.write_text(text.replace(edit.says, edit.instead))


def _run(house: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(house), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, check=False)


def _page(verdicts: list[Verdict]) -> str:
    ask = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    head = _HEAD.format(commit=f"`{commit}`", caught=sum(each.by is not None for each in verdicts), all=len(verdicts))
    return head + "".join(map(_line, verdicts))


def _line(verdict: Verdict) -> str:
    mutant = MUTANTS[verdict.name]
    by = f"`{verdict.by}`" if verdict.by else "**nothing**"
    return f"| {verdict.name}: {mutant.what} | {mutant.rows} | {by} |\n"

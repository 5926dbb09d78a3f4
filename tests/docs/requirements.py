"""The rows of the requirements, each with the tests that prove it or the reason why it was decided otherwise: the rows
are lines of requirements.txt, and a test names its rows in its docstring."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests import ROOT

# Of the five documents, with how many rows each has; the catalogue of failures has as many as tests name.
DOCUMENTS = {
    "W": ("The worker service", 53),
    "Q": ("Safe claims", 51),
    "M": ("The supervisor", 63),
    "R": ("The external worker", 54),
    "S": ("The snap queue", 36),
    "D": ("Defects of the originals", 19),
}
FAILURES = {
    "FA": "Failures: leases and attempts",
    "FB": "Failures: clocks",
    "FC": "Failures: PostgreSQL",
    "FD": "Failures: processes",
    "FE": "Failures: fairness, data and files",
}

_ROW = re.compile(r"\b(F[A-E]|[WQMRSD])(\d{1,2})(?:\s*[-–]\s*\1?(\d{1,2}))?\b")
LINE = re.compile(r"(?P<id>(?:F[A-E]|[WQMRSD])[0-9]{1,2}) (?P<text>[A-Z][^|]*\.)(?: \| (?P<otherwise>\S.*\.))?")
_HEAD = """\
# Requirements

<!-- Made by `make docs` from tests/docs/requirements.txt and the docstrings of the tests; do not edit. -->

snapapp began with five documents: a worker service, safe claims, a supervisor, an external worker, and the snap queue.
What they ask for was taken apart row by row, together with the defects of what they describe and a catalogue of
failures. Each row is here in one sentence, with the tests that look at it, or with the reason why it was decided
otherwise, in italics. A test names its rows in its docstring. The build fails where a row has neither, where a test
names a row that is not here, and where this page is not what the tests say.

"""


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    text: str
    otherwise: str | None  # why it is not, or not in all, as it was asked for
    tests: tuple[str, ...]


def rows() -> list[Row]:
    named = tests_by_row()
    return [Row(its["id"], its["text"], its["otherwise"], tuple(sorted(named.get(its["id"], ())))) for its in _lines()]


def _lines() -> Iterator[dict[str, Any]]:
    for line in (ROOT / "tests" / "docs" / "requirements.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            found = LINE.fullmatch(line)
            if found is None:
                raise ValueError(f"tests/docs/requirements.txt: not a row, a sentence and perhaps a reason: {line}")
            yield found.groupdict()


def document() -> str:
    known = rows()
    titles = {letters: title for letters, (title, _) in DOCUMENTS.items()} | FAILURES
    return _HEAD + "\n".join(
        _chapter(title, [row for row in known if row.id.rstrip("0123456789") == letters])
        for letters, title in titles.items()
    )


def _chapter(title: str, of_it: list[Row]) -> str:
    lines = [f"## {title}", "", "| | what is asked for | shown by |", "|---|---|---|"]
    return "\n".join([*lines, *map(_shown, of_it)]) + "\n"


def _shown(row: Row) -> str:
    otherwise = f" *Decided otherwise: {row.otherwise}*" if row.otherwise else ""
    return f"| {row.id} | {row.text}{otherwise} | {', '.join(f'`{test}`' for test in row.tests)} |"


@cache  # all tests are read for it
def tests_by_row() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        name = file.relative_to(ROOT / "tests").with_suffix("").as_posix()
        for node in _runs(ast.parse(file.read_text(encoding="utf-8"))):
            for row in named(ast.get_docstring(node) or ""):
                found[row].add(f"{name}::{node.name}")
    return found


def _runs(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """What pytest runs by itself: nobody fails for what a helper's docstring says."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() if node.name.startswith("test_"):
                yield node
            case ast.ClassDef() if node.name.startswith("Test"):
                yield node


def named(said: str) -> Iterator[str]:
    """Every row that a docstring names; `W16-W21` names six."""
    for letters, first, last in _ROW.findall(said):
        for number in range(int(first), int(last or first) + 1):
            yield f"{letters}{number}"


if __name__ == "__main__":
    (ROOT / "docs" / "requirements.md").write_text(document(), encoding="utf-8")

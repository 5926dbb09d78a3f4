"""The map from the rows of the seed documents to the tests that prove them: made from the tests' docstrings."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests import ROOT

_ROW = re.compile(r"\b(F[A-E]|[WQMRSD])(\d{1,2})(?:\s*[-–]\s*\1?(\d{1,2}))?\b")
_HEAD = """\
# Which test proves which row

The five documents that snapapp began with were taken apart line by line (W: the worker service, Q: safe claims,
M: the supervisor, R: the external worker, S: the snap queue, D: defects of the originals that must not be here;
FA to FE: the catalogue of failures). A test names its rows in its docstring; `make docs` writes this map from them,
and a test compares. A row that is missing here is not proven yet.

| row | tests |
|---|---|
"""


def document() -> str:
    lines = []
    for row, tests in sorted(rows().items(), key=lambda item: _place(item[0])):
        lines.append(f"| {row} | {', '.join(f'`{test}`' for test in sorted(tests))} |")
    return _HEAD + "\n".join(lines) + "\n"


def rows() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        name = file.relative_to(ROOT / "tests").with_suffix("").as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (said := ast.get_docstring(node)):
                for row in named(said):
                    found[row].add(f"{name}::{node.name}")
    return found


def named(said: str) -> Iterator[str]:
    """Every row that a docstring names; `W16-W21` names six."""
    for letters, first, last in _ROW.findall(said):
        for number in range(int(first), int(last or first) + 1):
            yield f"{letters}{number}"


def _place(row: str) -> tuple[int, str, int]:
    letters = row.rstrip("0123456789")
    return len(letters), letters, int(row[len(letters) :])


if __name__ == "__main__":
    (ROOT / "docs" / "proofs.md").write_text(document(), encoding="utf-8")

"""The planted defects have their places; `make mutants` runs them, which takes long."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs import requirements
from tests.labs import mutants
from tests.labs.defects import MUTANTS
from tests.labs.mutants import file_of, plant


@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_can_be_planted_and_its_rows_and_tests_are_there(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    for edit in mutant.edits:
        assert edit.says != edit.instead
        copy = tmp_path / edit.file.replace("/", ".")
        if not copy.exists():
            copy.write_text((ROOT / edit.file).read_text())
        plant(copy, edit)
    for test in mutant.tests:
        function = test.partition("::")[2]
        text = (ROOT / file_of(test)).read_text()
        assert f"def {function}(" in text if function else text
    named = requirements.tests_by_row()
    for row in mutant.rows:
        assert any(test in named[row] or f"{test}::" in " ".join(named[row]) for test in mutant.tests), row


def test_the_page_has_what_every_row_was_proven_by() -> None:
    """Neither a defect that nobody has run since it was written, nor one that survives, stands on it as noticed."""
    results = mutants.known()
    assert mutants.PAGE.read_text() == mutants.page(results), 'type: make mutants ARGS="its name"'
    told = {(name, row) for name, its in MUTANTS.items() for row in its.rows}
    assert {key for key in told if key not in results or results[key].by in ("", "nothing")} == set()


@cache
def functions_of(file: str) -> list[ast.FunctionDef]:
    return [each for each in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(each, ast.FunctionDef)]


def test_what_notices_a_defect_is_in_every_run() -> None:
    noticed_by = {one.by.partition("[")[0] for one in mutants.known().values()}
    left_out = {
        test
        for test in noticed_by
        for each in functions_of(file_of(test))
        if each.name == test.partition("::")[2]
        if any(ast.unparse(mark).rpartition(".")[2] == "at_length" for mark in each.decorator_list)
    }
    assert left_out == set()


def test_every_row_of_the_five_documents_has_a_defect_or_was_decided_otherwise() -> None:
    broken = {row for its in MUTANTS.values() for row in its.rows}
    bare = [row.id for row in requirements.rows() if row.id not in broken and not row.otherwise]
    assert [row for row in bare if not row.startswith("F")] == []

"""The planted defects have their places; `make mutants` runs them, which takes long."""

from pathlib import Path

import pytest

from tests import ROOT, requirements
from tests.labs.defects import MUTANTS
from tests.labs.mutants import plant


@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_can_be_planted_and_its_rows_and_tests_are_there(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    for edit in mutant.edits:
        assert edit.says != edit.instead
        copy = tmp_path / Path(edit.file).name
        if not copy.exists():
            copy.write_text((ROOT / edit.file).read_text())
        plant(copy, edit)
    assert {*mutant.rows.split()} <= {row.id for row in requirements.rows()}
    for test in mutant.tests:
        file, _, function = test.partition("::")
        assert f"def {function}(" in (ROOT / file).read_text() if function else (ROOT / file).exists()

"""What a planted defect is: a few lines of the source replaced, and the tests that must then fail."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    file: str
    says: str
    instead: str


@dataclass(frozen=True, slots=True)
class Mutant:
    rows: tuple[str, ...]  # of docs/requirements.md: of each a test that names it must fail
    what: str
    tests: tuple[str, ...]  # as docs/requirements.md names them; a file of tests stands for all that are in it
    edits: tuple[Edit, ...]


def defect(rows: str, what: str, tests: str, *edits: tuple[str, str, str]) -> Mutant:
    """Each edit is a file, what it says, and what it says instead; rows and tests have spaces between them."""
    return Mutant(tuple(rows.split()), what, tuple(tests.split()), tuple(Edit(*edit) for edit in edits))

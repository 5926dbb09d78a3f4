"""What the tests of schedules share."""

from collections.abc import Callable, Iterator

import pytest

from snapapp.jobs.registry import Registry
from tests.jobs.schedules.looking import Looker


@pytest.fixture
def known() -> Registry:
    return Registry()


@pytest.fixture
def looker(url: str) -> Iterator[Callable[..., Looker]]:
    made: list[Looker] = []

    def make(known: Registry, name: str = "worker") -> Looker:
        made.append(Looker(url, known, name))
        return made[-1]

    yield make
    for each in made:
        each.close()

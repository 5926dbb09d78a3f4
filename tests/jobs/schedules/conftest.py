"""What the tests of schedules share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from snapapp.jobs.registry import Registry
from tests.jobs.schedules.looking import Looker, work


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


@pytest.fixture
def scheduled(known: Registry, looker: Callable[..., Looker]) -> Callable[..., Looker]:
    """Declares the schedule `its`, and looks for the first time, as a worker does when it starts."""

    def declare(**its: Any) -> Looker:
        known.scheduled(name="its", **its)(work)
        one = looker(known)
        one.look()
        return one

    return declare

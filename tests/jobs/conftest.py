"""What the tests of the queue ask for besides."""

from collections.abc import Iterator

import pytest

from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import connect
from tests.factory import Db


@pytest.fixture
def other(url: str) -> Iterator[Db]:
    """A second connection."""
    with connect(url, name="other") as connection:
        yield connection


@pytest.fixture
def registry() -> Registry:
    """What the test declares."""
    return Registry()

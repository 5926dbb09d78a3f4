"""What the tests of the fleet ask for besides."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factory import Db
from tests.jobs.fleet.supervised import Start, supervising


@pytest.fixture
def start(tmp_path: Path, url: str, db: Db) -> Iterator[Start]:
    """Starts supervisors on the test's own database."""
    db.execute("CREATE TABLE effect (job_id bigint)")
    with supervising(tmp_path, url) as start:
        yield start

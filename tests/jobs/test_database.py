"""The worker's own connections."""

import psycopg

from snapapp.jobs.database import Line, Row, connect
from tests.factory import at_once


def test_a_line_that_two_threads_open_at_once_has_one_connection(url: str) -> None:
    """The sweep and the pruning share one; a second one would be left open and forgotten."""
    opened: list[psycopg.Connection[Row]] = []

    def open_one() -> psycopg.Connection[Row]:
        opened.append(connect(url, name="test"))
        return opened[-1]

    line = Line(open_one)

    def use() -> int:
        with line.connection() as db:
            return db.info.backend_pid

    assert len(set(at_once(*[use] * 8))) == 1
    assert len(opened) == 1
    line.close()
    assert opened[0].closed

"""The worker's own connections."""

from typing import cast

import psycopg
import pytest

from snapapp.jobs.database import Line, Row, connect
from snapapp.jobs.registry import Registry
from snapapp.jobs.runtime import Runtime
from tests.factory import Db, at_once, running_job
from tests.jobs.working import quick_settings


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


@pytest.mark.parametrize("prepared", [True, False])
def test_a_hooks_connection_ends_when_its_server_is_silent_and_prepares_only_what_it_may(
    url: str, db: Db, prepared: bool
) -> None:
    runtime = Runtime(quick_settings(url, prepared_statements=prepared), registry=Registry())
    with runtime.transaction(running_job(db)) as hooks:
        driver = cast("psycopg.Connection[Row]", hooks.connection.driver_connection)
        told = driver.info.get_parameters()
        assert (told["keepalives_idle"], told["tcp_user_timeout"]) == ("30", "30000")
        assert (driver.prepare_threshold is not None) == prepared
    runtime.close()

"""Errors that a person can do something about are told in words."""

import pytest

from snapapp.cli.explanation import explanation
from tests.commands import Call
from tests.factory import Db


@pytest.mark.parametrize("typed", ["queues pause mail", "jobs enqueue test {}", "tenants add ana"])
def test_a_database_that_takes_no_writes_is_told_with_the_way_out(call: Call, db: Db, typed: str) -> None:
    db.execute(f"ALTER DATABASE {db.info.dbname} SET default_transaction_read_only = on")
    answer = call(*typed.split())
    assert answer.code == 1
    assert answer.err.startswith("snapapp: The database takes no writes: it is a standby, or default_transaction_read")
    assert "target_session_attrs=read-write" in answer.err


def test_a_limit_of_threads_is_told_and_no_other_runtime_error() -> None:
    assert "TasksMax, pids.max, ulimit -u" in str(explanation(RuntimeError("can't start new thread")))
    assert explanation(RuntimeError("something else")) is None

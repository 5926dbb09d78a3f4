"""Every way of going wrong that we know: each job ends with its own reason, and the worker goes on to the next one. One
worker for all of them, as in production."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import connect
from tests.conftest import EMBEDDED
from tests.databases import Postgres
from tests.factory import Db
from tests.jobs.executors.test_executors import put
from tests.jobs.kinds import crashing
from tests.jobs.working import until_status, working
from tests.labs.executors import kinds
from tests.labs.executors.kinds import BAD


@pytest.fixture(scope="module")
def db(servers: Callable[[str], Postgres]) -> Iterator[Db]:
    registry = Registry()
    for processor in (*kinds.registry, *crashing.registry):
        registry.add(processor)
    with (
        servers(EMBEDDED).database("migrated") as url,
        connect(url, name="test") as db,
        working(url, registry),
    ):
        yield db


@pytest.mark.parametrize("kind", [kind for kind in BAD if kind.startswith("process.")])
def test_a_bad_job_in_a_child_ends_with_its_own_reason(db: Db, kind: str) -> None:
    """R20, R22, FD1, FD3, FD12, FD13."""
    dead = until_status(db, put(db, kind, max_attempts=1), "FAILED")
    good = until_status(db, put(db, "process.good"), "COMPLETED")
    assert BAD[kind] in dead.last_error
    assert len(dead.last_error) <= 4000
    assert good.attempt_count == 1


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("child.exit", "the child process exited with code 7\nfamous last words"),
        ("child.segfault", "the child process was killed by SIGSEGV"),
        ("child.raise", "ValueError: attempt 2"),
        ("child.odd", "InvalidJob: the result is not JSON"),
        ("child.giant", "InvalidJob: the result has 50000002 bytes"),
        ("child.permanent", "Permanent: unreadable container"),
        ("child.tasks", "Permanent: unreadable container"),
    ],
)
def test_what_a_child_does_wrong_fails_that_attempt_with_its_reason(db: Db, kind: str, reason: str) -> None:
    """R22, FD3."""
    dead = until_status(db, put(db, kind, max_attempts=2), "FAILED")
    until_status(db, put(db, "child.echo"), "COMPLETED")
    assert reason in dead.last_error


def test_a_child_knows_when_its_job_was_due_and_how_long_it_may_run(db: Db) -> None:
    """On a thread the job says both; in a child they were None."""
    ended = until_status(db, put(db, "child.times", timeout=timedelta(minutes=5)), "COMPLETED")
    assert 0 < ended.result["left"] <= 300
    assert datetime.fromisoformat(ended.result["due_at"]) == ended.next_retry_at


def test_a_child_cancels_its_own_job_as_a_thread_does(db: Db) -> None:
    """It was tried again, as after any error."""
    ended = until_status(db, put(db, "child.cancelled"), "CANCELLED")
    assert (ended.last_error, ended.attempt_count) == ("JobCancelled: nobody waits for it", 1)


@pytest.mark.parametrize("kind", [kind for kind in BAD if kind.startswith("command.")])
def test_what_a_program_does_wrong_ends_its_attempt_with_its_own_reason(db: Db, kind: str) -> None:
    """R20-R23, R27, R28, R31."""
    dead = until_status(db, put(db, kind, max_attempts=1), "FAILED")
    until_status(db, put(db, "command.good"), "COMPLETED")
    assert BAD[kind] in dead.last_error

"""For tests of job kinds: run what is due inside the test's own transaction, and ask what was enqueued.

def test_a_welcome_mail_is_sent(session):
    register(session, "ana@example.org")
    assert_enqueued(session, "mail.send", to="ana@example.org")
    assert run_due(session) == ["mail.send: COMPLETED"]
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.jobs import attempt, queue, registry
from snapapp.jobs.model import Finished, Job, Outcome
from snapapp.jobs.notes import Notes
from snapapp.jobs.registry import Processor, Registry
from snapapp.jobs.retry import wait_spread
from snapapp.jobs.settings import RetrySettings

SqlDb = sqlalchemy.Connection | Session

_AT_ONCE = timedelta(minutes=10)


def run_due(db: SqlDb, known: Registry = registry.default, *, at_most: int = 1000) -> list[str]:
    """Runs jobs that are due, here and now, one after the other, hooks included, until nothing is due any more.

    All of it happens in the transaction of `db`, so a test that rolls back leaves no trace. Returns a line for each
    attempt: its kind and the status it led to.
    """
    connection = db.connection() if isinstance(db, Session) else db
    claimant = queue.Claimant("testing", _AT_ONCE)
    lines: list[str] = []
    while len(lines) < at_most:
        jobs, _ = queue.claim(connection, claimant, known.kinds(), 1)
        suspect = None if jobs else queue.claim_suspect(connection, claimant, known.kinds())
        jobs += [suspect] if suspect else []
        if not jobs:
            break
        lines += [f"{job.kind}: {_run(connection, job, known.get(job.kind))}" for job in jobs]
    return lines


def enqueued(db: queue.Db, kind: str, **payload: Any) -> list[int]:
    """The ids of waiting jobs of this kind whose payload holds these values."""
    rows = queue.waiting(db, kind, json.dumps(payload))
    return [row[0] for row in rows]


def assert_enqueued(db: queue.Db, kind: str, *, times: int = 1, **payload: Any) -> None:
    found = enqueued(db, kind, **payload)
    assert len(found) == times, f"{len(found)} waiting jobs of kind {kind} with {payload}, not {times}: {found}"


def make_due(db: queue.Db, job_id: int) -> None:
    """Moves a delayed or waiting job to now: tests move rows, not time."""
    queue.make_due(db, job_id)


def _run(connection: sqlalchemy.Connection, job: Job, processor: Processor) -> str:
    @contextmanager
    def transaction(_job: Job) -> Iterator[sqlalchemy.Connection]:
        with connection.begin_nested():  # a hook that raises undoes its own work, not the test's
            yield connection

    notes = Notes(on_news=lambda: None)
    job.channel = _Desk(notes)
    wait = wait_spread(RetrySettings())
    outcome = _outcome(job, processor)
    _, status = attempt.settle_with_hook(Finished(job, outcome, 0.0), processor, transaction, notes, wait)
    return status.value if status else "LEASE_LOST"


def _outcome(job: Job, processor: Processor) -> Outcome:
    wait = wait_spread(RetrySettings())
    if processor.executor == "async":
        return asyncio.run(attempt.run_async(job, processor, wait, timeout=_AT_ONCE.total_seconds()))
    return attempt.run(job, processor, wait)


class _Desk:
    def __init__(self, notes: Notes) -> None:
        self.progress = notes.progress
        self.log = notes.log

    def check(self, job: Job) -> None:
        """Nobody else can see a job inside the test's transaction, so nobody can have stopped it."""

"""Helpers for tests of job kinds: they run due jobs inside the test's own transaction, and look up enqueued jobs.

def test_a_welcome_mail_is_sent(session):
    register(session, "ana@example.org")
    assert_enqueued(session, "mail.send", to="ana@example.org")
    assert run_due(session) == ["mail.send: COMPLETED"]

docs/testing.md shows the whole set-up of such a test.
"""

import asyncio
import json
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import copy_context
from time import monotonic
from typing import Any

import sqlalchemy
from sqlalchemy.orm import Session, scoped_session

from snapapp.jobs import registry
from snapapp.jobs.context import Hook, Within
from snapapp.jobs.errors import NoConnection
from snapapp.jobs.executors import attempt
from snapapp.jobs.executors.children import Child
from snapapp.jobs.executors.command import Command
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.executors.runners import Runner
from snapapp.jobs.model import Finished, Job, Outcome, Status
from snapapp.jobs.registry import Processor, Registry
from snapapp.jobs.retry import wait_spread
from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows import lifecycle, limits, notes
from snapapp.jobs.rows.claim import FIRST, HEADS_AT_ONCE, ClaimingWorker, Look, Wanted
from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.notes import LogLine
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker import hooks
from snapapp.jobs.worker.connections import refuse_on_an_event_loop

SqlDb = sqlalchemy.Connection | Session | scoped_session[Any]

_LOOKS = 1000  # claims at most until one finds a job
_SOON = 0.03  # seconds: a claim that wants to be repeated sooner than this has not looked at every queue yet


def run_due(
    db: SqlDb,
    known: Registry = registry.default,
    *,
    at_most: int = 1000,
    in_children: bool = False,
    command_allow: Sequence[str] = (),
    context: Hook | None = None,
) -> list[str]:
    """Runs due jobs one after the other, with their hooks, until no job is due.

    Everything happens in the transaction of `db`, so a test that rolls back leaves no trace. Returns a line for each
    attempt: the job's kind and the status it led to. Limits, fair turns, snoozes and retries work as in a worker: a job
    that is not due, or that a limit holds back, stays as it is.

    A `command` kind runs its program; `command_allow` is SNAPAPP_COMMAND_ALLOW. A `process` kind is called in the
    test's own process, where breakpoints and patches work; with `in_children` it runs in a child process, as in a
    worker. `context` is the context hook that the application gives its Runtime.
    """
    connection = db if isinstance(db, sqlalchemy.Connection) else _connection(db)
    settings = JobsSettings(database_url="", command_allow=tuple(command_allow))
    with _Bench(connection, known, settings, Within(context), in_children=in_children) as bench:
        lines: list[str] = []
        while len(lines) < at_most and (job := bench.claim()):
            lines.append(f"{job.kind}: {bench.run(job)}")
        return lines


def _connection(db: Session | scoped_session[Any]) -> sqlalchemy.Connection:
    """The connection of a session, also of a scoped_session, which is no Session but looks like one."""
    if isinstance(db, Session | scoped_session):
        return db.connection()
    raise TypeError(
        f"run_due takes a Connection or a Session of SQLAlchemy, not {type(db).__module__}.{type(db).__qualname__}; "
        "with an AsyncSession or an AsyncConnection: await db.run_sync(run_due)"
    )


def enqueued(db: Db, kind: str, **payload: Any) -> list[int]:
    """The ids of waiting jobs of this kind whose payload holds these values."""
    rows = lifecycle.waiting(db, kind, json.dumps(payload))
    return [row[0] for row in rows]


def assert_enqueued(db: Db, kind: str, *, times: int = 1, **payload: Any) -> None:
    ids = enqueued(db, kind, **payload)
    assert len(ids) == times, f"{len(ids)} waiting jobs of kind {kind} with {payload}, not {times}: {ids}"


def make_due(db: Db, job_id: int) -> None:
    """Makes a delayed or waiting job due now, so that a test need not wait or change the clock. IllegalTransition: it
    does not wait, or it waits for its parents."""
    lifecycle.run_now(db, job_id)


class _Bench(ExitStack):
    """A worker of one slot, in the test's thread and transaction."""

    def __init__(
        self,
        connection: sqlalchemy.Connection,
        known: Registry,
        settings: JobsSettings,
        within: Within,
        *,
        in_children: bool,
    ) -> None:
        super().__init__()
        self.connection = connection
        self._known = known
        self._settings = settings
        self._within = within
        self._in_children = in_children
        self._wait = wait_spread(settings.retry)
        self._claiming_worker = ClaimingWorker("testing", settings.timeout)
        self._turns: dict[tuple[str, str], str] = {}  # by queue and kind: the lane that was served last
        self._guard = Guard()
        self.callback(self._guard.stop)
        self._runners: dict[str, Runner] = {}

    def claim(self) -> Job | None:
        for when in ("IMMEDIATE", "DEFERRED"):  # a commit would release waiting children, and here no commit comes
            self.connection.exec_driver_sql(f"SET CONSTRAINTS job_parents_changed {when}")
        while limits.relabel(self.connection):
            pass
        wanted = [Wanted(kind, executor=0, at_most=1, at_once=1) for kind in self._known.kinds()]
        return self._take(wanted) or self._take(wanted, takes_suspect=True)

    def _take(self, wanted: list[Wanted], *, takes_suspect: bool = False) -> Job | None:
        """Repeats the claim until it takes a job or has looked at all queues and lanes; a single claim may look at some
        of them only."""
        begin = FIRST
        for _ in range(_LOOKS):
            turns = tuple((queue, kind, lane) for (queue, kind), lane in self._turns.items())
            look = Look(begin=begin, turns=turns, takes_suspect=takes_suspect)
            claimed = claim_rows.claim(self.connection, self._claiming_worker, wanted, look)
            self._turns |= {(queue, kind): lane for queue, kind, lane in claimed.turns}
            if claimed.jobs:
                return claimed.jobs[0]
            sees_all = len(claimed.new_heads) < HEADS_AT_ONCE
            if sees_all and (claimed.again_in is None or claimed.again_in > _SOON):
                return None
            begin = FIRST if sees_all else claimed.new_heads[-1]
        return None

    def run(self, job: Job) -> str:
        processor = self._known.get(job.kind)
        job.channel = _JobChannel(self, processor.executor)
        if job.payload_json is None:
            job.payload_json = claim_rows.payload(self.connection, job.lease)
            job.parents_json = claim_rows.parents(self.connection, job.id)
        job.started_at = monotonic()
        timeout = (
            job.timeout_ms / 1000 if job.timeout_ms else (processor.timeout or self._settings.timeout).total_seconds()
        )
        job.deadline = job.started_at + timeout
        finished = Finished(job, self._outcome(job, processor, timeout), monotonic() - job.started_at)
        try:
            status = self._settle(finished, processor)
        except hooks.CommitFailed as refused:
            status = self._settle(refused.finished, processor)
        return status.value if status else "LEASE_LOST"

    def _settle(self, finished: Finished, processor: Processor) -> Status | None:
        try:
            return hooks.settle_with_hook(finished, processor, self.transaction, self._wait, self._within)
        except hooks.HookFailed as failed:
            raise failed.error from None  # the test sees the error that its own hook raised

    def _outcome(self, job: Job, processor: Processor, timeout: float) -> Outcome:
        within = self._within or None
        if processor.executor == "async":
            return _wait_for(attempt.run_async(job, processor, self._wait, timeout, within))
        if processor.executor == "command" or (processor.executor == "process" and self._in_children):
            return self._runner(processor).run(job, processor, self._wait)
        return attempt.run(job, processor, self._wait, within)

    def _runner(self, processor: Processor) -> Runner:
        runner = self._runners.get(processor.executor)
        if runner is None:
            runner = self._runners[processor.executor] = self._new_runner(processor.executor)
            self.callback(runner.close)
        runner.prepare()
        return runner

    def _new_runner(self, executor: str) -> Runner:
        if executor == "command":
            return Command(self._settings, self._guard, self._within)
        modules = {one.function.__module__ for one in self._known if one.executor == executor}
        return Child(tuple(sorted(modules)), self._settings, self._guard, self._within)

    @contextmanager
    def transaction(self, _job: Job) -> Iterator[sqlalchemy.Connection]:
        with self.connection.begin_nested():  # an error in a hook rolls back the hook's work only, not the test's
            yield self.connection

    @contextmanager
    def lend(self, job: Job) -> Iterator[sqlalchemy.Connection]:
        with self.transaction(job), self._within(job, self.connection):
            yield self.connection


def _wait_for(attempt: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Runs it on a loop of its own, in a thread of its own if the test is a coroutine: no thread has two loops."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(attempt)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, attempt).result()


class _JobChannel:
    """The channel of a job in a test: its progress, its log lines and its connection use the test's transaction."""

    def __init__(self, bench: _Bench, executor: str) -> None:
        self._bench = bench
        self._executor = executor

    def progress(self, job: Job, value: str) -> None:
        notes.progress(self._bench.connection, {job.lease: value})

    def log(self, job: Job, level: str, message: str) -> None:
        notes.log(self._bench.connection, [LogLine(job.lease, job.attempt, level, message, 0.0, landed=True)])

    def check(self, job: Job) -> None:
        """Never raises: nobody outside the test's transaction can see the job, so nobody can cancel it."""

    def connection(self, job: Job) -> AbstractContextManager[sqlalchemy.Connection]:
        if self._executor == "process":
            raise NoConnection(f"{job.kind} job {job.id} asks for a connection, and a child process has no database")
        if self._executor == "async":  # a function on a thread may be called on the loop of the test itself
            refuse_on_an_event_loop(job)
        return self._bench.lend(job)

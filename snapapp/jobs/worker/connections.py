"""Connections for running jobs: a small pool, each lent in a transaction of its own. When an attempt should end, the
statements that it runs on them are cancelled."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import psycopg
from psycopg.pq import TransactionStatus

from snapapp.jobs.context import Within
from snapapp.jobs.errors import JobInterrupted, JobsError, NoConnection
from snapapp.jobs.model import Job
from snapapp.jobs.rows.database import cut

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

Check = Callable[[Job], None]

BEFORE_EACH_STATEMENT = "before each statement"  # key in connection.info: the function that the engine calls
_LOOK_EVERY = 0.1  # seconds between two checks whether a job that waits for a connection should end
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # seconds between two looks at whether a cancelled statement has ended
_CANCEL_WITHIN = 5.0  # seconds of trying to cancel a statement; then we shut the socket, which the server notices
_AFTER_THE_DEADLINE = 5.0  # seconds for us to end a statement; then the server ends it, because we may be frozen
_LONGEST_MS = 2**31 - 1


class Loan:
    """One connection, lent to one job."""

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self._driver = driver
        self._turn = threading.Lock()  # a cancel must not hit the statement of the next job on this connection
        self._returned = threading.Event()
        self.backend: int | None = None  # its pid in the server, as soon as the transaction has begun
        self.revoked: JobsError | None = None  # why the loan must end; written by `revoke`
        self.was_cancelled = False

    def give_back(self) -> None:
        with self._turn:
            self._returned.set()

    def enforce(self) -> None:
        """Cancels the statement on this connection again and again until the job gives the connection back: a cancel
        between two statements does nothing, and the next statement may follow. If cancels fail, shuts the socket."""
        pause, patience_ends = _FIRST_PAUSE, monotonic() + _CANCEL_WITHIN
        is_cut = False
        while not self._returned.is_set():
            if not is_cut and (not self._cancel() or monotonic() > patience_ends):
                is_cut = self._cut()
            self._returned.wait(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)

    def _cut(self) -> bool:
        """Cuts the connection, which the job's thread is using at this moment. False when no statement runs: the job is
        refused its next statement instead."""
        with self._turn:
            if self._is_without_statement():
                return False
            self.was_cancelled = True
            cut(self._driver)
            return True

    def _cancel(self) -> bool:
        """False: the server did not accept the cancel."""
        with self._turn:
            if self._is_without_statement():
                return True
            self.was_cancelled = True
            try:
                self._driver.cancel_safe(timeout=_CANCEL_WITHIN)
            except psycopg.Error:
                return False
            return True

    def _is_without_statement(self) -> bool:
        """Reads libpq's memory only: asking the server would need the connection."""
        return self._returned.is_set() or self._driver.info.transaction_status != TransactionStatus.ACTIVE


class JobConnections:
    """Jobs call `connection`, on any thread. The worker's threads call `revoke` when an attempt should end."""

    def __init__(self, engine: "Callable[[], Engine]", most: int, within: Within) -> None:
        self._engine = engine
        self._most = most
        self._within = within
        self._made_in = os.getpid()
        self._free = threading.Semaphore(most)
        self._turn = threading.Lock()  # for `loans`
        self.loans: dict[Job, tuple[Loan, ...]] = {}  # nearly always empty; other threads read it without the lock
        self._is_closed = False  # True: connections that come back are closed, for their pool may be gone

    @contextmanager
    def connection(self, job: Job, check: Check) -> "Iterator[Connection]":
        """`check` raises when the attempt should end. It is called before the loan and before the commit."""
        self._refuse_if_not_available(job)
        check(job)
        with self._place(job, check), self._engine().connect() as connection:
            loan = self._lend(job, connection)
            try:
                check(job)  # once more: a `revoke` before _lend found no loan to revoke
                with connection.begin():
                    self._name_backend(job, loan, _begin(connection, job))
                    with self._within(job, connection):
                        yield connection
                    _raise_if_revoked(loan)
                    check(job)
            except BaseException as error:
                _raise_if_revoked(loan, error)
                if _ran_out_of_time(error):
                    check(job)
                raise
            finally:
                self._take_back(job, loan, connection)

    def revoke(self, job: Job, reason: JobsError) -> None:
        """Returns at once. A thread for each of the job's connections cancels its statement, and all later ones."""
        for loan in self.loans.get(job, ()):
            if loan.revoked is None:
                loan.revoked = reason
                threading.Thread(target=loan.enforce, name="revoke", daemon=True).start()

    def close(self) -> None:
        self._is_closed = True
        for job in list(self.loans):
            self.revoke(job, JobInterrupted(f"the worker of job {job.id} has stopped"))

    @contextmanager
    def _place(self, job: Job, check: Check) -> Iterator[None]:
        while not self._free.acquire(timeout=_LOOK_EVERY):
            check(job)
        try:
            yield
        finally:
            self._free.release()

    def _lend(self, job: Job, connection: "Connection") -> Loan:
        loan = Loan(cast("psycopg.Connection[Any]", connection.connection.driver_connection))
        connection.info[BEFORE_EACH_STATEMENT] = partial(_raise_if_revoked, loan)
        with self._turn:
            self.loans[job] = (*self.loans.get(job, ()), loan)
        return loan

    def _name_backend(self, job: Job, loan: Loan, backend: int) -> None:
        with self._turn:
            loan.backend = backend
            job.backends = (*job.backends, backend)

    def _take_back(self, job: Job, loan: Loan, connection: "Connection") -> None:
        loan.give_back()
        with self._turn:
            self.loans[job] = tuple(other for other in self.loans[job] if other is not loan)
            job.backends = tuple(other.backend for other in self.loans[job] if other.backend is not None)
            if not self.loans[job]:
                del self.loans[job]
        if loan.was_cancelled or self._is_closed:  # a late cancel would hit the next job's statement
            connection.invalidate()

    def _refuse_if_not_available(self, job: Job) -> None:
        if self._most == 0:
            raise NoConnection(f"{job.kind} job {job.id} asks for a connection, and SNAPAPP_JOB_CONNECTIONS is 0")
        if os.getpid() != self._made_in:
            raise NoConnection(
                f"{job.kind} job {job.id} asks for a connection in a process that it has forked, which would talk into "
                "its parent's: use one in the job itself, or open one of your own there"
            )
        refuse_on_an_event_loop(job)


def refuse_on_an_event_loop(job: Job) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise NoConnection(
        f"{job.kind} job {job.id} asks for a connection on the event loop, which would hold up all the others: "
        "use it in a function that is called with asyncio.to_thread"
    )


def _begin(connection: "Connection", job: Job) -> int:
    """Sends the first statement of the transaction and returns the pid of the server process. It sets the job's
    deadline on the server too, because a frozen client would hold its locks for ever."""
    seconds_left = None if job.deadline is None else _AFTER_THE_DEADLINE + job.deadline - monotonic()
    limit = "0" if seconds_left is None else str(min(_LONGEST_MS, max(1, round(seconds_left * 1000))))
    statement = (
        "SELECT pg_backend_pid(), set_config('statement_timeout', %(limit)s, true),"
        " set_config('idle_in_transaction_session_timeout', %(limit)s, true)"
    )
    return int(connection.exec_driver_sql(statement, {"limit": limit}).one()[0])


def _raise_if_revoked(loan: Loan, error: BaseException | None = None) -> None:
    if loan.revoked is not None and error is not loan.revoked:
        raise loan.revoked from error


def _ran_out_of_time(error: BaseException) -> bool:
    return isinstance(getattr(error, "orig", None), psycopg.errors.QueryCanceled)

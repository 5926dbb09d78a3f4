"""A worker as a process of its own: it runs until a signal, until no job is due, or for one batch of jobs."""

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from time import monotonic, sleep

import psycopg

from snapapp.jobs.amounts import counted
from snapapp.jobs.model import Job
from snapapp.jobs.os.signals import Signals
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.retry import pause_after
from snapapp.jobs.rows.database import Database
from snapapp.jobs.rows.people import overviews
from snapapp.jobs.worker.worker import Worker

_log = logging.getLogger(__name__)

_LAST_MOMENTS = 2.0  # seconds of the grace that Worker.stop gets to hand jobs back and leave the roster
_LOOK_EVERY = 0.1  # seconds
_LOOK_AT_HEALTH_EVERY = 2.0  # seconds
_SAY_AGAIN = 20  # the error is shown again after so many failures: about once a minute


class FiniteWorker(Worker):
    """A worker that tells when it has looked at the queue. With `once` it claims a single batch."""

    def __init__(self, runtime: Runtime, *, once: bool = False) -> None:
        self.has_looked = threading.Event()
        self._once = once
        super().__init__(runtime.parts())

    def tick(self) -> float | None:
        if self._once and self.has_looked.is_set():
            return None
        again_in = super().tick()
        self.has_looked.set()
        return again_in

    def _on_claimed(self, jobs: list[Job]) -> None:
        super()._on_claimed(jobs)
        if self._once:
            self._claimer.is_paused = True


def work(worker: Worker, signals: Signals) -> str | None:
    """Runs the worker until a signal (returns None), or until only a new process helps (returns why)."""
    worker.start()
    why = None
    while not (signals.noted or why):
        signals.wait(_LOOK_AT_HEALTH_EVERY)
        why = worker.wants_restart
    stop(worker, signals, reason=why or "done")
    return None if signals.noted else why


def work_once(worker: FiniteWorker, signals: Signals) -> None:
    """Runs the worker until the single batch that it claims is settled."""
    worker.start()
    while not (signals.noted or (worker.has_looked.is_set() and worker.is_idle)):
        signals.wait(_LOOK_EVERY)
    stop(worker, signals)


def drain(worker: FiniteWorker, runtime: Runtime, signals: Signals) -> None:
    """Runs the worker until no job is due that it can run, and all jobs that it claimed are settled."""
    database = Database(lambda: runtime.connect("drain"))
    worker.start()
    while not (
        signals.noted or (worker.has_looked.is_set() and worker.is_idle and _is_drained(database, worker, runtime))
    ):
        signals.wait(_LOOK_EVERY)
    database.close()
    stop(worker, signals)


def _is_drained(database: Database, worker: Worker, runtime: Runtime) -> bool:
    """Asks in one statement: between two, a job could change from waiting to running and be missed by both."""
    try:
        with database.connection() as db:
            return overviews.is_drained(db, worker.id, runtime.registry.kinds(), runtime.settings.queues)
    except psycopg.OperationalError:
        return False  # the worker reports it, and waits until the database is back


def say_how_long(worker: Worker) -> None:
    """Logs how long the running jobs may take, for a person who typed Ctrl-C."""
    if running := worker.running:
        grace = worker.settings.shutdown_grace.total_seconds()
        what = counted(running, "job runs and may", "jobs run and may")
        _log.info("%s finish within %g s. A second signal (Ctrl-C) ends them now, and they come again.", what, grace)


def stop(worker: Worker, signals: Signals, reason: str = "done") -> None:
    """Lets running jobs finish within the grace. A second signal interrupts them."""
    say_how_long(worker)
    grace = worker.settings.shutdown_grace.total_seconds()
    patience_ends = monotonic() + grace - min(_LAST_MOMENTS, grace / 4)
    worker.stop_claiming()
    while not worker.is_idle and len(signals.noted) < 2 and monotonic() < patience_ends:
        signals.wait(_LOOK_EVERY)
    seconds_left = 0.0 if len(signals.noted) > 1 else min(_LAST_MOMENTS, grace / 4)
    worker.stop(timedelta(seconds=seconds_left), reason=signals.noted[0].name if signals.noted else reason)


def until_reachable(url: str, *, within: timedelta | None, say: Callable[[str], None]) -> None:
    """Returns when the database answers; raises the last error after `within`."""
    began, failures = monotonic(), 0
    while True:
        try:
            psycopg.connect(url, connect_timeout=5, application_name="snapapp start").close()
            return
        except psycopg.OperationalError as error:
            if within is not None and monotonic() - began > within.total_seconds():
                raise
            if failures % _SAY_AGAIN == 0:
                say(str(error))
            failures += 1
            sleep(pause_after(failures))

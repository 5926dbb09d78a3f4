"""Writes down how attempts ended, in batches: while one settle is under way, the next batch gathers by itself."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

import psycopg

from snapapp.jobs import events, queue
from snapapp.jobs.attempt import queue_is_away
from snapapp.jobs.costs import Ledger
from snapapp.jobs.courtesy import Courtesy
from snapapp.jobs.database import Line
from snapapp.jobs.events import Events
from snapapp.jobs.holdings import Holdings
from snapapp.jobs.model import (
    Buried,
    Dropped,
    Failure,
    Finished,
    Interrupted,
    Retried,
    Snoozed,
    Status,
    Succeeded,
)
from snapapp.jobs.notes import Notes
from snapapp.jobs.pace import Pace
from snapapp.jobs.retry import pause_after
from snapapp.jobs.roster import Counts

_AT_MOST = 1000  # in one statement


class Settler:
    """One thread, one connection. `put` may be called from anywhere; everything else happens on the thread."""

    def __init__(
        self,
        worker: str,
        line: Line,
        notes: Notes,
        holdings: Holdings,
        counts: Counts,
        ledger: Ledger,
        pace: Pace,
        events: Events,
        courtesy: Courtesy,
        *,
        interruptions_allowed: int,
        on_settled: Callable[[], None],
        on_due_in: Callable[[float], None],
    ) -> None:
        self._worker = worker
        self._line = line
        self._notes = notes
        self._holdings = holdings
        self._counts = counts
        self._ledger = ledger
        self._pace = pace
        self._events = events
        self._courtesy = courtesy
        self._interruptions_allowed = interruptions_allowed
        self._on_settled = on_settled
        self._on_due_in = on_due_in  # a job of ours comes back in so many seconds
        self._finished: deque[Finished] = deque()
        self._bell = threading.Event()
        self._stopping = threading.Event()
        self._gone = threading.Event()  # set when nobody waits for us any more
        self._thread = threading.Thread(target=self._run, name="settler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, finished: Finished) -> None:
        self._finished.append(finished)
        if not self._bell.is_set():
            self._bell.set()

    def stop(self, timeout: float) -> None:
        """Returns when everything is written down, or the time is over (the leases then end by themselves)."""
        self._stopping.set()
        self._bell.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        self._gone.set()
        self._line.close()

    def _run(self) -> None:
        while not self._stopping.is_set() or self._finished:
            self._bell.wait()
            self._bell.clear()
            while batch := self._next_batch():
                self._courtesy.give_way()
                self._write_until_done(batch)
                self._on_settled()

    def _next_batch(self) -> list[Finished]:
        take = self._finished.popleft
        return [take() for _ in range(min(len(self._finished), _AT_MOST))]

    def _write_until_done(self, batch: list[Finished]) -> None:
        """Finished results wait while the database is away; they still land if nobody took over."""
        failures = 0
        while batch:
            try:
                batch = self._write(batch, was_unsure=failures > 0)
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                failures += 1
                self._events.complain(self._worker, "settle", error)
                if self._stopping.is_set() and failures > 5:
                    return
                batch = self._after(error, batch)
                if batch:
                    self._gone.wait(pause_after(failures))

    def _after(self, error: Exception, batch: list[Finished]) -> list[Finished]:
        """What to write next. One row that is locked or refused must not hold up the others."""
        is_stuck = isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.QueryCanceled)
        if not is_stuck and queue_is_away(error):
            return batch
        if len(batch) > 1:
            for one in batch:
                self._write_until_done([one])
            return []
        if is_stuck:
            self._finished.append(batch[0])  # somebody holds its row: later
            self._bell.set()
            return []
        return [_unwritable(batch[0], error)]

    def _write(self, batch: list[Finished], *, was_unsure: bool) -> list[Finished]:
        """Writes the batch and returns nothing left to do; a lost connection raises, and the batch comes again."""
        with self._line.connection() as db:
            if self._notes:
                self._notes.write(db)
            completed = [one for one in batch if type(one.outcome) is Succeeded]
            if completed:
                self._complete(db, completed, was_unsure=was_unsure)
                batch[:] = [one for one in batch if type(one.outcome) is not Succeeded]  # counted: not to come again
            if batch:
                self._settle_others(db, batch, was_unsure=was_unsure)
        return []

    def _complete(self, db: psycopg.Connection[tuple[object, ...]], batch: list[Finished], *, was_unsure: bool) -> None:
        landed = queue.complete(
            db,
            [(one.job.lease, one.outcome.result, one.ran_for or 0.0) for one in batch],  # type: ignore[union-attr]
        )
        self._pace.learn(batch)
        if len(landed) == len(batch):
            self.account(batch, Status.COMPLETED)
            return
        has_landed = [
            one.job.id in landed or (was_unsure and queue.landed_already(db, one.job.lease) is not None)
            for one in batch
        ]
        self.account([one for one, has in zip(batch, has_landed, strict=True) if has], Status.COMPLETED)
        self.account([one for one, has in zip(batch, has_landed, strict=True) if not has], None)

    def _settle_others(
        self, db: psycopg.Connection[tuple[object, ...]], batch: list[Finished], *, was_unsure: bool
    ) -> None:
        handed_back = [one for one in batch if isinstance(one.outcome, Interrupted)]
        if handed_back:
            leases = [(one.job.lease, one.job.started_at is not None) for one in handed_back]
            queue.hand_back(db, leases, interruptions_allowed=self._interruptions_allowed)
        with db.transaction():
            settled = [
                (one, None if isinstance(one.outcome, Dropped) else queue.settle(db, one))
                for one in batch
                if not isinstance(one.outcome, Interrupted)
            ]
        if was_unsure:
            settled = [(one, status or queue.landed_already(db, one.job.lease)) for one, status in settled]
        self.account(handed_back, Status.PENDING)
        for one, status in settled:
            self.account([one], status)

    def settled_elsewhere(self, finished: Finished, status: Status | None) -> None:
        """For those who settle on their own slot, with a hook."""
        self._pace.learn([finished])
        self.account([finished], status)
        self._on_settled()

    def account(self, batch: Sequence[Finished], status: Status | None) -> None:
        """The jobs are off our hands: count them and tell whoever listens. All of them ended alike."""
        for one in batch:
            self._holdings.remove(one.job)
        self._counts.add(status, batch)
        self._ledger.add(batch, status)
        if status is Status.COMPLETED and not self._events.hears(events.JOB_COMPLETED):
            return
        for one in batch:
            if isinstance(one.outcome, Retried | Snoozed):
                self._on_due_in(one.outcome.delay.total_seconds())
            self._tell(one, status)

    def _tell(self, finished: Finished, status: Status | None) -> None:
        job, outcome, ran_for = finished
        name, level = _EVENTS[status] if not isinstance(outcome, Interrupted) else _INTERRUPTED
        if isinstance(outcome, Snoozed) and status is Status.PENDING:
            name, level = events.JOB_SNOOZED, logging.INFO
        failure = outcome.failure if isinstance(outcome, Retried | Buried) else None
        self._events.emit(
            name,
            level,
            worker_id=self._worker,
            job_id=job.id,
            kind=job.kind,
            attempt=min(job.attempt, job.max_attempts),
            status=status.value if status else "LEASE_LOST",
            duration_ms=None if ran_for is None else round(ran_for * 1000, 3),
            request_id=job.request_id,
            **({"error": failure.error} if failure else {}),
        )


_EVENTS: dict[Status | None, tuple[str, int]] = {
    Status.COMPLETED: (events.JOB_COMPLETED, logging.INFO),
    Status.FAILED: (events.JOB_FAILED, logging.ERROR),
    Status.RETRY_WAIT: (events.JOB_RETRIED, logging.WARNING),
    Status.CANCELLED: (events.JOB_CANCELLED, logging.WARNING),
    Status.PENDING: (events.JOB_SNOOZED, logging.INFO),
    None: (events.JOB_LOST, logging.WARNING),
}
_INTERRUPTED = (events.JOB_INTERRUPTED, logging.WARNING)


def _unwritable(finished: Finished, error: Exception) -> Finished:
    """PostgreSQL refuses what the attempt produced: the row says so, in words that it does accept."""
    if isinstance(finished.outcome, Buried):
        return finished._replace(outcome=Buried(Failure("its failure could not be stored")))
    return finished._replace(outcome=Buried(Failure(f"its result could not be stored: {type(error).__name__}")))

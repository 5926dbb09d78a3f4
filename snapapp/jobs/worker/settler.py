"""Writes down how attempts ended, in batches: while one settle runs, the attempts that end form the next batch."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple

from snapapp.jobs import events, tracing
from snapapp.jobs.model import (
    Buried,
    Dropped,
    Failure,
    Finished,
    Interrupted,
    Job,
    Retried,
    Snoozed,
    Status,
    Stopped,
    Succeeded,
    describe,
)
from snapapp.jobs.os.shortage import is_shortage
from snapapp.jobs.retry import pause_after
from snapapp.jobs.rows import settle
from snapapp.jobs.rows.database import Db, is_away, waited_in_vain, was_in_conflict
from snapapp.jobs.worker.parts import WorkerParts

_AT_MOST = 1000  # jobs in one statement
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds before a row that is locked or in conflict is tried again


class _Portion(NamedTuple):
    """Attempts that one statement settles, and what earlier tries have shown about them."""

    batch: list[Finished]
    was_unsure: bool = False  # an earlier try lost its connection, perhaps after its COMMIT
    is_in_plain_words: bool = False  # PostgreSQL refused its result or error text, which is left out now
    pause: float = 0.0  # seconds it was last set aside, because other transactions had locked its rows


class Settler:
    """One thread with one connection. Any thread may call `end` or `put`; the settler's thread does all else."""

    def __init__(
        self, parts: WorkerParts, *, on_settled: Callable[[], None], on_due_in: Callable[[float], None]
    ) -> None:
        self._parts = parts
        self._database = parts.database("settle")
        self._on_settled = on_settled
        self._on_due_in = on_due_in  # told in how many seconds a job that we settled is due again
        self._finished: deque[Finished] = deque()
        self._locked: list[tuple[float, _Portion]] = []  # each with the time of its next try; the thread's own
        self._since: float | None = None  # since when the thread has failed to write; read by others
        self._turn = threading.Lock()  # for `has_end` of jobs
        self._has_news = threading.Event()
        self._stopping = threading.Event()
        self._must_end = threading.Event()  # `stop` has stopped waiting for the thread
        self._thread = threading.Thread(target=self._run, name="settler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take_end(self, job: Job) -> bool:
        """Whether the caller says how this attempt ends. Only the first one does: its slot, or whoever hands the job
        back. Who comes later says nothing, or one attempt would end twice."""
        with self._turn:
            is_first, job.has_end = not job.has_end, True
        return is_first

    def end(self, finished: Finished) -> None:
        if self.take_end(finished.job):
            self.put(finished)

    def put(self, finished: Finished) -> None:
        """For the one whose `take_end` was true."""
        self._finished.append(finished)
        if not self._has_news.is_set():
            self._has_news.set()

    def stop(self, timeout: float) -> None:
        """Returns when every attempt is written down, or after `timeout` seconds: then the other leases run out."""
        self._stopping.set()
        self._has_news.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        self._must_end.set()
        self._has_news.set()
        self._database.close()

    @property
    def stands_still_for(self) -> float:
        """Seconds since anything was last written, while attempts wait to be written; 0 when none waits."""
        since = self._since
        return 0.0 if since is None else monotonic() - since

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._must_end.is_set() and (self._finished or self._locked or not self._stopping.is_set()):
            self._has_news.wait(self._locked_are_due_in())
            self._has_news.clear()
            while batch := self._next_batch():
                self._parts.web_priority.give_way()
                self._write_down(_portions(batch))
                self._write_down(self._take_due())
            self._write_down(self._take_due())

    def _next_batch(self) -> list[Finished]:
        take = self._finished.popleft
        return [take() for _ in range(min(len(self._finished), _AT_MOST))]

    def _write_down(self, portions: list[_Portion]) -> None:
        """Tries until all are written. While the database is away, or this process has no descriptor or memory left,
        they wait, and land later unless another worker has taken the jobs by then."""
        failures, self._since = 0, monotonic()
        while portions:
            portion = portions.pop()
            try:
                self._settle(portion)
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                if is_away(error) or is_shortage(error):
                    failures += 1
                    self._parts.complain("settle", error)
                    if self._stopping.is_set() and failures > 5:
                        break
                    portions.append(portion._replace(was_unsure=True))
                    self._must_end.wait(pause_after(failures))
                    continue
                portions += self._portions_after_error(error, portion)
            failures, self._since = 0, monotonic()
        self._since = None

    def _portions_after_error(self, error: Exception, portion: _Portion) -> list[_Portion]:
        """Returns what to try instead of the one that failed. A row that PostgreSQL refuses, whose lock it waited for
        in vain, or that was in conflict with others, must not hold up the others, so a batch is halved until that row
        is alone. If it still is in conflict after the longest pause, it is refused."""
        if len(portion.batch) > 1:
            middle = len(portion.batch) // 2
            return [portion._replace(batch=portion.batch[middle:]), portion._replace(batch=portion.batch[:middle])]
        if waited_in_vain(error) or (was_in_conflict(error) and portion.pause < _LONGEST_PAUSE):
            self._set_aside(portion.batch, portion)
            return []
        [one] = portion.batch
        plain = None if portion.is_in_plain_words else _in_plain_words(one, error)
        if plain is None:
            self._give_up(one, error)
            return []
        self._parts.complain(f"settle job {one.job.id}", error)
        return [portion._replace(batch=[plain], is_in_plain_words=True)]

    def _give_up(self, finished: Finished, error: Exception) -> None:
        """Stops holding a job whose end cannot be written: without beats its lease runs out and it is recovered."""
        job = finished.job
        about = {"worker_id": self._parts.id, "job_id": job.id, "kind": job.kind}
        self._parts.events.emit(events.SETTLE_DROPPED, logging.ERROR, **about, error=describe(error))
        self.account([finished], None)

    # --- rows that other transactions have locked -------------------------------------------------------------

    def _set_aside(self, batch: list[Finished], portion: _Portion) -> None:
        """Tries the batch again later, at growing intervals, apart from new batches, which its locks would delay."""
        if batch:
            pause = min(_LONGEST_PAUSE, 2 * portion.pause or _FIRST_PAUSE)
            self._locked.append((monotonic() + pause, portion._replace(batch=batch, pause=pause)))

    def _take_due(self) -> list[_Portion]:
        if not self._locked:
            return []
        now = monotonic()
        due = [portion for again_at, portion in self._locked if again_at <= now]
        self._locked = [(again_at, portion) for again_at, portion in self._locked if again_at > now]
        return _merged(due)

    def _locked_are_due_in(self) -> float | None:
        return max(0.0, min(again_at for again_at, _ in self._locked) - monotonic()) if self._locked else None

    # --- a portion --------------------------------------------------------------------------------------------

    def _settle(self, portion: _Portion) -> None:
        """Raises when the connection is lost; the caller then tries again."""
        batch = portion.batch
        if type(batch[0].outcome) is Dropped:
            self.account(batch, None)
            return
        with self._database.connection() as db:
            allowed = self._parts.settings.max_interruptions
            was_locked = portion.pause > 0
            landed, locked = settle.settle_batch(db, batch, interruptions_allowed=allowed, is_second_try=was_locked)
            missing = [one for one in batch if one.job.id not in landed] if len(landed) < len(batch) else []
            settled_before = self._landed_already(db, missing) if portion.was_unsure else {}
        if type(batch[0].outcome) is Succeeded:
            self._parts.pace.learn(batch)
        self._set_aside([one for one in missing if one.job.id in locked], portion)
        ended = landed | settled_before
        for status in {*ended.values()}:
            self.account([one for one in batch if ended.get(one.job.id) is status], status)
        if lost_attempts := [one for one in missing if one.job.id not in locked and one.job.id not in ended]:
            self.account(lost_attempts, None)
        self._on_settled()

    def _landed_already(self, db: Db, missing: Sequence[Finished]) -> dict[int, Status]:
        """Finds the jobs that an earlier try has settled: its connection was lost, perhaps only after the COMMIT."""
        statuses = {one.job.id: settle.landed_already(db, one.job.lease) for one in missing}
        return {job_id: status for job_id, status in statuses.items() if status}

    def settled_elsewhere(self, finished: Finished, status: Status | None) -> None:
        """Accounts for a job that its own slot has settled, together with a hook."""
        self._parts.pace.learn([finished])
        self.account([finished], status)
        self._on_settled()

    def account(self, batch: Sequence[Finished], status: Status | None) -> None:
        """Stops holding the jobs, counts them and emits their events. `status` is the one that all of them ended with;
        None: their leases are lost."""
        self._parts.notes.ended((one.job for one in batch), landed=status is not None)
        for one in batch:
            self._parts.held_jobs.remove(one.job)
        self._parts.counts.add(status, batch)
        self._parts.costs.add(batch, status)
        if tracing.tracer is not None:
            for one in batch:
                tracing.tracer.ended(one, status)
        if status is Status.COMPLETED and not self._parts.events.hears(events.JOB_COMPLETED):
            return
        for one in batch:
            if isinstance(one.outcome, Retried | Snoozed):
                self._on_due_in(one.outcome.delay.total_seconds())
            self._emit_end(one, status)

    def _emit_end(self, finished: Finished, status: Status | None) -> None:
        job, outcome, ran_for = finished
        name, level = _EVENTS[status]
        if isinstance(outcome, Interrupted) and status is Status.PENDING:
            # what only waited in memory goes back whenever the slots are busy for a second: no news
            name, level = events.JOB_INTERRUPTED, logging.DEBUG if job.started_at is None else logging.WARNING
        failure = outcome.failure if isinstance(outcome, Retried | Buried | Stopped) else None
        error = failure.error if failure else None if status else "its result was not written"
        with tracing.at(job.traceparent):
            self._parts.events.emit(
                name,
                level,
                worker_id=self._parts.id,
                job_id=job.id,
                kind=job.kind,
                attempt=min(job.attempt, job.max_attempts),
                status=status.value if status else "LEASE_LOST",
                duration_ms=None if ran_for is None else round(ran_for * 1000, 3),
                request_id=job.request_id,
                **({"error": error} if error else {}),
            )


_EVENTS: dict[Status | None, tuple[str, int]] = {
    Status.COMPLETED: (events.JOB_COMPLETED, logging.INFO),
    Status.FAILED: (events.JOB_FAILED, logging.ERROR),
    Status.RETRY_WAIT: (events.JOB_RETRIED, logging.WARNING),
    Status.CANCELLED: (events.JOB_CANCELLED, logging.WARNING),
    Status.PENDING: (events.JOB_SNOOZED, logging.INFO),
    None: (events.JOB_LOST, logging.WARNING),
}


def _portions(batch: list[Finished]) -> list[_Portion]:
    """Groups a batch: one statement settles successes, another all other ends, and dropped attempts need none."""
    sorts: dict[type, list[Finished]] = {object: [], Dropped: [], Succeeded: []}  # the last group is written first
    for one in batch:
        sorts.get(type(one.outcome), sorts[object]).append(one)
    return [_Portion(alike) for alike in sorts.values() if alike]


def _merged(portions: list[_Portion]) -> list[_Portion]:
    """Joins the portions that can be settled by the same statement."""
    alike: dict[tuple[bool, bool, bool], _Portion] = {}
    for portion in portions:
        key = type(portion.batch[0].outcome) is Succeeded, portion.was_unsure, portion.is_in_plain_words
        other = alike.get(key)
        if other is not None:
            portion = portion._replace(batch=other.batch + portion.batch, pause=max(other.pause, portion.pause))
        alike[key] = portion
    return [*alike.values()]


def _in_plain_words(finished: Finished, error: Exception) -> Finished | None:
    """Replaces the result or error text that PostgreSQL may have refused by a plain sentence; None: the outcome has
    neither. PostgreSQL's message is left out, because it may quote the refused text."""
    why = f"could not be stored: {type(error).__name__}"
    match finished.outcome:
        case Succeeded():
            return finished._replace(outcome=Buried(Failure(f"its result {why}")))
        case Retried(_, delay, memory_mb):
            return finished._replace(outcome=Retried(Failure(f"its error {why}"), delay, memory_mb))
        case Buried(_, ran):
            return finished._replace(outcome=Buried(Failure(f"its error {why}"), ran))
        case Stopped():
            return finished._replace(outcome=Stopped(Failure(f"its error {why}")))
    return None

"""Writes down how attempts ended, in batches: while one settle is under way, the next batch gathers by itself."""

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
    Retried,
    Snoozed,
    Status,
    Stopped,
    Succeeded,
)
from snapapp.jobs.retry import pause_after
from snapapp.jobs.rows import settle
from snapapp.jobs.rows.database import Db, is_away, waited_in_vain
from snapapp.jobs.worker.parts import WorkerParts

_AT_MOST = 1000  # in one statement
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds before a row that somebody has locked is tried again


class _Part(NamedTuple):
    """What one statement writes down, and what is known from trying before."""

    batch: list[Finished]
    was_unsure: bool = False  # the connection was lost on the way: it may have landed
    is_in_plain_words: bool = False  # what the attempt has left was refused
    pause: float = 0.0  # seconds for which it was set aside, because its rows were locked


class Settler:
    """One thread, one connection. `put` may be called from anywhere; everything else happens on the thread."""

    def __init__(
        self,
        parts: WorkerParts,
        *,
        on_settled: Callable[[], None],
        on_due_in: Callable[[float], None],
    ) -> None:
        self._parts = parts
        self._line = parts.line("settle")
        self._on_settled = on_settled
        self._on_due_in = on_due_in  # a job of ours comes back in so many seconds
        self._finished: deque[Finished] = deque()
        self._locked: list[tuple[float, _Part]] = []  # when they come again; the thread's, as all that follows
        self._since: float | None = None  # it has tried to write this down, and nothing was written; read by others
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
        self._bell.set()
        self._line.close()

    @property
    def stands_still_for(self) -> float:
        """Seconds for which something has waited and nothing was written."""
        since = self._since
        return 0.0 if since is None else monotonic() - since

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._gone.is_set() and (self._finished or self._locked or not self._stopping.is_set()):
            self._bell.wait(self._locked_are_due_in())
            self._bell.clear()
            while batch := self._next_batch():
                self._parts.web_priority.give_way()
                self._write_down(_parts(batch))
                self._write_down(self._take_due())
            self._write_down(self._take_due())

    def _next_batch(self) -> list[Finished]:
        take = self._finished.popleft
        return [take() for _ in range(min(len(self._finished), _AT_MOST))]

    def _write_down(self, parts: list[_Part]) -> None:
        """Finished results wait while the database is away; they still land if nobody took over."""
        failures, self._since = 0, monotonic()
        while parts:
            part = parts.pop()
            try:
                self._settle(part)
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                if is_away(error):
                    failures += 1
                    self._parts.complain("settle", error)
                    if self._stopping.is_set() and failures > 5:
                        break
                    parts.append(part._replace(was_unsure=True))
                    self._gone.wait(pause_after(failures))
                    continue
                parts += self._after(error, part)
            failures, self._since = 0, monotonic()
        self._since = None

    def _after(self, error: Exception, part: _Part) -> list[_Part]:
        """What to write next: one row that PostgreSQL refuses, or that takes too long, must not hold up the others."""
        if len(part.batch) > 1:
            middle = len(part.batch) // 2
            return [part._replace(batch=part.batch[middle:]), part._replace(batch=part.batch[:middle])]
        if waited_in_vain(error):
            self._set_aside(part.batch, part)
            return []
        [one] = part.batch
        plain = None if part.is_in_plain_words else _in_plain_words(one, error)
        if plain is None:
            self._give_up(one, error)
            return []
        self._parts.complain(f"settle job {one.job.id}", error)
        return [part._replace(batch=[plain], is_in_plain_words=True)]

    def _give_up(self, finished: Finished, error: Exception) -> None:
        """Its lease ends by itself. Who kept beating for it would hold it for ever."""
        job = finished.job
        why = f"{type(error).__name__}: {error}"
        self._parts.events.emit(
            events.SETTLE_DROPPED, logging.ERROR, worker_id=self._parts.id, job_id=job.id, kind=job.kind, error=why
        )
        self.account([finished], None)

    # --- rows that somebody has locked ------------------------------------------------------------------------

    def _set_aside(self, batch: list[Finished], part: _Part) -> None:
        """They come again by themselves, less and less often, and never together with others that would wait."""
        if batch:
            pause = min(_LONGEST_PAUSE, 2 * part.pause or _FIRST_PAUSE)
            self._locked.append((monotonic() + pause, part._replace(batch=batch, pause=pause)))

    def _take_due(self) -> list[_Part]:
        if not self._locked:
            return []
        now = monotonic()
        due = [part for again_at, part in self._locked if again_at <= now]
        self._locked = [(again_at, part) for again_at, part in self._locked if again_at > now]
        return _merged(due)

    def _locked_are_due_in(self) -> float | None:
        return max(0.0, min(again_at for again_at, _ in self._locked) - monotonic()) if self._locked else None

    # --- a part of a batch ------------------------------------------------------------------------------------

    def _settle(self, part: _Part) -> None:
        """A lost connection raises, and the part comes again."""
        batch = part.batch
        if type(batch[0].outcome) is Dropped:
            self.account(batch, None)
            return
        with self._line.connection() as db:
            allowed = self._parts.settings.max_interruptions
            landed, locked = settle.settle_batch(db, batch, interruptions_allowed=allowed, is_second_try=part.pause > 0)
            missing = [one for one in batch if one.job.id not in landed] if len(landed) < len(batch) else []
            known = self._landed_already(db, missing) if part.was_unsure else {}
        if type(batch[0].outcome) is Succeeded:
            self._parts.pace.learn(batch)
        self._set_aside([one for one in missing if one.job.id in locked], part)
        ended = landed | known
        for status in {*ended.values()}:
            self.account([one for one in batch if ended.get(one.job.id) is status], status)
        if lost := [one for one in missing if one.job.id not in locked and one.job.id not in ended]:
            self.account(lost, None)
        self._on_settled()

    def _landed_already(self, db: Db, missing: Sequence[Finished]) -> dict[int, Status]:
        """A connection was lost on the way, perhaps after the commit: so they may have landed before."""
        found = {one.job.id: settle.landed_already(db, one.job.lease) for one in missing}
        return {job_id: status for job_id, status in found.items() if status}

    def settled_elsewhere(self, finished: Finished, status: Status | None) -> None:
        """For those who settle on their own slot, with a hook."""
        self._parts.pace.learn([finished])
        self.account([finished], status)
        self._on_settled()

    def account(self, batch: Sequence[Finished], status: Status | None) -> None:
        """The jobs are off our hands: count them and tell whoever listens. All of them ended alike."""
        self._parts.notes.ended((one.job for one in batch), landed=status is not None)
        for one in batch:
            self._parts.held_jobs.remove(one.job)
        self._parts.counts.add(status, batch)
        self._parts.ledger.add(batch, status)
        if tracing.tracer is not None:
            for one in batch:
                tracing.tracer.ended(one, status)
        if status is Status.COMPLETED and not self._parts.events.hears(events.JOB_COMPLETED):
            return
        for one in batch:
            if isinstance(one.outcome, Retried | Snoozed):
                self._on_due_in(one.outcome.delay.total_seconds())
            self._tell(one, status)

    def _tell(self, finished: Finished, status: Status | None) -> None:
        job, outcome, ran_for = finished
        is_interrupted = isinstance(outcome, Interrupted) and status is Status.PENDING
        name, level = _INTERRUPTED if is_interrupted else _EVENTS[status]
        failure = outcome.failure if isinstance(outcome, Retried | Buried) else None
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


def _parts(batch: list[Finished]) -> list[_Part]:
    """One statement writes down successes, another one all other ends, and of those that are dropped nothing is."""
    sorts: dict[type, list[Finished]] = {object: [], Dropped: [], Succeeded: []}  # the last one is written first
    for one in batch:
        sorts.get(type(one.outcome), sorts[object]).append(one)
    return [_Part(part) for part in sorts.values() if part]


def _merged(parts: list[_Part]) -> list[_Part]:
    """As few parts as can be: those that are alike together."""
    alike: dict[tuple[bool, bool, bool], _Part] = {}
    for part in parts:
        key = type(part.batch[0].outcome) is Succeeded, part.was_unsure, part.is_in_plain_words
        other = alike.get(key)
        if other is not None:
            part = part._replace(batch=other.batch + part.batch, pause=max(other.pause, part.pause))
        alike[key] = part
    return [*alike.values()]


def _in_plain_words(finished: Finished, error: Exception) -> Finished | None:
    """What PostgreSQL will hardly refuse, where the attempt has left something that it does; None: there is nothing
    simpler to say. The words of the error are left out, which may quote what was refused."""
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

"""Watches the schedules that this process declares: it looks when the next slot is due, and at least once a minute.
Every worker does so; the ledger decides which of them fires a slot."""

import logging
import threading
from collections.abc import Sequence

import psycopg

from snapapp.jobs import events as names
from snapapp.jobs.events import Events
from snapapp.jobs.retry import pause_after
from snapapp.jobs.rows.database import Database, Row
from snapapp.jobs.schedules import ledger
from snapapp.jobs.schedules.declared import Schedule
from snapapp.jobs.schedules.ledger import Declaration, Settled, StoredSchedule
from snapapp.jobs.schedules.slots import Outcome, upcoming

# Less than IN_TIME, so that a slot is fired in time even after a step of the database's clock.
LOOK_EVERY = 50.0  # seconds
_AGAIN_AFTER = 5.0  # seconds until the next look at a schedule after an error with it


class Scheduler:
    """Fires the schedules of one worker, on a thread of its own. A test can call `look` without the thread."""

    def __init__(self, worker: str, database: Database, declarations: Sequence[Declaration], events: Events) -> None:
        self._worker = worker
        self._database = database
        self._ours = {its.schedule.name: its for its in declarations}
        self._as_declared = ledger.as_json(declarations)
        self._events = events
        # `look` alone writes these two sets of names.
        self._declared: set[str] = set()
        self._superseded: set[str] = set()  # kept so that the event is emitted once for each schedule
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread. The worker must be on the roster by then, because others do not count as alive."""
        if self._ours and not self._stopping.is_set():
            thread = threading.Thread(target=self._run, name="schedules", daemon=True)
            thread.start()  # may raise, and then there is none to join
            self._thread = thread

    def stop(self) -> None:
        self._stopping.set()
        if self._thread:
            self._thread.join(timeout=5)

    def look(self) -> float:
        """Settles the due slots of all schedules, and returns the seconds until the next look."""
        with self._database.connection() as db:
            found = ledger.look(db, list(self._ours), self._worker, self._as_declared)
            standings = {standing.name: standing for standing in found}
            waits = [self._look_at(db, its, standings.get(name)) for name, its in self._ours.items()]
        return min([LOOK_EVERY, *waits])

    def close(self) -> None:
        self._database.close()

    def _look_at(self, db: psycopg.Connection[Row], ours: Declaration, standing: StoredSchedule | None) -> float:
        """Looks at one schedule; an error with it does not keep the others from being looked at."""
        try:
            return self._settle_or_declare(db, ours, standing)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a trigger, a constraint or a time zone may come up with
            self._events.complain(self._worker, f"look at the schedule {ours.schedule.name}", error)
            return _AGAIN_AFTER

    def _settle_or_declare(
        self, db: psycopg.Connection[Row], ours: Declaration, standing: StoredSchedule | None
    ) -> float:
        schedule = ours.schedule
        if schedule.name not in self._declared:
            return self._declare(db, ours)
        if standing is None or not (_when(schedule) == _when(standing) and standing.is_by_us):
            return self._declare_again(db, ours, standing)
        self._superseded.discard(schedule.name)
        self._tell(schedule, ledger.settle_due(db, standing, self._worker))
        next_slot = next(upcoming(schedule.spec, schedule.tz, max(standing.now, standing.settled_until)), None)
        return LOOK_EVERY if next_slot is None else (next_slot.at - standing.now).total_seconds()

    def _declare_again(self, db: psycopg.Connection[Row], ours: Declaration, standing: StoredSchedule | None) -> float:
        """Declares a schedule that stands no longer as this worker declared it, unless a live worker declares it
        otherwise: the latest declaration holds while one of its workers lives."""
        if standing and standing.declared_by and not standing.is_as_ours:
            if standing.name not in self._superseded:
                self._superseded.add(standing.name)
                when, theirs = _when(ours.schedule), _when(standing)
                theirs = f"{theirs} with other options" if theirs == when else theirs
                facts = {"ours": when, "theirs": theirs, "by": standing.declared_by}
                self._emit(names.SCHEDULE_SUPERSEDED, logging.WARNING, schedule=standing.name, **facts)
            return LOOK_EVERY
        return self._declare(db, ours)

    def _declare(self, db: psycopg.Connection[Row], declaration: Declaration) -> float:
        its = declaration.schedule
        if ledger.declare(db, declaration):
            self._emit(names.SCHEDULE_DECLARED, schedule=its.name, when=_when(its))
        self._declared.add(its.name)
        return 0.0

    def _tell(self, schedule: Schedule, settled: list[Settled]) -> None:
        for slot, outcome, why, job_id in settled:
            if outcome is not Outcome.SKIPPED:
                self._emit(names.SCHEDULE_FIRED, schedule=schedule.name, slot=slot, job_id=job_id, why=why)
        skipped = [each for each in settled if each.outcome is Outcome.SKIPPED]
        if skipped:  # one event for all of them, because a long absence skips thousands of slots
            facts = {"slots": len(skipped), "newest": skipped[-1].slot, "why": skipped[-1].why}
            self._emit(names.SCHEDULE_SKIPPED, logging.WARNING, schedule=schedule.name, **facts)

    def _emit(self, name: str, level: int = logging.INFO, **facts: object) -> None:
        self._events.emit(name, level, worker_id=self._worker, **facts)

    def _run(self) -> None:
        failures = 0
        wait = 0.0
        while not self._stopping.wait(wait):
            try:
                wait = max(0.0, self.look())
                failures = 0
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                failures += 1
                self._events.complain(self._worker, "look at schedules", error)
                wait = pause_after(failures)


def _when(its: Schedule | StoredSchedule) -> str:
    return f"{its.spec} ({its.tz})"

"""The events that a worker emits for its listeners: logs, metrics, tests, and the application's own
(`worker.events.on(events.JOB_PROCESSED, …)`). An error of a listener never reaches the code that emits."""

import logging
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

_SAID_AGAIN_AFTER = 60.0  # seconds
_MOST_SAID = 1000  # errors of which it is remembered when they were said

Listener = Callable[["Event"], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of event, as docs/events.md lists it."""

    meaning: str
    facts: tuple[str, ...]
    is_frequent: bool  # emitted for each job or beat, so it is logged only when everything is


ALL: dict[str, Kind] = {}


def _event(name: str, facts: str, meaning: str, *, is_frequent: bool = False) -> str:
    ALL[name] = Kind(meaning, tuple(facts.split()), is_frequent)
    return name


_OF_A_JOB = "worker_id job_id kind attempt status request_id"
_AT_ITS_END = f"{_OF_A_JOB} duration_ms"

WORKER_STARTED = _event("worker.started", "worker_id kinds pid", "A worker is at work.")
WORKER_STOPPING = _event(
    "worker.stopping", "worker_id reason held", "The worker claims no more jobs; `held` is how many it still has."
)
WORKER_CLOSED = _event("worker.closed", "worker_id reason", "The worker has ended.")
WORKER_ERROR = _event(
    "worker.error", "worker_id doing error", "Something around the jobs went wrong, and the worker goes on."
)
WORKER_RECOVERED = _event(
    "worker.recovered",
    "worker_id host master recovered job_ids why",
    "This worker took back the jobs of a dead one; the first twenty are named.",
)
JOBS_CLAIMED = _event("job.fetched", "worker_id jobs", "A claim took this many jobs.", is_frequent=True)
JOB_ACTIVE = _event("worker.job.active", _OF_A_JOB, "An attempt begins.", is_frequent=True)
JOB_PROCESSED = _event(
    "worker.job.processed",
    _AT_ITS_END,
    "The processor has returned. Its commit hook and the settling of the job come next.",
    is_frequent=True,
)
JOB_ERRORED = _event(
    "worker.job.errored",
    f"{_AT_ITS_END} error",
    "The processor has raised. The next event of the job says whether it is retried.",
    is_frequent=True,
)
JOB_INTERRUPTED = _event(
    "worker.job.interrupted",
    _AT_ITS_END,
    "The worker stops: the job waits again, and the attempt does not count. A job that had not begun goes back also "
    "when all slots are busy, and is no log line.",
)
JOB_COMPLETED = _event("job.completed", _AT_ITS_END, "The job is COMPLETED, and that is committed.", is_frequent=True)
JOB_RETRIED = _event("job.retried", f"{_AT_ITS_END} error", "The attempt failed, and another one follows.")
JOB_FAILED = _event("job.failed", f"{_AT_ITS_END} error", "The job is FAILED: a dead letter.")
JOB_SNOOZED = _event("job.snoozed", _AT_ITS_END, "The job asked to be run later, which costs no attempt.")
JOB_CANCELLED = _event("job.cancelled", f"{_AT_ITS_END} error", "The job is CANCELLED.")
JOB_LOST = _event("job.lease.lost", f"{_AT_ITS_END} error", "The result was not written, because the lease was lost.")
JOB_STALLED = _event(
    "job.stalled", "worker_id job_id why", "The job's worker was lost, and the job waits again.", is_frequent=True
)
LEASES_EXTENDED = _event(
    "job.lock.extended", "worker_id job_ids", "A beat extended the leases of these jobs.", is_frequent=True
)
JOBS_PRUNED = _event("queue.cleaned", "worker_id deleted", "This many finished jobs were deleted for their age.")
QUEUE_PAUSED = _event("queue.paused", "worker_id queue", "A beat has seen that a person paused this queue.")
QUEUE_RESUMED = _event("queue.resumed", "worker_id queue", "A beat has seen that a person resumed this queue.")
HOOK_DROPPED = _event(
    "job.hook.dropped", "worker_id job_id kind error", "A `failed` hook kept raising: the job ends without it."
)
NOTE_DROPPED = _event(
    "job.note.dropped", "worker_id job_id kind error", "PostgreSQL refused a log line or the progress of a job."
)
SETTLE_DROPPED = _event(
    "job.settle.dropped",
    "worker_id job_id kind error",
    "PostgreSQL refused every way to write the job's outcome: its lease runs out instead.",
)
TENANT_CONTEXT = _event(
    "tenant.context",
    "worker_id job_id kind tenant",
    "The context hook was entered for a job's tenant.",
    is_frequent=True,
)
TENANT_CONTEXT_VALIDATED = _event(
    "tenant.context.validated",
    "worker_id job_id kind tenant",
    "The tenant that the context hook set is the job's.",
    is_frequent=True,
)
SCHEDULE_FIRED = _event(
    "schedule.fired", "worker_id schedule slot job_id why", "A slot of a schedule became a job.", is_frequent=True
)
SCHEDULE_SKIPPED = _event("schedule.skipped", "worker_id schedule slots newest why", "This many slots became no job.")
SCHEDULE_DECLARED = _event("schedule.declared", "worker_id schedule when", "This worker's declaration holds.")
SCHEDULE_SUPERSEDED = _event(
    "schedule.superseded", "worker_id schedule ours theirs by", "Another worker's declaration holds."
)
ROUTINE_SKIPPED = _event("schedule.process.skipped", "worker_id schedule", "The previous call had not ended.")
MASTER_LOOPED = _event("master.supervisor.looped", "host master", "A supervisor looked at its pools.", is_frequent=True)
MASTER_ERROR = _event(
    "master.supervisor.error", "host master doing error", "Something went wrong, and the supervisor goes on."
)
POOL_LOOPED = _event(
    "supervisor.looped", "pool wanted present leaving", "A supervisor looked at one pool.", is_frequent=True
)
PARENT_DIED = _event(
    "supervisor.parent.died", "worker_id supervisor", "A worker's supervisor is gone: the worker leaves."
)
PROCESS_STARTED = _event("worker.process.started", "pool pid", "A pool started a worker.")
PROCESS_ENDED = _event("worker.process.ended", "host master pool pid why", "A worker of a pool ended.")
COMMAND_DONE = _event("master.command.done", "host master command action pool output", "A command was carried out.")


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    level: int = logging.INFO


class Events:
    """A list of listeners. With `hears` the hot path skips building an event that nobody listens to."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._everything: tuple[Listener, ...] = ()

    def on(self, name: str | None, listener: Listener) -> None:
        """Adds a listener for one name, or for every event (None). It runs on the emitting thread, so it must be
        quick."""
        if name is None:
            self._everything += (listener,)
        else:
            self._listeners[name] = (*self._listeners.get(name, ()), listener)

    def hears(self, name: str) -> bool:
        return bool(self._everything) or name in self._listeners

    def emit(self, name: str, level: int = logging.INFO, **facts: Any) -> None:
        event = Event(name, facts, level)
        for listener in self._listeners.get(name, ()) + self._everything:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - a broken listener must not take the worker with it
                traceback.print_exc(file=sys.stderr)

    def complain(self, worker_id: str, doing: str, error: BaseException) -> None:
        """Emits an error that happened outside the jobs and that the worker survives."""
        why = f"{type(error).__name__}: {error}"
        self.emit(WORKER_ERROR, logging.WARNING, worker_id=worker_id, doing=doing, error=why)


class Repetition:
    """Knows which errors a log has had a moment ago: while the database is away, four of them come in each second."""

    def __init__(self) -> None:
        self._said_at: dict[tuple[Any, ...], float] = {}

    def is_one(self, event: Event) -> bool:
        if event.name != WORKER_ERROR:
            return False
        error, now = tuple(event.facts.values()), monotonic()
        if now < self._said_at.get(error, float("-inf")) + _SAID_AGAIN_AFTER:
            return True
        if len(self._said_at) >= _MOST_SAID:
            self._said_at = {}
        self._said_at[error] = now
        return False

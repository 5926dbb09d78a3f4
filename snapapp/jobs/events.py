"""What happens in a worker, told to whoever listens: logs, metrics, tests, and the application's own hooks
(`worker.events.on(events.JOB_PROCESSED, …)`). Emitting never fails and never blocks."""

import logging
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Listener = Callable[["Event"], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of event, as docs/events.md has it."""

    meaning: str
    facts: tuple[str, ...]
    is_frequent: bool  # for each job or beat: a log line only where everything is logged


ALL: dict[str, Kind] = {}


def _event(name: str, facts: str, meaning: str, *, is_frequent: bool = False) -> str:
    ALL[name] = Kind(meaning, tuple(facts.split()), is_frequent)
    return name


_OF_A_JOB = "worker_id job_id kind attempt status request_id"
_AT_ITS_END = f"{_OF_A_JOB} duration_ms"

WORKER_STARTED = _event("worker.started", "worker_id kinds pid", "A worker is at work.")
WORKER_STOPPING = _event("worker.stopping", "worker_id reason held", "It claims nothing more; so many jobs it holds.")
WORKER_CLOSED = _event("worker.closed", "worker_id reason", "It has ended.")
WORKER_ERROR = _event(
    "worker.error", "worker_id doing error", "Something around the jobs went wrong, and the worker goes on."
)
WORKER_RECOVERED = _event(
    "worker.recovered",
    "worker_id host master recovered job_ids why",
    "Jobs of another worker came back; the first twenty are named.",
)
JOBS_CLAIMED = _event("job.fetched", "worker_id jobs", "A claim brought so many jobs.", is_frequent=True)
JOB_ACTIVE = _event("worker.job.active", _OF_A_JOB, "An attempt begins.", is_frequent=True)
JOB_PROCESSED = _event(
    "worker.job.processed",
    _AT_ITS_END,
    "The processor has returned. Its hook and its settle come after that.",
    is_frequent=True,
)
JOB_ERRORED = _event(
    "worker.job.errored",
    f"{_AT_ITS_END} error",
    "The processor has raised. Whether the job comes again is told next.",
    is_frequent=True,
)
JOB_INTERRUPTED = _event("worker.job.interrupted", _AT_ITS_END, "The worker stops: the job goes back with its attempt.")
JOB_COMPLETED = _event("job.completed", _AT_ITS_END, "It is COMPLETED, and committed.", is_frequent=True)
JOB_RETRIED = _event("job.retried", f"{_AT_ITS_END} error", "The attempt failed, and another one follows.")
JOB_FAILED = _event("job.failed", f"{_AT_ITS_END} error", "It is FAILED: a dead letter.")
JOB_SNOOZED = _event("job.snoozed", _AT_ITS_END, "It asked to be run later, which costs no attempt.")
JOB_CANCELLED = _event("job.cancelled", f"{_AT_ITS_END} error", "It is CANCELLED.")
JOB_LOST = _event(
    "job.lease.lost", f"{_AT_ITS_END} error", "What it came to was not written: somebody else has the job."
)
JOB_STALLED = _event(
    "job.stalled", "worker_id job_id why", "Its worker was lost, and it waits again.", is_frequent=True
)
LEASES_EXTENDED = _event(
    "job.lock.extended", "worker_id job_ids", "A beat extended the leases of these jobs.", is_frequent=True
)
JOBS_PRUNED = _event("queue.cleaned", "worker_id deleted", "So many finished jobs were old enough to be deleted.")
QUEUE_PAUSED = _event("queue.paused", "worker_id queue", "A beat has found that a person paused this queue.")
QUEUE_RESUMED = _event("queue.resumed", "worker_id queue", "Or resumed it.")
HOOK_DROPPED = _event(
    "job.hook.dropped", "worker_id job_id kind error", "A `failed` hook kept raising: the job ends without it."
)
NOTE_DROPPED = _event(
    "job.note.dropped", "worker_id job_id kind error", "PostgreSQL refuses a line of its log, or its progress."
)
SETTLE_DROPPED = _event(
    "job.settle.dropped",
    "worker_id job_id kind error",
    "PostgreSQL refuses its end in any words: its lease ends by itself.",
)
TENANT_CONTEXT = _event(
    "tenant.context", "worker_id job_id kind tenant", "A job's tenant was entered.", is_frequent=True
)
TENANT_CONTEXT_VALIDATED = _event(
    "tenant.context.validated",
    "worker_id job_id kind tenant",
    "And found to be that of the job.",
    is_frequent=True,
)
SCHEDULE_FIRED = _event(
    "schedule.fired", "worker_id schedule slot job_id why", "A slot of a schedule became a job.", is_frequent=True
)
SCHEDULE_SKIPPED = _event("schedule.skipped", "worker_id schedule slots newest why", "So many slots became none.")
SCHEDULE_DECLARED = _event("schedule.declared", "worker_id schedule when", "This worker's declaration holds.")
SCHEDULE_SUPERSEDED = _event(
    "schedule.superseded", "worker_id schedule ours theirs by", "Another worker's declaration holds."
)
ROUTINE_SKIPPED = _event("schedule.process.skipped", "worker_id schedule", "The call before had not ended.")
MASTER_LOOPED = _event("master.supervisor.looped", "host master", "A supervisor looked at its pools.", is_frequent=True)
MASTER_ERROR = _event("master.supervisor.error", "host master doing error", "Something went wrong, and it goes on.")
POOL_LOOPED = _event("supervisor.looped", "pool wanted present leaving", "A pool was looked at.", is_frequent=True)
PARENT_DIED = _event("supervisor.parent.died", "worker_id supervisor", "A worker found its supervisor gone: it leaves.")
PROCESS_STARTED = _event("worker.process.started", "pool pid", "A pool started a worker.")
PROCESS_ENDED = _event("worker.process.ended", "host master pool pid why", "A worker of a pool ended.")
COMMAND_DONE = _event("master.command.done", "host master command action pool output", "A command was carried out.")


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    level: int = logging.INFO


class Events:
    """A list of listeners. `hears` lets the hot path skip building an event that nobody wants."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._everything: tuple[Listener, ...] = ()

    def on(self, name: str | None, listener: Listener) -> None:
        """Listens to one name, or to everything when it is None. A listener runs on the emitting thread: be quick."""
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
        """For what went wrong around the jobs, and what the worker goes on after."""
        why = f"{type(error).__name__}: {error}"
        self.emit(WORKER_ERROR, logging.WARNING, worker_id=worker_id, doing=doing, error=why)

"""What happens in a worker, told to whoever listens: logs, metrics, tests. Emitting never fails and never blocks."""

import json
import logging
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Listener = Callable[["Event"], None]

WORKER_STARTED = "worker.started"
WORKER_STOPPING = "worker.stopping"
WORKER_CLOSED = "worker.closed"
WORKER_ERROR = "worker.error"
WORKER_RECOVERED = "worker.recovered"
JOB_ACTIVE = "worker.job.active"
JOB_PROCESSED = "worker.job.processed"
JOB_ERRORED = "worker.job.errored"
JOB_INTERRUPTED = "worker.job.interrupted"
JOB_COMPLETED = "job.completed"
JOB_FAILED = "job.failed"
JOB_RETRIED = "job.retried"
JOB_SNOOZED = "job.snoozed"
JOB_CANCELLED = "job.cancelled"
JOB_LOST = "job.lease.lost"
JOBS_CLAIMED = "job.fetched"
JOBS_PRUNED = "queue.cleaned"
HOOK_DROPPED = "job.hook.dropped"
TENANT_CONTEXT = "tenant.context"  # entered for a job; a worker of a pool goes from one tenant's jobs to another's
TENANT_CONTEXT_VALIDATED = "tenant.context.validated"  # and found to be that of its tenant
SCHEDULE_FIRED = "schedule.fired"
SCHEDULE_SKIPPED = "schedule.skipped"
SCHEDULE_DECLARED = "schedule.declared"
SCHEDULE_SUPERSEDED = "schedule.superseded"
ROUTINE_SKIPPED = "schedule.process.skipped"  # the call before had not ended
MASTER_LOOPED = "master.supervisor.looped"
MASTER_ERROR = "master.supervisor.error"
POOL_LOOPED = "supervisor.looped"
POOL_CHANGED = "supervisor.changed"
PARENT_DIED = "supervisor.parent.died"
PROCESS_BORN = "worker.process.started"
PROCESS_ENDED = "worker.process.ended"
COMMAND_DONE = "master.command.done"


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


class LogLines:
    """Writes events as log lines. Per-job lines below WARNING are off: they would cost most of the speed."""

    QUIET = frozenset(
        {
            *(JOB_ACTIVE, JOB_PROCESSED, JOB_COMPLETED, JOBS_CLAIMED, SCHEDULE_FIRED),
            *(TENANT_CONTEXT, TENANT_CONTEXT_VALIDATED, MASTER_LOOPED, POOL_LOOPED),
        }
    )
    NAMES = (  # the fields every line has, and what the events call them
        ("workerId", "worker_id"),
        ("jobId", "job_id"),
        ("jobType", "kind"),
        ("attempts", "attempt"),
        ("status", "status"),
        ("durationMs", "duration_ms"),
        ("requestId", "request_id"),
    )

    def __init__(self, logger: logging.Logger, *, verbose: bool = False) -> None:
        self._logger = logger
        self._quiet: frozenset[str] = frozenset() if verbose else self.QUIET

    def subscribe(self, events: Events) -> None:
        for name in (
            *(WORKER_STARTED, WORKER_STOPPING, WORKER_CLOSED, WORKER_ERROR, WORKER_RECOVERED),
            *(
                JOB_ACTIVE,
                JOB_PROCESSED,
                JOB_ERRORED,
                JOB_INTERRUPTED,
                JOB_COMPLETED,
                JOB_FAILED,
                JOB_RETRIED,
            ),
            *(JOB_SNOOZED, JOB_CANCELLED, JOB_LOST, JOBS_CLAIMED, JOBS_PRUNED, HOOK_DROPPED),
            *(TENANT_CONTEXT, TENANT_CONTEXT_VALIDATED),
            *(SCHEDULE_FIRED, SCHEDULE_SKIPPED, SCHEDULE_DECLARED, SCHEDULE_SUPERSEDED, ROUTINE_SKIPPED),
            *(MASTER_LOOPED, MASTER_ERROR, POOL_LOOPED, POOL_CHANGED, PARENT_DIED, PROCESS_BORN, PROCESS_ENDED),
            COMMAND_DONE,
        ):
            if name not in self._quiet:
                events.on(name, self)

    def __call__(self, event: Event) -> None:
        known = {name: event.facts.get(fact) for name, fact in self.NAMES}
        others = {key: value for key, value in event.facts.items() if key not in {fact for _, fact in self.NAMES}}
        self._logger.log(event.level, event.name, extra={"fields": known | others})


class JsonFormatter(logging.Formatter):
    """One JSON object a line; every value is escaped, so nothing in a job can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class ConsoleFormatter(logging.Formatter):
    """For a terminal: the time, the happening, and the facts that are known."""

    def format(self, record: logging.LogRecord) -> str:
        facts = {key: value for key, value in getattr(record, "fields", {}).items() if value is not None}
        said = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in facts.items())
        line = (
            f"{datetime.fromtimestamp(record.created).astimezone():%H:%M:%S} {record.levelname:7} {record.getMessage()}"
        )
        return "\n".join(filter(None, [f"{line} {said}".rstrip(), self._trace(record)]))

    def _trace(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""

"""Writes events as log lines: one JSON object each, or text for a terminal."""

import json
import logging
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from snapapp.jobs.events import ALL, WORKER_ERROR, Event, Events

_SAID_AGAIN_AFTER = 60.0  # seconds
_MOST_SAID = 1000  # of which it is remembered when they were said


class LogLines:
    """Writes events as log lines. Frequent ones are left out unless `verbose`, because a line for each job would take
    most of a worker's time; and so is an error that was told a moment ago, because while the database is away four of
    them come in each second."""

    NAMES = (  # the fields of every line, and the names of the events' facts in them
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
        self._verbose = verbose
        self._said_at: dict[tuple[Any, ...], float] = {}  # errors told lately

    def subscribe(self, events: Events) -> None:
        for name, its in ALL.items():
            if self._verbose or not its.is_frequent:
                events.on(name, self)

    def __call__(self, event: Event) -> None:
        if event.name == WORKER_ERROR and not self._verbose and self._was_said(event):
            return
        known = {name: event.facts.get(fact) for name, fact in self.NAMES}
        others = {key: value for key, value in event.facts.items() if key not in {fact for _, fact in self.NAMES}}
        self._logger.log(event.level, event.name, extra={"fields": known | others})

    def _was_said(self, event: Event) -> bool:
        error, now = tuple(event.facts.values()), monotonic()
        if now < self._said_at.get(error, float("-inf")) + _SAID_AGAIN_AFTER:
            return True
        if len(self._said_at) >= _MOST_SAID:
            self._said_at = {}
        self._said_at[error] = now
        return False


class JsonFormatter(logging.Formatter):
    """One JSON object a line. Every value is escaped, so that no text of a job can forge a line."""

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
    """For a terminal: the time, the event, and its facts."""

    def format(self, record: logging.LogRecord) -> str:
        facts = {key: value for key, value in getattr(record, "fields", {}).items() if value is not None}
        fields = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in facts.items())
        line = (
            f"{datetime.fromtimestamp(record.created).astimezone():%H:%M:%S} {record.levelname:7} {record.getMessage()}"
        )
        return "\n".join(filter(None, [f"{line} {fields}".rstrip(), self._trace(record)]))

    def _trace(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""

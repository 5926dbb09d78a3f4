"""Writes events as log lines: one JSON object each, or text for a terminal."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from snapapp.jobs.events import ALL, Event, Events, Repetition


class LogLines:
    """Writes events as log lines. Frequent ones are left out unless `verbose`, because a line for each job would take
    most of a worker's time, and so are repetitions of an error."""

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
        self._repetition = Repetition()

    def subscribe(self, events: Events) -> None:
        for name, its in ALL.items():
            if self._verbose or not its.is_frequent:
                events.on(name, self)

    def __call__(self, event: Event) -> None:
        if not self._verbose and self._repetition.is_one(event):
            return
        known = {name: event.facts.get(fact) for name, fact in self.NAMES}
        others = {key: value for key, value in event.facts.items() if key not in {fact for _, fact in self.NAMES}}
        self._logger.log(event.level, event.name, extra={"fields": known | others})


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

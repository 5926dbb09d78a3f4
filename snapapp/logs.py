"""Where log lines go and how they look: to stderr, for people or as JSON."""

import logging
import sys

from snapapp.jobs.events import ConsoleFormatter, Events, JsonFormatter, LogLines
from snapapp.settings import LogFormat, LogLevel, Settings

_TALKATIVE = ("alembic", "apscheduler", "snapapp.scheduler")  # a line for every beat and every migration's context


def set_up(settings: Settings, *, at_least: LogLevel = LogLevel.DEBUG) -> None:
    """For the whole process. `at_least` is for commands whose output is their own, and not their log."""
    wanted = _number(settings.log_level)
    level = wanted if wanted == logging.DEBUG else max(wanted, _number(at_least))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format is LogFormat.JSON else ConsoleFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def events_to_log(settings: Settings) -> Events:
    """Events whose happenings become log lines; with DEBUG also a line or two for every job."""
    events = Events()
    LogLines(logging.getLogger("snapapp.jobs"), verbose=settings.log_level is LogLevel.DEBUG).subscribe(events)
    return events


def _number(level: LogLevel) -> int:
    return logging.getLevelNamesMapping()[level.value]

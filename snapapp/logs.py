"""Where log lines go and how they look: to stderr, for people or as JSON."""

import json
import logging
import re
import sys
from contextvars import ContextVar
from typing import NoReturn

from snapapp.jobs import tracing
from snapapp.jobs.events import Events
from snapapp.jobs.metrics.log_lines import ConsoleFormatter, JsonFormatter, LogLines
from snapapp.settings.table import LogFormat, LogLevel, Settings

_log = logging.getLogger(__name__)

# the `uvicorn` command adds handlers to these before it imports snapapp
_HANDLED_BEFORE = ("uvicorn", "uvicorn.error", "uvicorn.access")
# they would log every heartbeat, and the context of every migration
_TALKATIVE = ("alembic", "apscheduler", "snapapp.scheduler")


def set_up(settings: Settings, *, at_least: LogLevel = LogLevel.DEBUG) -> None:
    """Sets up logging for the whole process. `at_least` raises the level, for commands whose output is not their
    log."""
    wanted = _number(settings.log_level)
    level = wanted if wanted == logging.DEBUG else max(wanted, _number(at_least))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format is LogFormat.JSON else ConsoleFormatter())
    handler.addFilter(_with_context)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in _HANDLED_BEFORE:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.getLogger("uvicorn.access").addFilter(_hide_links)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def begin(settings: Settings, *, at_least: LogLevel = LogLevel.DEBUG) -> None:
    """Sets up logging for a command, and logs the warnings of the settings."""
    set_up(settings, at_least=at_least)
    for warning in settings.warnings:
        _log.warning("%s", warning)


_variables: dict[str, ContextVar[str]] = {}


def tell(name: str, known: ContextVar[str]) -> None:
    """Adds a context variable to the log: each line that is written while the variable is set has its value, under this
    name."""
    _variables[name] = known


def _with_context(record: logging.LogRecord) -> bool:
    values = {name: value for name, variable in _variables.items() if (value := variable.get(None)) is not None}
    if ids := tracing.ids(tracing.current.get()):
        values["traceId"], values["spanId"] = ids
    if values:
        own = getattr(record, "fields", {})
        record.fields = values | {name: value for name, value in own.items() if value is not None or name not in values}
    return True


_LINK = re.compile(r"(?<=/media/)[^/]+|(?<=/public/snaps/)[^/]+|(?<=/sign-in/).+")


def without_links(path: str) -> str:
    """A path without what opens something: the tokens of links, and the secrets of personal ones."""
    return _LINK.sub("***", path)


def _hide_links(record: logging.LogRecord) -> bool:
    """For the `uvicorn` command, which logs the path of each request unless it is told not to."""
    if isinstance(record.args, tuple):
        record.args = tuple(without_links(value) if isinstance(value, str) else value for value in record.args)
    return True


class JsonLines(JsonFormatter):
    """Writes each record as one line of JSON. A value that JSON cannot hold is replaced by its repr."""

    def format(self, record: logging.LogRecord) -> str:
        try:
            line = super().format(record)
            if "NaN" in line or "Infinity" in line:
                json.loads(line, parse_constant=_refuse)  # Python writes NaN and Infinity as numbers, which is not JSON
        except Exception:  # noqa: BLE001 - arguments that do not fit the message, an object whose str() raises
            return super().format(_with_reprs(record))
        return line


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _with_reprs(record: logging.LogRecord) -> logging.LogRecord:
    plain = logging.makeLogRecord(record.__dict__)
    plain.msg, plain.args = _message(record), None
    fields: dict[object, object] = getattr(record, "fields", {})
    plain.fields = {
        str(name): value if isinstance(value, str | int | None) else _repr(value) for name, value in fields.items()
    }
    return plain


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - the arguments do not fit the message, or a str() raises
        return f"{_repr(record.msg)} with {_repr(record.args)}"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a hostile __repr__ may raise anything
        return f"({type(value).__name__}, whose repr raises {type(error).__name__})"


def events_to_log(settings: Settings) -> Events:
    """The events of a process, with a listener that logs them; at DEBUG also one or two lines for every job."""
    events = Events()
    LogLines(logging.getLogger("snapapp.jobs"), verbose=settings.log_level is LogLevel.DEBUG).subscribe(events)
    return events


def _number(level: LogLevel) -> int:
    return logging.getLevelNamesMapping()[level.value]

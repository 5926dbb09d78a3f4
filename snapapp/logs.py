"""Where log lines go and how they look: to stderr, for people or as JSON."""

import json
import logging
import sys
from contextvars import ContextVar
from typing import NoReturn

from snapapp.jobs import tracing
from snapapp.jobs.events import Events
from snapapp.jobs.metrics.log_lines import ConsoleFormatter, JsonFormatter, LogLines
from snapapp.settings.table import LogFormat, LogLevel, Settings

_log = logging.getLogger(__name__)

_HANDLED_BEFORE = ("uvicorn", "uvicorn.error", "uvicorn.access")  # `uvicorn …` gives these handlers, then imports us
_TALKATIVE = ("alembic", "apscheduler", "snapapp.scheduler")  # a line for every beat and every migration's context


def set_up(settings: Settings, *, at_least: LogLevel = LogLevel.DEBUG) -> None:
    """For the whole process. `at_least` is for commands whose output is their own, and not their log."""
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
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def begin(settings: Settings, *, at_least: LogLevel = LogLevel.DEBUG) -> None:
    """For a command."""
    set_up(settings, at_least=at_least)
    for warning in settings.warnings:
        _log.warning("%s", warning)


_told: dict[str, ContextVar[str]] = {}


def tell(name: str, known: ContextVar[str]) -> None:
    """From now on every line that is written where `known` is set says so, under this name."""
    _told[name] = known


def _with_context(record: logging.LogRecord) -> bool:
    told = {name: value for name, known in _told.items() if (value := known.get(None)) is not None}
    if ids := tracing.ids(tracing.current.get()):
        told["traceId"], told["spanId"] = ids
    if told:
        own = getattr(record, "fields", {})
        record.fields = told | {name: value for name, value in own.items() if value is not None or name not in told}
    return True


class JsonLines(JsonFormatter):
    """One JSON object a line, whatever was logged: what cannot be written as it is, is described."""

    def format(self, record: logging.LogRecord) -> str:
        try:
            line = super().format(record)
            if "NaN" in line or "Infinity" in line:
                json.loads(line, parse_constant=_refuse)  # Python writes them as numbers; nobody else reads that
        except Exception:  # noqa: BLE001 - arguments that do not fit the message, an object whose str() raises
            return super().format(_described(record))
        return line


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _described(record: logging.LogRecord) -> logging.LogRecord:
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
    except Exception:  # noqa: BLE001 - the two do not fit together, or one of them cannot be read
        return f"{_repr(record.msg)} with {_repr(record.args)}"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a hostile __repr__ may raise anything
        return f"({type(value).__name__}, whose repr raises {type(error).__name__})"


def events_to_log(settings: Settings) -> Events:
    """Events whose happenings become log lines; with DEBUG also a line or two for every job."""
    events = Events()
    LogLines(logging.getLogger("snapapp.jobs"), verbose=settings.log_level is LogLevel.DEBUG).subscribe(events)
    return events


def _number(level: LogLevel) -> int:
    return logging.getLevelNamesMapping()[level.value]

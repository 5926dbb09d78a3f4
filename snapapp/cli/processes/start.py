"""Waits for the database of a command that works the queue."""

import logging
from contextlib import ExitStack
from datetime import timedelta

from snapapp.cli.explanation import one_line
from snapapp.jobs.os.signals import Signals
from snapapp.jobs.process import foreground
from snapapp.postgres import schema
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import Settings

_log = logging.getLogger(__name__)


def reached(settings: Settings, signals: Signals, stack: ExitStack, *, within: timedelta | None = None) -> str | None:
    """The URL of the database, once it can be reached and has the schema; None if a signal came first."""
    try:
        with signals.interrupting():
            url = stack.enter_context(in_use(settings, keep=True))
            foreground.until_reachable(url, within=within, say=_say_unreachable)
            schema.require(url, product=settings.has_product)
    except KeyboardInterrupt:
        return None
    return url


def _say_unreachable(why: str) -> None:
    _log.warning("The database cannot be reached, trying again until it can: %s", one_line(why))

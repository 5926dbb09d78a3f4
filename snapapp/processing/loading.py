"""Loads the job kinds into a process: the product's, and those that the settings name."""

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from snapapp import __version__, logs
from snapapp.errors import SnapError
from snapapp.jobs import registry
from snapapp.jobs.adding import Defaults
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.settings import JobsSettings
from snapapp.processing.decoder import check as decoders
from snapapp.settings.loading import from_environment
from snapapp.settings.table import Settings

_log = logging.getLogger(__name__)

_PRODUCT = ("snapapp.processing.processors", "snapapp.demo.kinds")


def load(settings: Settings) -> None:
    """Imports the modules that declare processors and schedules: those that the settings name, and the product's. What
    a kind does not declare is as in the settings from here on, also for jobs that are added where no worker runs."""
    Defaults.max_attempts = settings.job_max_attempts
    here = str(Path.cwd())  # the settings may name modules in the current folder; children look there too
    if here not in sys.path:
        sys.path.append(here)
    for module in settings.processors:
        _load_named(module)
    if settings.has_product:
        registry.load(_PRODUCT)
        if missing := decoders.in_one_line():
            _log.warning("%s: `snapapp doctor --only decoders`", missing)


def _load_named(module: str) -> None:
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise SnapError(
            f"SNAPAPP_PROCESSORS names {module}, which is a module of Python itself: give yours another name"
        )
    before = _count_declared()
    try:
        registry.load((module,))
    except ImportError as error:
        raise SnapError(f"SNAPAPP_PROCESSORS names {module}, which cannot be imported: {error}") from error
    modules = {processor.function.__module__ for processor in registry.default}
    if _count_declared() == before and not any(f"{name}.".startswith(f"{module}.") for name in modules):
        place = getattr(sys.modules[module], "__file__", None) or "a folder"
        _log.warning("SNAPAPP_PROCESSORS names %s, which declares no processor and no schedule: %s", module, place)


def _count_declared() -> int:
    known = registry.default
    return len(known.kinds()) + len(known.schedules()) + len(known.routines())


def trace(settings: Settings) -> None:
    """Starts tracing in this process if the settings ask for it; `tracing.stop()` ends it."""
    if settings.traces is not None:
        # the SDK reads the environment, partly on import; values of the env file are not in it yet
        os.environ |= settings.traces
        from snapapp.jobs.tracing import spans  # needs an extra

        spans.start(version=__version__)


def runtime(url: str, adapt: Callable[[JobsSettings], JobsSettings]) -> Runtime:
    """The runtime of a worker process that a supervisor started. The process reads the settings itself, so that a
    restart applies changed ones."""
    settings = from_environment()
    logs.set_up(settings)
    load(settings)
    trace(settings)
    return Runtime(adapt(settings.jobs(url)), events=logs.events_to_log(settings))

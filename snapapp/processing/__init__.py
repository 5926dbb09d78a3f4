"""What this application does with jobs: the only place that knows both worlds, the queue and the snaps.

Read `orders` (what a job is told), `kinds` (the processors and what their ends change), `darkroom` (what a child does
with a video), `scratch` (where it does it), `surroundings` (under which settings), `hooks` (telling others), `sweep`
(cleaning up), `demo` (a beginning).
"""

import sys
from collections.abc import Callable
from pathlib import Path

from snapapp import logs
from snapapp.errors import SnapError
from snapapp.jobs import registry
from snapapp.jobs.runtime import Runtime
from snapapp.jobs.settings import JobsSettings
from snapapp.settings import Settings

_OURS = ("snapapp.processing.kinds", "snapapp.processing.hooks", "snapapp.processing.sweep")
_DEMO = ("snapapp.processing.demo", "snapapp.demo")


def load(settings: Settings) -> None:
    """Imports the modules that declare processors and schedules: those that the settings name, and our own."""
    here = str(Path.cwd())  # where people keep the modules they name; children look there as well
    if here not in sys.path:
        sys.path.append(here)
    for module in (*settings.processors, *_OURS, *_DEMO):
        try:
            registry.load((module,))
        except ImportError as error:
            raise SnapError(f"SNAPAPP_PROCESSORS names {module}, which cannot be imported: {error}") from error


def runtime(url: str, adapt: Callable[[JobsSettings], JobsSettings]) -> Runtime:
    """For a worker process that a supervisor started: it reads the environment itself, so that a restart renews it."""
    settings = Settings.from_environment()
    logs.set_up(settings)
    load(settings)
    return Runtime(adapt(settings.jobs(url)), events=logs.events_to_log(settings))

"""What this application does with jobs: the modules that declare processors and schedules."""

import sys
from pathlib import Path

from snapapp.errors import SnapError
from snapapp.jobs import registry
from snapapp.settings import Settings


def load(settings: Settings) -> None:
    """Imports them: those that the settings name, and our own."""
    here = str(Path.cwd())  # where people keep the modules they name; children look there as well
    if here not in sys.path:
        sys.path.append(here)
    for module in (*settings.processors, "snapapp.demo"):
        try:
            registry.load((module,))
        except ImportError as error:
            raise SnapError(f"SNAPAPP_PROCESSORS names {module}, which cannot be imported: {error}") from error

"""The settings of the process in which a job runs, read from its environment: a processor is handed none."""

from functools import cache

from snapapp.settings.loading import from_environment
from snapapp.settings.table import Settings


@cache
def settings() -> Settings:
    return from_environment()

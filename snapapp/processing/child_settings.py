"""The settings of the process in which a job runs. They are read from its environment, because processors are called
with the job alone."""

from functools import cache

from snapapp.settings.loading import from_environment
from snapapp.settings.table import Settings


@cache
def settings() -> Settings:
    return from_environment()

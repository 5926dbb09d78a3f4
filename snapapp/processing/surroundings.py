"""Under which settings a job runs: those of the environment of its process, worker or child, for nobody hands any to a
processor."""

from functools import cache

from snapapp.settings import Settings


@cache
def settings() -> Settings:
    return Settings.from_environment()

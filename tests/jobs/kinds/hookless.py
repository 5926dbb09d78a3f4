"""A processor in a module whose hook cannot do its work."""

from snapapp.jobs import Job, on_start
from snapapp.jobs.registry import Registry

registry = Registry()


@on_start
def open_what_is_not_there() -> None:
    raise ConnectionError("no such pool")


@registry.processor("hookless", executor="process")
def never(job: Job) -> None: ...

"""The kind that does nothing, for a process that loads its processors by a module's name."""

from snapapp.jobs import Job, processor
from snapapp.jobs.bench.plan import KIND


@processor(KIND)
def noop(_job: Job) -> None:
    """Nothing."""

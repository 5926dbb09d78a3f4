"""The kind that does nothing, for a process that loads its processors by a module's name."""

from snapapp.bench.plan import KIND
from snapapp.jobs import Job, processor


@processor(KIND)
def noop(_job: Job) -> None:
    """Nothing."""

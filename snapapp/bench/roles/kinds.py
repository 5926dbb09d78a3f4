"""A kind whose processor does nothing, for a process that loads its processors by the name of a module."""

from snapapp.bench.plan import KIND
from snapapp.jobs import Job, processor


@processor(KIND)
def noop(_job: Job) -> None:
    """Does nothing."""

"""What the worker of these labs runs."""

from snapapp.jobs import Job, processor


@processor("lab.noop")
def noop(_job: Job) -> None: ...

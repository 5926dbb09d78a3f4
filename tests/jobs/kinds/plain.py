"""What an application without the product declares: nothing here needs more than the queue."""

from snapapp.jobs import Job, processor


@processor("plain.greet")
def greet(job: Job) -> str:
    return f"Hello, {job.payload['name']}"


@processor("plain.apart", executor="process")
def apart(job: Job) -> str:
    return "done in a child"

"""What can go wrong with jobs. The docstring says when it happens, the message names the thing and its value."""

from datetime import timedelta


class JobsError(Exception):
    """The root of the queue's errors."""


class MigrationFailed(JobsError):
    """The database was not brought to the schema that this code needs; nothing was changed."""


class InvalidJob(JobsError, ValueError):
    """A job was refused at enqueue: its payload, kind or options cannot be stored or would never run."""


class UnknownJob(JobsError, LookupError):
    """No job has this id."""


class IllegalTransition(JobsError):
    """The job is in a state from which this step does not exist."""


class DuplicateKey(JobsError):
    """A live job already holds this unique key."""


class UnknownKind(JobsError, LookupError):
    """No processor is declared for this kind in this process."""


class DuplicateProcessor(JobsError):
    """Two processors were declared for one kind."""


class LeaseLost(JobsError):
    """The row no longer carries our lease: somebody recovered, cancelled or finished it. Our result must not land."""


class JobCancelled(JobsError):
    """A person asked for this job to stop; raised by `job.raise_if_cancelled()`."""


class JobInterrupted(JobsError):
    """The worker is stopping and the grace is over: the job goes back with its attempt."""


class JobTimeout(JobsError):
    """The attempt ran longer than its kind or its row allows."""


class ChildDied(JobsError):
    """The child process that ran the attempt ended before it answered."""


class NoPlace(JobsError):
    """Nothing takes the attempt now: the cluster is away, or it has no room. The job comes again later, uncharged."""


class NoConnection(JobsError):
    """`job.connection()` was called where jobs have none: in a child process, on the event loop, after the attempt."""


class ContextFailed(JobsError):
    """The application's context could not be entered or left, or is not that of the job's tenant."""


class ReadOnly(JobsError):
    """Somebody writes the queue's rows through ProcessingJob, past its functions."""


class Permanent(JobsError):
    """Raise it in a processor: this will never succeed, do not try again."""


class Snooze(JobsError):
    """Raise it in a processor: not now, come back after `delay`. The attempt is given back."""

    def __init__(self, delay: timedelta) -> None:
        self.delay = delay
        super().__init__(f"snoozed for {delay.total_seconds():g} s")

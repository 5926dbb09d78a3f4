"""The errors of the queue. Each docstring says when the error happens; each message names the thing and its value."""

from datetime import timedelta


class JobsError(Exception):
    """The root of the queue's errors."""


class MigrationFailed(JobsError):
    """The database could not be migrated to the schema that this code needs; nothing was changed."""


class InvalidJob(JobsError, ValueError):
    """A job was refused at enqueue: its payload, kind or options cannot be stored or would never run."""


class UnknownJob(JobsError, LookupError):
    """No job has this id."""


class IllegalTransition(JobsError):
    """The job's state does not allow this step."""


class DuplicateKey(JobsError):
    """A live job already holds this unique key."""


class UnknownKind(JobsError, LookupError):
    """No processor is declared for this kind in this process."""


class DuplicateProcessor(JobsError):
    """Two processors were declared for one kind."""


class CannotStart(JobsError):
    """This worker was stopped before, or was made in another process: a new one must be made."""


class CannotStop(JobsError):
    """A job, or its hook, called `stop` of the worker that runs it: that would wait for its own caller."""


class LeaseLost(JobsError):
    """The row carries another lease by now, because somebody recovered, cancelled or finished the job. The result of
    this attempt must not be written."""


class JobCancelled(JobsError):
    """A person cancelled this job; raised by `job.raise_if_cancelled()`."""


class JobInterrupted(JobsError):
    """The worker is stopping and its shutdown grace is over: the job waits again, and the attempt does not count."""


class JobTimeout(JobsError):
    """The attempt ran longer than its kind or its row allows."""


class ChildDied(JobsError):
    """The child process that ran the attempt ended before it answered."""


class NoPlace(JobsError):
    """Nothing can run the attempt now: the cluster is unreachable or full, or this machine starts no more processes.
    The job runs later, and the attempt does not count."""


class NoConnection(JobsError):
    """`job.connection()` was called where a job cannot borrow one: in a child process, on the event loop, or after the
    attempt."""


class ContextFailed(JobsError):
    """The application's context hook raised, or set another tenant than the job's."""


class ReadOnly(JobsError):
    """Somebody tried to write the queue's rows through ProcessingJob instead of the queue's functions."""


class Permanent(JobsError):
    """Raise it in a processor when the job can never succeed: the job is not retried."""


class Snooze(JobsError):
    """Raise it in a processor to run the job again after `delay`, which is a second at least. The attempt does not
    count."""

    def __init__(self, delay: timedelta) -> None:
        self.delay = delay
        super().__init__(f"snoozed for {delay.total_seconds():g} s")

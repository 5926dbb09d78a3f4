"""What can go wrong with a program that runs an attempt; the message names the program and its value."""

from snapapp.jobs.errors import JobsError, Permanent


class MemoryExceeded(JobsError, MemoryError):
    """The attempt used more memory than its kind may; whoever ran it was killed."""


class CommandNotAllowed(Permanent):
    """The program is not on SNAPAPP_COMMAND_ALLOW, so it was not started, and will not be the next time."""


class CommandMissing(JobsError):
    """There is no such program here, or it may not be executed."""


class CommandFailed(JobsError):
    """The program ended with an exit code other than 0 and said no more than that."""


class CommandKilled(JobsError):
    """A signal ended the program, and it was not sent by us."""


class CommandAnswerInvalid(JobsError):
    """What the program wrote to its standard output is not the envelope that was agreed upon."""

"""Errors of child processes and programs that run an attempt. The message names the program and the value."""

from snapapp.jobs.errors import JobsError, Permanent


class MemoryExceeded(JobsError, MemoryError):
    """The attempt used more memory than its limit, or was refused more; its process was killed."""


class CommandNotAllowed(Permanent):
    """The program is not on SNAPAPP_COMMAND_ALLOW, or the command is no list of texts. Another attempt cannot help."""


class CommandMissing(JobsError):
    """The program does not exist here, or may not be executed."""


class CommandFailed(JobsError):
    """The program ended with an exit code other than 0, without an error in its answer."""


class CommandKilled(JobsError):
    """A signal that the worker did not send ended the program."""


class CommandAnswerInvalid(JobsError):
    """The program's standard output is not the JSON object that docs/executors.md asks for."""

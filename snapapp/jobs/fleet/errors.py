"""The errors of the fleet."""

from snapapp.jobs.errors import JobsError


class InvalidPlan(JobsError, ValueError):
    """The plan has mistakes; the message names each with its line."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        super().__init__("Wrong plan:\n" + "\n".join(f"  - {mistake}" for mistake in mistakes))


class MasterExists(JobsError):
    """This host already has a supervisor for this database."""


class InvalidCommand(JobsError, ValueError):
    """A supervisor cannot carry out a command."""


class UnknownPool(JobsError, LookupError):
    """There is no such host or pool."""


class NotStarted(JobsError):
    """A worker process could not be started."""

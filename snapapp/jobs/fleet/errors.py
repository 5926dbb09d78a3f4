"""What can go wrong with a fleet."""

from snapapp.jobs.errors import JobsError


class InvalidPlan(JobsError, ValueError):
    """The plan cannot be followed; every mistake is named, with its line."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        super().__init__("Wrong plan:\n" + "\n".join(f"  - {mistake}" for mistake in mistakes))


class MasterExists(JobsError):
    """This host has a supervisor for this database already."""


class InvalidCommand(JobsError, ValueError):
    """A supervisor was told something that it cannot do."""


class UnknownPool(JobsError, LookupError):
    """There is no such host or pool."""


class NotStarted(JobsError):
    """A worker process could not be started."""

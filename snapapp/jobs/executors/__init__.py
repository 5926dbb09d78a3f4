"""Where attempts run: on threads, on an event loop, in child processes, as programs. Each is an Executor with slots."""

from collections.abc import Callable
from typing import Protocol

from snapapp.jobs.errors import JobsError
from snapapp.jobs.model import Job

# Runs one job and passes its outcome on; never raises. False: the slot was given to another thread meanwhile.
Work = Callable[[Job], bool]


class Executor(Protocol):
    """A number of slots of one sort. The claimer's thread puts jobs in and takes them back. Slots take jobs out to run
    them, and call `on_free` when they find none."""

    slots: int
    prefetches: bool  # may more jobs be put in than slots are free?

    def start(self) -> None: ...

    def load(self) -> int:
        """Number of jobs that run or wait for a slot."""
        ...

    @property
    def is_caller(self) -> bool:
        """Does the calling thread run jobs of this executor?"""
        ...

    def at_work(self) -> list[Job]:
        """The jobs that slots are running now."""
        ...

    def put(self, jobs: list[Job]) -> None: ...

    def take_back(self) -> list[Job]:
        """Removes and returns the jobs that wait for a slot."""
        ...

    def interrupt(self, job: Job, reason: JobsError) -> None:
        """Stops a running job as far as this executor can."""
        ...

    def stop(self) -> None:
        """Returns when no job runs any more, except those that cannot be stopped."""
        ...

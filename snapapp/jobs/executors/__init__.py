"""Where attempts run: on threads, on an event loop, in child processes, as programs. Each is an Executor with slots."""

from collections.abc import Callable
from typing import Protocol

from snapapp.jobs.errors import JobsError
from snapapp.jobs.model import Job

# Runs one job and hands its outcome on; never raises. False: meanwhile the slot was given to another thread.
Work = Callable[[Job], bool]


class Executor(Protocol):
    """A place where jobs run. One thread (the claimer) puts jobs in and takes back; the slots empty it, and call
    `on_free` when one of them finds nothing to do."""

    slots: int
    prefetches: bool  # may jobs wait here for a slot?

    def start(self) -> None: ...

    def load(self) -> int:
        """Jobs in here, running or waiting for a slot."""
        ...

    def at_work(self) -> list[Job]:
        """Those that slots are running now."""
        ...

    def put(self, jobs: list[Job]) -> None: ...

    def take_back(self) -> list[Job]:
        """Jobs that no slot has begun."""
        ...

    def interrupt(self, job: Job, reason: JobsError) -> None:
        """Stops a running job as far as this kind of executor can."""
        ...

    def stop(self) -> None:
        """Returns when nothing runs in here any more, or nothing that could be stopped does."""
        ...

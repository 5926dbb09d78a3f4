"""The application's one hook around the jobs: whose data they may touch. It is entered before each attempt, before each
hook and in each connection that a job borrows, asked whom it serves now, and left again whatever happens."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from snapapp.jobs.errors import ContextFailed
from snapapp.jobs.model import Job, describe

if TYPE_CHECKING:
    from sqlalchemy import Connection

# Entered, it says for which tenant everything is now set, as it reads it back; that must be `job.tenant`. Without a
# connection it is about the code that runs (contextvars); with one, about that transaction (SET LOCAL).
Hook = Callable[[Job, "Connection | None"], AbstractContextManager[str]]
Tell = Callable[[Job, str], None]  # one of the steps below
T = TypeVar("T")

ENTERED, VALIDATED, FAILED = "entered", "validated", "failed"
STEPS = (ENTERED, VALIDATED, FAILED)


class Within:
    """`with within(job): …`, or `with within(job, connection): …`. Without a hook it does nothing."""

    def __init__(self, hook: Hook | None = None, tell: Tell = lambda _job, _step: None) -> None:
        self.hook = hook
        self.tell = tell

    def __bool__(self) -> bool:
        return self.hook is not None

    @property
    def path(self) -> str | None:
        """Where a child process finds the hook."""
        return f"{self.hook.__module__}:{self.hook.__qualname__}" if self.hook else None

    def run(self, job: Job, function: Callable[[Job], T]) -> T:
        """Calls the function in a copy of the thread's contextvars, so that nothing that was set meets the next job."""
        return copy_context().run(self._run, job, function)

    async def wait(self, job: Job, function: Callable[[Job], Awaitable[T]]) -> T:
        """The same on an event loop, where each task has contextvars of its own."""
        with self(job):
            return await function(job)

    def _run(self, job: Job, function: Callable[[Job], T]) -> T:
        with self(job):
            return function(job)

    @contextmanager
    def __call__(self, job: Job, db: "Connection | None" = None) -> Iterator[None]:
        if self.hook is None:
            yield
            return
        manager = self._entered(self.hook, job, db)
        raised: BaseException | None = None
        try:
            yield
        except BaseException as error:
            raised = error
            raise
        finally:
            self._left(manager, job, raised)

    def _entered(self, hook: Hook, job: Job, db: "Connection | None") -> AbstractContextManager[str]:
        try:
            manager = hook(job, db)
            served = manager.__enter__()
        except Exception as error:
            self.tell(job, FAILED)
            raise ContextFailed(
                f"job {job.id} cannot enter the context of {job.tenant!r}: {describe(error)}"
            ) from error
        self.tell(job, ENTERED)
        if served != job.tenant:
            mismatch = ContextFailed(f"job {job.id} is for {job.tenant!r}, and its context says {served!r:.100}")
            self.tell(job, FAILED)
            self._left(manager, job, mismatch)
            raise mismatch
        self.tell(job, VALIDATED)
        return manager

    def _left(self, manager: AbstractContextManager[str], job: Job, raised: BaseException | None) -> None:
        """A hook may neither swallow what the job has raised, which would make a failure a success, nor hide it behind
        an error of its own: what stands in a transaction that is broken cannot be reset, and need not be."""
        trace = raised.__traceback__ if raised else None
        try:
            manager.__exit__(type(raised) if raised else None, raised, trace)
        except Exception as error:
            if raised is not None:
                return
            self.tell(job, FAILED)
            raise ContextFailed(
                f"job {job.id} cannot leave the context of {job.tenant!r}: {describe(error)}"
            ) from error


def found(path: str) -> Any:
    """What stands under `module:name`."""
    module, _, name = path.partition(":")
    it: Any = import_module(module)
    for part in name.split("."):
        it = getattr(it, part)
    return it


def check_importable(hook: Hook) -> None:
    """Child processes import it by name."""
    path = f"{getattr(hook, '__module__', '?')}:{getattr(hook, '__qualname__', '?')}"
    try:
        is_there = found(path) is hook
    except (ImportError, AttributeError, ValueError):
        is_there = False
    if not is_there:
        raise ValueError(
            f"a child process cannot import the context {path}: it must be a function at the top of a module"
        )

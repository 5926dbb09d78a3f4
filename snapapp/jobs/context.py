"""The context hook: with it the application sets which tenant's data a job may touch. The worker enters the hook before
each attempt, before each commit or failed hook and on each connection that a job borrows. It checks that the hook names
the job's tenant, and leaves the hook again even after an error."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeVar

from snapapp.jobs.errors import ContextFailed
from snapapp.jobs.model import Job, describe

if TYPE_CHECKING:
    from sqlalchemy import Connection

# The hook's `__enter__` returns the tenant that is now set, read back from where it was set; it must be `job.tenant`.
# Called without a connection, the hook sets contextvars for the code that runs; called with a connection, it sets the
# tenant of that transaction (SET LOCAL).
Hook = Callable[[Job, "Connection | None"], AbstractContextManager[str]]
Tell = Callable[[Job, str], None]  # the text is one of the STEPS below
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
        """The `module:name` under which a child process imports the hook."""
        return f"{self.hook.__module__}:{self.hook.__qualname__}" if self.hook else None

    def run(self, job: Job, function: Callable[[Job], T]) -> T:
        """Calls the function in a copy of the thread's contextvars, so that the next job does not see what it set."""
        return copy_context().run(self._run, job, function)

    async def run_async(self, job: Job, function: Callable[[Job], Awaitable[T]]) -> T:
        """Like `run`, on an event loop: each task has contextvars of its own there."""
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
        manager = self._enter(self.hook, job, db)
        raised: BaseException | None = None
        try:
            yield
        except BaseException as error:
            raised = error
            raise
        finally:
            self._leave(manager, job, raised)

    def _enter(self, hook: Hook, job: Job, db: "Connection | None") -> AbstractContextManager[str]:
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
            self._leave(manager, job, mismatch)
            raise mismatch
        self.tell(job, VALIDATED)
        return manager

    def _leave(self, manager: AbstractContextManager[str], job: Job, raised: BaseException | None) -> None:
        """Leaves the hook. An error that the job raised goes on, even if the hook's `__exit__` suppresses it or raises
        another: a hook that resets its setting in a broken transaction must fail, and the transaction ends anyway."""
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


def check_importable(hook: Hook) -> None:
    """Raises ValueError where a child process could not import the hook by its name."""
    path = f"{getattr(hook, '__module__', '?')}:{getattr(hook, '__qualname__', '?')}"
    try:
        is_importable = resolve_name(path) is hook
    except (ImportError, AttributeError, ValueError):
        is_importable = False
    if not is_importable:
        raise ValueError(
            f"a child process cannot import the context {path}: it must be a function at the top of a module"
        )

"""Kind -> Processor: what the decorators declare and the worker looks up."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection
from tenacity.wait import wait_base

from snapapp.jobs.errors import DuplicateProcessor, UnknownKind
from snapapp.jobs.model import Failure, Job

Executor = Literal["thread", "async", "process"]
Function = Callable[[Job], Any]
Commit = Callable[[Connection, Job, Any], None]
Failed = Callable[[Connection, Job, Failure], None]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Processor:
    """How jobs of one kind are run."""

    kind: str
    function: Function
    executor: Executor = "thread"
    queue: str = "default"
    timeout: timedelta | None = None  # None: the worker's default
    max_attempts: int | None = None
    wait: wait_base | None = None
    commit: Commit | None = None
    failed: Failed | None = None

    @property
    def path(self) -> str:
        """Where a child process finds it."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


class Registry:
    """The processors that a process knows."""

    def __init__(self) -> None:
        self._processors: dict[str, Processor] = {}

    def add(self, processor: Processor) -> None:
        known = self._processors.get(processor.kind)
        if known and known.path != processor.path:
            raise DuplicateProcessor(
                f"two processors are declared for the kind {processor.kind!r}: {known.path} and {processor.path}"
            )
        self._processors[processor.kind] = processor

    def get(self, kind: str) -> Processor:
        try:
            return self._processors[kind]
        except KeyError:
            raise UnknownKind(f"no processor is declared for the kind {kind!r}") from None

    def __contains__(self, kind: str) -> bool:
        return kind in self._processors

    def __iter__(self) -> Iterator[Processor]:
        return iter(self._processors.values())

    def __len__(self) -> int:
        return len(self._processors)

    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted(self._processors))

    def processor(
        self,
        kind: str,
        *,
        queue: str = "default",
        executor: Executor | None = None,
        timeout: timedelta | None = None,
        max_attempts: int | None = None,
        wait: wait_base | None = None,
        commit: Commit | None = None,
        failed: Failed | None = None,
    ) -> Callable[[F], F]:
        """Declares the decorated function as the processor of a kind. `async def` runs in the async executor."""

        def declare(function: F) -> F:
            is_async = inspect.iscoroutinefunction(function)
            chosen: Executor = executor or ("async" if is_async else "thread")
            if is_async != (chosen == "async"):
                raise ValueError(f"{kind}: `async def` and the executor {chosen!r} do not go together")
            if chosen == "process" and "<locals>" in function.__qualname__:
                raise ValueError(f"{kind}: a child process can only import a function at the top of a module")
            self.add(
                Processor(
                    kind=kind,
                    function=function,
                    executor=chosen,
                    queue=queue,
                    timeout=timeout,
                    max_attempts=max_attempts,
                    wait=wait,
                    commit=commit,
                    failed=failed,
                )
            )
            return function

        return declare


default = Registry()
processor = default.processor


def load(modules: tuple[str, ...]) -> None:
    """Imports the modules that declare processors."""
    for module in modules:
        import_module(module)

"""Kind -> Processor, and the schedules: what the decorators declare and the worker looks up."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

from tenacity.wait import wait_base

from snapapp.jobs.context import found
from snapapp.jobs.errors import DuplicateProcessor, UnknownKind
from snapapp.jobs.model import Failure, Job
from snapapp.jobs.schedules.declared import DuplicateSchedule, Routine, Schedule, a_routine, a_schedule
from snapapp.jobs.schedules.slots import InvalidSchedule, Missed

if TYPE_CHECKING:
    from sqlalchemy import Connection

ExecutorName = Literal["thread", "async", "process", "command"]
Function = Callable[[Job], Any]
Commit = Callable[["Connection", Job, Any], None]
Failed = Callable[["Connection", Job, Failure], None]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Processor:
    """How jobs of one kind are run."""

    kind: str
    function: Function
    executor: ExecutorName = "thread"
    queue: str = "default"
    timeout: timedelta | None = None  # None: the worker's default
    max_attempts: int | None = None
    wait: wait_base | None = None
    commit: Commit | None = None
    failed: Failed | None = None
    memory_mb: int | None = None  # None: the worker's default; 0: no limit
    cores: int = 1  # that it keeps busy, where a cluster is asked for a place
    command: tuple[str, ...] = ()  # empty, for the executor of that name: the function returns what to run

    @property
    def path(self) -> str:
        """Where a child process finds it."""
        return _path(self.function)


class KindOptions(TypedDict, total=False):
    """What can be said of a kind, by name: the fields of its Processor. None counts as not said."""

    queue: str | None
    executor: ExecutorName | None
    timeout: timedelta | None
    max_attempts: int | None
    wait: wait_base | None
    commit: Commit | None
    failed: Failed | None
    memory_mb: int | None
    cores: int | None
    command: Sequence[str] | None


class When(TypedDict, total=False):
    """And of a schedule: the parameters of `a_schedule`."""

    cron: str | None
    tz: str | None
    payload: Mapping[str, Any] | None
    missed: Missed | Literal["skip", "once", "all"] | None
    at_most: int | None
    overlap: bool | None
    starts: datetime | None
    ends: datetime | None
    times: int | None


class ScheduleOptions(KindOptions, When, total=False): ...


class Registry:
    """The processors that a process knows, and its schedules."""

    def __init__(self) -> None:
        self._processors: dict[str, Processor] = {}
        self._schedules: dict[str, Schedule] = {}
        self._routines: dict[str, Routine] = {}
        self._taken: dict[str, tuple[str, str]] = {}  # names of both -> the function's path, and when

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

    def schedules(self) -> tuple[Schedule, ...]:
        return tuple(self._schedules.values())

    def routines(self) -> tuple[Routine, ...]:
        return tuple(self._routines.values())

    def processor(self, kind: str, **options: Unpack[KindOptions]) -> Callable[[F], F]:
        """Declares the decorated function as the processor of a kind. `async def` runs in the async executor.

        executor="command" runs a program: `command`, and then the function is never called; or, without it, the
        list of texts that the function returns for the job. `memory_mb` is for process and command, `cores` for
        process on a cluster, whose nodes are filled by both.
        """

        def declare(function: F) -> F:
            self.add(_processor(kind, function, **options))
            return function

        return declare

    def scheduled(
        self,
        *,
        every: timedelta | None = None,
        scope: Literal["fleet", "process"] = "fleet",
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[F], F]:
        """Declares when the decorated function runs by itself: once across the whole fleet, as a job of the kind
        `name` (default: the function's full name) whose payload says the schedule and the slot.

        `cron` has crontab's five fields, read on the clocks of `tz` (default: UTC); `every` counts from 1970. Slots
        that no worker noticed in time are dealt with as `missed` says: "once" (default) runs the newest of them,
        "all" the newest `at_most` (10), "skip" none. While a slot's job has not ended, later slots are skipped,
        unless `overlap` is true, as it is with missed="all".

        No slot comes before `starts` or after `ends`, datetimes with a time zone; `times=10` are the first ten slots
        since `starts`.

        scope="process": every worker process calls the function, without arguments, `every` so often. No job, no
        database, no record; an error is an event and the next call comes.
        """
        given: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
        when = {"cron": None, "tz": None} | {option: given[option] for option in given if option in _WHEN}
        how = {option: given[option] for option in given if option not in _WHEN}

        def declare(function: F) -> F:
            its_name = name or f"{function.__module__}.{function.__qualname__}"
            if scope == "process":
                routine = a_routine(its_name, every, function)
                _check_routine(routine, sorted(given))
                self._take_name(its_name, function, f"every {routine.every} in each process")
                self._routines[its_name] = routine
                return function
            schedule = a_schedule(its_name, every=every, **when)
            _check_parameters(function, "takes one argument, the job", None)
            self._take_name(its_name, function, f"{schedule.spec} ({schedule.tz})")
            self.add(_processor(its_name, function, **how))
            self._schedules[its_name] = schedule
            return function

        return declare

    def _take_name(self, name: str, function: Callable[..., Any], when: str) -> None:
        """A module that is loaded again declares the same again; two decorators on one function do not."""
        ours = (_path(function), when)
        known = self._taken.setdefault(name, ours)
        if known != ours:
            raise DuplicateSchedule(
                f"two schedules are declared with the name {name!r}: {known[1]} by {known[0]} and {when} by {ours[0]}; "
                "give one of them another name"
            )


_WHEN = frozenset(When.__annotations__)


def _processor(kind: str, function: Callable[..., Any], **options: Any) -> Processor:
    given = {option: value for option, value in options.items() if value is not None}
    command = given.pop("command", ())
    given.setdefault("executor", "async" if inspect.iscoroutinefunction(function) else "thread")
    _check_executor(kind, function, given["executor"], command, given.get("memory_mb"))
    _check_cores(kind, given["executor"], given.get("cores", 1))
    return Processor(kind, function, command=tuple(command), **given)


def _check_executor(
    kind: str, function: Callable[..., Any], executor: ExecutorName, command: Sequence[str], memory_mb: int | None
) -> None:
    if inspect.iscoroutinefunction(function) != (executor == "async"):
        raise ValueError(f"{kind}: `async def` and the executor {executor!r} do not go together")
    if executor == "process" and "<locals>" in function.__qualname__:
        raise ValueError(f"{kind}: a child process can only import a function at the top of a module")
    if command and executor != "command":
        raise ValueError(f"{kind}: the executor {executor!r} runs no command")
    if isinstance(command, str) or not all(isinstance(part, str) for part in command):
        raise ValueError(f"{kind}: a command is a list of texts, the program and its arguments; there is no shell")
    if memory_mb is not None and executor not in ("process", "command"):
        raise ValueError(f"{kind}: only what runs in a process of its own has a memory limit")
    if memory_mb is not None and memory_mb < 0:
        raise ValueError(f"{kind}: a memory limit must not be negative: {memory_mb}")


def _check_cores(kind: str, executor: ExecutorName, cores: int) -> None:
    if not 1 <= cores <= 1024:
        raise ValueError(f"{kind}: 1 to 1024 cores, not {cores}")
    if cores != 1 and executor != "process":
        raise ValueError(f"{kind}: only what runs in a child process says how many cores it takes")


def _check_routine(routine: Routine, needless: list[str]) -> None:
    if needless:
        raise InvalidSchedule(f"{routine.name}: a schedule of the process is no job and has no {', '.join(needless)}")
    if inspect.iscoroutinefunction(routine.function):
        raise InvalidSchedule(f"{routine.name}: a schedule of the process is a plain function, not `async def`")
    _check_parameters(routine.function, "takes no arguments")


def _check_parameters(function: Callable[..., Any], what: str, *given: object) -> None:
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        raise InvalidSchedule(f"{_path(function)}: the function of such a schedule {what}") from None


def _path(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


default = Registry()
processor = default.processor
scheduled = default.scheduled


def later(path: str) -> Callable[..., Any]:
    """What stands under `module:name`, imported when it is first called: for a kind or a hook whose module needs much
    more than its declaration, so that whoever declares it stays small."""

    def call(*given: Any) -> Any:
        return found(path)(*given)

    call.__module__, _, call.__qualname__ = path.partition(":")
    return call


def load(modules: tuple[str, ...]) -> None:
    """Imports the modules that declare processors."""
    for module in modules:
        import_module(module)

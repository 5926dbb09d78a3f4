"""The registry of processors (by kind) and schedules: the decorators declare them, the worker looks them up."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

from snapapp.jobs.errors import DuplicateProcessor, UnknownKind
from snapapp.jobs.model import Failure, Job
from snapapp.jobs.schedules.declared import DuplicateSchedule, Routine, Schedule, a_routine, a_schedule
from snapapp.jobs.schedules.slots import InvalidSchedule, Missed

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from tenacity.wait import wait_base

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
    wait: "wait_base | None" = None
    commit: Commit | None = None
    failed: Failed | None = None
    memory_mb: int | None = None  # None: the worker's default; 0: no limit
    cores: int = 1  # how many cores a job keeps busy; a cluster chooses a node by it
    command: tuple[str, ...] = ()  # the program of executor="command"; empty: the function returns it for each job

    @property
    def path(self) -> str:
        """The `module:name` under which a child process imports the function."""
        return _path(self.function)


class KindOptions(TypedDict, total=False):
    """The options of `@processor`, named as the fields of Processor. None means that the option is not given."""

    queue: str | None
    executor: ExecutorName | None
    timeout: timedelta | None
    max_attempts: int | None
    wait: "wait_base | None"
    commit: Commit | None
    failed: Failed | None
    memory_mb: int | None
    cores: int | None
    command: Sequence[str] | None


class When(TypedDict, total=False):
    """The options of `@scheduled` that say when a schedule is due, named as the parameters of `a_schedule`."""

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
        self._declared: dict[str, tuple[str, str]] = {}  # by name of a schedule: the function's path, and its times

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

        executor="command" runs a program. With `command` given, that is the program, and the function is never called;
        without it, the function returns the program and its arguments for each job, as a list of texts. `memory_mb` is
        for the executors process and command, `cores` for process. A cluster places jobs on its nodes by both.
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
        """Declares a schedule: at each slot one job is enqueued for the whole fleet. Its kind is `name` (default: the
        function's full name), and its payload names the schedule and the slot.

        `cron` has crontab's five fields, read on the clocks of `tz` (default: UTC); `every` counts from 1970. `missed`
        decides about slots that no worker noticed in time: "once" (default) runs the newest of them, "all" the newest
        `at_most` (10), "skip" none. While the job of one slot has not ended, later slots are skipped, unless `overlap`
        is true; missed="all" makes it true.

        Slots before `starts` or after `ends` (datetimes with a time zone) are left out; `times=10` keeps the first ten
        slots since `starts`.

        scope="process": every worker process calls the function, without arguments, at each interval of `every`. There
        is no job and no record in the database; an error becomes an event, and the next call comes as usual.
        """
        given: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
        when = {"cron": None, "tz": None} | {option: given[option] for option in given if option in _WHEN}
        how = {option: given[option] for option in given if option not in _WHEN}

        def declare(function: F) -> F:
            its_name = name or _full_name(function)
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
        """Refuses a name that was declared with another function or other times. The same declaration may come twice,
        because a module may be loaded twice."""
        ours = (_path(function), when)
        known = self._declared.setdefault(name, ours)
        if known != ours:
            raise DuplicateSchedule(
                f"two schedules are declared with the name {name!r}: {known[1]} by {known[0]} and {when} by {ours[0]}; "
                "give one of them another name"
            )


_WHEN = frozenset(When.__annotations__)


def _processor(kind: str, function: Callable[..., Any], **options: Any) -> Processor:
    given = {option: value for option, value in options.items() if value is not None}
    command = given.pop("command", ())
    given.setdefault("executor", "async" if _is_async(function) else "thread")
    _check_executor(kind, function, given["executor"], command, given.get("memory_mb"))
    _check_cores(kind, given["executor"], given.get("cores", 1))
    return Processor(kind, function, command=tuple(command), **given)


def _check_executor(
    kind: str, function: Callable[..., Any], executor: ExecutorName, command: Sequence[str], memory_mb: int | None
) -> None:
    if _is_async(function) != (executor == "async"):
        raise ValueError(f"{kind}: `async def` and the executor {executor!r} do not go together")
    if executor == "process" and not _is_named(function):
        raise ValueError(f"{kind}: a child process can only import a function at the top of a module")
    if command and executor != "command":
        raise ValueError(f"{kind}: the executor {executor!r} runs no command")
    if isinstance(command, str) or not all(isinstance(part, str) for part in command):
        raise ValueError(f"{kind}: a command is a list of texts, the program and its arguments; there is no shell")
    if memory_mb is not None and executor not in ("process", "command"):
        raise ValueError(f"{kind}: only what runs in a process of its own has a memory limit")
    if memory_mb is not None and memory_mb < 0:
        raise ValueError(f"{kind}: a memory limit must not be negative: {memory_mb}")


def _is_async(function: Callable[..., Any]) -> bool:
    """Also of an object whose `__call__` is `async def`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _is_named(function: Callable[..., Any]) -> bool:
    """Does the path of the function lead to it? It does not for a lambda, a function within a function, an object, or a
    method of an object."""
    is_of_an_object = inspect.ismethod(function) and not inspect.isclass(function.__self__)
    return "<" not in getattr(function, "__qualname__", "<") and not is_of_an_object


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


def _full_name(function: Callable[..., Any]) -> str:
    if not hasattr(function, "__qualname__"):
        raise InvalidSchedule(f"{function!r:.200} has no name of its own: give the schedule one with name=")
    return f"{function.__module__}.{function.__qualname__}"


def _path(function: Callable[..., Any]) -> str:
    """`module:name`. For an object without a name, as a partial, its repr stands there; a lambda has its line, too."""
    name = getattr(function, "__qualname__", repr(function))
    line = f" in line {function.__code__.co_firstlineno}" if name.endswith("<lambda>") else ""
    return f"{function.__module__}:{name}{line}"


default = Registry()
processor = default.processor
scheduled = default.scheduled


def later(path: str) -> Callable[..., Any]:
    """A function that imports `module:name` when it is first called, and calls it. With it a process that only declares
    a kind or a hook does not load the large modules that the work itself needs."""

    def call(*given: Any) -> Any:
        return resolve_name(path)(*given)

    call.__module__, _, call.__qualname__ = path.partition(":")
    return call


def check_importable(processors: Iterable[Processor]) -> None:
    """Raises ValueError where a child process could not import a kind: its main module is another one."""
    for one in processors:
        if one.executor == "process" and one.function.__module__ == "__main__":
            raise ValueError(
                f"{one.kind}: a child process cannot import {one.path}: declare the kind in a module that the program "
                "imports"
            )


def load(modules: tuple[str, ...]) -> None:
    """Imports the modules that declare processors."""
    for module in modules:
        import_module(module)

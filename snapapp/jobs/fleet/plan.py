"""The plan of a supervisor: the pools that it keeps running. The class `Pool` is the table of all options; the reader
of plan files (`plan_file`), its errors and `--check` are made from it. Without a file there is one pool over all
queues."""

# ruff: noqa: RUF009 (option() is dataclasses.field() with a reader and a sentence)

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from snapapp.jobs.settings import JobsSettings, Membership

_DAY = 86_400
_SECOND = timedelta(seconds=1)

T = TypeVar("T")


class Balance(StrEnum):
    """How many processes a pool has."""

    OFF = "off"  # always the most
    SIMPLE = "simple"  # by what waits
    AUTO = "auto"  # by what waits, how fast it comes and goes, and how long it takes


class Strategy(StrEnum):
    """How pools are compared when there is no room for all processes that they want."""

    TIME = "time"  # how long they would take to clear what waits
    SIZE = "size"  # how much waits


# --- readers: from a TOML value and back ------------------------------------------------------------------------


class UnreadableOption(ValueError):
    """A value is not what its option accepts."""


@dataclass(frozen=True, slots=True)
class Reader(Generic[T]):
    """Reads and shows one type of option; `accepts` completes the sentence "x is not …"."""

    accepts: str
    read: Callable[[Any], T]  # raises UnreadableOption
    show: Callable[[T], Any] = lambda value: value


def whole(low: int, high: int) -> Reader[int]:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise UnreadableOption
        return value

    return Reader(f"a whole number from {low} to {high}", read)


def _number(low: float, high: float) -> Reader[float]:
    def read(value: Any) -> float:
        if type(value) not in (int, float) or not low <= value <= high:  # nan is not between anything
            raise UnreadableOption
        return float(value)

    return Reader(f"a number from {low:g} to {high:g}", read)


def _seconds(low: float, high: float) -> Reader[timedelta]:
    count = _number(low, high)
    return Reader(f"{count.accepts} (seconds)", lambda value: count.read(value) * _SECOND, lambda span: span / _SECOND)


def _choice(kind: type[StrEnum]) -> Reader[Any]:
    def read(value: Any) -> StrEnum:
        if value not in list(kind):
            raise UnreadableOption
        return kind(value)

    return Reader(f"one of {', '.join(kind)}", read, str)


def _queues() -> Reader[tuple[str, ...]]:
    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(name, str) and is_name(name) for name in value):
            raise UnreadableOption
        return tuple(dict.fromkeys(value))

    return Reader("a list of queue names", read, list)


def is_name(text: str) -> bool:
    """Whether a queue, and so a pool, may have this name."""
    return 1 <= len(text) <= 180 and text.isprintable() and not re.search(r"\s", text)


# --- a pool -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One option of a pool."""

    key: str  # in the file, with its unit
    reader: Reader[T]
    meaning: str


def option(key: str, reader: Reader[Any], default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"option": Option(key, reader, meaning)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A group of worker processes that are all alike. An option that is None is taken from the application's
    settings."""

    name: str
    queues: tuple[str, ...] = option("queues", _queues(), (), "the queues it works; none: all of them")
    min_processes: int = option("min_processes", whole(0, 1000), 1, "how few it may have")
    max_processes: int = option("max_processes", whole(1, 1000), 1, "how many it may have")
    balance: Balance = option("balance", _choice(Balance), Balance.OFF, "how many it has")
    strategy: Strategy = option("strategy", _choice(Strategy), Strategy.TIME, "who comes first where room is short")
    threshold: int = option("threshold", whole(1, 1_000_000), 10, "simple: waiting jobs for each process")
    scale_up_threshold: float = option("scale_up_threshold", _number(0.01, 1e6), 3.0, "auto: due jobs a process, above")
    scale_down_threshold: float = option(
        "scale_down_threshold", _number(0, 1e6), 1.0, "auto: due jobs a process, below"
    )
    clear_within: timedelta = option("clear_within_s", _seconds(0.1, _DAY), 10 * _SECOND, "auto: a backlog should last")
    cooldown: timedelta = option("cooldown_s", _seconds(0.1, _DAY), 3 * _SECOND, "between two changes of its size")
    max_shift: int = option("max_shift", whole(1, 1000), 1, "auto: processes more or fewer at once")
    max_time: timedelta | None = option("max_time_s", _seconds(1, 30 * _DAY), None, "a worker is replaced after")
    max_jobs: int | None = option("max_jobs", whole(1, 10**9), None, "a worker is replaced after so many jobs")
    memory_mb: int | None = option("memory_mb", whole(16, 1_048_576), None, "a worker is replaced when bigger")
    timeout: timedelta | None = option("timeout_s", _seconds(0.001, 7 * _DAY), None, "the longest an attempt may run")
    nice: int = option("nice", whole(0, 19), 0, "how far it stands behind others in the queue for a core")
    concurrency: int | None = option("concurrency", whole(1, 1000), None, "jobs in threads, of each process")
    async_concurrency: int | None = option("async_concurrency", whole(1, 10_000), None, "`async def` jobs, likewise")
    children: int | None = option("children", whole(0, 256), None, "child processes, likewise; 0: no such jobs")
    commands: int | None = option("commands", whole(0, 256), None, "programs at once, likewise; 0: no such jobs")
    batch_size: int | None = option("batch_size", whole(1, 10_000), None, "the most jobs claimed at once")
    poll_delay: timedelta | None = option("poll_s", _seconds(0.01, _DAY), None, "how often it looks for work, unwoken")
    lease_for: timedelta | None = option("lease_s", _seconds(1, _DAY), None, "others may take its jobs when silent for")
    beat_every: timedelta | None = option("beat_s", _seconds(0.1, _DAY), None, "a lease must outlast three of these")
    retry_base: timedelta | None = option("retry_base_s", _seconds(0.001, _DAY), None, "wait after a first failure")
    retry_maximum: timedelta | None = option("retry_max_s", _seconds(0.001, 30 * _DAY), None, "the longest such wait")

    def adapt(self, settings: JobsSettings, name: str, master: str, state_file: str | None = None) -> JobsSettings:
        """The application's settings, changed for a worker of this pool."""
        membership = Membership(
            pool=self.name,
            master=master,
            state_file=state_file,
            max_jobs=self.max_jobs,
            max_time=self.max_time,
            max_memory_mb=self.memory_mb,
        )
        own = {name: value for name in _OWN if (value := getattr(self, name))}
        retry = replace(
            settings.retry,
            base=self.retry_base or settings.retry.base,
            maximum=self.retry_maximum or settings.retry.maximum,
        )
        return replace(settings, **own, retry=retry, queues=self.queues, worker_name=name, membership=membership)

    @property
    def leaves_out(self) -> frozenset[str]:
        """The executors whose jobs this pool leaves to other pools, to save the memory of children that would be
        idle."""
        of = {"process": self.children, "command": self.commands}
        return frozenset(executor for executor, count in of.items() if count == 0)

    @property
    def starts_with(self) -> int:
        return self.max_processes if self.balance is Balance.OFF else self.min_processes

    def as_table(self) -> dict[str, Any]:
        """The pool as a table of a plan file, with every option written out."""
        return {
            each.key: each.reader.show(value)
            for name, each in OPTIONS.items()
            if (value := getattr(self, name)) is not None
        }


# The options of a pool that replace the setting of the same name in JobsSettings.
_OWN = (
    "timeout",
    "concurrency",
    "async_concurrency",
    "children",
    "commands",
    "batch_size",
    "poll_delay",
    "lease_for",
    "beat_every",
)

OPTIONS: Mapping[str, Option[Any]] = {
    each.name: each.metadata["option"] for each in fields(Pool) if "option" in each.metadata
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The pools of one environment, and what they share."""

    pools: tuple[Pool, ...]
    max_processes: int | None = None  # of all pools together
    reserve_mb: int = 200  # of the box's memory that scaling leaves free
    source: str = "no plan: one pool over all queues"

    @property
    def most_processes(self) -> int:
        every = sum(pool.max_processes for pool in self.pools)
        return every if self.max_processes is None else min(every, self.max_processes)


def without_a_file(queues: tuple[str, ...] = ()) -> Plan:
    """The plan without a file: one pool over these queues (none: all), with up to one process for each core."""
    pool = Pool(name="default-supervisor", queues=queues, max_processes=os.cpu_count() or 1, balance=Balance.AUTO)
    return Plan(pools=(pool,))


# --- output -----------------------------------------------------------------------------------------------------


def in_words(plan: Plan) -> Iterator[str]:
    """The plan in words, for `--check`."""
    at_most = f", together at most {plan.max_processes}" if plan.max_processes else ""
    yield f"From {plan.source}: {_count(plan)}{at_most}; scaling leaves {plan.reserve_mb} MB of memory free."
    for pool in plan.pools:
        yield ""
        yield pool.name
        for name, each in OPTIONS.items():
            value = getattr(pool, name)
            shown = "as the settings say" if value is None and name in _OWN else _value_in_words(each, value)
            yield f"  {each.key:22} {shown:22} {each.meaning}"


def _count(plan: Plan) -> str:
    return "1 pool" if len(plan.pools) == 1 else f"{len(plan.pools)} pools"


def _value_in_words(each: Option[Any], value: Any) -> str:
    if value is None:
        return "never"
    match each.reader.show(value):
        case list() as names:
            return ", ".join(names) or "all"
        case float() as number:
            return f"{number:g}"
        case other:
            return str(other)


def pool_of(name: str, table: Mapping[str, Any]) -> Pool:
    """The opposite of `as_table`."""
    names = {each.key: attribute for attribute, each in OPTIONS.items()}
    return Pool(name=name, **{names[key]: OPTIONS[names[key]].reader.read(value) for key, value in table.items()})

"""What a supervisor keeps running: a TOML file of environments and their pools, read as a whole into frozen values.

    reserve_mb = 200                  # of the box's memory that scaling leaves free

    [environments.prod.mail]          # a pool, named mail-supervisor, that works the queue mail
    max_processes = 4
    balance = "auto"

The class `Pool` is the table of options: from it follow reading, errors and `--check`. Without a file there is one
pool over all queues.
"""

# ruff: noqa: RUF009 (option() is dataclasses.field() with a reader and a sentence)

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from snapapp.jobs.fleet.errors import InvalidPlan
from snapapp.jobs.settings import JobsSettings, Membership

LARGEST = 1_048_576  # bytes of a plan
_MOST_POOLS = 100
_DAY = 86_400
_SECOND = timedelta(seconds=1)

T = TypeVar("T")


class Balance(StrEnum):
    """How many processes a pool has."""

    OFF = "off"  # always the most
    SIMPLE = "simple"  # by what waits
    AUTO = "auto"  # by what waits, how fast it comes and goes, and how long it takes


class Strategy(StrEnum):
    """What pools are compared by where there is not room for all that they want."""

    TIME = "time"  # how long they would take to clear what waits
    SIZE = "size"  # how much waits


# --- readers: from a TOML value and back ------------------------------------------------------------------------


class _Unreadable(ValueError):
    """A value is not what its option accepts."""


@dataclass(frozen=True, slots=True)
class Reader(Generic[T]):
    """`accepts` completes the sentence "x is not …"."""

    accepts: str
    read: Callable[[Any], T]  # raises _Unreadable
    show: Callable[[T], Any] = lambda value: value


def _whole(low: int, high: int) -> Reader[int]:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _Unreadable
        return value

    return Reader(f"a whole number from {low} to {high}", read)


def _number(low: float, high: float) -> Reader[float]:
    def read(value: Any) -> float:
        if type(value) not in (int, float) or not low <= value <= high:  # nan is not between anything
            raise _Unreadable
        return float(value)

    return Reader(f"a number from {low:g} to {high:g}", read)


def _seconds(low: float, high: float) -> Reader[timedelta]:
    count = _number(low, high)
    return Reader(f"{count.accepts} (seconds)", lambda value: count.read(value) * _SECOND, lambda span: span / _SECOND)


def _choice(kind: type[StrEnum]) -> Reader[Any]:
    def read(value: Any) -> StrEnum:
        if value not in list(kind):
            raise _Unreadable
        return kind(value)

    return Reader(f"one of {', '.join(kind)}", read, str)


def _queues() -> Reader[tuple[str, ...]]:
    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(name, str) and is_name(name) for name in value):
            raise _Unreadable
        return tuple(dict.fromkeys(value))

    return Reader("a list of queue names", read, list)


def is_name(text: str) -> bool:
    """As a queue may be called, and so a pool."""
    return 1 <= len(text) <= 180 and text.isprintable() and not re.search(r"\s", text)


# --- a pool -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One entry of the table."""

    key: str  # in the file, with its unit
    reader: Reader[T]
    meaning: str


def option(key: str, reader: Reader[Any], default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"option": Option(key, reader, meaning)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Worker processes that are all alike. What is None is as the settings of the application have it."""

    name: str
    queues: tuple[str, ...] = option("queues", _queues(), (), "the queues it works; none: all of them")
    min_processes: int = option("min_processes", _whole(0, 1000), 1, "how few it may have")
    max_processes: int = option("max_processes", _whole(1, 1000), 1, "how many it may have")
    balance: Balance = option("balance", _choice(Balance), Balance.OFF, "how many it has")
    strategy: Strategy = option("strategy", _choice(Strategy), Strategy.TIME, "who comes first where room is short")
    threshold: int = option("threshold", _whole(1, 1_000_000), 10, "simple: waiting jobs for each process")
    scale_up_threshold: float = option("scale_up_threshold", _number(0.01, 1e6), 3.0, "auto: due jobs a process, above")
    scale_down_threshold: float = option(
        "scale_down_threshold", _number(0, 1e6), 1.0, "auto: due jobs a process, below"
    )
    clear_within: timedelta = option("clear_within_s", _seconds(0.1, _DAY), 10 * _SECOND, "auto: a backlog should last")
    cooldown: timedelta = option("cooldown_s", _seconds(0.1, _DAY), 3 * _SECOND, "between two changes of its size")
    max_shift: int = option("max_shift", _whole(1, 1000), 1, "auto: processes more or fewer at once")
    max_time: timedelta | None = option("max_time_s", _seconds(1, 30 * _DAY), None, "a worker is replaced after")
    max_jobs: int | None = option("max_jobs", _whole(1, 10**9), None, "a worker is replaced after so many jobs")
    memory_mb: int | None = option("memory_mb", _whole(16, 1_048_576), None, "a worker is replaced when bigger")
    timeout: timedelta | None = option("timeout_s", _seconds(0.001, 7 * _DAY), None, "the longest an attempt may run")
    nice: int = option("nice", _whole(0, 19), 0, "how far it stands behind others in the queue for a core")
    concurrency: int | None = option("concurrency", _whole(1, 1000), None, "jobs in threads, of each process")
    async_concurrency: int | None = option("async_concurrency", _whole(1, 10_000), None, "`async def` jobs, likewise")
    children: int | None = option("children", _whole(0, 256), None, "child processes, likewise; 0: no such jobs")
    commands: int | None = option("commands", _whole(0, 256), None, "programs at once, likewise; 0: no such jobs")
    batch_size: int | None = option("batch_size", _whole(1, 10_000), None, "the most jobs claimed at once")
    poll_delay: timedelta | None = option("poll_s", _seconds(0.01, _DAY), None, "how often it looks for work, unwoken")
    lease_for: timedelta | None = option("lease_s", _seconds(1, _DAY), None, "others may take its jobs when silent for")
    beat_every: timedelta | None = option("beat_s", _seconds(0.1, _DAY), None, "a lease must outlast three of these")
    retry_base: timedelta | None = option("retry_base_s", _seconds(0.001, _DAY), None, "wait after a first failure")
    retry_maximum: timedelta | None = option("retry_max_s", _seconds(0.001, 30 * _DAY), None, "the longest such wait")

    def adapt(self, settings: JobsSettings, name: str, master: str, state_file: str | None = None) -> JobsSettings:
        """The settings of the application as a worker of this pool has them."""
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
        """The executors whose jobs it leaves to other pools: a child that waits for none costs memory all the same."""
        of = {"process": self.children, "command": self.commands}
        return frozenset(executor for executor, count in of.items() if count == 0)

    @property
    def starts_with(self) -> int:
        return self.max_processes if self.balance is Balance.OFF else self.min_processes

    def as_table(self) -> dict[str, Any]:
        """As it would stand in a file, every option written out."""
        return {
            each.key: each.reader.show(value)
            for name, each in OPTIONS.items()
            if (value := getattr(self, name)) is not None
        }


# What a pool may say about its workers, named as in JobsSettings.
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


_SHARED: Mapping[str, Reader[Any]] = {"max_processes": _whole(1, 10_000), "reserve_mb": _whole(0, 1_048_576)}


def without_a_file(queues: tuple[str, ...] = ()) -> Plan:
    """One pool, over all queues where none is named: up to a process for each core, as the work asks for them."""
    pool = Pool(name="default-supervisor", queues=queues, max_processes=os.cpu_count() or 1, balance=Balance.AUTO)
    return Plan(pools=(pool,))


# --- a file -----------------------------------------------------------------------------------------------------


def load(path: Path, environment: str) -> Plan:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise InvalidPlan([f"{path} cannot be read: {error.strerror or error}"]) from None
    if len(content) > LARGEST:
        raise InvalidPlan([f"{path} is larger than {LARGEST} bytes"])
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidPlan([f"{path} is not UTF-8: {error.reason} at byte {error.start}"]) from None
    return parse(text, environment, str(path))


def parse(text: str, environment: str, source: str = "plan") -> Plan:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidPlan([f"{source}: {_as_ours(str(error))}"]) from None
    except RecursionError:
        raise InvalidPlan([f"{source} is nested too deeply"]) from None
    return _Reading(table, _Lines(text), source).plan(environment)


def _as_ours(said: str) -> str:
    """tomllib says "Invalid value (at line 3, column 5)"."""
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", said, re.DOTALL)
    return f"line {found[2]}: {found[1]} at column {found[3]}" if found else said


class _Reading:
    """One file being read; collects every mistake before it refuses."""

    def __init__(self, table: dict[str, Any], lines: "_Lines", source: str) -> None:
        self._table = table
        self._lines = lines
        self._source = source
        self._mistakes: list[tuple[int, str]] = []

    def plan(self, environment: str) -> Plan:
        self._refuse_unknown(self._table, (*_SHARED, "environments"), ())
        shared = {key: self._read((key,), self._table[key], _SHARED[key]) for key in _SHARED if key in self._table}
        environments = self._tables(("environments",), self._table.get("environments", {}))
        pools = {name: self._pools(("environments", name), table) for name, table in environments.items()}
        if not self._mistakes and environment not in pools:
            known = ", ".join(pools) or "none at all"
            self._complain(("environments",), f"there is no environment {environment!r}, but {known}")
        if not self._mistakes and not pools[environment]:
            self._complain(("environments", environment), f"the environment {environment} has no pool")
        self._refuse_mistakes()
        plan = Plan(pools=tuple(pools[environment]), source=f"{self._source}, environment {environment}", **shared)
        fewest = sum(pool.starts_with for pool in plan.pools)
        if fewest > plan.most_processes:
            least = f"its pools begin with {fewest} processes"
            self._complain(("max_processes",), f"max_processes = {plan.max_processes} is too few: {least}")
        self._refuse_mistakes()
        return plan

    def _pools(self, place: tuple[str, ...], table: Any) -> list[Pool]:
        pools = [self._pool((*place, key), key, each) for key, each in self._tables(place, table).items()]
        if len(pools) > _MOST_POOLS:
            self._complain(place, f"there are {len(pools)} pools, at most {_MOST_POOLS} are allowed")
        return [pool for pool in pools if pool]

    def _pool(self, place: tuple[str, ...], key: str, table: dict[str, Any]) -> Pool | None:
        if not is_name(key):
            self._complain(place, f"{key!r} cannot be the name of a pool or queue")
            return None
        keys = {each.key: name for name, each in OPTIONS.items()}
        self._refuse_unknown(table, keys, place)
        before = len(self._mistakes)
        given = {
            keys[option]: self._read((*place, option), value, OPTIONS[keys[option]].reader)
            for option, value in table.items()
            if option in keys
        }
        if len(self._mistakes) > before:
            return None
        most = max(given.get("max_processes", 1), 0 if "max_processes" in given else given.get("min_processes", 1))
        values = {"queues": (key,)} | given | {"max_processes": most}
        least = values.setdefault("min_processes", min(1, most))
        if least > most:
            self._complain((*place, "min_processes"), f"{key}: min_processes = {least} is more than {most}, the most")
        pool = Pool(name=f"{key}-supervisor", **values)
        if pool.scale_down_threshold >= pool.scale_up_threshold:
            self._complain(
                (*place, "scale_down_threshold"),
                f"{key}: scale_down_threshold = {pool.scale_down_threshold:g} is not below"
                f" scale_up_threshold = {pool.scale_up_threshold:g}: it would flap",
            )
        return pool

    def _read(self, place: tuple[str, ...], value: Any, reader: Reader[Any]) -> Any:
        try:
            return reader.read(value)
        except _Unreadable:
            shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
            self._complain(place, f"{'.'.join(place[-2:])} = {shown} is not {reader.accepts}")
            return None

    def _tables(self, place: tuple[str, ...], value: Any) -> dict[str, dict[str, Any]]:
        if not isinstance(value, dict):
            self._complain(place, f"{'.'.join(place)} is not a table")
            return {}
        for name, each in value.items():
            if not isinstance(each, dict):
                self._complain((*place, name), f"{'.'.join((*place, name))} is not a table")
        return {name: each for name, each in value.items() if isinstance(each, dict)}

    def _refuse_unknown(self, table: Mapping[str, Any], known: Any, place: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                close = difflib.get_close_matches(key, list(known), n=1, cutoff=0.7)
                hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"
                self._complain((*place, key), f"{'.'.join((*place, key))} is not an option{hint}")

    def _complain(self, place: tuple[str, ...], what: str) -> None:
        self._mistakes.append((self._lines.of(place), what))

    def _refuse_mistakes(self) -> None:
        if self._mistakes:
            raise InvalidPlan([f"{self._source} line {line}: {what}" for line, what in sorted(self._mistakes)])


_HEADER = re.compile(r"\s*(\[.+?\])\s*(?:#.*)?$")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


class _Lines:
    """Where each key stands, which tomllib does not tell. In a text that tomllib could read, lines say enough."""

    def __init__(self, text: str) -> None:
        self._at: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        for count, line in enumerate(text.splitlines(), start=1):
            if header := _HEADER.match(line):
                table = _path(header[1]) or table
                self._note(table, count)
            elif key := _KEY.match(line):
                self._note((*table, *_path(f"{key[1]} = 0")), count)

    def of(self, place: tuple[str, ...]) -> int:
        """The line of the key, or of the nearest table around it."""
        while place and place not in self._at:
            place = place[:-1]
        return self._at.get(place, 1)

    def _note(self, place: tuple[str, ...], count: int) -> None:
        for length in range(1, len(place) + 1):
            self._at.setdefault(place[:length], count)


def _path(text: str) -> tuple[str, ...]:
    """What a header or a key names, as tomllib reads it; nothing where it is neither (a line within a text)."""
    try:
        table: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ()
    path = []
    while isinstance(table, dict) and table:
        [(key, table)] = table.items()
        path.append(key)
    return tuple(path)


# --- shown ------------------------------------------------------------------------------------------------------


def described(plan: Plan) -> Iterator[str]:
    """The plan in words, for `--check`."""
    lid = f", together at most {plan.max_processes}" if plan.max_processes else ""
    yield f"From {plan.source}: {_count(plan)}{lid}; scaling leaves {plan.reserve_mb} MB of memory free."
    for pool in plan.pools:
        yield ""
        yield pool.name
        for name, each in OPTIONS.items():
            value = getattr(pool, name)
            shown = "as the settings say" if value is None and name in _OWN else _shown(each, value)
            yield f"  {each.key:22} {shown:22} {each.meaning}"


def _count(plan: Plan) -> str:
    return "1 pool" if len(plan.pools) == 1 else f"{len(plan.pools)} pools"


def _shown(each: Option[Any], value: Any) -> str:
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

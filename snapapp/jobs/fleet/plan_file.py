"""Reads a plan from a TOML file of environments and their pools. An error names every mistake with its line.

reserve_mb = 200                  # of the box's memory that scaling leaves free

[environments.prod.mail]          # a pool, named mail-supervisor, that works the queue mail
max_processes = 4
balance = "auto"
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snapapp.jobs.fleet.errors import InvalidPlan
from snapapp.jobs.fleet.plan import OPTIONS, Plan, Pool, Reader, UnreadableOption, is_name, whole

LARGEST = 1_048_576  # bytes of a plan
_MOST_POOLS = 100
_SHARED: Mapping[str, Reader[Any]] = {"max_processes": whole(1, 10_000), "reserve_mb": whole(0, 1_048_576)}


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
        raise InvalidPlan([f"{source}: {_line_first(str(error))}"]) from None
    except RecursionError:
        raise InvalidPlan([f"{source} is nested too deeply"]) from None
    return _Reading(table, _Lines(text), source).plan(environment)


def _line_first(message: str) -> str:
    """tomllib's "Invalid value (at line 3, column 5)" with the line at its beginning, as in the other mistakes."""
    match = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL)
    return f"line {match[2]}: {match[1]} at column {match[3]}" if match else message


class _Reading:
    """Reads one file, and collects every mistake before it raises."""

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
        except UnreadableOption:
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
    """The line of each key, which tomllib does not tell. It is found by the beginnings of lines, which is enough for a
    text that tomllib could read."""

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
    """The path of names in a header or a key, as tomllib reads it; empty for a line that is neither (within a text)."""
    try:
        table: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ()
    path = []
    while isinstance(table, dict) and table:
        [(key, table)] = table.items()
        path.append(key)
    return tuple(path)

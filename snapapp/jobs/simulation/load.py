"""The jobs of a simulation: recorded in the queue's own rows, or described in a few lines of TOML.

hours = 8

[jobs."snap.process"]       # a kind, with what is expected of its jobs
per_hour = 900              # at random times; or every_s = 3600 and at_once = 500
run_s = 2.5                 # half of the jobs take less
run_p99_s = 12              # and 99 of 100 take less than this; left out: all take the same time
cpu = 0.9                   # cores that a job keeps busy while it runs
queue = "snaps"
priority = 10

[limits]
"kind:snap.process" = 2
"""

import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from math import ceil, exp, isfinite, log
from operator import attrgetter
from typing import Any

import psycopg

from snapapp.jobs.errors import JobsError

MOST = 2_000_000  # jobs: more would take minutes and gigabytes
_P99 = 2.3263478740408408  # standard deviations from the mean to the 99th percentile
_NEARBY = 30.0  # seconds: a copy of a job comes at most so long before or after it


class InvalidLoad(JobsError, ValueError):
    """The jobs that should be simulated are described wrongly, are missing, or are too many."""


@dataclass(frozen=True, slots=True)
class Work:
    """A simulated job: when it is due, how long it runs without others beside it, and what decides about its turn."""

    at: float  # seconds from the beginning
    runs: float
    kind: str = ""
    queue: str = "default"
    priority: int = 0
    key: str = ""
    cpu: float = 0.0  # cores that it keeps busy while it runs
    is_held: bool = False  # it is due, but held back, so that nobody ever claims it


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """All jobs of a simulation, in the order in which they become due."""

    works: Sequence[Work]
    lasts: float  # seconds
    limits: Mapping[str, int] = field(default_factory=dict)  # by pattern of a limit: how many jobs may run
    waited: Sequence[float] = ()  # seconds that each recorded job really waited

    def grown(self, factor: float, seed: int) -> "Load":
        """A load with so many times as many jobs, at the same times of day."""
        if factor == 1:
            return self
        _refuse_too_many(factor * len(self.works))
        dice = random.Random(seed)  # noqa: S311 (chance, not a secret)
        works = [
            replace(work, at=work.at if copy == 0 else max(0.0, work.at + dice.uniform(-_NEARBY, _NEARBY)))
            for work in self.works
            for copy in range(int(factor + dice.random()))
        ]
        return replace(self, works=_in_order(works), waited=())

    def limited(self, limits: Mapping[str, int]) -> "Load":
        return replace(self, limits={**self.limits, **limits}) if limits else self


def _in_order(works: Sequence[Work]) -> list[Work]:
    return sorted(works, key=attrgetter("at"))


def _refuse_too_many(jobs: float) -> None:
    if jobs > MOST:
        raise InvalidLoad(f"{jobs:,.0f} jobs are too many to simulate, the most is {MOST:,}: take a shorter time of it")


# --- a recorded load --------------------------------------------------------------------------------------------

# A retried job counts once, with its last attempt: its row keeps only the times of that one.
_RECORDED = """
SELECT extract(epoch FROM next_retry_at)::float8 AS due, extract(epoch FROM started_at)::float8 AS began,
       extract(epoch FROM finished_at)::float8 AS ended, kind, queue, priority, coalesce(concurrency_key, '') AS key
FROM snap_processing_job
WHERE finished_at > now() - %s AND status IN ('COMPLETED', 'FAILED')
  AND isfinite(next_retry_at) AND started_at >= next_retry_at
ORDER BY next_retry_at
LIMIT %s
"""
_CPU_BY_KIND = """
SELECT kind, sum(cpu_ms * stands_for) / nullif(sum(wall_ms * stands_for), 0)
FROM job_cost WHERE cpu_ms IS NOT NULL AND started_at > now() - %s GROUP BY kind
"""
_LIMITS = "SELECT key_pattern, max_running FROM job_limit WHERE max_running IS NOT NULL"


def recorded_load(db: psycopg.Connection[Any], last: timedelta) -> Load:
    """The jobs that finished lately and are still kept, with the limits as they are now."""
    with db.transaction():
        rows = db.execute(_RECORDED, (last, MOST + 1)).fetchall()
        cpu = dict(db.execute(_CPU_BY_KIND, (last,)).fetchall())
        limits = dict(db.execute(_LIMITS).fetchall())
    _refuse_too_many(len(rows))
    if not rows:
        raise InvalidLoad("no job that is still kept has finished in that time; a load can be described in a file, too")
    begins = rows[0][0]
    works = [
        Work(due - begins, max(0.0, ended - began), kind, queue, priority, key, cpu=float(cpu.get(kind) or 0.0))
        for due, began, ended, kind, queue, priority, key in rows
    ]
    waited = [began - due for due, began, *_ in rows]
    return Load(works=_in_order(works), lasts=max(works[-1].at, 1.0), limits=limits, waited=waited)


# --- a described load -------------------------------------------------------------------------------------------

_OF_JOBS: Mapping[str, tuple[type | tuple[type, ...], float, float]] = {  # type, least value or length, greatest
    "per_hour": ((int, float), 0, 1e9),
    "every_s": ((int, float), 0.001, 1e7),
    "at_once": (int, 1, MOST),
    "run_s": ((int, float), 0, 1e6),
    "run_p99_s": ((int, float), 0, 1e6),
    "cpu": ((int, float), 0, 256),
    "queue": (str, 1, 180),
    "priority": (int, -1000, 1000),
    "key": (str, 1, 600),
}


def described_load(text: str, seed: int = 1) -> Load:
    """Reads a load from TOML; InvalidLoad names every mistake."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidLoad(f"the load cannot be read: {error}") from None
    if mistakes := [*_mistakes(table)]:
        raise InvalidLoad("; ".join(mistakes))
    lasts = 3600.0 * table.get("hours", 1)
    streams = table["jobs"].items()
    _refuse_too_many(sum(_expected(stream, lasts) for _, stream in streams))
    works = [work for kind, stream in streams for work in _stream(kind, stream, lasts, seed)]
    if not works:
        raise InvalidLoad("nothing comes in that time")
    return Load(works=_in_order(works), lasts=lasts, limits=table.get("limits", {}))


def _mistakes(table: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown("", table, ("hours", "jobs", "limits"))
    if not _is_within(table.get("hours", 1), (int, float), 0.001, 8784):
        yield "hours is not a number from 0.001 to 8784"
    streams = table.get("jobs", {})
    if not isinstance(streams, dict) or not streams or not all(isinstance(each, dict) for each in streams.values()):
        yield '[jobs."KIND"] is missing: a table for each kind of job'
        streams = {}
    for kind, stream in streams.items():
        yield from _unknown(f"{kind}: ", stream, [*_OF_JOBS])
        for name, (kinds, least, most) in _OF_JOBS.items():
            if name in stream and not _is_within(stream[name], kinds, least, most):
                what = "a text of" if kinds is str else "a whole number from" if kinds is int else "a number from"
                yield f"{kind}: {name} = {stream[name]!r:.60} is not {what} {least:,g} to {most:,g}"
        if ("per_hour" in stream) == ("every_s" in stream) or ("at_once" in stream and "every_s" not in stream):
            yield f"{kind}: say either per_hour, or every_s and how many come at_once"
        if "run_s" not in stream:
            yield f"{kind}: run_s is missing: how many seconds half of the jobs take at most"
    limits = table.get("limits", {})
    if not isinstance(limits, dict) or not all(type(most) is int and most >= 0 for most in limits.values()):
        yield '[limits] has a whole number for each pattern, such as "kind:report" = 2'
    else:
        yield from (f"{name!r} is no pattern of a limit" for name in limits if not is_pattern(name))


def is_pattern(text: str) -> bool:
    scope, _, name = text.partition(":")
    return scope in ("queue", "kind", "key") and bool(name)


def _is_within(value: object, kinds: type | tuple[type, ...], least: float, most: float) -> bool:
    if not isinstance(value, kinds) or isinstance(value, bool):
        return False
    size = len(value) if isinstance(value, str) else value
    return isinstance(size, int | float) and isfinite(size) and least <= size <= most


def _unknown(place: str, table: Mapping[str, Any], known: Sequence[str]) -> Iterator[str]:
    for name in table:
        if name not in known:
            near = get_close_matches(name, known, 1)
            yield f"{place}{name} is not known{f'; did you mean {near[0]}?' if near else ''}"


def _expected(stream: Mapping[str, Any], lasts: float) -> float:
    if "per_hour" in stream:
        return float(stream["per_hour"] * lasts / 3600)
    return float(_turns(stream, lasts) * stream.get("at_once", 1))


def _turns(stream: Mapping[str, Any], lasts: float) -> int:
    return ceil(lasts / float(stream["every_s"]))


def _stream(kind: str, stream: Mapping[str, Any], lasts: float, seed: int) -> Iterator[Work]:
    dice = random.Random(f"{seed} {kind}")  # noqa: S311
    median, p99 = float(stream["run_s"]), float(stream.get("run_p99_s", stream["run_s"]))
    spread = log(p99 / median) / _P99 if median and p99 > median else 0.0
    shared = {name: stream[name] for name in ("queue", "priority", "key", "cpu") if name in stream}
    for at in _moments(stream, lasts, dice):
        yield Work(at, median * exp(dice.gauss(0, spread)), kind, **shared)


def _moments(stream: Mapping[str, Any], lasts: float, dice: random.Random) -> Iterator[float]:
    if "every_s" in stream:
        for turn in range(_turns(stream, lasts)):
            yield from [turn * float(stream["every_s"])] * stream.get("at_once", 1)
        return
    at = 0.0
    while stream["per_hour"] and (at := at + dice.expovariate(stream["per_hour"] / 3600)) < lasts:
        yield at

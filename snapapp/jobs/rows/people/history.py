"""How attempts ended and how long they took, over the last week. `costs` adds to one row for each kind and minute;
`merge` joins older rows to rows of ten minutes, then of an hour. So the number of rows does not grow with the jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.database import run as _run

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
# (minutes of the rows joined, minutes of the new row, age from which they are joined)
_MERGED = ((1, 10, 2 * _HOUR), (10, 60, 26 * _HOUR))
_KEPT = 8 * _DAY


class Over(StrEnum):
    """The time that a chart covers."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"


_SPANS = {Over.HOUR: _HOUR, Over.DAY: _DAY, Over.WEEK: 7 * _DAY}
STEPS = {Over.HOUR: _MINUTE, Over.DAY: 10 * _MINUTE, Over.WEEK: _HOUR}


@dataclass(frozen=True, slots=True)
class Percentiles:
    """In ms, from a histogram, so up to a fifth off. None: nothing was measured."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """Counts and times of attempts in one step of a chart, which begins `at`; or of one kind over the whole time."""

    at: datetime | None
    kind: str
    completed: int
    failed: int
    cancelled: int
    retried: int
    wait: Percentiles
    run: Percentiles


def percentiles(counts: Sequence[int | None]) -> Percentiles:
    """The percentiles of a histogram of job_histogram(). `counts`: attempts in each bucket; None means 0."""
    counted = [count or 0 for count in counts]
    return Percentiles(*(_percentile(counted, part) for part in (0.5, 0.95, 0.99)))


def _percentile(counts: Sequence[int], part: float) -> float | None:
    rank = part * sum(counts)
    for place, count in enumerate(counts):
        if count and rank <= count:
            least = 2 ** ((place - 1) / 2) if place else 0.0
            return round(least + (2 ** (place / 2) - least) * rank / count, 3)
        rank -= count
    return None


_BUCKETS = 54  # buckets of job_histogram()


def _sums(column: str) -> str:
    """Columns that sum a histogram bucket by bucket, in one pass over the rows. unnest() took six times as long for 20
    kinds over a week."""
    return ", ".join(f"sum({column}[{place}])::bigint" for place in range(1, _BUCKETS + 1))


_ADDED = f"""sum(completed)::bigint, sum(failed)::bigint, sum(cancelled)::bigint, sum(retried)::bigint,
       ARRAY[{_sums("waits")}], ARRAY[{_sums("runs")}]"""

# A bin becomes one point of a chart. It may sum rows of several lengths.
_POINTS = f"""
SELECT date_bin(%(step)s, at, timestamptz 'epoch') AS bin, %(kind)s, {_ADDED}
  FROM job_history
 WHERE at >= date_bin(%(step)s, now() - %(span)s::interval, timestamptz 'epoch') AND kind = %(kind)s
 GROUP BY bin ORDER BY bin
"""  # noqa: S608 - made of constants

_KINDS = f"""
SELECT NULL, kind, {_ADDED}
  FROM job_history WHERE at >= now() - %(span)s::interval AND kind <> '' GROUP BY kind ORDER BY kind
"""  # noqa: S608 - made of constants


def points(db: Db, over: Over, kind: str = "") -> list[HistoryPoint]:
    """One point for each step in which something ran, oldest first. Empty kind: all kinds together."""
    parameters = {"span": _SPANS[over], "step": STEPS[over], "kind": kind}
    return [_point(*row) for row in _run(db, _POINTS, parameters)]


def kinds(db: Db, over: Over) -> list[HistoryPoint]:
    """One point for each kind, over the whole time."""
    return [_point(*row) for row in _run(db, _KINDS, {"span": _SPANS[over]})]


def _point(at: datetime | None, kind: str, *columns: Any) -> HistoryPoint:
    completed, failed, cancelled, retried, waits, runs = columns
    return HistoryPoint(at, kind, completed, failed, cancelled, retried, percentiles(waits), percentiles(runs))


# --- kept short -------------------------------------------------------------------------------------------------

_MERGE = """
WITH old AS (
    DELETE FROM job_history
     WHERE minutes = %(short)s AND at < date_bin(%(step)s, now() - %(keep)s::interval, timestamptz 'epoch')
    RETURNING date_bin(%(step)s, at, timestamptz 'epoch') AS bin, kind, completed, failed, cancelled, retried,
              waits, runs
), waited AS (
    SELECT bin, kind, place, sum(number) AS number
      FROM old, unnest(waits) WITH ORDINALITY AS it (number, place) GROUP BY 1, 2, 3
), ran AS (
    SELECT bin, kind, place, sum(number) AS number
      FROM old, unnest(runs) WITH ORDINALITY AS it (number, place) GROUP BY 1, 2, 3
)
INSERT INTO job_history AS its (minutes, at, kind, completed, failed, cancelled, retried, waits, runs)
SELECT %(long)s, bin, kind, sum(completed), sum(failed), sum(cancelled), sum(retried),
       ARRAY(SELECT number::bigint FROM waited WHERE (waited.bin, waited.kind) = (old.bin, old.kind) ORDER BY place),
       ARRAY(SELECT number::bigint FROM ran WHERE (ran.bin, ran.kind) = (old.bin, old.kind) ORDER BY place)
  FROM old GROUP BY bin, kind ORDER BY bin, kind
    ON CONFLICT (minutes, at, kind) DO UPDATE
   SET completed = its.completed + excluded.completed, failed = its.failed + excluded.failed,
       cancelled = its.cancelled + excluded.cancelled, retried = its.retried + excluded.retried,
       waits = job_histogram_sum(its.waits, excluded.waits), runs = job_histogram_sum(its.runs, excluded.runs)
RETURNING at
"""


def merge(db: Db) -> None:
    """Joins old rows to longer ones, and deletes those older than eight days."""
    for short, long, keep in _MERGED:
        _run(db, _MERGE, {"short": short, "long": long, "step": long * _MINUTE, "keep": keep})
    _run(db, "DELETE FROM job_history WHERE at < now() - %(kept)s::interval RETURNING at", {"kept": _KEPT})

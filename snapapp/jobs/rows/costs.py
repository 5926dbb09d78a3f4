"""What attempts cost in time and memory: measured by the slots, collected here, written once a second, read as
percentiles.

Every attempt of a second or more gets a row, and every one whose memory was measured. Of the quick others a few get a
row, whose `stands_for` says how many attempts it represents: collecting an attempt costs 0.1 µs, writing its row 5 µs.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple

from snapapp.jobs.model import Finished, Status
from snapapp.jobs.rows.database import Db
from snapapp.jobs.rows.database import run as _run

_LONG = 1.0  # seconds: an attempt that ran for so long gets a row of its own
_FEW = 32  # rows at most in one write for the quick attempts of a kind that ended alike
_AT_MOST = 20_000  # rows kept while the database is away; the oldest are dropped
_MB = 1024 * 1024


BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)  # seconds


@dataclass(slots=True)
class Histogram:
    """A histogram: how many durations fell within each bound, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))  # the last one: above all bounds
    seconds: float = 0.0

    def add(self, seconds: float, times: int) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.seconds += times * seconds


@dataclass(slots=True)
class Spent:
    """How long the attempts of a kind waited and ran since this process began."""

    waited: Histogram = field(default_factory=Histogram)
    ran: Histogram = field(default_factory=Histogram)


class Entry(NamedTuple):
    """A row of job_cost that is not written yet."""

    job_id: int
    lease_seq: int
    attempt: int
    kind: str
    outcome: str
    due_at: datetime | None
    began: float  # monotonic
    wall_ms: float
    cpu_ms: float | None
    peak_mb: float | None
    stands_for: int = 1


class _Sample:
    """An even sample of the quick attempts of a kind that ended alike: one in `every` measured attempts is kept. When
    the sample is full, every second entry is dropped and `every` is doubled."""

    __slots__ = ("every", "kept", "measured", "next", "seen")

    def __init__(self) -> None:
        self.kept: list[Entry] = []
        self.seen = 0  # quick attempts, measured or not
        self.measured, self.every, self.next = 0, 1, 1

    def keep(self, entry: Entry) -> None:
        self.kept.append(entry)
        if len(self.kept) == _FEW:
            self.kept, self.every = self.kept[1::2], 2 * self.every
        self.next = self.measured + self.every

    def entries(self) -> list[Entry]:
        """The sample; the `stands_for` of all entries together is the number of attempts seen."""
        share, remainder = divmod(self.seen, len(self.kept))
        return [entry._replace(stands_for=share + (place < remainder)) for place, entry in enumerate(self.kept)]


class CollectedCosts:
    """Any thread may call `add`. One thread at a time, with a connection, calls `write`."""

    def __init__(self) -> None:
        self._turn = threading.Lock()  # the settler adds whole batches, slots add jobs that they settled with a hook
        self._entries: deque[Entry] = deque(maxlen=_AT_MOST)
        # By how the attempts ended, then by kind: an entry that stood for other ends too would make failures of
        # successes, or the other way around.
        self._samples: dict[Status | None, dict[str, _Sample]] = {}
        self.spent: dict[str, Spent] = {}  # by kind; updated by `write`, so not on the hot path

    def __bool__(self) -> bool:
        return bool(self._entries or self._samples)

    def add(self, batch: Sequence[Finished], status: Status | None) -> None:
        """Adds attempts that all ended with the same status; None: their leases were lost. This is on the hot path."""
        if status is Status.FAILED:
            batch = [one for one in batch if not one.job.exhausted]  # a job whose attempts were used up did not run
        with self._turn:
            samples = self._samples.setdefault(status, {})
            for finished in batch:
                job, _, ran_for = finished
                if ran_for is None:
                    continue
                if not job.is_measured and ran_for < _LONG and (sample := samples.get(job.kind)):
                    sample.seen += 1
                else:
                    self._add_measured(finished, ran_for, status)

    def _add_measured(self, finished: Finished, ran_for: float, status: Status | None) -> None:
        job = finished.job
        if ran_for >= _LONG or job.peak is not None:
            self._entries.append(_entry(finished, status))
            return
        sample = self._samples[status].setdefault(job.kind, _Sample())
        sample.seen += 1
        sample.measured += 1
        if sample.measured == sample.next:
            sample.keep(_entry(finished, status))

    def write(self, db: Db) -> set[str]:
        """Writes all entries in one statement. Returns the kinds of which memory was measured."""
        entries = self._take()
        if not entries:
            return set()
        try:
            rows = _run(db, _WRITE, _columns(entries))
        except BaseException:
            with self._turn:
                self._entries = deque([*entries, *self._entries], maxlen=_AT_MOST)
            raise
        for kind, wait_ms, wall_ms, times in rows:
            self._count(kind, wait_ms, wall_ms, times)
        return {entry.kind for entry in entries if entry.peak_mb is not None}

    def _count(self, kind: str, wait_ms: float | None, wall_ms: float, times: int) -> None:
        spent = self.spent.setdefault(kind, Spent())
        spent.ran.add(wall_ms / 1000, times)
        if wait_ms is not None:
            spent.waited.add(wait_ms / 1000, times)

    def _take(self) -> list[Entry]:
        with self._turn:
            entries, samples = list(self._entries), self._samples
            self._entries.clear()
            self._samples = {}
        return entries + [entry for alike in samples.values() for its in alike.values() for entry in its.entries()]


def _entry(finished: Finished, status: Status | None) -> Entry:
    job, ran_for = finished.job, finished.ran_for or 0.0
    return Entry(
        job_id=job.id,
        lease_seq=job.lease_seq,
        attempt=min(job.attempt, job.max_attempts),
        kind=job.kind,
        outcome=status.value if status else "LEASE_LOST",
        due_at=job.due_at,
        began=monotonic() - ran_for if job.started_at is None else job.started_at,
        wall_ms=round(ran_for * 1000, 3),
        cpu_ms=None if job.cpu is None else round(job.cpu * 1000, 3),
        peak_mb=None if job.peak is None else round(job.peak / _MB, 1),
    )


# Entries of jobs that were pruned meanwhile are left out: a job's costs are deleted with it. A second try after a lost
# answer changes nothing, because ON CONFLICT DO NOTHING returns no rows, and only returned rows are rolled up into
# job_history. ORDER BY locks rows of job_history in one order, so that two writers cannot deadlock.
# A job that snoozes for ever has endless attempts, each with two steps of lease_seq. Of such a job the costs of the
# last thousand attempts and the last 10,000 lines of its log are kept; every hundredth attempt deletes older ones.
_WRITE = """
WITH written AS (
INSERT INTO job_cost (
    job_id, lease_seq, attempt, kind, outcome, started_at, wait_ms, wall_ms, cpu_ms, peak_mb, stands_for)
SELECT job_id, lease_seq, attempt, kind, outcome, began.at,
       CASE WHEN due_at IS NOT NULL  -- greatest() ignores NULL, so it would make 0 of an unknown wait
            THEN round(greatest(0, extract(epoch FROM began.at - due_at)) * 1000, 3) END,
       wall_ms, cpu_ms, peak_mb, stands_for
  FROM unnest(%(job_id)s::bigint[], %(lease_seq)s::bigint[], %(attempt)s::integer[], %(kind)s::text[],
              %(outcome)s::text[], %(due_at)s::timestamptz[], %(age)s::float8[], %(wall_ms)s::float8[],
              %(cpu_ms)s::float8[], %(peak_mb)s::float8[], %(stands_for)s::integer[])
       AS it (job_id, lease_seq, attempt, kind, outcome, due_at, age, wall_ms, cpu_ms, peak_mb, stands_for)
 CROSS JOIN LATERAL (SELECT now() - make_interval(secs => age) AS at) AS began
 WHERE EXISTS (SELECT FROM snap_processing_job WHERE id = job_id)
    ON CONFLICT DO NOTHING
RETURNING kind, outcome, wait_ms, wall_ms, stands_for
), rolled_up AS (
INSERT INTO job_history AS its (minutes, at, kind, completed, failed, cancelled, retried, waits, runs)
-- GROUPING SETS: one row for each kind, and one with kind NULL, kept as '', for all kinds together
SELECT 1, date_trunc('minute', now()), coalesce(kind, ''),
       coalesce(sum(stands_for) FILTER (WHERE outcome = 'COMPLETED'), 0),
       coalesce(sum(stands_for) FILTER (WHERE outcome = 'FAILED'), 0),
       coalesce(sum(stands_for) FILTER (WHERE outcome = 'CANCELLED'), 0),
       coalesce(sum(stands_for) FILTER (WHERE outcome = 'RETRY_WAIT'), 0),
       job_histogram(array_agg(wait_ms), array_agg(stands_for)),
       job_histogram(array_agg(wall_ms), array_agg(stands_for))
  FROM written GROUP BY GROUPING SETS ((kind), ()) HAVING count(*) > 0 ORDER BY 3
    ON CONFLICT (minutes, at, kind) DO UPDATE
   SET completed = its.completed + excluded.completed, failed = its.failed + excluded.failed,
       cancelled = its.cancelled + excluded.cancelled, retried = its.retried + excluded.retried,
       waits = job_histogram_sum(its.waits, excluded.waits), runs = job_histogram_sum(its.runs, excluded.runs)
), endless AS MATERIALIZED (
    SELECT job_id, max(lease_seq) - 2 * 1000 AS before
      FROM unnest(%(job_id)s::bigint[], %(lease_seq)s::bigint[]) AS it (job_id, lease_seq)
     WHERE lease_seq %% (2 * 100) < 2
       AND EXISTS (SELECT FROM job_cost AS its WHERE its.job_id = it.job_id
                    AND its.lease_seq <= it.lease_seq - 2 * 1000)
     GROUP BY job_id
), old_costs AS (
    DELETE FROM job_cost AS its USING endless WHERE its.job_id = endless.job_id AND its.lease_seq <= before
), old_lines AS (
    DELETE FROM job_log AS its USING endless
     WHERE its.job_id = endless.job_id
       AND its.id <= (SELECT id FROM job_log WHERE job_id = endless.job_id ORDER BY id DESC OFFSET 10000 LIMIT 1)
)
SELECT kind, wait_ms, wall_ms, stands_for FROM written
"""


def _columns(entries: Sequence[Entry]) -> dict[str, Any]:
    now = monotonic()
    columns: dict[str, Any] = dict(zip(Entry._fields, map(list, zip(*entries, strict=True)), strict=True))
    return columns | {"age": [now - began for began in columns.pop("began")]}


# --- read -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptCost:
    """A row of job_cost."""

    attempt: int
    lease_seq: int
    outcome: str
    started_at: datetime
    wait_ms: float | None
    wall_ms: float
    cpu_ms: float | None
    peak_mb: float | None
    stands_for: int


@dataclass(frozen=True, slots=True)
class KindCost:
    """A row of kind_costs."""

    kind: str
    attempts: int
    measured: int
    since: datetime
    wait_p50_ms: float | None
    wait_p95_ms: float | None
    wait_p99_ms: float | None
    wall_p50_ms: float
    wall_p95_ms: float
    wall_p99_ms: float
    cpu_p50_ms: float | None
    cpu_p95_ms: float | None
    cpu_p99_ms: float | None
    peak_p50_mb: float | None
    peak_p95_mb: float | None
    peak_p99_mb: float | None


def of_job(db: Db, job_id: int) -> list[AttemptCost]:
    """The costs of the last 20 attempts of a job that have a row, in the order in which they ran."""
    rows = _run(
        db,
        "SELECT attempt, lease_seq, outcome, started_at, wait_ms, wall_ms, cpu_ms, peak_mb, stands_for FROM job_cost"
        " WHERE job_id = %(job_id)s ORDER BY lease_seq DESC LIMIT 20",
        {"job_id": job_id},
    )
    return [AttemptCost(*row) for row in reversed(rows)]


def of_kinds(db: Db) -> list[KindCost]:
    return [KindCost(*row) for row in _run(db, "SELECT * FROM kind_costs", {})]


def needs(db: Db, kinds: Collection[str]) -> dict[str, float]:
    """Kind -> MB that 95 of 100 of its attempts stay within. Kinds that were never measured are missing."""
    statement = "SELECT kind, peak_p95_mb FROM kind_costs WHERE kind = ANY (%(kinds)s) AND peak_p95_mb IS NOT NULL"
    return dict(_run(db, statement, {"kinds": list(kinds)}))

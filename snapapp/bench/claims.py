"""Measures what a claim of 100 jobs costs on a deep queue, in turns with a claim on a shallow queue."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, ClassVar

import psycopg

from snapapp.bench.plan import KIND, Plan, Step
from snapapp.bench.report import Measurement, Target
from snapapp.bench.server import BenchServer, Db, connect, fill
from snapapp.jobs.errors import JobsError
from snapapp.jobs.executors import Executor
from snapapp.jobs.model import Job
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows import settle
from snapapp.jobs.rows.claim import ClaimingWorker, Look, Wanted
from snapapp.jobs.rows.database import Row
from snapapp.jobs.rows.database import connect as connect_as_worker
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker.capacity.admission import Admission
from snapapp.jobs.worker.claiming.claimer import Claimer

_BATCH = 100
_WARM_UPS = 5  # psycopg prepares a statement at its fourth use
_UNKNOWN = "bench.a-kind-that-nobody-knows"
_LAST = 40  # how many of the last claims of a drain are measured
_BY = ClaimingWorker("bench", timedelta(minutes=1))
_WANTED = [Wanted(KIND, executor=0, at_most=_BATCH, at_once=_BATCH)]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    what: str
    fill: Callable[[Db], None]
    is_analysed: bool = True
    has_rules: bool = False
    target: float = 1.3


def cases(plan: Plan) -> list[Case]:
    deep, few = plan.deep, plan.shallow

    def ahead(count: int, **of_them: Any) -> Callable[[Db], None]:
        """So many jobs before the few that are claimed."""

        def rows(db: Db) -> None:
            fill(db, count, **of_them)
            fill(db, few)

        return rows

    keys_of_later = ahead(plan.lanes, lanes=plan.lanes, priority=10, due_in="1 day")

    def keys_under_a_limit(db: Db) -> None:
        db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('key:*', 1)")
        fill(db, plan.lanes, lanes=plan.lanes)
        fill(db, few)

    def heads(db: Db) -> None:
        db.execute(
            "INSERT INTO snap_processing_job (kind, priority)"
            " SELECT 'bench.other-' || n / 10, n %% 10 FROM generate_series(1, %s) AS n",
            [plan.heads],
        )
        fill(db, few)

    depths = [
        Case(f"claim.ready.{depth}", f"{depth:,} ready", partial(fill, count=depth))
        for depth in sorted({max(few, deep // 10), deep})
    ]
    return [
        *depths,
        Case("claim.future", f"{deep:,} for later ahead", ahead(deep, priority=10, due_in="1 day")),
        Case("claim.finished", f"{deep:,} finished", ahead(deep, status="COMPLETED")),
        Case("claim.unknown", f"{deep:,} of an unknown kind ahead", ahead(deep, kind=_UNKNOWN, priority=10)),
        Case("claim.keys", f"{plan.lanes:,} keys", partial(fill, count=10 * plan.lanes, lanes=plan.lanes)),
        Case("claim.keys_future", f"{plan.lanes:,} keys with one for later each", keys_of_later),
        Case(
            "claim.keys_limited", f"{plan.lanes:,} keys under a limit", keys_under_a_limit, has_rules=True, target=2.5
        ),
        Case("claim.heads", f"{plan.heads:,} kinds and priorities", heads),
        Case("claim.never_analysed", f"{deep:,} ready, never analysed", partial(fill, count=deep), is_analysed=False),
    ]


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    lines = []
    for case in cases(plan):
        step(f"claim: {case.what}")
        with (
            server.database() as deep,
            server.database() as shallow,
        ):  # new ones, because claims that are undone leave dead rows
            _fill(server, deep, case.fill, is_analysed=case.is_analysed)
            _fill(server, shallow, partial(fill, count=plan.shallow))
            lines.append(_compare(case, plan, deep, shallow))
    return [*lines, _measure_pinned(server, plan, step)]


def _fill(server: BenchServer, url: str, rows: Callable[[Db], None], *, is_analysed: bool = True) -> None:
    with connect(url) as db:
        rows(db)
    if is_analysed:
        server.vacuum(url)


def _compare(case: Case, plan: Plan, deep: str, shallow: str) -> Measurement:
    with _connect(deep) as deep_db, _connect(shallow) as shallow_db:
        for _ in range(_WARM_UPS):
            _claim_and_undo(deep_db, case.has_rules)
            _claim_and_undo(shallow_db)
        runs = [
            [(_claim_and_undo(deep_db, case.has_rules), _claim_and_undo(shallow_db)) for _ in range(plan.claims)]
            for _ in range(plan.runs)
        ]
    return Measurement(
        name=case.name,
        what=f"claim of {_BATCH}, {case.what}",
        unit="ms",
        ours=[median(ours for ours, _ in run) for run in runs],
        beside=[median(beside for _, beside in run) for run in runs],
        beside_is=f"{plan.shallow:,} ready",
        target=Target("ratio", "at most", case.target),
        more={"samples": runs},
    )


def _claim_and_undo(db: psycopg.Connection[Row], has_rules: bool = False) -> float:
    """Claims, and rolls back, so that the next claim finds the same queue."""
    # not by db.transaction: a ROLLBACK that psycopg sees makes it prepare, and so plan, every statement anew
    db.pgconn.exec_(b"BEGIN")
    began = perf_counter()
    jobs = claim_rows.claim(db, _BY, _WANTED, Look(has_rules=has_rules)).jobs
    took = perf_counter() - began
    db.pgconn.exec_(b"ROLLBACK")
    if len(jobs) != _BATCH:
        raise RuntimeError(f"a claim of {_BATCH} found {len(jobs)} jobs")
    return took * 1000


# --- beside an idle transaction ---------------------------------------------------------------------------------


class IdleExecutor:
    """An executor that runs nothing: the bench takes the jobs that the claimer puts here, and completes them."""

    slots = _BATCH
    prefetches = False
    is_caller = False

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    def load(self) -> int:
        return len(self.jobs)

    def at_work(self) -> list[Job]:
        return []

    def put(self, jobs: list[Job]) -> None:
        self.jobs = self.jobs + jobs

    def take_back(self) -> list[Job]:
        jobs, self.jobs = self.jobs, []
        return jobs

    def interrupt(self, job: Job, reason: JobsError) -> None:  # noqa: ARG002 - nothing runs here
        return


class OneExecutor:
    """The executors of the claimer: only the one above."""

    executor_of: ClassVar = {KIND: "thread"}

    def __init__(self, executor: IdleExecutor) -> None:
        self.by_name: dict[str, Executor] = {"thread": executor}

    def interrupt(self, job: Job, reason: JobsError) -> None:  # noqa: ARG002 - nothing runs here
        return

    def hand_back(self, name: str) -> None:  # noqa: ARG002 - nothing runs here
        return


class Drain:
    """Drains a queue with the real claimer and its bookmarks, one tick at a time."""

    def __init__(self, url: str) -> None:
        self._db = _connect(url)
        self._executor = IdleExecutor()
        settings = JobsSettings(database_url=url, batch_size=_BATCH, lease_for=_BY.lease_for)
        parts = replace(Runtime(settings, registry=Registry()).parts(), connect=lambda _: _connect(url))
        self._held_jobs = parts.held_jobs
        admission = Admission((), parts.held_jobs)
        self._claimer = Claimer(parts, OneExecutor(self._executor), admission, on_claimed=lambda _: None)

    def claim(self) -> float | None:
        """Claims and completes one batch. Returns the milliseconds of the claim; None: the queue is empty."""
        began = perf_counter()
        self._claimer.tick()
        took = perf_counter() - began
        jobs = self._executor.take_back()
        settle.complete(self._db, [(job.lease, None, 0.0) for job in jobs])
        for job in jobs:
            self._held_jobs.remove(job)
        return took * 1000 if jobs else None

    def close(self) -> None:
        self._claimer.close()
        self._db.close()


def _measure_pinned(server: BenchServer, plan: Plan, step: Step) -> Measurement:
    """Drains two databases batch by batch in turns. An idle transaction holds back vacuum in one of them; a snapshot
    does not hold it back in the other database."""
    runs = []
    for run in range(plan.runs):
        step(f"claim: {plan.pinned:,} drained beside an idle transaction, run {run + 1}")
        with server.database() as pinned, server.database() as free:
            for url in (pinned, free):
                _fill(server, url, partial(fill, count=plan.pinned))
            with pinning(pinned):
                runs.append(_drain_in_turns(pinned, free))
    return Measurement(
        name="claim.pinned",
        what=f"claim of {_BATCH} after {plan.pinned:,} beside an idle transaction",
        unit="ms",
        ours=[median(pinned[-_LAST:]) for pinned, _ in runs],
        beside=[median(free[-_LAST:]) for _, free in runs],
        beside_is="without it",
        target=Target("ratio", "at most", 2.0),
        more={"samples": runs},
    )


def _drain_in_turns(*urls: str) -> list[list[float]]:
    with ExitStack() as stack:
        drains = [Drain(url) for url in urls]
        for drain in drains:
            stack.callback(drain.close)
        took: list[list[float]] = [[] for _ in drains]
        while True:
            claims = [drain.claim() for drain in drains]
            if None in claims:
                return took
            for times, claim in zip(took, claims, strict=True):
                times.append(claim or 0.0)


@contextmanager
def pinning(url: str) -> Iterator[None]:
    with connect(url) as db, db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        db.execute("SELECT count(*) FROM job_queue")
        yield


def _connect(url: str) -> psycopg.Connection[Row]:
    # without waiting for the disk, because the claim is measured, not the disk
    return connect_as_worker(url, name="snapapp bench", options="-c synchronous_commit=off")

"""What a worker did as numbers, how full the queues are, and the text that Prometheus reads."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from snapapp.jobs import Job, Permanent, Snooze, enqueue, enqueue_many
from snapapp.jobs.metrics import depth as depths
from snapapp.jobs.metrics import work
from snapapp.jobs.metrics.depth import CachedAnswer, Depth
from snapapp.jobs.metrics.exposition import counter, gauge, render
from snapapp.jobs.metrics.work import Pruned
from snapapp.jobs.model import Buried, Dropped, Failure, Finished, Interrupted, Outcome, Retried, Status, Succeeded
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import lifecycle, roster
from snapapp.jobs.rows.costs import CollectedCosts, Spent
from snapapp.jobs.rows.database import connect, run
from snapapp.jobs.rows.people import overviews
from snapapp.jobs.rows.people.overviews import CAP, QueueSummary
from snapapp.jobs.rows.roster import Counts, Report
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker.settler import Settler
from tests.commands import MEMBER
from tests.exposition import parse
from tests.factory import Db, ago, at_once, hence, make_job, make_jobs, running_job, scalar
from tests.jobs.working import until, until_status, working

READ = "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname = 'snap_processing_job'"


def finished(db: Db, outcome: Outcome, ran_for: float | None = 0.5, *, kind: str = "test") -> Finished:
    return Finished(running_job(db, kind=kind), outcome, ran_for)


# --- what the worker did ----------------------------------------------------------------------------------------


def test_every_way_to_end_is_counted_in_its_own_place(db: Db) -> None:
    """Q32-Q37, S26."""
    counts, no = Counts(), Failure("no")
    counts.add(Status.COMPLETED, [finished(db, Succeeded(None), seconds) for seconds in (1.0, 2.0)])
    counts.add(Status.FAILED, [finished(db, Buried(no), 3.0, kind="other"), finished(db, Buried(no, ran=False), None)])
    counts.add(Status.CANCELLED, [finished(db, Retried(no, timedelta()), 6.0)])
    counts.add(Status.RETRY_WAIT, [finished(db, Retried(no, timedelta()))])
    begun, read_ahead = finished(db, Interrupted()), finished(db, Interrupted(), None)
    begun.job.started_at = 1.0
    counts.add(Status.PENDING, [begun, read_ahead])
    counts.add(None, [finished(db, Dropped(), None)])
    found = {name.removeprefix(work.PREFIX): value for name, value in work.numbers(counts, pruned=4).items()}
    assert found == {
        "claimed": 0,
        "retry.scheduled": 1,
        "stale.recovered": 0,
        "cleanup.deleted": 4,
        "processed": 5,
        "completed": 2,
        "failed": 2,
        "cancelled": 1,
        "snoozed": 0,
        "interrupted": 1,
        "leases.lost": 1,
        "terminal.avg.duration.ms": 3000.0,
        "terminal.max.duration.ms": 6000.0,
    }
    assert counts.busy_ms == 6000.0
    assert {kind: (one.completed, one.failed, one.ran) for kind, one in counts.by_kind.items()} == {
        "test": (2, 1, 3),
        "other": (0, 1, 1),
    }


def test_a_worker_knows_what_it_did(url: str, db: Db) -> None:
    """Q32-Q36, Q39, S26: with hooks and without, by the worker itself."""
    registry = Registry()
    registry.processor("fine")(lambda job: None)
    registry.processor("hooked", commit=lambda db, job, result: None)(lambda job: None)
    begun = threading.Event()

    @registry.processor("broken")
    def broken(job: Job) -> None:
        raise ValueError("no")

    @registry.processor("later")
    def later(job: Job) -> None:
        if not begun.is_set():
            begun.set()
            raise Snooze(timedelta(seconds=1))
        raise Permanent("never")

    with working(url, registry) as (worker, _):
        enqueue_many(db, [{"kind": "fine"}] * 30 + [{"kind": "hooked"}] * 5 + [{"kind": "broken", "max_attempts": 3}])
        enqueue(db, "later")
        until(lambda: worker.counts.failed == 2)
        until(lambda: worker.counts.completed == 35)
    counts = worker.counts
    assert (counts.claimed, counts.retried, counts.snoozed, counts.lost) == (40, 2, 1, 0)
    assert counts.by_kind["hooked"].completed == 5
    assert counts.by_kind["broken"].retried == 2
    assert counts.by_kind["broken"].longest_ms > 0


def test_a_cancelled_and_an_interrupted_job_are_counted_as_such(url: str, db: Db) -> None:
    """Q40, S26, W36."""
    registry = Registry()
    running, pauses = threading.Semaphore(0), threading.Event()

    @registry.processor("long")
    def long(job: Job) -> None:
        running.release()
        while True:
            job.raise_if_cancelled()
            pauses.wait(0.01)

    with working(url, registry) as (worker, heard):
        first, second = enqueue(db, "long"), enqueue(db, "long")
        assert first
        assert second
        assert running.acquire(timeout=20)
        assert running.acquire(timeout=20)
        lifecycle.cancel(db, first)
        until_status(db, first, "CANCELLED")
        worker.stop(timedelta(seconds=1))
        until_status(db, second, "PENDING")
    assert (worker.counts.cancelled, worker.counts.interrupted) == (1, 1)
    [interrupted] = heard.all("worker.job.interrupted")
    assert (interrupted.facts["job_id"], interrupted.level) == (second, logging.WARNING)


def test_what_landed_is_counted_once_though_another_of_its_batch_has_to_come_again(url: str, db: Db) -> None:
    """D6, S26: somebody has locked the row of the second; the first is written meanwhile."""
    parts = Runtime(JobsSettings(database_url=url), registry=Registry()).parts()
    counts = parts.counts
    fine, stuck = finished(db, Succeeded(None)), finished(db, Retried(Failure("no"), timedelta()))
    settler = Settler(parts, on_settled=lambda: None, on_due_in=lambda seconds: None)
    with connect(url, name="holder") as holder, holder.transaction():
        holder.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [stuck.job.id])
        settler.put(fine)
        settler.put(stuck)
        settler.start()
        until(lambda: counts.completed == 1)
        assert counts.retried == 0
    until(lambda: counts.retried == 1)
    settler.stop(timeout=10)
    assert (counts.completed, counts.lost) == (1, 0)


def test_what_a_worker_forgot_for_its_age_is_counted(url: str, db: Db) -> None:
    """S26: cleanup deleted."""
    make_jobs(db, 3, status="COMPLETED", created_at=ago(days=9), finished_at=ago(days=8))
    with working(url, Registry(), prune_every=timedelta(hours=1)) as (worker, _):
        pruned = Pruned(worker.events)
        worker.prune()
        assert pruned.jobs == 3


def test_counting_at_once_loses_nothing(db: Db) -> None:
    """The settler counts batches while slots count what they settled with a hook."""
    counts, one = Counts(), finished(db, Succeeded(None))

    def count() -> None:
        for _ in range(5000):
            counts.add(Status.COMPLETED, [one])

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        at_once(*[count] * 4)
    finally:
        sys.setswitchinterval(usual)
    assert (counts.completed, counts.by_kind["test"].completed, counts.by_kind["test"].ran) == (20_000,) * 3
    assert counts.busy_ms == 20_000 * 500


# --- how full the queues are ------------------------------------------------------------------------------------


def look(db: Db) -> Depth:
    with db.transaction():
        return depths.depth(db)


def make_many(db: Db, count: int, kind: str = "test", queue: str = "default", due: str = "-1 hour") -> None:
    db.execute(
        "INSERT INTO snap_processing_job (kind, queue, next_retry_at)"
        " SELECT %s, %s, now() + %s::interval FROM generate_series(1, %s)",
        [kind, queue, due, count],
    )


@pytest.mark.both_servers_at_length
def test_depth_says_what_queue_overview_says(db: Db) -> None:
    """Q38, Q49, S26."""
    make_job(db, queue="a", next_retry_at=ago(seconds=100))
    make_job(db, "RETRY_WAIT", queue="a", next_retry_at=hence(seconds=100), attempt_count=1)
    make_job(db, queue="a", kind="z", concurrency_key="one", next_retry_at=ago(seconds=300))
    make_job(db, queue="a", losses=2, gate="alone", next_retry_at=ago(seconds=10))
    make_jobs(db, 2, status="RUNNING", queue="b")
    make_job(db, queue="c", next_retry_at=hence(hours=1))
    make_job(db, "FAILED", queue="d")
    db.execute("SELECT pause_queue('c', 'because'), pause_queue('empty', 'because')")
    found = look(db)
    rows = db.execute("SELECT queue, pending + retry_wait FROM queue_overview").fetchall()
    assert {one.queue: one.waiting for one in found.queues} == {"a": 4, "b": 0, "c": 1, "d": 0, "empty": 0}
    assert rows == [("a", 4), ("b", 0), ("c", 1), ("d", 0)]
    assert {one.queue: one.running for one in found.queues if one.running} == {"b": 2}
    assert [one.queue for one in found.queues if one.paused_at] == ["c", "empty"]
    oldest, *others = [one.oldest_due for one in found.queues]
    assert oldest is not None
    assert timedelta(seconds=299) < oldest < timedelta(seconds=360)
    assert others == [None] * 4
    assert found.dead_letters == 1


@pytest.mark.both_servers_at_length
def test_depth_counts_no_further_than_its_cap(db: Db) -> None:
    make_many(db, CAP + 5)
    make_many(db, 7, queue="other")
    assert {one.queue: one.waiting for one in look(db).queues} == {"default": CAP + 1, "other": 7}


@pytest.mark.parametrize("gate", ["open", "held", "later", "alone"])
def test_stuck_jobs_are_those_of_the_view_at_whatever_gate_they_wait(db: Db, gate: str) -> None:
    """Q38: also where no worker is alive to look through them."""
    make_job(db, "RUNNING", lock_expires_at=ago(seconds=1))
    make_job(db, "RUNNING")
    make_jobs(db, 2, kind="from.the.future", next_retry_at=ago(minutes=2), gate=gate)
    make_job(db, kind="too.young", next_retry_at=ago(seconds=2), gate=gate)
    found = look(db)
    assert (found.overdue, found.unknown_kinds) == (1, ["from.the.future"])
    assert found.stuck == len(db.execute("SELECT FROM queue_stuck").fetchall()) == 2


def test_of_a_kind_that_no_worker_knows_one_job_that_has_waited_is_enough(db: Db) -> None:
    """All of a hundred queues' were read: then the statement ended without a number, just where one was needed."""
    db.execute(
        "INSERT INTO snap_processing_job (kind, next_retry_at)"
        " SELECT 'gone', now() - interval '1 hour' FROM generate_series(1, 1000)"
    )
    with db.transaction():
        overviews.bend_plans(db)
        before = scalar(db, READ)
        [(_, _, unknown, *_)] = run(db, depths._REST, {"cap": CAP, "sample": 1})
        assert unknown == ["gone"]
        assert scalar(db, READ) - before < 100


def test_the_mean_duration_is_that_of_jobs_just_before_the_newest_that_runs(db: Db) -> None:
    """Q37, Q49: a backlog behind it does not hide them."""
    assert look(db).mean_ms is None
    make_job(db, "COMPLETED", started_at=ago(seconds=4), finished_at=ago(seconds=2))
    make_job(db, "COMPLETED", started_at=ago(hours=30), finished_at=ago(hours=25))
    make_job(db, "RUNNING")
    make_many(db, 10_100)
    mean = look(db).mean_ms
    assert mean is not None
    assert 1900 < mean < 2100


def test_many_who_ask_are_one_question(db: Db) -> None:
    asked = []

    @contextmanager
    def counted() -> Iterator[Db]:
        asked.append(1)
        with db.transaction():
            yield db

    watch = CachedAnswer(counted, depths.depth)
    at_once(*[lambda: watch.look(fresh_for=timedelta(seconds=15))] * 8)
    assert len(asked) == 1
    make_job(db, "FAILED")
    assert watch.look(fresh_for=timedelta(0)) == look(db)


def test_a_database_that_refuses_is_told_and_asked_again(url: str) -> None:
    fails = [True]

    @contextmanager
    def shaky() -> Iterator[Db]:
        if fails:
            raise psycopg.OperationalError("it is away")
        with connect(url, name="test") as db, db.transaction():
            yield db

    watch = CachedAnswer(shaky, depths.depth)
    assert watch.look(fresh_for=timedelta(seconds=15)) is None
    assert watch.trouble == "it is away"
    fails.clear()
    until(lambda: watch.look(fresh_for=timedelta(seconds=15)) is not None)
    assert watch.trouble is None


# --- Prometheus -------------------------------------------------------------------------------------------------


def test_the_text_can_be_read_whatever_a_kind_is_called(db: Db) -> None:
    hostile = 'a"b\\c\nd{}=, ü'
    counts = Counts()
    counts.add(Status.COMPLETED, [finished(db, Succeeded(None), 0.25, kind=hostile)])
    found = parse(render(work.families(counts, 2, {hostile: Spent()})))
    assert found.value("snapapp_jobs_completed_total", kind=hostile) == 1
    assert found.value("snapapp_job_duration_seconds_sum", kind=hostile) == 0.25
    assert found.value("snapapp_jobs_pruned_total") == 2
    assert found.types["snapapp_job_duration_seconds"] == "summary"
    assert found.value("snapapp_job_wait_seconds_count", kind=hostile) == 0


def test_one_attempt_that_stands_for_many_counts_as_many(db: Db) -> None:
    """R52: what was waited and run, by kind, adds up to all attempts."""
    collected = CollectedCosts()
    waited = [finished(db, Succeeded(None), seconds, kind="quick") for seconds in (0.2, 2.0, 2.0)]
    for one in waited:
        one.job.due_at = ago(seconds=40)
        one.job.is_measured = one is waited[0]
    quick = [finished(db, Succeeded(None), 0.001, kind="quick") for _ in range(5)]
    for one in quick:
        one.job.is_measured = one is quick[0]
    collected.add(waited + quick, Status.COMPLETED)
    collected.write(db)
    found = parse(render(work.families(Counts(), 0, collected.spent)))
    assert found.value("snapapp_job_run_seconds_count", kind="quick") == 8
    assert found.value("snapapp_job_run_seconds_bucket", kind="quick", le="1") == 6
    assert found.value("snapapp_job_run_seconds_bucket", kind="quick", le="2.5") == 8
    assert found.value("snapapp_job_wait_seconds_bucket", kind="quick", le="30") == 0
    assert found.value("snapapp_job_wait_seconds_sum", kind="quick") >= 2 * 30


def test_what_each_worker_alive_did_is_told_and_how_old_the_oldest_beat_is(db: Db) -> None:
    """Q33, Q39, R52: of other processes, too."""
    report = Report(Counts(completed=3, failed=1, retried=2), current_jobs=[7])
    roster.beat(db, MEMBER, report, lives_for=timedelta(hours=1))
    roster.beat(db, replace(MEMBER, id="b" * 32, name="gone"), report, lives_for=timedelta(0))
    make_job(db, "RUNNING", locked_at=ago(seconds=40))
    make_job(db, "RUNNING")
    found = parse(render(depths.families(depths.depth(db))))
    its = {"worker": "box-1", "id": "a" * 8}
    told = {outcome: found.value("snapapp_worker_attempts_total", outcome=outcome, **its) for outcome in OUTCOMES}
    assert told == {"completed": 3, "failed": 1, "retried": 2}
    assert found.value("snapapp_worker_held_jobs", **its) == 1
    assert 0 <= found.value("snapapp_worker_silent_seconds", **its) < 60
    assert 40 <= found.value("snapapp_oldest_heartbeat_seconds") < 100
    assert not any(("worker", "gone") in labels for _, labels in found.samples)


OUTCOMES = ("completed", "failed", "retried")


def test_depth_is_told_by_queue() -> None:
    paused = QueueSummary("a", 3, 0, 0, 1, 0, None, None, datetime.now(UTC), None)
    queues = [paused, QueueSummary("b", CAP, 1, 0, 0, 0, timedelta(seconds=7.5), 8, None, None, timedelta(hours=1))]
    known = Depth(queues, [], [], 2, 1, ["x"], 1, 4, None, None)
    found = parse(render(depths.families(known)))
    assert found.value("snapapp_queue_waiting_jobs", queue="b") == CAP + 1
    assert found.value("snapapp_queue_oldest_due_seconds", queue="b") == 7.5
    assert [found.value("snapapp_queue_long_wait_seconds", queue=queue) for queue in ("a", "b")] == [300, 3600]
    assert found.value("snapapp_queue_paused", queue="a") == 1
    assert (found.value("snapapp_stuck_jobs"), found.value("snapapp_worker_slots")) == (2, 4)


def test_what_is_not_known_is_left_out() -> None:
    assert render([counter("nothing_total", "Nobody counted."), gauge("one", "1.", (1, {}))]) == (
        "# HELP one 1.\n# TYPE one gauge\none 1.0\n"
    )

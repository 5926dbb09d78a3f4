"""What attempts cost: measured in each executor, written down once, read as percentiles, gone with the job."""

import json
import resource
import subprocess
import time
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from snapapp.jobs import Job, Snooze, enqueue_many, events
from snapapp.jobs.model import Buried, Failure, Finished, Status, Succeeded
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import costs, retention
from snapapp.jobs.rows.costs import CollectedCosts
from tests.commands import Call
from tests.factory import Db, ago, job, make_job, running_job, scalar
from tests.jobs.executors.test_executors import put
from tests.jobs.kinds import spending
from tests.jobs.working import until, until_status, working


def rows(db: Db, job_id: int) -> list[Any]:
    with db.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute("SELECT * FROM job_cost WHERE job_id = %s ORDER BY lease_seq", [job_id]).fetchall()


def cost_of(db: Db, job_id: int) -> Any:
    """Costs are written once a second."""
    until(lambda: rows(db, job_id))
    [cost] = rows(db, job_id)
    return cost


def ran(job: Job, seconds: float = 0.001) -> Finished:
    return Finished(job, Succeeded(None), seconds)


# --- each executor ----------------------------------------------------------------------------------------------


def test_a_child_s_attempt_is_written_down_with_all_that_it_took(url: str, db: Db) -> None:
    with working(url, spending.registry):
        job_id = put(db, "spend.child", payload={"mb": 100, "cpu": 0.3, "rest": 0.2})
        done = until_status(db, job_id, "COMPLETED")
        cost = cost_of(db, job_id)
    assert 500 <= cost.wall_ms < 10_000
    assert 290 <= cost.cpu_ms < cost.wall_ms
    assert 100 < cost.peak_mb < 300
    assert (cost.attempt, cost.kind, cost.outcome, cost.stands_for) == (1, "spend.child", "COMPLETED", 1)
    assert cost.wait_ms >= 0
    assert abs(cost.started_at - done.started_at) < timedelta(seconds=0.45)  # its end is half a second later


def test_a_warm_child_s_next_attempt_is_not_charged_for_the_one_before(url: str, db: Db) -> None:
    with working(url, spending.registry, child_max_rss_mb=1000):
        big = put(db, "spend.child", payload={"mb": 150, "cpu": 0.5})
        pid = until_status(db, big, "COMPLETED").result
        small = put(db, "spend.child", payload={"mb": 1})
        assert until_status(db, small, "COMPLETED").result == pid
        before, after = cost_of(db, big), cost_of(db, small)
    assert after.peak_mb < before.peak_mb - 100
    assert after.cpu_ms < 250


@pytest.mark.parametrize("kind", ["spend.command", "spend.shell"])
def test_a_program_is_charged_for_itself_and_what_it_starts(url: str, db: Db, kind: str) -> None:
    with working(url, spending.registry):
        job_id = put(db, kind, payload={"mb": 100, "cpu": 0.3, "rest": 0.3})
        until_status(db, job_id, "COMPLETED")
        cost = cost_of(db, job_id)
    assert 290 <= cost.cpu_ms <= cost.wall_ms + 50
    assert 100 < cost.peak_mb < 300


def test_a_short_program_is_not_charged_for_the_worker_s_memory(url: str, db: Db) -> None:
    """The kernel counts a program's need from what its parent had when it started it."""
    with working(url, spending.registry):
        job_id = put(db, "spend.brief")
        until_status(db, job_id, "COMPLETED")
        cost = cost_of(db, job_id)
    assert cost.peak_mb is None or cost.peak_mb < 20
    assert cost.cpu_ms < 100


def test_a_program_is_not_charged_for_what_the_worker_takes_while_it_starts_it(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bytes] = []

    def begin(*command: Any, **how: Any) -> Any:
        peak = memory_peak()
        while memory_peak() < peak + 8 * 1024:
            kept.append(b"x" * 2**20)
        return popen(*command, **how)

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", begin)
    with working(url, spending.registry):
        job_id = put(db, "spend.brief")
        until_status(db, job_id, "COMPLETED")
        cost = cost_of(db, job_id)
    assert kept
    assert cost.peak_mb is None or cost.peak_mb < 20


def memory_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_who_is_killed_for_its_memory_is_known_to_have_needed_it(url: str, db: Db) -> None:
    """FA5."""
    with working(url, spending.registry):
        job_id = put(db, "spend.much", max_attempts=1)
        until_status(db, job_id, "FAILED")
        cost = cost_of(db, job_id)
    assert cost.outcome == "FAILED"
    assert cost.peak_mb >= spending.LIMIT_MB  # it used more, by less than the tenth that is kept, perhaps


@pytest.mark.at_length  # who is killed for its memory is charged, in every run
def test_who_is_killed_at_its_time_limit_is_charged_until_then(url: str, db: Db) -> None:
    with working(url, spending.registry):
        job_id = put(db, "hang.python", max_attempts=1, timeout=timedelta(seconds=1))
        until_status(db, job_id, "FAILED")
        cost = cost_of(db, job_id)
    assert 20 < cost.cpu_ms <= cost.wall_ms + 50  # how much of a core it got is the machine's affair
    assert cost.wall_ms >= 990


def test_a_thread_s_attempt_has_its_own_cpu_time_and_no_memory(url: str, db: Db) -> None:
    registry = Registry()

    @registry.processor("burn")
    def burn(job: Job) -> None:
        began = time.thread_time()
        while time.thread_time() - began < 0.2:
            pass

    @registry.processor("rest")
    async def rest(job: Job) -> None: ...

    with working(url, registry):
        burning, resting = put(db, "burn"), put(db, "rest")
        burnt, rested = cost_of(db, burning), cost_of(db, resting)
    assert 199 <= burnt.cpu_ms <= burnt.wall_ms
    assert (burnt.peak_mb, rested.cpu_ms, rested.peak_mb) == (None, None, None)


# --- which attempts ---------------------------------------------------------------------------------------------


def test_every_attempt_has_its_own_row_whatever_it_led_to(url: str, db: Db) -> None:
    registry = Registry()

    leases: list[int] = []

    @registry.processor("odd", max_attempts=3)
    def odd(job: Job) -> None:
        leases.append(job.lease_seq)
        if len(leases) == 1:
            raise Snooze(timedelta(seconds=1))
        if job.attempt < 3:
            raise ValueError("not yet")

    with working(url, registry):
        job_id = put(db, "odd")
        until_status(db, job_id, "COMPLETED")
        until(lambda: sum(row.stands_for for row in rows(db, job_id)) == 4)
        found = [(row.attempt, row.outcome) for row in rows(db, job_id)]
    assert found == [(1, "PENDING"), (1, "RETRY_WAIT"), (2, "RETRY_WAIT"), (3, "COMPLETED")]


@pytest.mark.at_length  # attempts too quick to measure are counted, and samples spread, in every run
def test_of_many_quick_attempts_a_few_rows_stand_for_all(url: str, db: Db) -> None:
    registry = Registry()
    registry.processor("quick")(lambda job: None)
    enqueue_many(db, [{"kind": "quick"}] * 5000)
    with working(url, registry) as (worker, _):
        until(lambda: worker.counts.completed == 5000, within=60)
        until(lambda: scalar(db, "SELECT sum(stands_for) FROM job_cost") == 5000)
    count, cpu = db.execute("SELECT count(*), count(cpu_ms) FROM job_cost").fetchall()[0]
    assert 1 <= cpu <= count <= 500  # 32 at most in a second
    [kind] = costs.of_kinds(db)
    assert (kind.kind, kind.attempts, kind.measured) == ("quick", 5000, count)


def test_what_a_stop_leaves_in_the_ledger_is_written_before_the_worker_leaves(url: str, db: Db) -> None:
    registry = Registry()
    registry.processor("quick")(lambda job: None)
    with working(url, registry):
        job_id = put(db, "quick")
        until_status(db, job_id, "COMPLETED")
    assert len(rows(db, job_id)) == 1


def test_an_attempt_that_did_not_run_costs_nothing(url: str, db: Db) -> None:
    registry = Registry()
    registry.processor("test")(lambda job: None)
    with working(url, registry):
        exhausted = make_job(db, "RETRY_WAIT", attempt_count=3, max_attempts=3)
        until_status(db, exhausted, "FAILED")
    assert rows(db, exhausted) == []


def test_an_attempt_whose_lease_was_lost_is_told_too(db: Db) -> None:
    collected, mine = CollectedCosts(), running_job(db)
    collected.add([ran(mine)], None)
    collected.write(db)
    assert rows(db, mine.id)[0].outcome == "LEASE_LOST"


def test_a_batch_with_an_exhausted_job_counts_the_others(db: Db) -> None:
    collected, tired, fresh = CollectedCosts(), running_job(db, attempt_count=4, max_attempts=3), running_job(db)
    collected.add([Finished(one, Buried(Failure("oops")), 0.1) for one in (tired, fresh)], Status.FAILED)
    collected.write(db)
    assert (rows(db, tired.id), len(rows(db, fresh.id))) == ([], 1)


def test_samples_are_spread_evenly_and_lose_nobody(db: Db) -> None:
    collected, only = CollectedCosts(), running_job(db)
    for number in range(1, 1001):
        collected.add([ran(only, number / 10_000)], Status.COMPLETED)
        only.lease_seq += 1
    collected.write(db)
    found = rows(db, only.id)
    assert 16 <= len(found) <= 32
    assert sum(row.stands_for for row in found) == 1000
    assert abs(scalar(db, "SELECT wall_p50_ms FROM kind_costs") - 50) < 5


def test_attempts_too_quick_to_measure_are_counted_and_one_of_them_is_shown(db: Db) -> None:
    collected, made = CollectedCosts(), [running_job(db) for _ in range(3)]
    for mine in made:
        mine.is_measured = False
    collected.add([ran(mine) for mine in made], Status.COMPLETED)
    collected.write(db)
    assert [row.stands_for for mine in made for row in rows(db, mine.id)] == [3]


# --- written down -----------------------------------------------------------------------------------------------


def test_what_could_not_be_written_waits_for_the_next_time(url: str, db: Db) -> None:
    collected, mine = CollectedCosts(), running_job(db)
    collected.add([ran(mine, 2.0)], Status.COMPLETED)
    with closing(psycopg.connect(url)) as gone:
        gone.close()
        with pytest.raises(psycopg.OperationalError):
            collected.write(gone)
    assert collected
    collected.write(db)
    assert len(rows(db, mine.id)) == 1
    assert not collected


def test_writing_twice_after_an_answer_was_lost_changes_nothing(db: Db) -> None:
    mine = running_job(db)
    for _ in range(2):
        collected = CollectedCosts()
        collected.add([ran(mine)], Status.COMPLETED)
        collected.write(db)
    assert len(rows(db, mine.id)) == 1


def test_a_job_that_is_gone_leaves_no_row_behind(db: Db) -> None:
    collected, mine = CollectedCosts(), running_job(db)
    collected.add([ran(mine)], Status.COMPLETED)
    db.execute("DELETE FROM snap_processing_job")
    collected.write(db)
    assert rows(db, mine.id) == []


def test_costs_are_pruned_with_their_jobs(db: Db) -> None:
    old, young = (make_job(db, "COMPLETED", finished_at=ago(days=days), created_at=ago(days=days)) for days in (8, 1))
    collected = CollectedCosts()
    collected.add([ran(job(db, old), 2.0), ran(job(db, young), 2.0)], Status.COMPLETED)
    collected.write(db)
    retention.prune(db, keep=timedelta(days=7))
    assert (len(rows(db, old)), len(rows(db, young))) == (0, 1)


def test_a_job_that_snoozes_for_ever_keeps_its_newest_costs_and_lines(db: Db) -> None:
    first = 1_800_000_000_000_000  # the first lease of a job is the time in microseconds
    endless, brief = running_job(db, lease_seq=first + 6000), running_job(db, lease_seq=first + 600)
    for one, leases in ((endless, range(first, first + 6000, 2)), (brief, range(first, first + 600, 2))):
        db.execute(
            "INSERT INTO job_cost (job_id, lease_seq, attempt, kind, outcome, started_at, wall_ms)"
            " SELECT %s, its, 1, 'test', 'PENDING', now(), 1000 FROM unnest(%s::bigint[]) AS its",
            [one.id, [*leases]],
        )
        db.execute(
            "INSERT INTO job_log (job_id, attempt, message) SELECT %s, 1, 'line '||n FROM generate_series(1, 10003) n",
            [one.id],
        )
    collected = CollectedCosts()
    collected.add([ran(endless, 2.0), ran(brief, 2.0)], Status.PENDING)
    collected.write(db)
    assert [cost.lease_seq for cost in rows(db, endless.id)] == [*range(first + 4002, first + 6001, 2)]
    assert len(rows(db, brief.id)) == 301
    kept = db.execute("SELECT job_id, count(*), min(message) FROM job_log GROUP BY 1 ORDER BY 1").fetchall()
    assert kept == [(endless.id, 10_000, "line 10"), (brief.id, 10_003, "line 1")]
    assert scalar(db, "SELECT message FROM job_log WHERE job_id = %s ORDER BY id LIMIT 1", endless.id) == "line 4"


def test_a_wait_is_counted_from_when_the_job_was_due_not_from_when_it_was_made(url: str, db: Db) -> None:
    registry = Registry()
    registry.processor("test")(lambda job: None)
    overdue = make_job(db, created_at=ago(hours=5), next_retry_at=ago(minutes=10))
    with working(url, registry):
        waited = cost_of(db, overdue).wait_ms
    assert 600_000 <= waited < 660_000


def test_a_job_that_has_always_been_due_is_claimed_at_the_first_try(url: str, db: Db) -> None:
    registry = Registry()
    registry.processor("test")(lambda job: None)
    job_id = make_job(db, next_retry_at="-infinity")
    with working(url, registry) as (_, heard):
        until(lambda: scalar(db, "SELECT status FROM snap_processing_job WHERE id = %s", job_id) == "COMPLETED")
        assert heard.all(events.WORKER_ERROR) == []
        assert cost_of(db, job_id).wait_ms > 0


# --- percentiles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amounts", "weights", "expected"),
    [
        (list(range(1, 101)), [1] * 100, (50, 95, 99)),
        ([5], [1], (5, 5, 5)),
        ([1, 1000], [99, 1], (1, 1, 1)),
        ([1000, 1], [2, 98], (1, 1, 1000)),
        ([None, 3, None], [1000, 1, 1000], (3, 3, 3)),
        ([None], [1], (None, None, None)),
        ([], [], (None, None, None)),
    ],
)
def test_percentiles_are_of_the_weight_and_leave_out_what_is_not_known(
    db: Db, amounts: list[float | None], weights: list[int], expected: tuple[float | None, ...]
) -> None:
    found = db.execute("SELECT * FROM job_percentiles(%s::float8[], %s::integer[])", [amounts, weights]).fetchall()
    assert found == [expected]


def test_kinds_are_told_apart_and_the_newest_thousand_rows_count(db: Db) -> None:
    add = """
        INSERT INTO job_cost (job_id, lease_seq, attempt, kind, outcome, started_at, wall_ms, peak_mb)
        SELECT n, 1, 1, %s, 'COMPLETED', now() + n * interval '1 s', %s, %s
          FROM generate_series(%s::integer, %s::integer) AS n
    """
    db.execute(add, ["old.big", 1000, 900, 1, 500])
    db.execute(add, ["old.big", 10, 100, 501, 1500])
    db.execute(add, ["small", 1, None, 2001, 2010])
    assert [(one.kind, one.measured, one.wall_p99_ms, one.peak_p95_mb) for one in costs.of_kinds(db)] == [
        ("old.big", 1000, 10, 100),
        ("small", 10, 1, None),
    ]
    assert costs.needs(db, ["old.big", "small", "unknown"]) == {"old.big": 100}


# --- shown ------------------------------------------------------------------------------------------------------


@pytest.fixture
def shown(db: Db) -> int:
    mine = running_job(db, kind="cut")
    mine.cpu, mine.peak, mine.due_at = 1.5, 300 * 1024 * 1024, ago(seconds=5)
    collected = CollectedCosts()
    collected.add([ran(mine, 2.0)], Status.RETRY_WAIT)
    collected.write(db)
    return mine.id


def test_a_person_sees_what_a_job_and_its_kind_cost(call: Call, shown: int) -> None:
    said = call("jobs", "show", str(shown)).out
    assert [word for word in ("#1", "RETRY_WAIT", "2 s", "1.5 s", "300 MB") if word not in said] == []
    assert json.loads(call("jobs", "show", str(shown), "--json").out)["costs"][0]["peak_mb"] == 300
    told = call("jobs", "stats").out
    assert "cut" in told
    assert "300/300/300 MB" in told
    assert json.loads(call("jobs", "stats", "--json").out)["costs"][0]["kind"] == "cut"

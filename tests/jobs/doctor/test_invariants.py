"""What must never be in the queue's tables: each of it planted and named, and nothing named that is honest."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from snapapp.jobs import Job
from snapapp.jobs.doctor import Severity
from snapapp.jobs.registry import Registry
from tests.factory import Db, ago, make_job, row, scalar, statuses
from tests.jobs.doctor.examining import declare, enlist, examine, ids, member, the
from tests.jobs.working import until, working

UNTOUCHED: dict[str, Any] = {"lease_seq": 2, "attempt_count": 1}

BROKEN: list[tuple[str, str, dict[str, Any], str]] = [
    ("I3", "PENDING", {"cancel_requested_at": ago(minutes=1)}, "it waits though somebody cancelled it"),
    ("I3", "COMPLETED", UNTOUCHED | {"losses": 1}, "it is COMPLETED and still counts losses"),
    ("I3", "COMPLETED", UNTOUCHED | {"started_at": ago(minutes=-600)}, "it ended before it began"),
    ("I4", "RUNNING", {"lease_seq": 1, "attempt_count": 2}, "it runs its attempt 2 under lease 1"),
    ("I4", "COMPLETED", {"lease_seq": 1, "attempt_count": 1}, "nobody held it"),
    ("I4", "COMPLETED", {"lease_seq": 2, "attempt_count": 0}, "nobody held it"),
    ("I7", "RETRY_WAIT", {"lease_seq": 9, "attempt_count": 4}, "it is RETRY_WAIT with 4 of 3 attempts"),
    ("I7", "RUNNING", {"lease_seq": 9, "attempt_count": 5}, "it is RUNNING with 5 of 3 attempts"),
    ("I7", "FAILED", UNTOUCHED, "it is a dead letter without a reason"),
    ("I8", "RUNNING", {"started_at": ago(minutes=5), "next_retry_at": ago(minutes=1)}, "it began before it was due"),
    ("I9", "CANCELLED", UNTOUCHED | {"result": Jsonb(1)}, "it is CANCELLED and has a result"),
]


@pytest.mark.both_servers_at_length
@pytest.mark.parametrize(("invariant", "status", "columns", "what"), BROKEN)
def test_a_row_that_must_not_be_is_named(
    url: str, db: Db, invariant: str, status: str, columns: dict[str, Any], what: str
) -> None:
    """No CHECK can say it, or it would say no to what is on its way."""
    job_id = make_job(db, status, **columns)
    [(named, subject, said)] = db.execute("SELECT * FROM queue_invariants").fetchall()
    assert (named, subject) == (invariant, job_id)
    assert what in said
    found = the(examine(url, "invariants"), "INVARIANT_BROKEN")
    assert (found.severity, found.paste) == (Severity.CRITICAL, f"snapapp jobs show {job_id}")


@pytest.mark.both_servers_at_length
@pytest.mark.parametrize("gate", ["held", "later"])
def test_a_job_at_a_gate_that_nobody_opens_is_named(db: Db, gate: str) -> None:
    """Somebody changed it by hand: no worker looks there without a limit, and explain_job called it the next."""
    job_id = make_job(db, gate=gate)
    what = f"its gate is {gate}, and there is no limit and no fair queue that lets it in"
    assert invariants(db) == [("I3", job_id, what)]
    db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('kind:other', 1)")
    assert invariants(db) == []
    db.execute("DELETE FROM job_limit; DELETE FROM job_rule_change")
    db.execute("SELECT job_label(ARRAY[%s::bigint])", [job_id])
    assert invariants(db) == []
    assert row(db, job_id).gate == "open"


def test_the_log_of_a_job_that_somebody_deleted_is_cured_without_the_job(url: str, db: Db) -> None:
    """The doctor said to look at the job, which no command can show."""
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (4711, 1, 'hello')")
    cure = the(examine(url, "invariants"), "INVARIANT_BROKEN").paste
    assert cure == "DELETE FROM job_log WHERE job_id = 4711;"
    db.execute(cure)
    assert ids(examine(url, "invariants")) == ["INVARIANTS"]


@pytest.mark.both_servers_at_length
def test_what_surrounds_the_jobs_must_hold_too(url: str, db: Db) -> None:
    declare(db, member("a", kinds=["nightly"], pid_started=1), cron="0 3 * * *")
    enlist(db, member("b", kinds=["nightly"], pid_started=2))
    db.execute("UPDATE job_worker SET started_at = now() - interval '30 minutes' WHERE id = 'b'")
    nightly, test = make_job(db, kind="nightly"), make_job(db)
    fire = "INSERT INTO job_schedule_slot (schedule, slot, outcome, job_id, worker)"
    fire += " VALUES ('nightly', %s, 'fired', %s, %s)"
    for minutes, job_id in ((3, nightly), (2, nightly), (1, test)):
        db.execute(fire, [ago(minutes=minutes), job_id, None])
    db.execute("UPDATE job_schedule SET settled_until = now() - interval '1 hour'")
    ahead = make_job(db, kind="nightly")
    db.execute(fire, [ago(seconds=1), ahead, "a"])
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (4711, 1, 'hello'), (4711, 1, 'again')")
    db.execute("ALTER TABLE snap_processing_job DISABLE TRIGGER job_after_insert")
    wanted = [
        ("I10", None, "the workers a and b say they are process 1 of one machine"),
        ("I10", 4711, "there are lines in job_log of a job that is not there"),
        ("I13", nightly, "it is the job of 2 slots, of nightly"),
        ("I13", test, "has a job of the kind test"),
        ("I13", ahead, "of nightly was fired ahead of settled_until"),
        ("I3", None, "the trigger job_after_insert is disabled"),
    ]
    found = sorted(invariants(db), key=lambda broken: (broken[0], broken[1] or 0))
    assert [broken[:2] for broken in found] == [broken[:2] for broken in wanted]
    assert all(said in broken[2] for broken, (_, _, said) in zip(found, wanted, strict=True))


def invariants(db: Db) -> list[tuple[Any, ...]]:
    return db.execute("SELECT invariant, job_id, what FROM queue_invariants").fetchall()


@pytest.mark.both_servers_at_length
def test_an_honest_life_breaks_no_invariant(url: str, db: Db) -> None:
    """Claimed, failed, retried, cancelled, recovered, completed, fired: looked at after each step."""
    registry = Registry()

    @registry.processor("good")
    def good(job: Job) -> str:
        job.log("here")
        return "done"

    @registry.processor("bad", max_attempts=2)
    def bad(job: Job) -> None:
        raise ValueError("bad")

    @registry.scheduled(name="often", every=timedelta(seconds=1), missed="all")
    def often(job: Job) -> None: ...

    good_ones = [make_job(db, kind="good") for _ in range(50)]
    bad_ones = [make_job(db, kind="bad", max_attempts=2) for _ in range(5)]
    lost = make_job(db, "RUNNING", kind="good", lock_expires_at=ago(minutes=1))
    with working(url, registry):
        until(lambda: {statuses(db)[job_id] for job_id in [*good_ones, lost]} == {"COMPLETED"} and not invariants(db))
        until(lambda: {statuses(db)[job_id] for job_id in bad_ones} == {"FAILED"} and not invariants(db))
        until(lambda: scalar(db, "SELECT count(*) FROM job_schedule_slot WHERE job_id IS NOT NULL") > 1)
        db.execute("SELECT retry_job(%s)", [bad_ones[0]])
        db.execute("SELECT replay_job(%s)", [good_ones[0]])
        db.execute("SELECT run_schedule('often')")
        assert invariants(db) == []
        until(lambda: "PENDING" not in {*statuses(db).values()} and "RUNNING" not in {*statuses(db).values()})
    assert invariants(db) == []
    assert ids(examine(url, "invariants")) == ["INVARIANTS"]


@pytest.mark.both_servers_at_length
def test_the_view_costs_the_same_beside_many_finished_jobs(url: str, db: Db) -> None:
    """It reads the newest 20,000 rows, whatever lies below them."""
    db.execute(
        "INSERT INTO snap_processing_job (kind, status, finished_at, lease_seq, attempt_count, losses)"
        " SELECT 'test', 'COMPLETED', now(), 2, 1, (i < 50000)::integer FROM generate_series(1, 100000) AS i"
    )
    assert invariants(db) == []
    [(plan,)] = db.execute("EXPLAIN (FORMAT JSON) SELECT * FROM queue_invariants").fetchall()
    whole = [each for each in nodes(plan[0]["Plan"]) if each["Node Type"] == "Seq Scan"]
    assert "snap_processing_job" not in [each["Relation Name"] for each in whole]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)

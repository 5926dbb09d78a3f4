"""What a look at the queue tells of the time since the look before, and what a look costs."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapapp.jobs.adding import enqueue, enqueue_many
from snapapp.jobs.model import Status
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.people import changes as tail
from snapapp.jobs.rows.people.changes import Interest, Look, Tail, What
from snapapp.jobs.rows.people.views import JobSummary
from tests.factory import Db, ago, as_it_runs, hence, make_job, make_jobs, move

FREE = {"claimed_by": None, "locked_at": None, "lock_expires_at": None}

Told = list[tuple[int, str]]


@pytest.fixture
def look(db: Db) -> Callable[[], Told]:
    """A tail that has looked once, and looks again when called."""
    watching = Tail()
    watching.look(db)
    return lambda: told(watching, db)


def told(watching: Tail, db: Db) -> Told:
    return [(change.job.id, change.what.value) for change in watching.look(db).changes]


# --- one job's way ----------------------------------------------------------------------------------------------


def test_the_first_look_tells_nothing_but_knows_what_is_there(db: Db) -> None:
    ids = make_jobs(db, 3)
    watching = Tail()
    assert watching.look(db).changes == []
    assert [job.id for job in watching.jobs] == ids[::-1]


@pytest.mark.both_servers_at_length
def test_a_jobs_way_is_told_step_by_step(db: Db, look: Callable[[], Told]) -> None:
    """W37: added, active, progress, delayed, completed."""
    job_id = make_job(db)
    assert look() == [(job_id, "added")]
    move(db, job_id, **as_it_runs())
    assert look() == [(job_id, "claimed")]
    move(db, job_id, progress={"percent": 40, "note": "frames"})
    assert look() == [(job_id, "progress")]
    move(db, job_id, cancel_requested_at=ago())
    assert look() == [(job_id, "stopping")]
    move(db, job_id, status="RETRY_WAIT", last_error="no", cancel_requested_at=None, **FREE)
    assert look() == [(job_id, "retried")]
    move(db, job_id, **as_it_runs() | {"attempt_count": 2})
    assert look() == [(job_id, "claimed")]
    move(db, job_id, status="COMPLETED", finished_at=ago(), **FREE)
    assert look() == [(job_id, "completed")]
    assert look() == []


@pytest.mark.parametrize(("status", "what"), [("FAILED", "failed"), ("CANCELLED", "cancelled")])
def test_an_end_is_told_and_a_persons_retry_after_it(db: Db, look: Callable[[], Told], status: str, what: str) -> None:
    job_id = make_job(db, status, attempt_count=3)
    assert look() == [(job_id, what)]
    lifecycle.retry_by_person(db, job_id)
    assert look() == [(job_id, "waiting")]


def test_a_job_that_is_handed_back_or_snoozed_waits_again(db: Db, look: Callable[[], Told]) -> None:
    job_id = make_job(db, "RUNNING")
    look()
    move(db, job_id, status="PENDING", attempt_count=0, **FREE)
    assert look() == [(job_id, "waiting")]
    move(db, job_id, next_retry_at=hence(hours=1))
    assert look() == [(job_id, "waiting")]


def test_a_job_that_went_all_the_way_between_two_looks_is_told_by_its_end(db: Db, look: Callable[[], Told]) -> None:
    job_id = make_job(db, "COMPLETED", attempt_count=1)
    assert look() == [(job_id, "completed")]


def test_a_second_failure_is_told_though_the_state_is_the_same(db: Db, look: Callable[[], Told]) -> None:
    job_id = make_job(db, "FAILED", attempt_count=1)
    look()
    move(db, job_id, finished_at=hence(seconds=1), last_error="again")
    assert look() == [(job_id, "failed")]


def test_a_heartbeat_is_no_news(db: Db, look: Callable[[], Told]) -> None:
    job_id = make_job(db, "RUNNING")
    look()
    move(db, job_id, locked_at=hence(seconds=1), lock_expires_at=hence(minutes=2))
    assert look() == []


def test_a_job_that_was_pruned_is_told_once(db: Db, look: Callable[[], Told]) -> None:
    """W37: job.removed."""
    job_id, younger = make_jobs(db, 2)
    look()
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [job_id])
    assert look() == [(job_id, "removed")]
    assert look() == []
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [younger])
    assert look() == [(younger, "removed")]


def test_a_commit_that_comes_late_is_not_missed(db: Db, url: str, look: Callable[[], Told]) -> None:
    """An id is taken before its transaction commits, so a lower one may come after a higher one."""
    make_job(db)
    look()
    with psycopg.connect(url) as slow:
        late = enqueue(slow, "late", {})
        early = make_job(db)
        assert look() == [(early, "added")]
        slow.commit()
    assert look() == [(late, "added")]


def test_an_old_job_is_told_when_it_is_claimed_and_when_it_ends(
    db: Db, look: Callable[[], Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "NEWEST", 5)
    old = make_job(db)
    make_jobs(db, 10)
    look()
    move(db, old, **as_it_runs())
    assert look() == [(old, "claimed")]
    move(db, old, status="COMPLETED", finished_at=ago(), **FREE)
    assert look() == [(old, "completed")]
    move(db, old, result={"late": True})
    assert look() == []  # finished and far down: out of sight


def test_more_jobs_than_a_look_sees_are_counted(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "NEWEST", 10)
    make_job(db)
    watching = Tail()
    watching.look(db)
    ids = make_jobs(db, 25)
    news = watching.look(db)
    assert [change.job.id for change in news.changes] == ids[-10:]
    assert news.skipped == 15


def test_rows_that_come_into_sight_by_pruning_are_old_and_no_news(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "NEWEST", 3)
    ids = make_jobs(db, 5)
    watching = Tail()
    watching.look(db)
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [ids[3]])
    assert told(watching, db) == [(ids[3], "removed")]
    assert [job.id for job in watching.jobs] == [ids[4], ids[2], ids[1]]


# --- what one is interested in ----------------------------------------------------------------------------------


def test_only_what_matches_is_told(db: Db) -> None:
    tails = {
        "kind": Tail(Interest(kinds=frozenset({"a"}))),
        "queue": Tail(Interest(queue="q")),
        "tenant": Tail(Interest(tenant="t")),
    }
    for each in tails.values():
        each.look(db)
    made = {
        "kind": make_job(db, kind="a"),
        "queue": make_job(db, "RUNNING", queue="q"),
        "tenant": make_job(db, "FAILED", tenant="t"),
    }
    for name, each in tails.items():
        assert [job_id for job_id, _ in told(each, db)] == [made[name]]


def test_a_rare_kind_is_found_among_many(db: Db) -> None:
    watching = Tail(Interest(kinds=frozenset({"rare"})))
    watching.look(db)
    rare = make_job(db, kind="rare")
    enqueue_many(db, [{"kind": "frequent"}] * (2 * tail.NEWEST))
    assert told(watching, db) == [(rare, "added")]


@pytest.mark.both_servers_at_length
def test_jobs_that_were_named_are_watched_to_their_end_with_their_log(db: Db) -> None:
    """R49: logs --tail."""
    job_id, other = make_jobs(db, 2)
    say(db, job_id, "before")
    watching = Tail(Interest(ids=frozenset({job_id})))
    assert [line.entry.message for line in watching.look(db).lines] == ["before"]
    say(db, job_id, "after")
    say(db, other, "of another")
    move(db, other, **as_it_runs())
    move(db, job_id, status="COMPLETED", finished_at=ago())
    news = watching.look(db)
    assert [line.entry.message for line in news.lines] == ["after"]
    assert [(change.job.id, change.what) for change in news.changes] == [(job_id, What.COMPLETED)]
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [job_id])
    assert told(watching, db) == [(job_id, "removed")]


def say(db: Db, job_id: int, message: str) -> None:
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, %s)", [job_id, message])


def test_large_values_are_not_kept(db: Db) -> None:
    noise = [number * 7919 % 65536 for number in range(4000)]
    job_id = make_job(db, "RUNNING", progress={"noise": noise}, last_error="e" * 4000)
    watching = Tail()
    watching.look(db)
    [job] = watching.jobs
    assert (job.id, job.progress, job.last_error) == (job_id, None, "e" * 500)


# --- the difference, purely -------------------------------------------------------------------------------------


def summary(job_id: int, status: Status, **changes: Any) -> JobSummary:
    fields: dict[str, Any] = dict.fromkeys(JobSummary.__dataclass_fields__)
    at = ago(minutes=5)
    fields |= {"id": job_id, "kind": "test", "queue": "default", "tenant": "", "status": status, "attempt_count": 0}
    fields |= {"max_attempts": 3, "priority": 0, "suspect": False, "next_retry_at": at, "created_at": at}
    return JobSummary(**fields | changes)


@pytest.mark.parametrize(("old", "new"), list(product(Status, Status)))
def test_every_change_of_state_is_told_and_staying_is_not(old: Status, new: Status) -> None:
    was = summary(1, old)
    found = tail.changes(Look({1: was}, 1, 1), Look({1: replace(was, status=new)}, 1, 1))
    assert [change.job.status for change in found] == ([] if old is new else [new])


jobs = st.dictionaries(st.integers(1, 30), st.sampled_from(Status), max_size=30)


@given(jobs, jobs, st.integers(1, 30))
def test_whoever_follows_the_changes_knows_what_is_in_sight(
    first: dict[int, Status], then: dict[int, Status], floor: int
) -> None:
    """From the floor on, the last look and its changes make the next look: nothing is missing, nothing too much."""
    before = Look({job_id: summary(job_id, status) for job_id, status in first.items()}, 0, max(first, default=0))
    now = Look({n: summary(n, status) for n, status in then.items() if n >= floor}, floor, max(then, default=0))
    known = {job.id: job.status for job in before.jobs.values()}
    for change in tail.changes(before, now):
        known[change.job.id] = change.job.status
        if change.what is What.REMOVED:
            del known[change.job.id]
    assert {n: known[n] for n in known if n >= floor} == {n: job.status for n, job in now.jobs.items()}


# --- what it costs ----------------------------------------------------------------------------------------------


@pytest.mark.both_servers_at_length
def test_a_look_reads_few_rows_however_many_there_are(db: Db) -> None:
    """FC3: no table scan, also before the first ANALYZE. At 1 M rows a look took 2 ms."""
    db.execute(
        "INSERT INTO snap_processing_job (kind, status, finished_at)"
        " SELECT 'old', 'COMPLETED', now() FROM generate_series(1, 30000)"
    )
    make_jobs(db, 20, status="RUNNING")
    for interest in (Interest(), Interest(kinds=frozenset({"old"})), Interest(ids=frozenset({1, 2}))):
        watching = Tail(interest)
        watching.look(db)
        assert blocks(db, watching) < 2000


def blocks(db: Db, watching: Tail) -> int:
    rows = db.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {tail._SIGHT}", watching._parameters())
    [(plan,)] = rows.fetchall()
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def test_a_look_at_a_quiet_queue_reads_no_job_whole(db: Db) -> None:
    make_jobs(db, 50, status="RUNNING")
    watching = Tail()
    watching.look(db)
    known = watching.jobs
    watching.look(db)
    assert all(mine is theirs for mine, theirs in zip(watching.jobs, known, strict=True))
    assert watching.look(db).now - known[0].created_at < timedelta(minutes=1)

"""Who gets which job, in which order, and that nobody else gets it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from psycopg import errors as pg

from snapapp.jobs import queue
from snapapp.jobs.database import connect
from snapapp.jobs.model import Lease
from tests.factory import (
    BY,
    MINUTE,
    OTHER,
    SECOND,
    Db,
    ago,
    at_once,
    claim,
    complete,
    hence,
    job,
    make_job,
    make_jobs,
    move,
    row,
    scalar,
    statuses,
)

pytestmark = pytest.mark.both_servers


def claim_in_order(db: Db, *, kinds: Sequence[str] = ("test",)) -> list[int]:
    """One at a time, because a batch comes in no order."""
    order: list[int] = []
    while ids := claim(db, 1, kinds=kinds):
        order += ids
    return order


def test_a_claim_leases_the_job_and_counts_the_attempt(db: Db) -> None:
    """W2, Q15, Q41, R14, S5, Q1, Q2, Q3, Q9, S7, M23, promise 3."""
    waiting = make_job(db, "RETRY_WAIT", payload={"n": 1}, attempt_count=1, lease_seq=2, started_at=ago(hours=1))
    (taken,), bookmark = queue.claim(db, BY, ["test"], 10)
    now = row(db, waiting)
    assert (now.status, now.claimed_by, now.attempt_count, now.lease_seq) == ("RUNNING", "worker", 2, 3)
    assert now.lock_expires_at - now.locked_at == MINUTE
    assert now.started_at is None
    assert (taken.id, taken.attempt, taken.lease, taken.payload) == (waiting, 2, Lease(waiting, 3), {"n": 1})
    assert bookmark == ("default", "test", 0, "", now.next_retry_at, waiting)


def test_a_job_reads_its_row_as_it_is(db: Db) -> None:
    columns: dict[str, Any] = {"queue": "media", "tenant": "farm", "priority": 4, "max_attempts": 9, "timeout_ms": 5}
    columns |= {"request_id": "r"}
    columns |= {"snap_id": "7d1d9a6c-53a6-4b4e-9a51-8b9b6c2e7a11"}
    made = make_job(db, **columns)
    (taken,), _ = queue.claim(db, BY, ["test"], 1)
    seen = replace(taken, payload_json=b"{}")
    assert repr(seen) == repr(job(db, made))


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_a_claim_takes_at_most_its_limit(db: Db, limit: int) -> None:
    """Q16, Q19, Q43, FC4: over many heads and lanes, where a careless plan applies the limit to each."""
    for priority in range(3):
        for lane in ("", "a", "b"):
            make_jobs(db, 4, priority=priority, lane=lane)
    assert len(claim(db, limit)) == min(limit, 36)
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'RUNNING'") == min(limit, 36)


def test_a_claim_of_nothing_is_nothing(db: Db) -> None:
    make_job(db)
    assert queue.claim(db, BY, ["test"], 0) == ([], None)
    assert queue.claim(db, BY, [], 10) == ([], None)


def test_within_a_lane_the_earliest_due_is_first_and_then_the_oldest(db: Db) -> None:
    """W50, R12, S4."""
    at = ago(seconds=5)
    second, third = make_jobs(db, 2, next_retry_at=at)
    first = make_job(db, next_retry_at=at - SECOND)
    assert claim_in_order(db) == [first, second, third]


def test_a_higher_priority_is_first_in_every_queue_and_kind(db: Db) -> None:
    low, high, middle = (
        make_job(db, priority=-5),
        make_job(db, kind="b", priority=9),
        make_job(db, queue="c", priority=1),
    )
    assert claim_in_order(db, kinds=["test", "b"]) == [high, middle, low]


def test_order_holds_within_a_lane_not_across_lanes(db: Db) -> None:
    old = make_job(db, lane="b", next_retry_at=ago(hours=1))
    young = make_job(db, lane="a")
    assert {*claim(db)} == {old, young}


def test_kinds_of_one_priority_take_turns(db: Db) -> None:
    for kind in ("a", "b"):
        make_jobs(db, 30, kind=kind)
    firsts = {queue.claim(db, BY, ["a", "b"], 1)[0][0].kind for _ in range(30)}
    assert firsts == {"a", "b"}  # the same one 30 times in a row: once in 500 million runs


def test_a_job_is_not_claimed_before_it_is_due(db: Db) -> None:
    """I8, D3."""
    later = make_job(db, "RETRY_WAIT", next_retry_at=hence(seconds=5), attempt_count=1)
    assert claim(db) == []
    move(db, later, next_retry_at=ago())
    assert claim(db) == [later]


def test_jobs_that_are_not_due_block_nobody(db: Db) -> None:
    """Promise 8."""
    make_jobs(db, 5, priority=100, next_retry_at=hence(hours=1))
    make_jobs(db, 5, lane="a", next_retry_at=hence(hours=1))
    due = make_job(db, lane="b")
    assert claim(db, 1) == [due]


def test_kinds_that_nobody_here_knows_block_nobody_and_stay(db: Db) -> None:
    """Promise 9, FD11."""
    make_jobs(db, 5, kind="unknown", priority=100)
    known = make_job(db)
    assert claim(db) == [known]
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'PENDING'") == 5


def test_a_worker_claims_from_its_queues_only(db: Db) -> None:
    """R19."""
    media, _, slow = (make_job(db, queue=name) for name in ("media", "other", "slow"))
    assert claim(db, by=replace(BY, queues=("media", "slow"))) == [media, slow]


@pytest.mark.parametrize("how", ["claim", "claim_on", "claim_suspect"])
def test_a_paused_queue_is_left_alone_until_it_is_resumed(db: Db, how: str) -> None:
    """R45."""
    make_job(db, suspect=how == "claim_suspect")
    start = queue.Bookmark("default", "test", 0, "", ago(hours=1), 0)
    ways: dict[str, Callable[[], object]] = {
        "claim": lambda: claim(db),
        "claim_on": lambda: queue.claim_on(db, BY, start, 10)[0],
        "claim_suspect": lambda: queue.claim_suspect(db, BY, ["test"]),
    }
    db.execute("SELECT pause_queue('default', 'the disk is full')")
    assert not ways[how]()
    db.execute("SELECT resume_queue('default')")
    assert ways[how]()


@pytest.mark.parametrize("status", ["RUNNING", "COMPLETED", "FAILED", "CANCELLED"])
def test_only_waiting_jobs_are_claimed(db: Db, status: str) -> None:
    """Q17. A job whose lease has ended is recovered first, and claimed then."""
    make_job(db, status, **({"lock_expires_at": ago(hours=1)} if status == "RUNNING" else {}))
    assert claim(db) == []


def test_two_workers_at_once_never_get_the_same_job(db: Db, other: Db) -> None:
    """Q18, Q42."""
    for _ in range(5):
        made = make_jobs(db, 40)
        mine, theirs = at_once(lambda: claim(db, 20), lambda: claim(other, 20, by=OTHER))
        assert (len(mine), len(theirs)) == (20, 20)
        assert sorted(mine + theirs) == made


def test_a_hundred_jobs_and_three_workers_make_a_hundred_completions(db: Db, url: str) -> None:
    """Q47."""
    made = make_jobs(db, 100)

    def work() -> list[int]:
        done: list[int] = []
        with connect(url, name="worker") as mine:
            while jobs := queue.claim(mine, BY, ["test"], 7)[0]:
                done += complete(mine, *jobs)
        return done

    done = at_once(work, work, work)
    assert sorted(chain(*done)) == made
    assert {*statuses(db).values()} == {"COMPLETED"}
    assert db.execute("SELECT DISTINCT attempt_count, lease_seq FROM snap_processing_job").fetchall() == [(1, 2)]


def test_a_claim_skips_what_another_one_is_taking(db: Db, other: Db) -> None:
    first, second = make_jobs(db, 2)
    with other.transaction(force_rollback=True):
        assert claim(other, 1, by=OTHER) == [first]
        assert claim(db) == [second]
    assert claim(db) == [first]  # the other one was rolled back, and its attempt with it
    assert row(db, first).attempt_count == 1


@pytest.mark.parametrize("status", ["PENDING", "RETRY_WAIT"])
@pytest.mark.parametrize("suspect", [False, True])
def test_no_job_is_both_unclaimable_and_unfinished(db: Db, status: str, suspect: bool) -> None:
    """D4: its attempts are used up, nobody settled it, so the next claim finds it and is told."""
    tired = make_job(db, status, attempt_count=3, max_attempts=3, suspect=suspect)
    taken = queue.claim_suspect(db, BY, ["test"]) if suspect else queue.claim(db, BY, ["test"], 1)[0][0]
    assert taken
    assert (taken.id, taken.exhausted) == (tired, True)


def test_a_suspect_is_claimed_alone_and_only_where_one_asks_for_it(db: Db) -> None:
    """Promise 3."""
    first, second = make_jobs(db, 2, suspect=True)
    assert claim(db) == []
    one, two = queue.claim_suspect(db, BY, ["test"]), queue.claim_suspect(db, OTHER, ["test"])
    assert [one and one.id, two and two.id] == [first, second]
    assert one
    assert (one.suspect, one.attempt, one.lease_seq) == (True, 1, 1)


def test_a_suspect_of_another_kind_or_queue_or_hour_is_left(db: Db) -> None:
    make_job(db, suspect=True, kind="unknown")
    make_job(db, suspect=True, queue="media")
    make_job(db, suspect=True, next_retry_at=hence(minutes=1))
    assert queue.claim_suspect(db, replace(BY, queues=("default",)), ["test"]) is None
    mine = make_job(db, suspect=True)
    taken = queue.claim_suspect(db, replace(BY, queues=("default",)), ["test"])
    assert taken
    assert taken.id == mine


def test_two_workers_never_get_the_same_suspect(db: Db, other: Db) -> None:
    first, second = make_jobs(db, 2, suspect=True)
    with other.transaction():
        theirs = queue.claim_suspect(other, OTHER, ["test"])
        mine = queue.claim_suspect(db, BY, ["test"])
    assert (theirs and theirs.id, mine and mine.id) == (first, second)


def test_a_bookmark_goes_on_where_the_batch_ended(db: Db) -> None:
    at = ago(seconds=1)
    made = [make_job(db, lane=lane, next_retry_at=at) for lane in ("a", "a", "a", "b", "ä", "c", "c")]
    order = [made[n] for n in (0, 1, 2, 3, 5, 6, 4)]  # in bytes, ä comes last
    jobs, bookmark = queue.claim(db, BY, ["test"], 2)
    taken = [{one.id for one in jobs}]
    while bookmark and len(taken) < 9:
        jobs, bookmark = queue.claim_on(db, BY, bookmark, 2)
        taken.append({one.id for one in jobs})
    assert taken == [{*order[:2]}, {*order[2:4]}, {*order[4:6]}, {*order[6:]}, set()]


def test_a_bookmark_looks_at_one_head_forward_and_what_is_due(db: Db) -> None:
    at = ago(seconds=10)
    _, bookmark = queue.claim(db, BY, ["test"], 1) if make_job(db, next_retry_at=at) else ([], None)
    make_job(db, next_retry_at=at - SECOND)  # behind
    make_job(db, priority=5)  # another head
    make_job(db, kind="other")
    make_job(db, next_retry_at=hence(minutes=1))
    make_job(db, suspect=True)
    ahead = make_job(db, next_retry_at=at + SECOND)
    assert bookmark
    assert [one.id for one in queue.claim_on(db, BY, bookmark, 10)[0]] == [ahead]


def test_a_batch_from_several_heads_has_no_bookmark(db: Db) -> None:
    make_job(db)
    make_job(db, priority=5)
    assert queue.claim(db, BY, ["test"], 10)[1] is None


def test_a_large_payload_is_fetched_under_the_lease(db: Db) -> None:
    large = {"text": "".join(hashlib.sha256(bytes([n % 251, n // 251])).hexdigest() for n in range(3000))}
    small, big = make_job(db, payload={"n": 1}), make_job(db, payload=large)
    taken = {one.id: one for one in queue.claim(db, BY, ["test"], 2)[0]}
    assert taken[small].payload_json is not None
    assert taken[big].payload_json is None
    fetched = queue.payload(db, taken[big].lease)
    assert fetched
    assert json.loads(fetched) == large
    assert queue.payload(db, Lease(big, 99)) is None


def test_next_due_is_the_first_moment_at_which_a_claim_finds_something(db: Db) -> None:
    make_job(db, kind="unknown")
    make_job(db, queue="paused")
    make_job(db, "COMPLETED")
    make_job(db, "RUNNING")
    db.execute("SELECT pause_queue('paused')")
    assert queue.next_due(db, ["test"], []) is None
    for lane, minutes in (("a", 3), ("b", 2), ("c", 4)):
        make_job(db, lane=lane, next_retry_at=hence(minutes=minutes))
    make_job(db, queue="media", next_retry_at=hence(minutes=1))
    assert queue.next_due(db, ["test"], []) == pytest.approx(60, abs=20)
    assert queue.next_due(db, ["test"], ["default"]) == pytest.approx(120, abs=20)
    make_job(db, next_retry_at=ago(minutes=1))
    assert queue.next_due(db, ["test"], []) == pytest.approx(-60, abs=20)


@pytest.mark.parametrize(("run_at", "due_in"), [("infinity", 86400), ("9000-01-01Z", 86400), ("-infinity", -86400)])
def test_a_job_beyond_the_calendar_is_a_day_away(db: Db, run_at: str, due_in: float) -> None:
    db.execute("SELECT enqueue_job('test', run_at => %s)", [run_at])
    assert queue.next_due(db, ["test"], []) == pytest.approx(due_in)


def test_a_claim_after_a_failed_transaction_is_as_any_other(db: Db) -> None:
    waiting = make_job(db)
    with suppress(pg.DivisionByZero), db.transaction():
        claim(db)
        scalar(db, "SELECT 1 / 0")
    assert claim(db) == [waiting]
    assert row(db, waiting).lease_seq == 1


def test_the_three_claims_make_of_a_job_the_same() -> None:
    """They are written out so that each can be read whole; a change in one must not be forgotten in the others."""
    claims = [queue._CLAIM, queue._CLAIM_ON, queue._CLAIM_SUSPECT]
    lines = [[line.strip() for line in claim.partition("\nUPDATE ")[2].splitlines()] for claim in claims]
    assert lines[0][0] == "snap_processing_job AS job"
    assert [line.split()[0] for line in lines[0] if line.split()[0].isupper()] == ["SET", "WHERE", "RETURNING", "CASE"]
    assert lines[0] == lines[1] == lines[2]

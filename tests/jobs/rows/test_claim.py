"""Who gets which job, in which order, and that nobody else gets it."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, combinations, pairwise, product
from pathlib import Path
from typing import Any

import pytest
from psycopg import errors as pg

from snapapp.jobs.model import Lease
from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows.claim import FIRST, HEADS_AT_ONCE, LAST, Claimed, ClaimingWorker, Head, Look, Wanted
from snapapp.jobs.rows.database import connect
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
    lock_row,
    make_job,
    make_jobs,
    move,
    row,
    scalar,
    statuses,
    take_suspect,
)
from tests.factory import claimed as take

pytestmark = pytest.mark.both_servers


def claim_in_order(db: Db, *, kinds: Sequence[str] = ("test",)) -> list[int]:
    order: list[int] = []
    while ids := claim(db, 1, kinds=kinds):
        order += ids
    return order


def claim_on(db: Db, claimed: Claimed, limit: int = 100) -> Claimed:
    """From where that one ended."""
    return take(db, limit, Look(bookmarks=claimed.last))


def alone(db: Db, by: ClaimingWorker = BY, *, is_idle: bool = True, apart: Sequence[str] = ()) -> list[int]:
    look = Look(takes_suspect=True, is_idle=is_idle, apart=apart)
    return [one.id for one in take(db, look=look, by=by).jobs]


def test_a_claim_leases_the_job_and_counts_the_attempt(db: Db) -> None:
    """W2, Q15, Q41, R14, S5, Q1, Q2, Q3, Q9, S7, M23, promise 3."""
    waiting = make_job(db, "RETRY_WAIT", payload={"n": 1}, attempt_count=1, lease_seq=2, started_at=ago(hours=1))
    claimed = take(db, 10)
    [taken] = claimed.jobs
    now = row(db, waiting)
    assert (now.status, now.claimed_by, now.attempt_count) == ("RUNNING", "worker", 2)
    assert now.lease_seq > 2
    assert now.lock_expires_at - now.locked_at == MINUTE
    assert now.started_at is None
    assert (taken.lease, taken.attempt, taken.payload) == (Lease(waiting, now.lease_seq), 2, {"n": 1})
    assert claimed.last == {("default", "test", 0): (now.next_retry_at, waiting)}


def test_a_job_reads_its_row_as_it_is(db: Db) -> None:
    columns: dict[str, Any] = {"queue": "media", "tenant": "farm", "priority": 4, "max_attempts": 9, "timeout_ms": 5}
    columns |= {"request_id": "r"}
    columns |= {"snap_id": "7d1d9a6c-53a6-4b4e-9a51-8b9b6c2e7a11"}
    made = make_job(db, **columns)
    [taken] = take(db, 1).jobs
    seen = replace(taken, payload_json=b"{}")
    assert repr(seen) == repr(job(db, made))


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_a_claim_takes_at_most_its_limit(db: Db, limit: int) -> None:
    """Q16, Q19, Q43, D1, FC4: over many heads and keys, where a careless plan applies the limit to each."""
    for priority in range(3):
        for key in (None, "a", "b"):
            make_jobs(db, 4, priority=priority, concurrency_key=key)
    assert len(claim(db, limit)) == min(limit, 36)
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'RUNNING'") == min(limit, 36)


def test_a_claim_of_nothing_is_nothing(db: Db) -> None:
    make_job(db)
    assert claim(db, 0) == claim(db, kinds=[]) == []


def test_the_earliest_due_is_first_and_then_the_oldest(db: Db) -> None:
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


def test_age_decides_across_kinds_and_keys(db: Db) -> None:
    """R12, W50, S4, Q16, promise 12: walked by the alphabet, the key `z` would never run beside a flood of `a`."""
    oldest = make_job(db, kind="b", concurrency_key="z", next_retry_at=ago(minutes=9))
    flood = [
        *make_jobs(db, 40, kind="a", concurrency_key="a", next_retry_at=ago(minutes=2)),
        *make_jobs(db, 40, kind="b", concurrency_key="a", next_retry_at=ago(minutes=1)),
    ]
    young = make_job(db, kind="a", concurrency_key="0")
    order = [one.id for _ in range(3) for one in take(db, 41, kinds=["a", "b"]).jobs]
    assert order == [oldest, *flood, young]


def test_names_with_any_characters_are_claimed(db: Db) -> None:
    """Names go to PostgreSQL inside of the text of an array, where quotes, commas and NULL mean something."""
    names = ['a"b', "back\\slash", "one,two", "{a,b}", "NULL", " blank ", 'end\\"', "é%s"]
    ids = [make_job(db, kind=name, queue=name) for name in names]
    by = ClaimingWorker("ana", MINUTE, tuple(names))
    first = take(db, 1, kinds=names, by=by)
    rest = take(db, kinds=names, look=Look(bookmarks=first.last), by=by)
    assert sorted(one.id for one in [*first.jobs, *rest.jobs]) == ids


def test_what_is_claimed_together_comes_by_priority_then_age(db: Db) -> None:
    """Promise 12."""
    ages = [(priority, minutes) for priority in (0, 5) for minutes in (1, 3, 2)]
    made = {make_job(db, kind=kind, priority=p, next_retry_at=ago(minutes=m)): (-p, -m)
            for p, m in ages for kind in ("a", "b")}  # fmt: skip
    order = [one.id for one in take(db, kinds=["a", "b"]).jobs]
    assert [made[job_id] for job_id in order] == sorted(made.values())


def test_a_queue_that_ages_promotes_what_waits_long(db: Db) -> None:
    """R44: one priority higher for each hour."""
    db.execute("INSERT INTO job_queue (name, ages_after) VALUES ('default', '1 hour')")
    old, important = make_job(db, next_retry_at=ago(hours=3.5)), make_job(db, priority=4)
    assert claim(db, 1) == [important]
    urgent = make_job(db, priority=2)
    assert claim_in_order(db) == [old, urgent]


def test_no_more_are_taken_of_an_executor_than_it_has_space_for(db: Db) -> None:
    """And what must not wait in memory only as far as a slot is free."""
    wanted = [Wanted("quick", 0, 5, 1), Wanted("slow", 0, 2, 2), Wanted("other", 1, 3, 0)]
    for kind in ("quick", "slow", "other"):
        make_jobs(db, 10, kind=kind, next_retry_at=ago(hours=1))
    taken = [one.kind for one in claim_rows.claim(db, BY, wanted).jobs]
    assert taken.count("other") == 3
    assert (len(taken), taken.count("slow") <= 2) == (8, True)


def test_a_single_attempt_never_waits_in_memory(db: Db) -> None:
    """Promise 3: whoever waits for a slot when the host dies would have used it up."""
    single = make_jobs(db, 5, max_attempts=1, next_retry_at=ago(hours=1))
    make_jobs(db, 5)
    taken = claim_rows.claim(db, BY, [Wanted("test", 0, 10, 2)]).jobs
    assert {one.id for one in taken} & {*single} == {*single[:2]}


def test_a_job_is_not_claimed_before_it_is_due(db: Db) -> None:
    """I8, D3."""
    later = make_job(db, "RETRY_WAIT", next_retry_at=hence(seconds=5), attempt_count=1)
    assert claim(db) == []
    move(db, later, next_retry_at=ago())
    assert claim(db) == [later]


def test_jobs_that_are_not_due_block_nobody(db: Db) -> None:
    """Promise 8."""
    make_jobs(db, 5, priority=100, next_retry_at=hence(hours=1))
    make_jobs(db, 5, concurrency_key="a", next_retry_at=hence(hours=1))
    due = make_job(db, concurrency_key="b")
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


def test_a_paused_queue_is_left_alone_until_it_is_resumed(db: Db) -> None:
    """R45."""
    plain, suspect, held = make_job(db), make_job(db, losses=2, gate="alone"), make_job(db, gate="held")
    db.execute("SELECT pause_queue('default', 'the disk is full')")
    assert claim(db) == alone(db) == []
    db.execute("SELECT resume_queue('default')")
    assert claim(db) == [plain, held]
    assert alone(db) == [suspect]


@pytest.mark.parametrize("status", ["RUNNING", "COMPLETED", "FAILED", "CANCELLED"])
def test_only_waiting_jobs_are_claimed(db: Db, status: str) -> None:
    """Q17. A job whose lease has ended is recovered first, and claimed then."""
    make_job(db, status, **({"lock_expires_at": ago(hours=1)} if status == "RUNNING" else {}))
    assert claim(db) == []


def test_two_workers_at_once_never_get_the_same_job(db: Db, other: Db) -> None:
    """W2, Q15, Q18, Q41, Q42, D18: whatever one has looked at, the other may have taken."""
    for _ in range(5):
        made = make_jobs(db, 40)
        mine, theirs = at_once(lambda: claim(db, 20), lambda: claim(other, 20, by=OTHER))
        assert (len(mine), len(theirs)) == (20, 20)
        assert sorted(mine + theirs) == made


def test_a_hundred_jobs_and_three_workers_make_a_hundred_completions(db: Db, url: str) -> None:
    """Q47."""
    made = make_jobs(db, 100, lease_seq=2)

    def work() -> list[int]:
        done: list[int] = []
        with connect(url, name="worker") as mine:
            while jobs := take(mine, 7).jobs:
                done += complete(mine, *jobs)
        return done

    done = at_once(work, work, work)
    assert sorted(chain(*done)) == made
    assert {*statuses(db).values()} == {"COMPLETED"}
    assert db.execute("SELECT DISTINCT attempt_count, lease_seq > 3 FROM snap_processing_job").fetchall() == [(1, True)]


def test_jobs_that_are_locked_and_in_the_way_of_others_are_told_and_can_be_left_out(db: Db, other: Db) -> None:
    """Else, with a single free slot, a locked job of a high priority kept all others from it."""
    first, second, low = make_job(db, priority=9), make_job(db, priority=9), make_job(db)
    with other.transaction():
        other.execute("SELECT FROM snap_processing_job WHERE priority = 9 FOR SHARE")
        seen = take(db, 2)
        assert (seen.jobs, seen.locked) == ([], [first, second])
        seen = take(db, 2, Look(besides=seen.locked))
        assert ([one.id for one in seen.jobs], seen.locked) == ([low], [])
    assert take(db, 2).locked == []


def test_what_is_left_out_hides_no_other_head(db: Db) -> None:
    """A claim looks at the 16 heads that come first."""
    left_out = [make_job(db, priority=priority) for priority in range(1, 17)]
    low = make_job(db)
    assert [one.id for one in take(db, look=Look(besides=left_out)).jobs] == [low]


def test_a_suspect_whose_row_is_locked_keeps_no_other_from_running(db: Db, other: Db) -> None:
    suspects = make_jobs(db, 2, "RETRY_WAIT", losses=2, gate="alone", attempt_count=1)
    with other.transaction():
        lock_row(other, suspects[0])
        assert take_suspect(db).id == suspects[1]


def test_a_claim_skips_what_another_one_is_taking(db: Db, other: Db) -> None:
    first, second = make_jobs(db, 2, lease_seq=2)
    with other.transaction(force_rollback=True):
        assert claim(other, 1, by=OTHER) == [first]
        assert claim(db) == [second]
    assert claim(db) == [first]  # the other one was rolled back, and its attempt with it
    assert (row(db, first).attempt_count, row(db, first).lease_seq > 2) == (1, True)


@pytest.mark.parametrize("status", ["PENDING", "RETRY_WAIT"])
@pytest.mark.parametrize("gate", ["open", "held", "alone"])
def test_no_job_is_both_unclaimable_and_unfinished(db: Db, status: str, gate: str) -> None:
    """D4: its attempts are used up, nobody settled it, so the next claim finds it and is told."""
    tired = make_job(db, status, attempt_count=3, max_attempts=3, gate=gate, losses=3 if gate == "alone" else 0)
    [taken] = take(db, look=Look(takes_suspect=True) if gate == "alone" else None).jobs
    assert (taken.id, taken.exhausted) == (tired, True)


def test_a_suspect_is_claimed_alone_and_only_where_one_asks_for_it(db: Db) -> None:
    """Promise 3."""
    first, second = make_jobs(db, 2, losses=2, gate="alone", lease_seq=2)
    plain = make_job(db)
    assert claim(db) == [plain]
    assert [alone(db), alone(db, OTHER)] == [[first], [second]]
    assert (row(db, first).attempt_count, row(db, first).lease_seq > 2) == (1, True)


def test_a_busy_worker_takes_a_suspect_that_has_let_others_go_first_or_has_a_process(db: Db) -> None:
    """Promise 3: it never shuts the door on others, and is not shut out for ever."""
    fresh = make_job(db, losses=2, gate="alone")
    assert alone(db, is_idle=False) == []
    patient = make_job(db, losses=2, gate="alone", next_retry_at=ago(minutes=2))
    assert alone(db, is_idle=False) == [patient]
    short = make_job(db, losses=0, gate="alone", memory_mb=300)
    assert alone(db, is_idle=False, apart=["test"]) == [fresh]
    assert alone(db, is_idle=False, apart=["test"]) == []  # it needs the memory of others
    used_up = make_job(db, losses=2, gate="alone", attempt_count=3, max_attempts=3)
    assert alone(db, is_idle=False) == [used_up]  # it will not run any more
    assert alone(db) == [short]


def test_a_suspect_of_another_kind_or_queue_or_hour_is_left(db: Db) -> None:
    make_job(db, losses=2, gate="alone", kind="unknown")
    make_job(db, losses=2, gate="alone", queue="media")
    make_job(db, losses=2, gate="alone", next_retry_at=hence(minutes=1))
    assert alone(db, replace(BY, queues=("default",))) == []
    mine = make_job(db, losses=2, gate="alone")
    assert alone(db, replace(BY, queues=("default",))) == [mine]


def test_two_workers_never_get_the_same_suspect(db: Db, other: Db) -> None:
    first = make_job(db, losses=2, gate="alone")
    with other.transaction():
        assert alone(other, OTHER) == [first]
        assert alone(db) == []


def test_a_bookmark_goes_on_where_the_batch_ended(db: Db) -> None:
    at = ago(seconds=1)
    made = [make_job(db, next_retry_at=at) for _ in range(5)]
    first = take(db, 2)
    second = claim_on(db, first, 2)
    third = claim_on(db, second, 2)
    assert [[one.id for one in claimed.jobs] for claimed in (first, second, third)] == [made[:2], made[2:4], made[4:]]


def test_a_bookmark_hides_what_lies_before_it_in_its_head_only(db: Db) -> None:
    at = ago(seconds=10)
    make_job(db, next_retry_at=at)
    first = take(db, 1)
    make_job(db, next_retry_at=at - SECOND)  # behind
    make_job(db, next_retry_at=hence(minutes=1))
    seen = [
        make_job(db, priority=5),
        make_job(db, queue="another"),
        make_job(db, queue="default2"),
        make_job(db, priority=-5),
        make_job(db, next_retry_at=at + SECOND),
    ]
    assert {one.id for one in claim_on(db, first).jobs} == {*seen}
    assert len(claim(db)) == 1  # without the bookmark


def test_the_next_head_between_two_is_the_first_one_there(db: Db) -> None:
    heads = list(product(("a", "b", "c"), ("a", "b", "c"), (-1, 0, 1)))
    for queue, kind, priority in heads[::2]:
        make_job(db, queue=queue, kind=kind, priority=priority)
    ends = [FIRST, *heads, LAST]
    for begin, end in combinations(ends, 2):
        found = db.execute("SELECT queue, kind, priority FROM job_next_head(%s, %s, %s, %s, %s, %s)", [*begin, *end])
        assert found.fetchall() == [one for one in heads[::2] if begin < one < end][:1]


@pytest.mark.parametrize("last", ["\U0010ffff", "\U0010ffff" * 300])
def test_no_kind_sorts_behind_the_last_one(db: Db, last: str) -> None:
    made = [make_job(db), make_job(db, kind=last)]
    assert claim(db, 9, kinds=("test", last)) == made


def test_what_a_snapshot_keeps_of_ended_jobs_is_not_walked_through(db: Db, other: Db) -> None:
    """Two heads beside each other, so that each is where the look for heads before the other one ends."""
    for kind in ("cut", "scan"):
        db.execute("INSERT INTO snap_processing_job (kind) SELECT %s FROM generate_series(1, 5000)", [kind])
    with other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM snap_processing_job")
        db.execute("UPDATE snap_processing_job SET status = 'COMPLETED', finished_at = now()")
        ends = [FIRST, Head("default", "cut", 0), Head("default", "scan", 0), LAST]
        for begin, end in pairwise(ends):
            looked_at = db.execute(
                "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM job_next_head(%s, %s, %s, %s, %s, %s)",
                [*begin, *end],
            )
            [(told,)] = looked_at.fetchall()
            plan = (json.loads(told) if isinstance(told, bytes) else told)[0]["Plan"]
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 30


def test_more_heads_than_one_look_sees_are_seen_by_the_next(db: Db) -> None:
    """Promise 8: what a claim looks at is bounded, in rotation."""
    made = {make_job(db, queue=f"q{number:03}") for number in range(150)}
    begin, seen = FIRST, set[int]()
    for _ in range(100):
        claimed = take(db, 10, Look(begin=begin))
        seen |= {one.id for one in claimed.jobs}
        sees_all = len(claimed.new_heads) < HEADS_AT_ONCE
        begin = FIRST if sees_all else claimed.new_heads[-1]
    assert seen == made


def test_a_large_payload_is_fetched_under_the_lease(db: Db) -> None:
    large = {"text": "".join(hashlib.sha256(bytes([n % 251, n // 251])).hexdigest() for n in range(3000))}
    small, big = make_job(db, payload={"n": 1}), make_job(db, payload=large)
    taken = {one.id: one for one in take(db, 2).jobs}
    assert taken[small].payload_json is not None
    assert taken[big].payload_json is None
    fetched = claim_rows.payload(db, taken[big].lease)
    assert fetched
    assert json.loads(fetched) == large
    assert claim_rows.payload(db, Lease(big, 99)) is None


def test_a_claim_says_when_there_is_something_again(db: Db) -> None:
    make_job(db, kind="unknown", next_retry_at=hence(seconds=5))
    make_job(db, "COMPLETED")
    make_job(db, "RUNNING")
    assert take(db).due_in is None
    for minutes in (3, 2, 4):
        make_job(db, next_retry_at=hence(minutes=minutes))
    make_job(db, queue="media", next_retry_at=hence(minutes=1))
    assert take(db).due_in == pytest.approx(60, abs=20)
    assert take(db, by=replace(BY, queues=("default",))).due_in == pytest.approx(120, abs=20)


def test_what_comes_next_is_told_beside_what_was_taken(db: Db, other: Db) -> None:
    """Of one queue, kind and priority, too, where it lies behind what is due; and also to whoever got nothing of it."""
    first = make_job(db)
    for minutes in (2, 1, 3):
        make_job(db, next_retry_at=hence(minutes=minutes))
    with other.transaction():
        taken = take(other)
        assert [one.id for one in taken.jobs] == [first]
        assert taken.due_in == pytest.approx(60, abs=20)
        assert take(db).due_in == pytest.approx(60, abs=20), "somebody else has what is due"


@pytest.mark.parametrize("run_at", ["infinity", "9000-01-01Z", "294276-12-31Z"])
def test_a_job_beyond_the_calendar_stops_nobody(db: Db, run_at: str) -> None:
    db.execute("SELECT enqueue_job('test', run_at => %s)", [run_at])
    now = make_job(db)
    assert claim(db) == [now]
    due_in = take(db).due_in
    assert due_in is None or due_in > 86400


@pytest.mark.parametrize("ages_after", [None, "1 minute"])
def test_a_job_that_has_always_been_due_is_first(db: Db, ages_after: str | None) -> None:
    db.execute("INSERT INTO job_queue (name, ages_after) VALUES ('default', %s)", [ages_after])
    young, old = make_job(db), scalar(db, "SELECT enqueue_job('test', run_at => '-infinity')")
    assert claim_in_order(db) == [old, young]


def test_a_claim_after_a_failed_transaction_is_as_any_other(db: Db) -> None:
    waiting = make_job(db, lease_seq=2)
    with suppress(pg.DivisionByZero), db.transaction():
        claim(db)
        scalar(db, "SELECT 1 / 0")
    assert claim(db) == [waiting]
    assert row(db, waiting).lease_seq > 2


def test_one_statement_of_ours_makes_a_job_run() -> None:
    """Law 5: the claim's UPDATE and its RETURNING list exist once."""
    rows = Path(claim_rows.__file__).parents[1]
    claims = [file.name for file in rows.rglob("*.py") if "status = 'RUNNING', claimed_by" in file.read_text()]
    assert claims == ["claim.py"]

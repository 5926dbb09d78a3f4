"""Limits and fair turns: never more than may, never stuck below, and what cannot run blocks nobody."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors as pg

from snapapp.jobs import board, queue
from snapapp.jobs.database import connect
from snapapp.jobs.queue import Head, Lane, Room, Turn, shared_out
from snapapp.jobs.registry import Registry
from tests import limits
from tests.factory import BY, OTHER, Db, ago, at_once, complete, job, make_job, make_jobs, move, row, scalar, statuses
from tests.jobs.working import until, working

both_servers = pytest.mark.both_servers

WAITING = "SELECT count(*) FROM snap_processing_job WHERE status = 'PENDING'"


def limit(
    db: Db, pattern: str, max_running: int | None = None, *, rate: float | None = None, burst: int | None = None
) -> None:
    db.execute(
        "INSERT INTO job_limit VALUES (%s, %s, %s, %s) ON CONFLICT (key_pattern) DO UPDATE"
        "   SET max_running = excluded.max_running, rate = excluded.rate, burst = excluded.burst",
        [pattern, max_running, rate, burst],
    )


def make_fair(db: Db, name: str = "default") -> None:
    db.execute("INSERT INTO job_queue (name, fair) VALUES (%s, true)", [name])


def keyed(db: Db, count: int, key: str = "k", **columns: Any) -> list[int]:
    return make_jobs(db, count, concurrency_key=key, lane=key, **columns)


def turn(
    db: Db,
    most: int = 100,
    *,
    by: queue.Claimant = BY,
    served: dict[Head, str] | None = None,
    kinds: tuple[str, ...] = ("test",),
) -> Turn:
    return queue.claim_by_rules(db, by, kinds, most, most, served or {})


def take(db: Db, most: int = 100, **how: Any) -> list[int]:
    return sorted(job.id for job in turn(db, most, **how).jobs)


def now_running(db: Db) -> int:
    return int(scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'RUNNING'"))


# --- who does not know ------------------------------------------------------------------------------------------


@both_servers
@pytest.mark.parametrize("how", ["claim", "claim_on", "claim_suspect"])
def test_a_claim_that_knows_of_no_limit_claims_nothing_once_there_is_one(db: Db, how: str) -> None:
    make_job(db, suspect=how == "claim_suspect")
    start = queue.Bookmark("default", "test", 0, "", ago(hours=1), 0)
    ways: dict[str, Callable[[], object]] = {
        "claim": lambda: queue.claim(db, BY, ["test"], 10)[0],
        "claim_on": lambda: queue.claim_on(db, BY, start, 10)[0],
        "claim_suspect": lambda: queue.claim_suspect(db, BY, ["test"]),
    }
    limit(db, "key:whatever", 5)
    assert queue.has_rules(db)
    assert not ways[how]()
    db.execute("DELETE FROM job_limit")
    assert not queue.has_rules(db)
    assert ways[how]()


@both_servers
def test_a_claim_that_takes_no_turns_claims_nothing_once_a_queue_is_fair(db: Db) -> None:
    make_job(db)
    make_fair(db, "another")
    assert queue.claim(db, BY, ["test"], 10)[0] == []
    assert queue.has_rules(db)
    assert len(take(db)) == 1


# --- how many run -----------------------------------------------------------------------------------------------


@both_servers
def test_a_key_has_as_many_running_as_its_limit(db: Db) -> None:
    """R40, D14."""
    limit(db, "key:k", 3)
    first, second, third, fourth, fifth = keyed(db, 5)
    claimed = turn(db)
    assert [job.id for job in claimed.jobs] == [first, second, third]
    assert claimed.again_in == 0.2
    assert turn(db).jobs == []
    complete(db, claimed.jobs[1])
    assert take(db) == [fourth]
    assert row(db, fifth).status == "PENDING"


@both_servers
def test_a_claim_by_the_rules_leases_the_job_as_any_other(db: Db) -> None:
    limit(db, "key:k", 3)
    [waiting] = keyed(db, 1, status="RETRY_WAIT", attempt_count=1, lease_seq=2)
    [job] = turn(db).jobs
    now = row(db, waiting)
    assert (now.status, now.claimed_by, now.attempt_count, now.lease_seq, now.started_at) == (
        "RUNNING",
        "worker",
        2,
        3,
        None,
    )
    assert (job.id, job.lease_seq, job.attempt) == (waiting, 3, 2)


@both_servers
def test_many_who_claim_at_once_never_get_more_than_the_limit(db: Db, url: str) -> None:
    """D14: counted by a sub-select in the claim itself, two at once both pass."""
    limit(db, "key:k", 3)
    limit(db, "queue:default", 5)
    keyed(db, 150)
    make_jobs(db, 150)
    counted = "SELECT count(*) FILTER (WHERE lane = 'k'), count(*) FROM snap_processing_job WHERE status = 'RUNNING'"
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    def work() -> None:
        with connect(url, name="worker") as mine:
            while True:
                jobs, looks = turn(mine, 4).jobs, len(seen)
                if not jobs and not scalar(mine, WAITING):
                    return
                until(lambda: not jobs or len(seen) > looks + 1)  # seen running by the observer  # noqa: B023
                complete(mine, *jobs)

    def observe() -> None:
        with connect(url, name="observer") as mine:
            while not over.is_set():
                seen.extend(mine.execute(counted).fetchall())

    def all_of_them() -> None:
        try:
            at_once(*[work] * 6)
        finally:
            over.set()

    at_once(all_of_them, observe)
    assert max(of_key for of_key, _ in seen) == 3
    assert max(of_queue for _, of_queue in seen) == 5
    assert {*statuses(db).values()} == {"COMPLETED"}


@both_servers
def test_a_key_that_somebody_else_claims_for_is_skipped_and_tried_again_soon(db: Db, other: Db) -> None:
    limit(db, "key:k", 3)
    first, second, third, _ = keyed(db, 4)
    assert take(db, 0) == []  # from now on the key has its row
    with other.transaction():
        assert take(other, 2, by=OTHER) == [first, second]
        beside = make_job(db)
        mine = turn(db)
        assert [it.id for it in mine.jobs] == [beside]
        assert mine.again_in is not None
        assert mine.again_in < 0.02
    assert take(db) == [third]


@both_servers
def test_two_who_meet_a_key_for_the_first_time_do_not_both_count(db: Db, other: Db) -> None:
    limit(db, "key:*", 1)
    keyed(db, 4)
    mine, theirs = at_once(partial(take, db), partial(take, other, by=OTHER))
    assert len(mine + theirs) == 1


@both_servers
def test_a_key_shares_its_places_between_queues_kinds_and_priorities(db: Db) -> None:
    limit(db, "key:k", 3)
    for kind, name, priority in (("a", "one", 0), ("b", "one", 5), ("a", "two", 9)):
        keyed(db, 2, kind=kind, queue=name, priority=priority)
    taken = turn(db, kinds=("a", "b")).jobs
    assert [job.priority for job in taken] == [9, 9, 5]


@both_servers
def test_a_queue_and_a_key_limit_at_once(db: Db) -> None:
    limit(db, "key:k", 2)
    limit(db, "queue:media", 4)
    keyed(db, 5, queue="media")
    make_jobs(db, 5, queue="media")
    assert len(take(db)) == 4
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'RUNNING' AND lane = 'k'") == 2
    keyed(db, 5)
    assert take(db) == []
    make_jobs(db, 5)
    assert len(take(db)) == 5


@both_servers
def test_what_is_full_blocks_nobody(db: Db) -> None:
    """D15."""
    limit(db, "key:k", 1)
    keyed(db, 5, priority=100)
    keyed(db, 5, queue="another")
    low = make_job(db, priority=-100)
    beside = make_job(db, priority=100, lane="z")
    assert [low, beside] == take(db)[1:]
    later = make_job(db)
    assert take(db) == [later]


@both_servers
@pytest.mark.parametrize(
    ("pattern", "lets_in"),
    [
        ("key:camera:7", 1),
        ("key:camera:8", 2),
        ("key:camera", 3),
        ("key:queue:media", 3),
        ("queue:media", 4),
        ("queue:m", 9),
    ],
)
def test_the_most_specific_pattern_rules(db: Db, pattern: str, lets_in: int) -> None:
    """R42."""
    for its, most in (("key:camera:7", 1), ("key:camera:*", 2), ("key:*", 3), ("queue:media", 4), ("queue:*", 9)):
        limit(db, its, most)
    assert scalar(db, "SELECT max_running FROM job_limit_of(%s)", pattern) == lets_in
    kind, _, name = pattern.partition(":")
    columns = {"queue": name} if kind == "queue" else {"concurrency_key": name, "lane": name}
    make_jobs(db, 12, **columns)
    assert len(take(db)) == lets_in


@both_servers
def test_each_key_of_a_pattern_has_the_limit_for_itself(db: Db) -> None:
    limit(db, "key:camera:*", 2)
    for number in range(5):
        keyed(db, 3, f"camera:{number}")
    assert len(take(db)) == 10


@both_servers
def test_of_many_full_lanes_the_free_one_is_found_in_turns(db: Db) -> None:
    limit(db, "key:full:*", 1)
    for number in range(250):
        keyed(db, 1, f"full:{number:03}", status="RUNNING")
        keyed(db, 1, f"full:{number:03}")
    [last] = keyed(db, 1, "z")
    served, found = dict[Head, str](), list[int]()
    for _ in range(3):
        seen = turn(db, served=served)
        served, found = seen.served, found + [job.id for job in seen.jobs]
        assert seen.again_in is not None
    assert found == [last]


@both_servers
def test_a_plain_backlog_beside_many_full_lanes_hides_none_of_them(db: Db) -> None:
    limit(db, "key:full:*", 1)
    for number in range(150):
        keyed(db, 1, f"full:{number:03}", status="RUNNING", queue="keyed")
        keyed(db, 1, f"full:{number:03}", queue="keyed")
    [last] = keyed(db, 1, "z", queue="keyed")
    make_jobs(db, 100)
    served, found = dict[Head, str](), list[int]()
    for _ in range(20):
        seen = turn(db, 5, served=served)
        served, found = served | seen.served, found + [job.id for job in seen.jobs]
    assert last in found


@both_servers
def test_a_limit_of_zero_stops_it_and_nobody_looks_again(db: Db) -> None:
    limit(db, "queue:default", 0)
    make_jobs(db, 2)
    assert turn(db) == Turn([], {}, None, True, suspects_wait=False)
    limit(db, "queue:default", 1)
    assert len(take(db)) == 1
    db.execute("DELETE FROM job_limit")
    last = turn(db)
    assert (len(last.jobs), last.rules) == (1, False)


@both_servers
def test_what_a_dead_worker_ran_gives_its_place_back_with_its_recovery(db: Db) -> None:
    """W31."""
    limit(db, "key:k", 1)
    dead, waiting = keyed(db, 2)
    assert take(db) == [dead]
    assert take(db) == []
    move(db, dead, lock_expires_at=ago(minutes=1))
    assert queue.recover(db, spread=timedelta(minutes=10)) == [dead]
    move(db, dead, next_retry_at=ago(minutes=-5))
    assert take(db) == [waiting]


@both_servers
def test_a_suspect_keeps_to_the_limit_and_has_its_place_kept(db: Db) -> None:
    limit(db, "key:k", 1)
    keyed(db, 2, next_retry_at=ago(hours=1))
    [suspect] = keyed(db, 1, suspect=True, next_retry_at=ago(seconds=1))
    kept = turn(db)
    assert (kept.jobs, kept.suspects_wait) == ([], True)
    job = queue.claim_suspect_by_rules(db, BY, ["test"])
    assert job
    assert (job.id, job.suspect, job.lease_seq) == (suspect, True, 1)
    [another] = keyed(db, 1, suspect=True)
    assert queue.claim_suspect_by_rules(db, BY, ["test"]) is None
    complete(db, job)
    assert take(db) == []
    second = queue.claim_suspect_by_rules(db, BY, ["test"])
    assert second
    assert second.id == another


@both_servers
@pytest.mark.parametrize("shut", [{"max_running": 0}, {"rate": 0.001, "burst": 1}])
def test_a_suspect_that_its_other_key_shuts_keeps_no_place(db: Db, shut: dict[str, Any]) -> None:
    """A video that kills workers is shut by a limit: that must not shut the queue for all others."""
    limit(db, "queue:default", 1)
    limit(db, "key:camera:7", **shut)
    if "rate" in shut:
        keyed(db, 1, "camera:7")
        complete(db, turn(db).jobs[0])  # and the only token is taken
    [suspect] = keyed(db, 1, "camera:7", suspect=True)
    [other] = make_jobs(db, 1)
    assert queue.claim_suspect_by_rules(db, BY, ["test"]) is None
    assert take(db) == [other]
    assert row(db, suspect).status == "PENDING"


@both_servers
def test_many_suspects_keep_one_place(db: Db) -> None:
    limit(db, "queue:default", 3)
    make_jobs(db, 5, suspect=True)
    make_jobs(db, 5)
    assert len(take(db)) == 2
    assert queue.claim_suspect_by_rules(db, BY, ["test"])
    assert "the last place is kept for job" not in explained(db)


@both_servers
def test_the_place_that_is_kept_is_told_to_who_waits_for_it(db: Db) -> None:
    limit(db, "queue:default", 1)
    [suspect] = make_jobs(db, 1, suspect=True)
    make_jobs(db, 1)
    assert f"lets 1 of queue:default run at once, and the last place is kept for job {suspect}" in explained(db)


def explained(db: Db) -> str:
    """Of the newest job that waits and is no suspect."""
    waiting = "(SELECT max(id) FROM snap_processing_job WHERE status = 'PENDING' AND NOT suspect)"
    return str(scalar(db, f"SELECT explain_job({waiting})"))


@both_servers
def test_suspects_of_a_lane_that_is_shut_hide_no_others(db: Db) -> None:
    limit(db, "queue:shut", 0)
    make_jobs(db, 1001, queue="shut", suspect=True, next_retry_at=ago(hours=1))
    [free] = make_jobs(db, 1, suspect=True)
    found = queue.claim_suspect_by_rules(db, BY, ["test"])
    assert found
    assert found.id == free


@both_servers
def test_a_suspect_that_nobody_here_knows_keeps_no_place(db: Db) -> None:
    limit(db, "key:k", 1)
    keyed(db, 1, suspect=True, kind="unknown")
    [mine] = keyed(db, 1)
    assert take(db) == [mine]


# --- how fast they start ----------------------------------------------------------------------------------------


@both_servers
def test_a_rate_lets_a_burst_start_and_says_when_the_next_may(db: Db) -> None:
    """R42."""
    limit(db, "key:k", rate=0.5, burst=4)
    keyed(db, 10)
    first = turn(db)
    assert len(first.jobs) == 4
    seen = turn(db)
    assert seen.jobs == []
    assert seen.again_in == pytest.approx(2, abs=0.5)
    db.execute("UPDATE job_limit_key SET full_at = full_at - interval '4 s'")
    assert len(take(db)) == 2
    db.execute("UPDATE job_limit_key SET full_at = now() - interval '1 hour'")
    assert len(take(db)) == 4  # what was not used is not saved up


@both_servers
def test_without_a_burst_a_rate_lets_a_second_of_it_start_at_once(db: Db) -> None:
    limit(db, "key:a", rate=2.5)
    limit(db, "key:b", rate=0.001)
    keyed(db, 9, "a")
    keyed(db, 9, "b")
    assert sorted(row(db, job_id).lane for job_id in take(db)) == ["a", "a", "a", "b"]


def test_no_window_sees_more_than_the_burst_and_its_time_at_the_rate(db: Db, url: str) -> None:
    """R42: by the database's clock, however many claim."""
    rate, burst, over = 60.0, 5, threading.Event()
    limit(db, "key:k", rate=rate, burst=burst)
    keyed(db, 150)
    started: list[tuple[datetime, int]] = []

    def work() -> None:
        with connect(url, name="worker") as mine:
            while not over.is_set():
                with mine.transaction():
                    taken = len(turn(mine, 10).jobs)
                    started.append((scalar(mine, "SELECT clock_timestamp()"), taken))
                if not scalar(mine, WAITING):
                    over.set()

    at_once(work, work, work)
    times = sorted(at for at, taken in started for _ in range(taken))
    assert len(times) == 150
    slack = 0.1  # seconds: between the claim's look at the clock and ours
    for first in range(150):
        for last in range(first, 150):
            lasted = (times[last] - times[first]).total_seconds() + slack
            assert last - first + 1 <= burst + rate * lasted
    assert (times[-1] - times[0]).total_seconds() >= (150 - burst) / rate - slack


def test_what_cannot_begin_at_once_leaves_most_places_to_others() -> None:
    few, many = Room(3, None, 3, None, None, False), Room(1000, None, 1000, None, None, False)
    by_rate, both = Room(None, 5.0, None, 50, 0.0, False), Room(100, 5.0, 80, 50, 0.0, False)
    assert [room.jobs(0) for room in (few, many, by_rate, both)] == [1, 333, 16, 16]
    assert [room.jobs(2) for room in (few, many, by_rate, both)] == [2, 334, 18, 18]


# --- whose turn it is -------------------------------------------------------------------------------------------


@both_servers
def test_tenants_of_a_fair_queue_take_turns_in_a_batch_and_from_one_to_the_next(db: Db) -> None:
    """FE1."""
    make_fair(db)
    for tenant, count in (("a", 20), ("z", 3)):
        make_jobs(db, count, tenant=tenant)
    seen = turn(db, 6)
    assert [job.tenant for job in seen.jobs] == ["a", "z"] * 3
    make_jobs(db, 3, tenant="m")
    order: list[str] = []
    for _ in range(6):
        seen = turn(db, 1, served=seen.served)
        order += [job.tenant for job in seen.jobs]
    assert order == ["a", "m"] * 3


@both_servers
def test_the_turns_of_a_fair_queue_go_on_whatever_other_queues_do_meanwhile(db: Db) -> None:
    """FE1: one rotation for all queues began again with each webhook, and who is late in the alphabet got nothing."""
    make_fair(db, "media")
    for tenant in "abc":
        make_jobs(db, 4, queue="media", tenant=tenant, lane=tenant)
    make_jobs(db, 12, kind="webhook")
    served, order = dict[Head, str](), list[str]()
    for _ in range(6):
        for kinds in (("test",), ("webhook",)):
            seen = turn(db, 1, served=served, kinds=kinds)
            served |= seen.served
            order += [each.tenant for each in seen.jobs if each.kind == "test"]
    assert order == ["a", "b", "c"] * 2


@both_servers
def test_in_claims_for_several_queues_at_once_each_keeps_its_own_turn(db: Db) -> None:
    for name in ("one", "two"):
        make_fair(db, name)
        for tenant in "abcd":
            make_jobs(db, 3, queue=name, tenant=tenant, lane=tenant)
    served, order = dict[Head, str](), {"one": "", "two": ""}
    for _ in range(24):
        seen = turn(db, 1, served=served)
        served |= seen.served
        for each in seen.jobs:
            order[each.queue] += each.tenant
    assert order == {"one": "abcd" * 3, "two": "abcd" * 3}


@both_servers
def test_a_batch_is_filled_by_who_has_the_most_where_the_others_have_little(db: Db) -> None:
    make_fair(db)
    make_jobs(db, 200, tenant="a")
    for number in range(5):
        make_job(db, tenant=f"b{number}")
    tenants = [job.tenant for job in turn(db, 60).jobs]
    assert sorted(tenants[:6]) == ["a", "b0", "b1", "b2", "b3", "b4"]
    assert len(tenants) >= 40


@both_servers
def test_priority_comes_before_turns(db: Db) -> None:
    make_fair(db)
    make_jobs(db, 5, tenant="a", priority=1)
    make_jobs(db, 5, tenant="b")
    assert [job.tenant for job in turn(db, 7).jobs] == ["a"] * 5 + ["b"] * 2


def test_a_small_tenant_is_served_beside_a_large_one(url: str, db: Db) -> None:
    """FE1: 1,000 jobs of one, 10 of another."""
    make_fair(db)
    db.execute("SELECT enqueue_job('work', tenant => 'a') FROM generate_series(1, 1000)")
    db.execute("SELECT enqueue_job('work', tenant => 'b') FROM generate_series(1, 10)")
    registry, order = Registry(), list[str]()
    registry.processor("work")(lambda job: order.append(job.tenant))
    with working(url, registry, concurrency=1) as (worker, _):
        until(lambda: worker.counts.completed == 1010, within=40)
    assert len(order) == 1010
    assert order[:40].count("b") == 10


LANES = st.builds(
    Lane,
    st.sampled_from(["q", "r"]),
    st.sampled_from(["x", "y"]),
    st.integers(0, 2),
    st.sampled_from("abc"),
    st.integers(0, 5),
    st.lists(st.sampled_from(["one", "two", "locked"]), max_size=2, unique=True),
    st.booleans(),
)
ROOMS = st.builds(Room, st.just(9), st.none(), st.integers(0, 6), st.none(), st.none(), st.just(False))


@given(st.lists(LANES, max_size=8), ROOMS, ROOMS, st.integers(0, 12))
def test_shares_keep_to_every_limit_and_leave_nothing_that_fits(
    lanes: list[Lane], one: Room, two: Room, most: int
) -> None:
    rooms = {"one": one, "two": two}
    shares, _ = shared_out(lanes, rooms, most, most)
    left = {key: room.jobs(most) for key, room in rooms.items()} | {"locked": 0}
    for lane, share in zip(lanes, shares, strict=True):
        assert 0 <= share <= lane.due
        for key in lane.keys:
            left[key] -= share
    assert min(left.values()) >= 0
    assert sum(shares) <= most
    if sum(shares) < most:
        for lane, share in zip(lanes, shares, strict=True):
            assert share == lane.due or any(left[key] == 0 for key in lane.keys)


def test_the_claims_by_the_rules_make_of_a_job_what_the_others_do() -> None:
    claims = [queue._CLAIM, queue._CLAIM_SHARES, queue._CLAIM_SUSPECT_SHARE]
    assert len({claim.partition("\nUPDATE ")[2] for claim in claims}) == 1


# --- what people may say ----------------------------------------------------------------------------------------


@both_servers
@pytest.mark.parametrize(
    "values",
    [
        ("camera", 1, None, None),
        ("tenant:a", 1, None, None),
        ("key:", 1, None, None),
        ("key:a", None, None, None),
        ("key:a", -1, None, None),
        ("key:a", None, 0.0, None),
        ("key:a", None, float("nan"), None),
        ("key:a", None, float("inf"), None),
        ("key:a", 1, None, 5),
        ("key:a", None, 1.0, 0),
        ("key:" + "a" * 600, 1, None, None),
    ],
)
def test_a_limit_that_means_nothing_is_refused(db: Db, values: tuple[object, ...]) -> None:
    with pytest.raises(pg.CheckViolation):
        db.execute("INSERT INTO job_limit VALUES (%s, %s, %s, %s)", values)


@both_servers
def test_keys_that_are_not_used_are_forgotten(db: Db) -> None:
    limit(db, "key:*", 1)
    db.execute(
        "INSERT INTO job_limit_key SELECT 'key:old' || n, now() - interval '2 hours' FROM generate_series(1, 150) AS n"
    )
    db.execute("INSERT INTO job_limit_key VALUES ('key:slow', now() + interval '1 day')")
    keyed(db, 1)
    assert len(take(db)) == 1
    assert scalar(db, "SELECT count(*) FROM job_limit_key") == 50 + 2


@both_servers
def test_the_overview_counts_what_runs_under_each_limit(db: Db) -> None:
    limit(db, "key:camera:*", 2)
    limit(db, "queue:default", 9)
    keyed(db, 2, "camera:1", status="RUNNING")
    keyed(db, 1, "camera:2", status="RUNNING")
    make_job(db, "RUNNING")
    seen = db.execute("SELECT key_pattern, keys_running, running, keys_full FROM limit_overview").fetchall()
    assert seen == [("key:camera:*", 2, 3, 1), ("queue:default", 1, 4, 0)]


@both_servers
def test_a_job_that_a_limit_holds_back_says_which(db: Db) -> None:
    limit(db, "key:camera:*", 2)
    limit(db, "queue:media", rate=0.01, burst=2)
    keyed(db, 2, "camera:7", queue="media")
    held, *_ = keyed(db, 1, "camera:7", queue="media")
    take(db)
    lines = board.explain(db, held).splitlines()
    by_rate = "The limit queue:media lets 0.01 of queue:media start a second, after a burst of 2"
    by_place = "The limit key:camera:* lets 2 of key:camera:7 run at once, and 2 run: it waits for one of them to end."
    assert [line for line in lines if line.startswith("The limit")] == [
        f"{by_rate}: the next one may start in 99 s.",
        by_place,
    ]
    limit(db, "queue:media", 0)
    assert "The limit queue:media lets nothing of queue:media run." in board.explain(db, held)
    db.execute("DELETE FROM job_limit")
    assert "limit" not in board.explain(db, held)


# --- the worker -------------------------------------------------------------------------------------------------


def test_a_worker_obeys_a_limit_as_soon_as_it_is_there_and_forgets_it_when_it_is_gone(url: str, db: Db) -> None:
    """R40: with a backlog, and without waiting for a poll."""
    registry, gate = Registry(), threading.Semaphore(0)
    registry.processor("held")(lambda job: gate.acquire(timeout=20))
    made = keyed(db, 30, kind="held")
    with working(url, registry, concurrency=4, poll_delay=timedelta(seconds=30)) as (_, _):
        until(lambda: now_running(db) >= 4)
        limit(db, "key:k", 2)
        gate.release(now_running(db))
        until(lambda: now_running(db) == 2)
        gate.release(4)
        until(lambda: list(statuses(db).values()).count("COMPLETED") >= 8)
        assert now_running(db) <= 2
        limit(db, "key:k", 3)
        until(lambda: now_running(db) == 3, within=2)
        db.execute("DELETE FROM job_limit")
        until(lambda: now_running(db) >= 4, within=2)
        gate.release(40)
        until(lambda: {row(db, job_id).status for job_id in made} == {"COMPLETED"})


def test_a_place_that_another_worker_freed_is_soon_taken(url: str, db: Db) -> None:
    limit(db, "key:k", 1)
    [theirs] = keyed(db, 1, kind="quick", status="RUNNING")
    [mine] = keyed(db, 1, kind="quick")
    registry = Registry()
    registry.processor("quick")(lambda job: None)
    with working(url, registry, poll_delay=timedelta(seconds=30)) as (worker, _):
        until(lambda: worker.vitals().listens)
        assert row(db, mine).status == "PENDING"
        complete(db, job(db, theirs))
        until(lambda: row(db, mine).status == "COMPLETED", within=3)


def test_workers_that_are_killed_neither_break_the_limit_nor_lose_places(url: str) -> None:
    """W31, D14: the lab, in small; python -m tests.limits says how to run it in full."""
    report = limits.run(url, seconds=6, kill_every=1.2)
    assert report.problems == []
    assert report.kills >= 2
    assert report.samples > 200
    assert report.most_running == report.most_at_once == limits.LIMIT

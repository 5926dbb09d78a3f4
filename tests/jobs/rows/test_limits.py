"""Limits and fair turns: never more than may, never stuck below, and what cannot run blocks nobody."""

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors as pg

from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows import leases, settle
from snapapp.jobs.rows import limits as limits_rows
from snapapp.jobs.rows.claim import Claimant, Claimed, Look, Wanted
from snapapp.jobs.rows.database import connect
from snapapp.jobs.rows.people import views
from tests.factory import (
    BY,
    OOPS,
    OTHER,
    Db,
    ago,
    at_once,
    claimed,
    complete,
    job,
    make_job,
    make_jobs,
    move,
    retry,
    row,
    scalar,
    statuses,
)
from tests.jobs.working import until, working
from tests.labs import limits

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
    return make_jobs(db, count, concurrency_key=key, **columns)


Turns = dict[tuple[str, str], str]  # of each (queue, kind) the lane whose turn was last


def turn(
    db: Db,
    most: int = 100,
    *,
    by: Claimant = BY,
    served: Turns | None = None,
    kinds: Sequence[str] = ("test",),
    **how: Any,
) -> Claimed:
    """A claim that remembers in `served` whose turn was last."""
    turns = tuple((*head, lane) for head, lane in (served or {}).items())
    seen = claimed(db, most, Look(turns=turns, **how), kinds=kinds, by=by)
    if served is not None:
        served |= {(queue, kind): lane for queue, kind, lane in seen.turns}
    return seen


def take(db: Db, most: int = 100, **how: Any) -> list[int]:
    return sorted(job.id for job in turn(db, most, **how).jobs)


def let_in(db: Db) -> list[int]:
    """What becomes due is held from the look after the one that sees it."""
    return take(db) or take(db)


def now_running(db: Db) -> int:
    return int(scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'RUNNING'"))


# --- whom a rule covers -----------------------------------------------------------------------------------------


def gates(db: Db, *ids: int) -> list[tuple[str, str]]:
    return [(row(db, job_id).gate, row(db, job_id).lane) for job_id in ids]


@both_servers
def test_a_key_is_a_label_until_a_limit_names_it(db: Db) -> None:
    """Engine.md, The claim: a hundred thousand keys cost nobody anything."""
    limit(db, "key:a", 1)
    named, other = make_job(db, concurrency_key="a"), make_job(db, concurrency_key="b")
    assert gates(db, named, other) == [("held", "a"), ("open", "")]


@both_servers
def test_a_limit_covers_what_is_enqueued_from_then_on_however_it_comes(db: Db) -> None:
    limit(db, "kind:test", 1)
    one = scalar(db, "SELECT enqueue_job('test')")
    many = scalar(db, """SELECT enqueue_jobs('[{"kind": "test"}]')""")
    keyed = scalar(db, """SELECT enqueue_jobs('[{"kind": "test", "unique_key": "k"}]')""")
    later = scalar(db, "SELECT enqueue_job('test', delay => '1 hour')")
    plain = scalar(db, "INSERT INTO snap_processing_job (kind) VALUES ('test') RETURNING id")
    beside = scalar(db, "SELECT enqueue_job('another')")
    assert gates(db, one, many, keyed, plain) == [("held", "")] * 4
    assert gates(db, later, beside) == [("later", ""), ("open", "")]


@both_servers
def test_a_job_that_nobody_can_claim_takes_no_place_of_a_limit(db: Db) -> None:
    limit(db, "key:k", 1)
    refused, behind = keyed(db, 2)
    assert take(db, besides=[refused]) == [behind]


@both_servers
def test_a_job_that_is_replaced_is_labelled_anew(db: Db) -> None:
    limit(db, "queue:media", 1)
    job_id = scalar(db, "SELECT enqueue_job('test', queue => 'media', unique_key => 'k')")
    assert gates(db, job_id) == [("held", "")]
    replace = "SELECT enqueue_job('test', queue => %s, unique_key => 'k', on_conflict => 'replace')"
    assert scalar(db, replace, "default") == job_id
    assert gates(db, job_id) == [("open", "")]
    assert scalar(db, replace, "media") == job_id
    assert gates(db, job_id) == [("held", "")]


@both_servers
def test_what_waits_already_is_looked_through_page_by_page(db: Db) -> None:
    waiting, later = keyed(db, 3), keyed(db, 1, next_retry_at=ago(hours=-1))
    [running] = keyed(db, 1, status="RUNNING")
    [done] = keyed(db, 1, status="COMPLETED")
    limit(db, "key:k", 2)
    assert gates(db, *waiting) == [("open", "")] * 3
    assert [scalar(db, "SELECT job_relabel(2)") for _ in range(4)] == [True, True, True, False]
    assert gates(db, *waiting, running) == [("held", "k")] * 4
    assert gates(db, *later, done) == [("later", "k"), ("open", "")]
    assert not scalar(db, "SELECT EXISTS (SELECT FROM job_rule_change)")
    assert take(db) == waiting[:1]  # the running one counts
    db.execute("DELETE FROM job_limit")
    assert scalar(db, "SELECT job_has_rules()")
    assert [scalar(db, "SELECT job_relabel()") for _ in range(2)] == [False, False]
    assert not scalar(db, "SELECT job_has_rules()")
    assert gates(db, *waiting[1:], *later) == [("open", "")] * 3


@both_servers
def test_who_enqueues_while_a_limit_is_made_is_looked_at_when_he_has_committed(db: Db, other: Db) -> None:
    with other.transaction():
        job_id = scalar(other, "SELECT enqueue_job('test')")
        limit(db, "kind:test", 1)
        assert not scalar(db, "SELECT job_relabel()")
        assert scalar(db, "SELECT EXISTS (SELECT FROM job_rule_change)"), "somebody may not have seen the limit"
    assert gates(db, job_id) == [("open", "")]
    scalar(db, "SELECT job_relabel()")
    assert gates(db, job_id) == [("held", "")]
    assert not scalar(db, "SELECT EXISTS (SELECT FROM job_rule_change)")


@both_servers
def test_a_job_comes_back_under_its_limit(db: Db) -> None:
    """Retried, handed back or lost: it never gets past the rule by another door."""
    limit(db, "key:k", 9)
    keyed(db, 3)
    retried, handed_back, lost = turn(db).jobs
    retry(db, retried, OOPS, timedelta(0), 0.1)
    settle.hand_back(db, [(handed_back.lease, True)], interruptions_allowed=9)
    move(db, lost.id, lock_expires_at=ago(minutes=1))
    leases.recover(db, spread=timedelta(0))
    assert gates(db, retried.id, handed_back.id, lost.id) == [("later", "k"), ("held", "k"), ("later", "k")]
    assert [*take(db), *take(db)] == [handed_back.id, retried.id, lost.id]


# --- how many run -----------------------------------------------------------------------------------------------


@both_servers
def test_a_key_has_as_many_running_as_its_limit(db: Db) -> None:
    """R40, D14."""
    limit(db, "key:k", 3)
    first, second, third, fourth, fifth = keyed(db, 5)
    taken = turn(db).jobs
    assert [job.id for job in taken] == [first, second, third]
    nothing = turn(db)
    assert (nothing.jobs, nothing.again_in) == ([], 0.2)  # nobody tells us that another worker's job has ended
    complete(db, taken[1])
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
    counted = "SELECT count(concurrency_key), count(*) FROM snap_processing_job WHERE status = 'RUNNING'"
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
def test_while_somebody_counts_others_take_what_no_limit_covers(db: Db, other: Db) -> None:
    limit(db, "key:k", 3)
    first, second, third, _ = keyed(db, 4)
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
    limit(db, "key:has room", 1)
    keyed(db, 5, priority=100)
    keyed(db, 5, queue="another")
    low = make_job(db, priority=-100)
    beside = make_job(db, priority=100, concurrency_key="z")
    assert [low, beside] == take(db)[1:]
    later = make_job(db)
    assert take(db) == [later]
    [limited_as_well] = keyed(db, 1, key="has room")
    assert take(db) == [limited_as_well]


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
        ("kind:test", 5),
    ],
)
def test_the_most_specific_pattern_rules(db: Db, pattern: str, lets_in: int) -> None:
    """R42."""
    for its, most in (("key:camera:7", 1), ("key:camera:*", 2), ("key:*", 3), ("queue:media", 4), ("queue:*", 9)):
        limit(db, its, most)
    if pattern.startswith("kind"):
        db.execute("DELETE FROM job_limit")
        limit(db, "kind:t*", 5)
    assert scalar(db, "SELECT max_running FROM job_limit_of(%s)", pattern) == lets_in
    kind, _, name = pattern.partition(":")
    columns = {"queue": {"queue": name}, "kind": {"kind": name}}.get(kind, {"concurrency_key": name})
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
    served, found = Turns(), list[int]()
    for _ in range(3):
        seen = turn(db, served=served)
        found += [job.id for job in seen.jobs]
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
    served, found = Turns(), list[int]()
    for _ in range(30):
        found += [job.id for job in turn(db, 5, served=served).jobs]
    assert last in found


@both_servers
def test_a_limit_of_zero_stops_it_and_nobody_looks_again(db: Db) -> None:
    limit(db, "queue:default", 0)
    make_jobs(db, 2)
    nothing = turn(db)
    assert (nothing.jobs, nothing.again_in) == ([], None)
    limit(db, "queue:default", 1)
    assert len(take(db)) == 1
    db.execute("DELETE FROM job_limit")
    scalar(db, "SELECT job_relabel()")
    assert len(take(db)) == 1


@both_servers
def test_what_a_dead_worker_ran_gives_its_place_back_with_its_recovery(db: Db) -> None:
    """W31."""
    limit(db, "key:k", 1)
    dead, waiting = keyed(db, 2)
    assert take(db) == [dead]
    assert take(db) == []
    move(db, dead, lock_expires_at=ago(minutes=1))
    assert leases.recover(db, spread=timedelta(minutes=10)) == [dead]
    move(db, dead, next_retry_at=ago(minutes=-5))
    assert let_in(db) == [waiting]


@both_servers
def test_a_suspect_keeps_to_the_limit_and_waits_for_an_empty_worker(db: Db) -> None:
    limit(db, "key:k", 1)
    [suspect] = keyed(db, 1, losses=2)
    [plain] = keyed(db, 1)
    assert take(db, is_idle=False) == [plain]
    assert take(db) == []
    complete(db, job(db, plain))
    assert take(db, is_idle=False) == []
    assert take(db) == [suspect]


@both_servers
def test_suspects_under_a_limit_come_one_by_one_and_after_a_minute_anywhere(db: Db) -> None:
    limit(db, "queue:default", 9)
    first, second = make_jobs(db, 2, losses=2, next_retry_at=ago(minutes=5))
    plain = make_job(db, priority=5)
    assert take(db, is_idle=False) == [first, plain]
    assert take(db, is_idle=False) == [second]


@both_servers
def test_a_suspect_whose_key_is_shut_keeps_nobody_away(db: Db) -> None:
    """A video that kills workers is shut by a limit: that must not shut the queue for all others."""
    limit(db, "queue:default", 1)
    limit(db, "key:camera:7", 0)
    keyed(db, 50, "camera:7", losses=2)
    [other] = make_jobs(db, 1)
    assert take(db) == [other]


# --- how fast they start ----------------------------------------------------------------------------------------


@both_servers
def test_a_rate_lets_a_burst_start_and_says_when_the_next_may(db: Db) -> None:
    """R42."""
    limit(db, "key:k", rate=0.5, burst=4)
    keyed(db, 10)
    assert len(take(db)) == 4
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


@both_servers
def test_what_a_limit_covers_never_waits_in_memory(db: Db) -> None:
    """It would hold the place of one that could begin elsewhere, and tokens that a stop would lose."""
    limit(db, "key:k", 50)
    keyed(db, 10, next_retry_at=ago(hours=1))
    make_jobs(db, 10)
    taken = claim_rows.claim(db, BY, [Wanted("test", 0, 10, 2)]).jobs
    assert sum(job.id <= 10 for job in taken) == 2
    assert len(taken) == 10


# --- whose turn it is -------------------------------------------------------------------------------------------


@both_servers
def test_tenants_of_a_fair_queue_take_turns_in_a_batch_and_from_one_to_the_next(db: Db) -> None:
    """FE1."""
    make_fair(db)
    for tenant, count in (("a", 20), ("z", 3)):
        make_jobs(db, count, tenant=tenant)
    served = Turns()
    assert [job.tenant for job in turn(db, 6, served=served).jobs] == ["a", "z"] * 3
    make_jobs(db, 3, tenant="m")
    order = [job.tenant for _ in range(6) for job in turn(db, 1, served=served).jobs]
    assert order == ["a", "m"] * 3


@both_servers
def test_the_turns_of_a_fair_queue_go_on_whatever_other_queues_do_meanwhile(db: Db) -> None:
    """FE1: one rotation for all queues began again with each webhook, and who is late in the alphabet got nothing."""
    make_fair(db, "media")
    for tenant in "abc":
        make_jobs(db, 4, queue="media", tenant=tenant)
    make_jobs(db, 12, kind="webhook")
    served, order = Turns(), list[str]()
    for _ in range(6):
        for kinds in (("test",), ("webhook",)):
            seen = turn(db, 1, served=served, kinds=kinds)
            order += [each.tenant for each in seen.jobs if each.kind == "test"]
    assert order == ["a", "b", "c"] * 2


@both_servers
def test_in_claims_for_several_queues_at_once_each_keeps_its_own_turn(db: Db) -> None:
    for name in ("one", "two"):
        make_fair(db, name)
        for tenant in "abcd":
            make_jobs(db, 3, queue=name, tenant=tenant)
    served, order = Turns(), {"one": "", "two": ""}
    for _ in range(24):
        for each in turn(db, 1, served=served).jobs:
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


LIMITS = st.dictionaries(
    st.sampled_from(["queue:q", "queue:r", "kind:x", "key:a", "key:*"]), st.integers(0, 4), min_size=1
)
JOBS = st.lists(
    st.tuples(st.sampled_from("qr"), st.sampled_from("xy"), st.integers(0, 2), st.sampled_from([None, "a", "b"])),
    max_size=14,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limits=LIMITS, jobs=JOBS, at_once=st.integers(1, 9))
def test_claims_keep_to_every_limit_and_leave_nothing_that_fits(
    db: Db, limits: dict[str, int], jobs: list[tuple[str, str, int, str | None]], at_once: int
) -> None:
    db.execute("DELETE FROM snap_processing_job")
    db.execute("DELETE FROM job_limit")
    for pattern, most in limits.items():
        limit(db, pattern, most)
    for queue, kind, priority, key in jobs:
        make_job(db, kind=kind, queue=queue, priority=priority, concurrency_key=key)
    left = dict[str, int]()
    running, waiting = list[Any](), list[Any]()
    while turn(db, at_once, kinds="xy").jobs:
        pass
    for job_id, status in statuses(db).items():
        (running if status == "RUNNING" else waiting).append(row(db, job_id))
    for each in running + waiting:
        for key in keys_of(each):
            rule = db.execute("SELECT max_running FROM job_limit_of(%s)", [key]).fetchone()
            left.setdefault(key, rule[0] if rule else 99)
    for each in running:
        for key in keys_of(each):
            left[key] -= 1
    assert min(left.values(), default=0) >= 0
    assert all(0 in [left[key] for key in keys_of(each)] for each in waiting)


def keys_of(its: Any) -> list[str]:
    return [f"queue:{its.queue}", f"kind:{its.kind}", *([f"key:{its.concurrency_key}"] if its.concurrency_key else [])]


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
    db.execute("INSERT INTO job_limit_key VALUES ('key:old', now() - interval '2 hours'), ('key:slow', now())")
    limits_rows.forget(db)
    assert db.execute("SELECT key FROM job_limit_key").fetchall() == [("key:slow",)]


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
    lines = views.explain(db, held).splitlines()
    by_rate = "The limit queue:media lets 0.01 of queue:media start a second, after a burst of 2"
    by_place = "The limit key:camera:* lets 2 of key:camera:7 run at once, and 2 run: it waits for one of them to end."
    assert [line for line in lines if line.startswith("The limit")] == [
        f"{by_rate}: the next one may start in 99 s.",
        by_place,
    ]
    limit(db, "queue:media", 0)
    assert "The limit queue:media lets nothing of queue:media run." in views.explain(db, held)
    db.execute("DELETE FROM job_limit")
    scalar(db, "SELECT job_relabel()")
    assert "limit" not in views.explain(db, held)


# --- the worker -------------------------------------------------------------------------------------------------


def let_one_end(db: Db, gate: threading.Semaphore) -> None:
    ended = list(statuses(db).values()).count("COMPLETED")
    gate.release()
    until(lambda: list(statuses(db).values()).count("COMPLETED") > ended)


@pytest.mark.direct
def test_a_worker_obeys_a_limit_as_soon_as_it_is_there_and_forgets_it_when_it_is_gone(url: str, db: Db) -> None:
    """R40: with a backlog, and without waiting for a poll."""
    registry, gate = Registry(), threading.Semaphore(0)
    registry.processor("held")(lambda job: gate.acquire(timeout=20))
    made = keyed(db, 30, kind="held")
    with working(url, registry, concurrency=4, poll_delay=timedelta(hours=1)) as (worker, _):
        until(lambda: worker.vitals().listens)
        until(lambda: now_running(db) >= 4)
        limit(db, "key:k", 2)
        while now_running(db) > 2:  # claimed before the limit was there, the last of them perhaps just now
            let_one_end(db, gate)
        for _ in range(4):
            let_one_end(db, gate)
            assert now_running(db) <= 2
        until(lambda: now_running(db) == 2)
        limit(db, "key:k", 3)
        until(lambda: now_running(db) == 3)
        db.execute("DELETE FROM job_limit")
        until(lambda: now_running(db) >= 4)
        gate.release(40)
        until(lambda: {row(db, job_id).status for job_id in made} == {"COMPLETED"})


@pytest.mark.direct
def test_a_place_that_another_worker_freed_is_soon_taken(url: str, db: Db) -> None:
    limit(db, "key:k", 1)
    [theirs] = keyed(db, 1, kind="quick", status="RUNNING")
    [mine] = keyed(db, 1, kind="quick")
    registry = Registry()
    registry.processor("quick")(lambda job: None)
    with working(url, registry, poll_delay=timedelta(hours=1)) as (worker, _):
        until(lambda: worker.vitals().listens)
        assert row(db, mine).status == "PENDING"
        complete(db, job(db, theirs))
        until(lambda: row(db, mine).status == "COMPLETED")


@pytest.mark.at_length  # labs/chaos counts what runs beneath a limit in every run
def test_workers_that_are_killed_neither_break_the_limit_nor_lose_places(url: str) -> None:
    """W31, D14: the lab, in small; python -m tests.labs limits says how to run it in full."""
    report = limits.run(url, seconds=6, kill_every=1.2)
    assert report.problems == []
    assert report.kills >= 2
    assert report.samples > 200
    assert report.most_running == report.most_at_once == limits.LIMIT

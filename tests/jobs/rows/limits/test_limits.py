"""Limits: whom a rule covers, never more than may run, never stuck below."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest

from snapapp.jobs.model import Buried
from snapapp.jobs.rows import leases, lifecycle
from snapapp.jobs.rows.database import connect
from tests.factory import (
    OOPS,
    OTHER,
    Db,
    ago,
    at_once,
    bury,
    complete,
    enqueue,
    hand_back,
    job,
    lock_row,
    make_job,
    make_jobs,
    move,
    retry,
    row,
    scalar,
    statuses,
    until_blocking,
)
from tests.jobs.rows.limits.limiting import PAUSE, WAITING, Turns, both_servers, keyed, limit, pausing, take, turn
from tests.jobs.working import until


def let_in(db: Db) -> list[int]:
    """What becomes due is held from the look after the one that sees it."""
    return take(db) or take(db)


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
def test_a_job_that_is_run_now_waits_for_a_place_under_its_limit(db: Db) -> None:
    limit(db, "key:k", 1)
    [running] = keyed(db, 1, status="RUNNING")
    [later] = keyed(db, 1, next_retry_at=ago(hours=-1))
    assert gates(db, later) == [("later", "k")]
    lifecycle.run_now(db, later)
    assert gates(db, later) == [("held", "k")]
    assert let_in(db) == []
    complete(db, job(db, running))
    assert take(db) == [later]


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
def test_who_enqueues_before_a_limit_is_committed_is_looked_at_too(url: str, db: Db, other: Db) -> None:
    """A person types BEGIN, the limit, COMMIT: who begins between these is younger than the limit and cannot see it."""
    with connect(url, name="person") as person, other.transaction():
        with person.transaction():
            limit(person, "kind:test", 1)
            job_id = scalar(other, "SELECT enqueue_job('test')")
        assert not scalar(db, "SELECT job_relabel()")
        assert scalar(db, "SELECT EXISTS (SELECT FROM job_rule_change)"), "somebody has not seen the limit"
    scalar(db, "SELECT job_relabel()")
    assert gates(db, job_id) == [("held", "")]
    assert not scalar(db, "SELECT EXISTS (SELECT FROM job_rule_change)")


@both_servers
def test_a_change_that_came_with_a_dump_of_a_busier_server_comes_to_an_end(db: Db) -> None:
    """The transactions of that server have higher numbers: each beat labelled all jobs anew, until ours got there."""
    job_id = make_job(db)
    limit(db, "kind:test", 1)
    db.execute("UPDATE job_rule_change SET looked_to = 0, changed_by = changed_by + 1000000")
    scalar(db, "SELECT job_relabel()")
    assert gates(db, job_id) == [("held", "")]
    assert not scalar(db, "SELECT EXISTS (SELECT FROM job_rule_change)")


@both_servers
def test_a_job_whose_row_is_locked_is_labelled_when_it_is_free_and_nobody_waits_for_it(db: Db, other: Db) -> None:
    """A slow hook has its job's row locked: a worker that waited for it would claim nothing meanwhile."""
    locked, free = make_jobs(db, 2)
    with other.transaction():
        lock_row(other, locked)
        limit(db, "kind:test", 1)
        assert not scalar(db, "SELECT job_relabel()")
        assert gates(db, locked, free) == [("open", ""), ("held", "")]
        assert scalar(db, "SELECT EXISTS (SELECT FROM job_rule_change)"), "one still has its old label"
    scalar(db, "SELECT job_relabel()")
    assert gates(db, locked, free) == [("held", "")] * 2
    assert not scalar(db, "SELECT EXISTS (SELECT FROM job_rule_change)")


@both_servers
def test_a_job_comes_back_under_its_limit(db: Db) -> None:
    """Retried, handed back or lost: it never gets past the rule by another door."""
    limit(db, "key:k", 9)
    keyed(db, 3)
    retried, handed_back, lost = turn(db).jobs
    retry(db, retried, OOPS, timedelta(0), 0.1)
    hand_back(db, handed_back)
    move(db, lost.id, lock_expires_at=ago(minutes=1))
    leases.recover(db, spread=timedelta(0))
    assert gates(db, retried.id, handed_back.id, lost.id) == [("later", "k"), ("held", "k"), ("later", "k")]
    assert [*take(db), *take(db)] == [handed_back.id, retried.id, lost.id]


@both_servers
def test_a_job_that_a_person_retries_has_the_label_of_the_limits_of_now(db: Db) -> None:
    """Else it began beside the limit, or never where the limit was gone: nobody asks for held jobs without a rule."""
    before = keyed(db, 2, status="FAILED")
    limit(db, "key:k", 1)
    scalar(db, "SELECT job_relabel()")
    [held] = keyed(db, 1)
    bury(db, turn(db).jobs[0], Buried(OOPS), 0.1)
    for job_id in before:
        lifecycle.retry_by_person(db, job_id)
    assert gates(db, *before) == [("held", "k")] * 2
    assert len(take(db)) == 1

    db.execute("DELETE FROM job_limit")
    scalar(db, "SELECT job_relabel()")
    lifecycle.retry_by_person(db, held)
    assert gates(db, held) == [("open", "")]
    assert held in take(db, has_rules=scalar(db, "SELECT job_has_rules()"))


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
    assert (now.status, now.claimed_by, now.attempt_count, now.started_at) == ("RUNNING", "worker", 2, None)
    assert (job.id, job.lease_seq, job.attempt) == (waiting, now.lease_seq, 2)


@both_servers
def test_many_who_claim_at_once_never_get_more_than_the_limit(db: Db, url: str) -> None:
    """D14: counted by a sub-select in the claim itself, two at once both pass."""
    limit(db, "key:k", 3)
    limit(db, "queue:default", 5)
    keyed(db, 60)
    make_jobs(db, 60)
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
def test_a_job_that_becomes_due_while_its_row_is_locked_is_not_asked_for_all_the_time(db: Db, other: Db) -> None:
    """Measured: 440 claims a second, until the row was free."""
    limit(db, "key:k", 1)
    [locked] = keyed(db, 1, next_retry_at=ago(hours=-1))
    move(db, locked, next_retry_at=ago(seconds=1))
    with other.transaction():
        lock_row(other, locked)
        assert turn(db).again_in == 1
    assert let_in(db) == [locked]


@pytest.mark.both_servers_at_length
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


@pytest.mark.both_servers_at_length
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


@both_servers
def test_a_held_job_that_is_added_while_a_claim_looks_is_taken_by_the_next_one(url: str, db: Db, other: Db) -> None:
    """The claim does not see it yet, and the look of its limits does: it was taken for locked, and left out for a
    second."""
    limit(db, "kind:test", 5)
    keyed(db, 1)
    pausing(db, "job_let_in", "BEGIN\n", f"BEGIN\nPERFORM pg_advisory_xact_lock({PAUSE});\n")
    with ThreadPoolExecutor(1) as thread, connect(url, name="claim") as claiming:
        with other.transaction():
            other.execute("SELECT pg_advisory_xact_lock(%s)", [PAUSE])
            claim = thread.submit(turn, claiming)
            until_blocking(other)
            [late] = keyed(db, 1)
        seen = claim.result(timeout=60)
    assert late not in {job.id for job in seen.jobs}
    assert seen.locked == []
    assert take(db) == [late]


@both_servers
def test_a_job_that_gets_another_key_while_it_is_labelled_keeps_the_label_of_that(url: str, db: Db, other: Db) -> None:
    """on_conflict = 'replace' labels the job itself; the change of the rules then gave it the lane of its old key."""
    for key in ("old", "new"):
        limit(db, f"key:{key}", 1)
    scalar(db, "SELECT job_relabel()")
    its = enqueue(db, unique_key="u", concurrency_key="old")
    assert its
    limit(db, "queue:else", 1)
    move(db, its, lane="", gate="open")  # as if it had been added just before the limits
    pausing(db, "job_label", "AS lane) AS rule", f"AS lane, pg_advisory_xact_lock({PAUSE})) AS rule")
    with ThreadPoolExecutor(1) as thread, connect(url, name="relabel") as relabelling:
        with other.transaction():
            other.execute("SELECT pg_advisory_xact_lock(%s)", [PAUSE])
            relabel = thread.submit(scalar, relabelling, "SELECT job_relabel()")
            until_blocking(other)
            assert enqueue(other, unique_key="u", concurrency_key="new", on_conflict="replace") == its
        relabel.result(timeout=60)
    assert gates(db, its) == [("held", "new")]

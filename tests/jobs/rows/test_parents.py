"""Jobs that wait for others: when they are let in, what they are told, and what becomes of them when a parent does not
complete."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from psycopg.errors import NoDataFound

from snapapp.jobs import enqueue_many
from snapapp.jobs.errors import IllegalTransition, UnknownJob
from snapapp.jobs.model import Buried, Finished, Parent, Retried, Status, Stopped, Succeeded
from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows import leases, lifecycle, retention, settle
from snapapp.jobs.rows.database import connect
from snapapp.jobs.rows.people import lists, overviews
from tests.factory import (
    OOPS,
    Db,
    ago,
    at_once,
    bury,
    claim,
    claimed,
    complete,
    enqueue,
    hence,
    job,
    make_job,
    move,
    row,
    running_job,
    scalar,
    statuses,
    until_blocking,
)

pytestmark = pytest.mark.both_servers_at_length


def child_of(db: Db, *parents: int | None, **given: Any) -> int:
    made = enqueue(db, after=list(parents), **given)
    assert made
    return made


def two_running(db: Db) -> tuple[Any, Any]:
    return running_job(db), running_job(db)


def waiting(db: Db, child: int) -> tuple[str, str, int | None]:
    it = row(db, child)
    return it.status, it.gate, it.waits_for


LET_IN = ("PENDING", "open", 0)


# --- letting in -------------------------------------------------------------------------------------------------


def test_a_child_is_let_in_by_the_last_of_its_parents_and_told_what_they_came_to(db: Db) -> None:
    """R43, W52."""
    first, second = enqueue(db), enqueue(db)
    child = child_of(db, first, second, second, payload={"n": 1})
    assert waiting(db, child) == ("PENDING", "after", 2)
    jobs = claimed(db).jobs
    assert [one.id for one in jobs] == [first, second]
    assert claimed(db).due_in is None
    settle.complete(db, [(jobs[1].lease, '{"b": 2}', 0.1)])
    assert waiting(db, child) == ("PENDING", "after", 1)
    assert claim(db) == []
    let_in_after = scalar(db, "SELECT clock_timestamp()")
    complete(db, jobs[0])
    assert waiting(db, child) == LET_IN
    assert row(db, child).next_retry_at >= let_in_after  # it comes after those that were due before
    [taken] = claimed(db).jobs
    assert (taken.id, taken.payload_json) == (child, None)  # fetched with what the parents came to
    assert claim_rows.payload(db, taken.lease) == b'{"n": 1}'
    taken.parents_json = claim_rows.parents(db, child)
    assert taken.parents == [
        Parent(first, "test", Status.COMPLETED, None, left_out=False),  # type: ignore[arg-type]
        Parent(second, "test", Status.COMPLETED, {"b": 2}, left_out=False),  # type: ignore[arg-type]
    ]


def test_results_that_are_too_many_bytes_together_are_left_out(db: Db) -> None:
    parents = [make_job(db, "COMPLETED", result=["r" * 600_000]) for _ in range(2)]
    taken = job(db, child_of(db, *parents))
    taken.parents_json = claim_rows.parents(db, taken.id)
    assert [(one.result, one.left_out) for one in taken.parents] == [(None, True)] * 2


@pytest.mark.parametrize("commits_first", ["the first", "the second"])
def test_of_two_parents_that_end_at_the_same_time_the_later_commit_lets_the_child_in(
    db: Db, other: Db, commits_first: str
) -> None:
    one, two = two_running(db)
    child = child_of(db, one.id, two.id)
    with db.transaction():
        complete(db, one)
        complete(other, two)  # a settle of one parent waits for nobody who has not committed
        assert waiting(other, child) == ("PENDING", "after", 1)
    assert waiting(db, child) == LET_IN


def test_a_parent_that_is_deleted_when_it_has_completed_is_not_counted_twice(db: Db) -> None:
    first, second = two_running(db)
    child = child_of(db, first.id, second.id, on_parent_failure="run")
    complete(db, first)
    deleted_by_hand(db, first.id)
    assert waiting(db, child) == ("PENDING", "after", 1)
    complete(db, second)
    assert waiting(db, child) == LET_IN


def test_a_child_that_is_retried_while_a_completed_parent_is_pruned_waits_for_the_others(db: Db, other: Db) -> None:
    one, two = two_running(db)
    child = child_of(db, one.id, two.id)
    complete(db, one)
    lifecycle.cancel(db, child)
    move(db, one.id, created_at=ago(days=9), finished_at=ago(days=8))
    with other.transaction():
        assert retention.prune(other, keep=timedelta(days=1))[0] == 1
        lifecycle.retry_by_person(db, child)
    assert waiting(db, child) == ("PENDING", "after", 1)
    complete(db, two)
    assert waiting(db, child) == LET_IN


@pytest.mark.at_length  # one of many children completes before the tables are analysed in every run
@pytest.mark.parametrize(
    "how",
    [
        "DELETE FROM snap_processing_job WHERE {}",
        "UPDATE snap_processing_job SET status = 'CANCELLED', finished_at = now() WHERE {}",
    ],
)
def test_thousands_of_parents_that_end_at_once_take_no_longer_each(db: Db, how: str) -> None:
    """Before the tables are first analysed, too."""
    many = 10_000
    db.execute(
        "INSERT INTO snap_processing_job (kind, has_children) SELECT 'parent', true FROM generate_series(1, %s)", [many]
    )
    db.execute(
        "INSERT INTO snap_processing_job (kind, gate, waits_for) SELECT 'child', 'after', 1 FROM generate_series(1,%s)",
        [many],
    )
    db.execute("INSERT INTO job_parent SELECT id + %s, id, true FROM snap_processing_job WHERE has_children", [many])
    db.execute("SET statement_timeout = '15s'")  # it took 40 s
    db.execute(how.format("has_children"))
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE kind = 'child' AND status = 'CANCELLED'") == many


@pytest.mark.at_length  # test_statements has tables that have grown since they were analysed, in every run
def test_a_parent_of_many_children_completes_before_the_tables_are_analysed(db: Db) -> None:
    many, parent = 20_000, running_job(db, has_children=True)
    db.execute(
        "INSERT INTO snap_processing_job (kind, gate, waits_for) SELECT 'child', 'after', 1 FROM generate_series(1,%s)",
        [many],
    )
    db.execute("INSERT INTO job_parent SELECT id, %s, true FROM snap_processing_job WHERE gate = 'after'", [parent.id])
    db.execute("SET statement_timeout = '10s'")  # it took 30 s
    complete(db, parent)
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE gate = 'open' AND waits_for = 0") == many


@pytest.mark.parametrize("by_rules", [False, True])
def test_an_old_job_that_stays_is_not_written_by_a_prune(db: Db, by_rules: bool) -> None:
    old = make_job(
        db, "COMPLETED", created_at=ago(days=9), finished_at=ago(days=8), unique_key="k", unique_scope="ever"
    )
    prune = retention.prune_by_rules if by_rules else retention.prune
    assert prune(db, keep=timedelta(days=1))[0] == 0
    assert scalar(db, "SELECT xmax::text FROM snap_processing_job WHERE id = %s", old) == "0"


def test_a_parent_takes_no_longer_to_delete_where_many_are_deleted_with_it(db: Db) -> None:
    many = 50_000
    db.execute(
        "INSERT INTO snap_processing_job (kind, has_children) SELECT 'parent', true FROM generate_series(1, %s)", [many]
    )
    db.execute("SET statement_timeout = '8s'")  # it took 15 s
    assert db.execute("DELETE FROM snap_processing_job").rowcount == many


def test_many_parents_that_end_in_two_workers_let_each_child_in_once(db: Db, other: Db) -> None:
    for _ in range(5):
        parents = [running_job(db) for _ in range(8)]
        children = [child_of(db, parents[n].id, parents[7 - n].id, parents[(n + 3) % 8].id) for n in (3, 1, 2, 0)]
        at_once(partial(complete, db, *parents[::2]), partial(complete, other, *parents[1::2]))
        assert [waiting(db, child) for child in children] == [LET_IN] * 4


def test_children_are_locked_in_the_order_of_their_ids(db: Db, other: Db, url: str) -> None:
    """Not in that of their parents: or two batches could wait for each other in a circle."""
    parents = [running_job(db) for _ in range(3)]
    low, middle, high = (child_of(db, parents[number].id) for number in (1, 2, 0))
    db.execute("SET lock_timeout = 0")
    with connect(url, name="third") as third, ThreadPoolExecutor(1) as thread:
        with other.transaction():
            other.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [middle])
            settled = thread.submit(complete, db, *parents)
            until_blocking(other)
            free = "SELECT id FROM snap_processing_job WHERE id = ANY (%s) ORDER BY id FOR UPDATE SKIP LOCKED"
            assert third.execute(free, [[low, middle, high]]).fetchall() == [(high,)]
        settled.result(timeout=60)
    assert [waiting(db, child) for child in (low, middle, high)] == [LET_IN] * 3


def test_a_child_of_parents_that_have_completed_waits_like_any_other(db: Db) -> None:
    child = child_of(db, make_job(db, "COMPLETED"))
    assert waiting(db, child) == LET_IN
    assert claim(db) == [child]


def test_a_child_keeps_its_own_time_and_is_let_in_under_the_limit_that_covers_it(db: Db) -> None:
    db.execute("INSERT INTO job_limit VALUES ('kind:test', 1)")
    parent = running_job(db)
    soon, later = child_of(db, parent.id), child_of(db, parent.id, delay=timedelta(hours=1))
    assert row(db, soon).lane == row(db, later).lane == ""
    complete(db, parent)
    assert [row(db, child).gate for child in (soon, later)] == ["held", "later"]
    assert row(db, later).next_retry_at > hence(minutes=50)


def test_a_parent_that_is_not_there_is_named(db: Db) -> None:
    with pytest.raises(UnknownJob, match="there is no job 99 to wait for"), db.transaction():
        enqueue_many(db, [{"kind": "test"}, {"kind": "test", "after": [99, 100]}])
    assert statuses(db) == {}


@pytest.mark.parametrize("others", [[], [1]])
def test_a_parent_that_a_query_did_not_find_is_no_leave_to_begin(db: Db, others: list[int]) -> None:
    """`after => ARRAY[(SELECT id …)]` with nothing found: the job would run before what it should wait for."""
    assert make_job(db) == 1
    with pytest.raises(NoDataFound, match="there is no job <NULL> to wait for"):
        db.execute("SELECT enqueue_job('test', after => %s::bigint[])", [[*others, None]])
    assert statuses(db) == {1: "PENDING"}


def test_a_job_cannot_wait_for_itself(db: Db) -> None:
    """Ids can be guessed."""
    its_own = make_job(db) + 1
    with pytest.raises(UnknownJob, match=f"there is no job {its_own} to wait for"), db.transaction():
        enqueue(db, after=[its_own])
    assert statuses(db) == {its_own - 1: "PENDING"}


def test_a_holder_of_the_key_stays_as_it_is(db: Db) -> None:
    """A job that exists may be older than its parents: so it is never given any, and there are no circles."""
    holder = enqueue(db, unique_key="k")
    child = child_of(db, holder, unique_key="c")
    assert enqueue(db, unique_key="k", after=[child]) == holder
    assert scalar(db, "SELECT count(*) FROM job_parent") == 1
    enqueue(db, unique_key="c", on_conflict="replace", payload={"new": True})
    assert waiting(db, child) == ("PENDING", "after", 1)  # another payload, and the same parents


# --- parents that do not complete -------------------------------------------------------------------------------


def ended_by_its_worker(db: Db, parent: int) -> None:
    bury(db, claimed_one(db, parent), Buried(OOPS), 0.1)


def stopped(db: Db, parent: int) -> None:
    held = claimed_one(db, parent)
    lifecycle.cancel(db, parent)
    bury(db, held, Stopped(OOPS), 0.1)


def lost_and_unwanted(db: Db, parent: int) -> None:
    claimed_one(db, parent)
    lifecycle.cancel(db, parent)
    move(db, parent, lock_expires_at=ago(seconds=1))
    leases.recover(db)


def buried_without_running(db: Db, parent: int) -> None:
    move(db, parent, attempt_count=3)
    bury(db, claimed_one(db, parent), Buried(OOPS, ran=False), None)


def changed_by_hand(db: Db, parent: int) -> None:
    move(db, parent, status="FAILED", finished_at=ago())


def deleted_by_hand(db: Db, parent: int) -> None:
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [parent])


def claimed_one(db: Db, parent: int) -> Any:
    [held] = claimed(db).jobs
    assert held.id == parent
    return held


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (ended_by_its_worker, "is FAILED"),
        (stopped, "is CANCELLED"),
        (lifecycle.cancel, "is CANCELLED"),
        (partial(lifecycle.discard, why="nobody wants it"), "is CANCELLED"),
        (lost_and_unwanted, "is CANCELLED"),
        (buried_without_running, "is FAILED"),
        (changed_by_hand, "is FAILED"),
        (deleted_by_hand, "was deleted"),
    ],
)
def test_a_child_never_waits_for_a_parent_that_will_not_complete(
    db: Db, end: Callable[[Db, int], object], why: str
) -> None:
    """D16: however the parent ended, and all the way down; who wants to run anyway is let in."""
    parent = enqueue(db)
    assert parent
    child = child_of(db, parent)
    grandchild = child_of(db, child)
    anyway = child_of(db, parent, on_parent_failure="run")
    end(db, parent)
    told = [(row(db, one).status, row(db, one).last_error, row(db, one).lease_seq) for one in (child, grandchild)]
    assert told == [
        ("CANCELLED", f"its parent, job {parent}, {why}", 1),
        ("CANCELLED", f"its parent, job {child}, is CANCELLED", 1),
    ]
    assert claim(db) == [anyway]


def test_a_parent_that_is_tried_again_by_itself_keeps_its_child_waiting(db: Db) -> None:
    parent = running_job(db)
    child = child_of(db, parent.id)
    settle.settle(db, Finished(parent, Retried(OOPS, timedelta(0)), 0.1))
    assert waiting(db, child) == ("PENDING", "after", 1)


def test_a_child_that_is_added_after_the_failure_ends_like_one_that_waited(db: Db) -> None:
    """D16, R43."""
    failed = make_job(db, "FAILED", last_error="x")
    assert waiting(db, child_of(db, failed))[0] == "CANCELLED"
    assert waiting(db, child_of(db, failed, on_parent_failure="run")) == LET_IN


def test_a_parent_that_a_person_retries_brings_its_children_back(db: Db) -> None:
    one, two = two_running(db)
    child = child_of(db, one.id, two.id)
    grandchild = child_of(db, child)
    bury(db, one, Buried(OOPS), 0.1)
    bury(db, two, Buried(OOPS), 0.1)
    lifecycle.retry_by_person(db, one.id)
    assert waiting(db, child)[0] == "CANCELLED"  # the other one still stands in its way
    lifecycle.retry_by_person(db, two.id)
    assert [waiting(db, it) for it in (child, grandchild)] == [("PENDING", "after", 2), ("PENDING", "after", 1)]
    assert (row(db, child).last_error, row(db, child).finished_at) == (None, None)
    complete(db, *claimed(db).jobs)
    assert claim(db) == [child]


def test_a_parent_retried_before_the_child_has_begun_is_waited_for_again(db: Db) -> None:
    one, two = two_running(db)
    child = child_of(db, one.id, two.id, on_parent_failure="run")
    bury(db, one, Buried(OOPS), 0.1)
    lifecycle.retry_by_person(db, one.id)
    assert waiting(db, child) == ("PENDING", "after", 2)
    complete(db, *claimed(db).jobs)
    assert waiting(db, child) == ("PENDING", "after", 1)
    complete(db, two)
    assert waiting(db, child) == LET_IN


def test_a_retry_revives_nobody_whose_key_another_job_has(db: Db) -> None:
    parent = running_job(db)
    child = child_of(db, parent.id, unique_key="k")
    bury(db, parent, Buried(OOPS), 0.1)
    rival = enqueue(db, unique_key="k")
    assert rival != child
    lifecycle.retry_by_person(db, parent.id)
    assert (row(db, parent.id).status, row(db, child).status) == ("PENDING", "CANCELLED")


def test_a_replay_of_a_parent_lets_nobody_in_and_one_of_a_child_has_the_same_parents(db: Db) -> None:
    parent = running_job(db)
    child = child_of(db, parent.id)
    bury(db, parent, Buried(OOPS), 0.1)
    again = lifecycle.replay(db, parent.id)
    complete(db, *claimed(db).jobs)
    assert (row(db, again).status, row(db, child).status) == ("COMPLETED", "CANCELLED")
    copy = lifecycle.replay(db, child)
    assert waiting(db, copy) == LET_IN
    assert b'"FAILED"' in claim_rows.parents(db, copy)


# --- what people do with a child --------------------------------------------------------------------------------


def test_a_waiting_child_is_cancelled_and_retried_like_any_job(db: Db) -> None:
    one, two = two_running(db)
    child = child_of(db, one.id, two.id)
    lifecycle.cancel(db, child)
    complete(db, one)
    assert waiting(db, child)[0] == "CANCELLED"
    lifecycle.retry_by_person(db, child)
    assert waiting(db, child) == ("PENDING", "after", 1)
    bury(db, two, Buried(OOPS), 0.1)
    assert waiting(db, child)[0] == "CANCELLED"
    lifecycle.retry_by_person(db, child)  # who asks for that knows how its parent ended
    assert waiting(db, child) == LET_IN
    [held] = claimed(db).jobs
    complete(db, held)
    with pytest.raises(IllegalTransition):
        lifecycle.retry_by_person(db, child)


def test_a_person_who_holds_a_child_costs_its_parent_alone(db: Db, other: Db) -> None:
    """Promise 11."""
    parents = [running_job(db) for _ in range(3)]
    child = child_of(db, parents[1].id)
    batch = [Finished(one, Succeeded(None), 0.1) for one in parents]
    with other.transaction():
        other.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [child])
        settled = settle.settle_batch(db, batch, interruptions_allowed=9)
        assert (sorted(settled.landed), settled.locked) == ([parents[0].id, parents[2].id], {parents[1].id})
    settle.settle_batch(db, batch[1:2], interruptions_allowed=9, is_second_try=True)
    assert waiting(db, child) == LET_IN


def test_a_parent_that_ends_while_its_child_is_added_lets_it_in(db: Db, other: Db) -> None:
    parent = running_job(db)
    with db.transaction():
        child = child_of(db, parent.id)
        settled = settle.settle_batch(other, [Finished(parent, Succeeded(None), 0.1)], interruptions_allowed=9)
        assert settled.locked == {parent.id}
    settle.settle_batch(other, [Finished(parent, Succeeded(None), 0.1)], interruptions_allowed=9)
    assert waiting(db, child) == LET_IN


def test_a_parent_stays_while_a_child_may_read_its_result(db: Db) -> None:
    parent, other_parent = running_job(db), running_job(db)
    child = child_of(db, parent.id, other_parent.id)
    complete(db, parent)
    move(db, parent.id, created_at=ago(days=3), finished_at=ago(days=2))
    assert retention.prune(db, keep=timedelta(days=1))[0] == 0
    complete(db, other_parent)
    complete(db, *claimed(db).jobs)
    assert retention.prune(db, keep=timedelta(days=1))[0] == 1
    move(db, child, created_at=ago(days=3), finished_at=ago(days=2))
    assert retention.prune(db, keep=timedelta(days=1))[0] == 1
    assert scalar(db, "SELECT count(*) FROM job_parent") == 0


def test_a_parent_is_not_pruned_while_somebody_adds_a_child(db: Db, other: Db, url: str) -> None:
    """Pruning by number waits for him and looks again. What it saw before is that nobody waits for the parent; to
    delete it would cancel the child."""
    db.execute("INSERT INTO job_retention (status, newest) VALUES ('COMPLETED', 0)")
    old = make_job(db, "COMPLETED", created_at=ago(days=9), finished_at=ago(days=8))
    runs = running_job(db)
    with connect(url, name="pruner") as pruner, ThreadPoolExecutor(1) as thread:
        with other.transaction():
            child = child_of(other, old, runs.id)
            prune = partial(retention.prune_page_of_surplus, pruner, Counter(), before=2**63 - 1, refused=print)
            pruned = thread.submit(prune)
            until_blocking(other)
        assert pruned.result(timeout=10)[0] == 0
    assert waiting(db, child) == ("PENDING", "after", 1)


# --- what people are told ---------------------------------------------------------------------------------------


def test_people_are_told_how_far_the_parents_are_and_which_one_failed(db: Db) -> None:
    """M63, R43."""
    parents = [running_job(db) for _ in range(3)]
    child = child_of(db, *(one.id for one in parents))
    complete(db, parents[0])
    [explained] = [scalar(db, "SELECT explain_job(%s)", child)]
    assert explained.splitlines()[:2] == [
        "It waits for 2 of its 3 parents: 1 completed, 0 failed or cancelled, 2 not over.",
        f"Its parent, job {parents[1].id} (test), is RUNNING.",
    ]
    assert overview(db) == [(child, "RUNNING", 3, 1, 0, 2)]
    bury(db, parents[1], Buried(OOPS), 0.1)
    explained = scalar(db, "SELECT explain_job(%s)", child)
    assert f"The last error: its parent, job {parents[1].id}, is FAILED" in explained
    assert f"is FAILED: retry_job({parents[1].id}) brings both back." in explained
    assert overview(db) == [(child, "FAILED", 3, 1, 1, 1)]
    lifecycle.retry_by_person(db, parents[1].id)
    complete(db, parents[2], *claimed(db).jobs)
    assert overview(db) == [(child, "WAITING_CALLBACK", 3, 3, 0, 0)]
    complete(db, *claimed(db).jobs)
    assert overview(db) == [(child, "SUCCESSFUL", 3, 3, 0, 0)]
    assert "It had 3 parents: 3 completed" in scalar(db, "SELECT explain_job(%s)", child)


def overview(db: Db) -> list[tuple[Any, ...]]:
    assert db.execute("TABLE queue_invariants").fetchall() == []
    return db.execute("SELECT job_id, state, expected, succeeded, failed, open FROM workflow_overview").fetchall()


def test_a_child_whose_parents_are_over_behind_the_queues_back_is_found(db: Db) -> None:
    child = child_of(db, running_job(db).id)
    db.execute("UPDATE snap_processing_job SET has_children = false")
    db.execute("DELETE FROM snap_processing_job WHERE id <> %s", [child])
    assert [one[1:] for one in db.execute("TABLE queue_invariants").fetchall()] == [
        (child, "it waits for 1 parents, of which 0 are not over")
    ]


def test_a_child_is_counted_as_waiting_and_never_as_due(db: Db) -> None:
    child_of(db, running_job(db).id, queue="media")
    [counted] = db.execute("SELECT pending, due FROM queue_overview WHERE queue = 'media'").fetchall()
    with db.transaction():
        seen = next(one for one in overviews.queues(db) if one.queue == "media")
    assert counted == (seen.pending, seen.due) == (1, 0)
    assert overviews.is_drained(db, "nobody", ["test"], [])
    assert len(lists.waiting(db)) == 1


@pytest.mark.direct
def test_a_settle_of_jobs_without_children_reads_what_it_ends_and_nothing_of_parents(db: Db) -> None:
    """Counted by the server: no row of job_parent, and of the jobs no more than before there were any."""
    for _ in range(20):
        child_of(db, running_job(db).id)
    jobs = [running_job(db) for _ in range(20)]
    for step, most in ((partial(complete, db, *jobs[:10]), 10), (partial(retry_all, db, jobs[10:]), 10)):
        with db.transaction():
            before = rows_read(db)
            step()
            db.execute("SET CONSTRAINTS ALL IMMEDIATE")
            assert {table: count - before[table] for table, count in rows_read(db).items()} == {
                "snap_processing_job": most,
                "job_parent": 0,
            }


def retry_all(db: Db, jobs: list[Any]) -> None:
    outcome = Retried(OOPS, timedelta(minutes=1))
    settle.settle_batch(db, [Finished(one, outcome, 0.1) for one in jobs], interruptions_allowed=9)


def rows_read(db: Db) -> dict[str, int]:
    told = (
        "SELECT relname, seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
        " WHERE relname IN ('snap_processing_job', 'job_parent')"
    )
    return dict(db.execute(told, prepare=False).fetchall())


@pytest.mark.at_length  # short chains do in every run
def test_a_long_chain_ends_and_comes_back_with_its_first_link(db: Db) -> None:
    links = [running_job(db).id]
    with db.transaction():
        for _ in range(500):
            links.append(child_of(db, links[-1]))
    bury(db, job(db, links[0]), Buried(OOPS), 0.1)
    assert row(db, links[-1]).last_error == f"its parent, job {links[-2]}, is CANCELLED"
    assert set(statuses(db).values()) == {"FAILED", "CANCELLED"}
    lifecycle.retry_by_person(db, links[0])
    assert {(waiting(db, one)) for one in links[1:]} == {("PENDING", "after", 1)}


# --- a child whose row refuses to be written --------------------------------------------------------------------


def refuse_to_write(db: Db, job_id: int) -> None:
    db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it is evidence'; END $$"
    )
    db.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON snap_processing_job FOR EACH ROW"
        f" WHEN (OLD.id = {job_id}) EXECUTE FUNCTION refuse()"
    )


@pytest.mark.parametrize(
    ("outcome", "becomes", "of_the_others"),
    [(Succeeded(None), "COMPLETED", LET_IN), (Buried(OOPS), "FAILED", ("CANCELLED", "after", 1))],
)
def test_a_child_that_refuses_to_be_written_keeps_neither_its_parent_nor_the_other_children(
    db: Db, outcome: Succeeded | Buried, becomes: str, of_the_others: tuple[str, str, int]
) -> None:
    """The parent could never be written down, and its lease ran out time and again: it became a suspect."""
    parent = running_job(db)
    first, refusing, last = (child_of(db, parent.id) for _ in range(3))
    below = child_of(db, last)
    refuse_to_write(db, refusing)
    assert settle.settle(db, Finished(parent, outcome, 0.1)) == becomes
    assert [waiting(db, child) for child in (first, last)] == [of_the_others] * 2
    assert waiting(db, below) == (*of_the_others[:1], "after", 1)
    assert waiting(db, refusing) == ("PENDING", "after", 1)
    named = db.execute("SELECT job_id, what FROM queue_invariants WHERE job_id = %s", [refusing]).fetchall()
    assert named == [(refusing, "it waits for 1 parents, of which 0 are not over")]
    db.execute("DROP TRIGGER refuse ON snap_processing_job")
    db.execute("SELECT job_meet_parents(%s)", [refusing])
    assert waiting(db, refusing) == of_the_others

"""What becomes of a job whose worker is gone, and of one that ended long ago."""

from datetime import timedelta
from functools import partial

import pytest

from snapapp.jobs import queue
from snapapp.jobs.model import Buried, Failure, Lease
from tests.factory import (
    BY,
    Db,
    ago,
    at_once,
    beat,
    claim,
    complete,
    enqueue,
    hence,
    make_job,
    make_jobs,
    row,
    running_job,
    statuses,
    take_suspect,
)

pytestmark = pytest.mark.both_servers

# --- recovered and released -------------------------------------------------------------------------------------


def test_a_lease_that_ended_is_recovered(db: Db) -> None:
    """Q23, Q45, S14, D2: whoever held it; only the row is asked."""
    ended = make_job(db, "RUNNING", lock_expires_at=ago(seconds=1), claimed_by="gone")
    make_job(db, "RUNNING")
    assert queue.recover(db, spread=timedelta(0)) == [ended]
    now = row(db, ended)
    assert (now.status, now.attempt_count, now.suspect, now.last_error) == ("RETRY_WAIT", 1, True, "worker lost")
    assert now.errors[0] | {"at": ""} == {"attempt": 1, "at": "", "error": "worker lost", "worker": "gone"}
    assert queue.recover(db) == []
    assert take_suspect(db).attempt == 2


def test_recovered_jobs_come_back_spread_out(db: Db) -> None:
    """FA19."""
    made = [make_job(db, "RUNNING", lock_expires_at=ago(seconds=1)) for _ in range(50)]
    queue.recover(db, spread=timedelta(minutes=10))
    back = sorted(row(db, one).next_retry_at for one in made)
    assert back[-1] - back[0] > timedelta(minutes=5)
    assert back[-1] < hence(minutes=11)


def test_recovery_works_page_by_page(db: Db) -> None:
    """FA18, W49."""
    made = [make_job(db, "RUNNING", lock_expires_at=ago(seconds=1)) for _ in range(5)]
    assert [sorted(queue.recover(db, limit=2)) for _ in range(4)] == [made[:2], made[2:4], made[4:], []]


def test_recovery_waits_until_the_server_has_been_back_for_a_while(db: Db) -> None:
    """Promise 7."""
    ended = make_job(db, "RUNNING", lock_expires_at=ago(seconds=1))
    assert queue.recover(db, settled_for=timedelta(days=365)) == []
    assert queue.recover(db) == [ended]


def test_recovery_skips_what_is_being_settled(db: Db, other: Db) -> None:
    held = running_job(db, lock_expires_at=ago(seconds=1))
    with other.transaction():
        complete(other, held)
        assert queue.recover(db) == []
    assert row(db, held.id).status == "COMPLETED"


def test_recovery_skips_a_lease_that_is_being_renewed(db: Db, other: Db) -> None:
    """D7, FA4."""
    held = running_job(db, lock_expires_at=ago(seconds=1))
    with other.transaction():
        beat(other, held.lease)
        assert queue.recover(db) == []
    assert queue.recover(db) == []


def lost_to(db: Db, *leases: Lease) -> set[int]:
    return beat(db, *leases).lost


def test_a_lease_is_either_renewed_or_recovered_never_both(db: Db, other: Db) -> None:
    """D7, FA4: the predicate is tested again under the lock of the row."""
    for _ in range(10):
        leases = {(one := running_job(db, lock_expires_at=ago(seconds=1))).id: one.lease for _ in range(50)}
        lost, recovered = at_once(partial(lost_to, db, *leases.values()), lambda: {*queue.recover(other)})
        running = {one for one in leases if row(db, one).status == "RUNNING"}
        assert lost <= recovered
        assert running == leases.keys() - recovered
        assert all(row(db, one).lock_expires_at > ago() for one in running)


# attempts, suspect, started: what a loss makes of them when a job may run three times
LOSSES = {
    "the first of several": ((1, False, False), 1),
    "the last, not alone": ((3, False, True), 2),
    "the last, alone": ((3, True, True), 3),
    "alone but not begun": ((3, True, False), 2),
    "told that it is over, alone": ((4, True, False), 3),
}


@pytest.mark.parametrize("how", ["recover", "release"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_attempt_counts_unless_another_may_have_killed_it(db: Db, loss: str, how: str) -> None:
    """Promise 3, Q24, Q46, FA5, I7."""
    (attempts, suspect, started), left = LOSSES[loss]
    began = ago(seconds=9) if started else None
    lost = make_job(
        db, "RUNNING", attempt_count=attempts, suspect=suspect, started_at=began, lock_expires_at=ago(seconds=1)
    )
    assert (queue.recover(db) if how == "recover" else queue.release(db, "worker", None)) == [lost]
    now = row(db, lost)
    assert (now.status, now.attempt_count, now.suspect) == ("RETRY_WAIT", left, True)


def test_the_only_attempt_is_never_given_back(db: Db) -> None:
    lost = make_job(db, "RUNNING", attempt_count=1, max_attempts=1, lock_expires_at=ago(seconds=1))
    queue.recover(db, spread=timedelta(0))
    assert row(db, lost).attempt_count == 1
    assert take_suspect(db).exhausted


@pytest.mark.parametrize("max_attempts", [1, 2, 3, 5])
def test_a_job_that_kills_its_worker_ends_after_its_attempts(db: Db, max_attempts: int) -> None:
    """FA5, I7, Q46: the last one is repeated once, alone, so that no neighbour is blamed for it."""
    poison = make_job(db, max_attempts=max_attempts)
    runs = 0
    while row(db, poison).status != "FAILED":
        taken = queue.claim(db, BY, ["test"], 1)[0] or [take_suspect(db)]
        if taken[0].exhausted:
            queue.bury(db, taken[0], Buried(Failure("worker lost"), ran=False), None)
        else:
            runs += 1
            queue.start(db, taken[0].lease)
            queue.release(db, "worker", [poison])
    now = row(db, poison)
    assert (runs, now.attempt_count, len(now.errors)) == (max_attempts, max_attempts, max_attempts)


def test_a_dead_worker_gives_back_what_it_had_not_begun(db: Db) -> None:
    """Promise 4, D5."""
    ran, waited = running_job(db), running_job(db, next_retry_at=ago(minutes=1))
    theirs = make_job(db, "RUNNING", claimed_by="other")
    assert {*queue.release(db, "worker", [ran.id, theirs])} == {ran.id, waited.id}
    facts = [(now.status, now.attempt_count, now.suspect) for now in (row(db, one.id) for one in (ran, waited))]
    assert facts == [("RETRY_WAIT", 1, True), ("PENDING", 0, False)]
    assert (row(db, waited.id).last_error, row(db, waited.id).errors) == (None, [])
    assert row(db, theirs).status == "RUNNING"
    assert claim(db) == [waited.id]


def test_what_was_claimed_unheard_is_given_back(db: Db) -> None:
    """The answer to a claim was lost with its connection; the worker lives and goes on with what it knows of."""
    heard, unheard, theirs = running_job(db), running_job(db), running_job(db, claimed_by="other")
    assert queue.release_unheard(db, "worker", [heard.id]) == [unheard.id]
    assert statuses(db) == {heard.id: "RUNNING", unheard.id: "PENDING", theirs.id: "RUNNING"}
    assert (row(db, unheard.id).attempt_count, row(db, unheard.id).errors) == (0, [])


# --- pruned -----------------------------------------------------------------------------------------------------

DAY = timedelta(days=1)


def prune_all(db: Db) -> int:
    deleted, after = 0, 0
    while True:
        count, last = queue.prune(db, keep=DAY, after=after, limit=3)
        deleted += count
        if last is None:
            return deleted
        after = last


def test_old_ends_are_pruned_with_their_lines_and_nothing_else_is(db: Db) -> None:
    """S15, S16, Q51, R39, M61, W47."""
    old = {"created_at": ago(days=3)}
    pruned = [make_job(db, status, finished_at=ago(days=2), **old) for status in ("COMPLETED", "FAILED", "CANCELLED")]
    stays = [make_job(db, status, **old) for status in ("PENDING", "RUNNING", "RETRY_WAIT")]
    stays += [make_job(db, "COMPLETED", finished_at=ago(hours=2), **old), make_job(db)]
    for one in pruned + stays:
        db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, 'line')", [one])
    assert prune_all(db) == 3
    assert [*statuses(db)] == stays
    assert [one for (one,) in db.execute("SELECT job_id FROM job_log ORDER BY 1").fetchall()] == stays


def test_a_key_that_is_unique_for_ever_stays_with_its_job(db: Db) -> None:
    """The shop that sends its order again after a year must not be charged again."""
    for scope in ("ever", "live"):
        make_job(db, "COMPLETED", created_at=ago(days=3), finished_at=ago(days=2), unique_key="k", unique_scope=scope)
    assert prune_all(db) == 1
    first = enqueue(db, unique_key="k", unique_scope="ever")
    assert statuses(db) == {first: "COMPLETED"}


def test_pruning_stops_where_the_jobs_are_too_young_to_have_ended_long_ago(db: Db) -> None:
    make_job(db, "COMPLETED", created_at=ago(days=3), finished_at=ago(days=2))
    make_jobs(db, 50)
    assert queue.prune(db, keep=DAY, limit=10) == (1, 1)
    assert queue.prune(db, keep=DAY, after=1, limit=10) == (0, None)
    assert queue.prune(db, keep=DAY, after=10**12) == (0, None)

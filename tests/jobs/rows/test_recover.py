"""What becomes of a job whose worker is gone, and of one that ended long ago."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from snapapp.jobs.model import Buried, Failure, Lease
from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows import leases as leases_rows
from snapapp.jobs.rows import retention
from tests import ROOT
from tests.factory import (
    Db,
    ago,
    at_once,
    beat,
    bury,
    claim,
    claimed,
    complete,
    enqueue,
    hence,
    make_job,
    make_jobs,
    retry,
    row,
    running_job,
    statuses,
    take_suspect,
)
from tests.labs.schedules.clock import LIBRARIES, Clock

pytestmark = pytest.mark.both_servers_at_length

# --- recovered and released -------------------------------------------------------------------------------------


def test_a_lease_that_ended_is_recovered(db: Db) -> None:
    """Q23, Q45, S14, D2: whoever held it; only the row is asked."""
    ended = make_job(db, "RUNNING", lock_expires_at=ago(seconds=1), claimed_by="gone")
    make_job(db, "RUNNING")
    assert leases_rows.recover(db, spread=timedelta(0)) == [ended]
    now = row(db, ended)
    assert (now.status, now.attempt_count, now.losses, now.last_error) == ("RETRY_WAIT", 1, 1, "worker lost")
    assert now.errors[0] | {"at": ""} == {"attempt": 1, "at": "", "error": "worker lost", "worker": "gone"}
    assert leases_rows.recover(db) == []
    [again] = claimed(db).jobs
    assert (again.id, again.attempt) == (ended, 2)


def test_a_lost_job_whose_child_somebody_has_locked_holds_up_no_other(db: Db, other: Db) -> None:
    """Its end would wait for the lock: it stays for the next sweep, and is told."""
    cancelled = make_job(db, "RUNNING", lock_expires_at=ago(seconds=1), cancel_requested_at=ago(seconds=2))
    child = enqueue(db, after=[cancelled])
    lost = [make_job(db, "RUNNING", lock_expires_at=ago(seconds=1)) for _ in range(3)]
    db.execute("SET lock_timeout = '100ms'")
    refused: list[int] = []
    with other.transaction():
        other.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [child])
        assert leases_rows.recover(db, refused=lambda job_id, _: refused.append(job_id)) == lost
    assert refused == [cancelled]
    assert leases_rows.recover(db) == [cancelled]


def test_from_the_second_loss_in_a_row_on_a_job_runs_alone(db: Db) -> None:
    """Promise 3: one loss may be a neighbour's doing, a second is laid at its own door."""
    lost = make_job(db)
    for losses, gate in ((1, "open"), (2, "alone")):
        assert claim(db) == [lost]
        leases_rows.release(db, "worker", [lost])
        assert (row(db, lost).losses, row(db, lost).gate) == (losses, gate)
    assert claim(db) == []
    assert take_suspect(db).id == lost
    leases_rows.release(db, "worker", [lost])
    assert (row(db, lost).losses, row(db, lost).gate) == (3, "alone")


def test_an_end_that_the_worker_wrote_down_sets_the_losses_back(db: Db) -> None:
    held = running_job(db, losses=2, gate="alone")
    retry(db, held, Failure("oops"), timedelta(0), 0.1)
    assert (row(db, held.id).losses, row(db, held.id).gate) == (0, "open")
    assert claim(db) == [held.id]


def test_what_a_limit_holds_stays_under_it_after_a_loss(db: Db) -> None:
    db.execute("INSERT INTO job_limit VALUES ('queue:default', 1)")
    lost = make_job(db)
    for losses in (1, 2):
        assert claim(db) == [lost]
        leases_rows.release(db, "worker", [lost])
        assert (row(db, lost).losses, row(db, lost).gate) == (losses, "later")
        assert claim(db) == []  # this look finds that it is due, the next one lets it in
    assert claimed(db, look=claim_rows.Look(is_idle=False)).jobs == []
    assert claim(db) == [lost]


def test_recovered_jobs_come_back_spread_out(db: Db) -> None:
    """FA19."""
    made = [make_job(db, "RUNNING", lock_expires_at=ago(seconds=1)) for _ in range(50)]
    leases_rows.recover(db, spread=timedelta(minutes=10))
    back = sorted(row(db, one).next_retry_at for one in made)
    assert back[-1] - back[0] > timedelta(minutes=5)
    assert back[-1] < hence(minutes=11)


def test_recovery_works_page_by_page(db: Db) -> None:
    """FA18, W49."""
    made = [make_job(db, "RUNNING", lock_expires_at=ago(seconds=1)) for _ in range(5)]
    assert [sorted(leases_rows.recover(db, limit=2)) for _ in range(4)] == [made[:2], made[2:4], made[4:], []]


def test_recovery_waits_until_the_server_has_been_back_for_a_while(db: Db) -> None:
    """Promise 7, FC10."""
    ended = make_job(db, "RUNNING", lock_expires_at=ago(seconds=1))
    assert leases_rows.recover(db, settled_for=timedelta(days=365)) == []
    assert leases_rows.recover(db) == [ended]


def test_recovery_skips_what_is_being_settled(db: Db, other: Db) -> None:
    held = running_job(db, lock_expires_at=ago(seconds=1))
    with other.transaction():
        complete(other, held)
        assert leases_rows.recover(db) == []
    assert row(db, held.id).status == "COMPLETED"


def test_recovery_skips_a_lease_that_is_being_renewed(db: Db, other: Db) -> None:
    """D7, FA4."""
    held = running_job(db, lock_expires_at=ago(seconds=1))
    with other.transaction():
        beat(other, held.lease)
        assert leases_rows.recover(db) == []
    assert leases_rows.recover(db) == []


AHEAD = """
import sys
from snapapp.jobs.rows import leases
from snapapp.jobs.rows.database import connect
with connect(sys.argv[1], name="test") as db:
    print(leases.recover(db), leases.release_unheard(db, "nobody", []))
"""


@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed")
def test_a_host_whose_clock_is_ahead_takes_nothing_from_anybody(db: Db, url: str, tmp_path: Path) -> None:
    """FB1: only the database's clock says that a lease has ended."""
    held = running_job(db)
    clock = Clock(tmp_path / "clock")
    clock.set(datetime.now(UTC) + timedelta(hours=1))
    environment = os.environ | clock.environment() | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", AHEAD, url]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (said.stdout, said.stderr) == ("[] []\n", "")
    assert row(db, held.id).status == "RUNNING"


def lost_to(db: Db, *leases: Lease) -> set[int]:
    return beat(db, *leases).lost


def test_a_lease_is_either_renewed_or_recovered_never_both(db: Db, other: Db) -> None:
    """D7, FA4: the predicate is tested again under the lock of the row."""
    for _ in range(10):
        leases = {(one := running_job(db, lock_expires_at=ago(seconds=1))).id: one.lease for _ in range(50)}
        lost, recovered = at_once(partial(lost_to, db, *leases.values()), lambda: {*leases_rows.recover(other)})
        running = {one for one in leases if row(db, one).status == "RUNNING"}
        assert lost <= recovered
        assert running == leases.keys() - recovered
        assert all(row(db, one).lock_expires_at > ago() for one in running)


# attempts, losses, memory_mb: what one loss more makes of the attempts when a job may run three times
LOSSES = {
    "the first of several": ((1, 0, None), 1),
    "the last, never lost before": ((3, 0, None), 2),
    "the last, lost once": ((3, 1, None), 2),
    "the last, a suspect": ((3, 2, None), 3),
    "the last, short of memory": ((3, 0, 240), 3),
    "told that it is over": ((4, 0, None), 2),
    "told that it is over, a suspect": ((4, 2, None), 3),
}


@pytest.mark.parametrize("how", ["recover", "release"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_attempt_counts_unless_another_may_have_killed_it(db: Db, loss: str, how: str) -> None:
    """Promise 3, Q24, Q46, FA5, I7."""
    (attempts, losses, memory_mb), left = LOSSES[loss]
    gate = "alone" if losses >= 2 or memory_mb else "open"
    its: dict[str, Any] = {"attempt_count": attempts, "losses": losses, "memory_mb": memory_mb, "gate": gate}
    lost = make_job(db, "RUNNING", lock_expires_at=ago(seconds=1), **its)
    assert (leases_rows.recover(db) if how == "recover" else leases_rows.release(db, "worker", None)) == [lost]
    now = row(db, lost)
    is_pardoned = left < min(attempts, 3)  # then it is tried alone, and not pardoned again
    assert (now.status, now.attempt_count, now.losses) == ("RETRY_WAIT", left, 2 if is_pardoned else losses + 1)
    assert now.gate == ("alone" if is_pardoned or losses >= 1 or memory_mb else "open")


def test_a_last_attempt_is_pardoned_once(db: Db) -> None:
    """Also where those before it failed by themselves, which forgets the losses."""
    poison = make_job(db, "RUNNING", attempt_count=3, losses=0, lock_expires_at=ago(seconds=1))
    leases_rows.recover(db, spread=timedelta(0))
    assert take_suspect(db).id == poison
    leases_rows.release(db, "worker", [poison])
    assert take_suspect(db).exhausted


def test_the_only_attempt_is_never_given_back(db: Db) -> None:
    """W15: whoever stalls has used it up."""
    lost = make_job(db, "RUNNING", attempt_count=1, max_attempts=1, lock_expires_at=ago(seconds=1))
    leases_rows.recover(db, spread=timedelta(0))
    assert row(db, lost).attempt_count == 1
    [again] = claimed(db).jobs
    assert again.exhausted


@pytest.mark.parametrize(("max_attempts", "runs_there_are"), [(1, 1), (2, 3), (3, 3), (5, 5)])
def test_a_job_that_kills_its_worker_ends_after_its_attempts(db: Db, max_attempts: int, runs_there_are: int) -> None:
    """Q24, Q46, FA5, I7: one is given back where none was alone, so that no neighbour is blamed for it."""
    poison = make_job(db, max_attempts=max_attempts)
    runs = 0
    while row(db, poison).status != "FAILED":
        taken = claimed(db, 1).jobs or [take_suspect(db)]
        if taken[0].exhausted:
            bury(db, taken[0], Buried(Failure("worker lost"), ran=False), None)
        else:
            runs += 1
            assert runs <= runs_there_are
            leases_rows.release(db, "worker", [poison])
    now = row(db, poison)
    assert (runs, now.attempt_count, len(now.errors)) == (runs_there_are, max_attempts, runs_there_are)


def test_a_dead_worker_gives_back_what_it_had_not_begun(db: Db) -> None:
    """Promise 4, D5."""
    ran, waited = running_job(db), running_job(db, next_retry_at=ago(minutes=1))
    theirs = make_job(db, "RUNNING", claimed_by="other")
    assert {*leases_rows.release(db, "worker", [ran.id, theirs])} == {ran.id, waited.id}
    facts = [(now.status, now.attempt_count, now.losses) for now in (row(db, one.id) for one in (ran, waited))]
    assert facts == [("RETRY_WAIT", 1, 1), ("PENDING", 0, 0)]
    assert (row(db, waited.id).last_error, row(db, waited.id).errors) == (None, [])
    assert row(db, theirs).status == "RUNNING"
    assert claim(db) == [ran.id, waited.id]


def test_what_was_claimed_unheard_is_given_back(db: Db) -> None:
    """The answer to a claim was lost with its connection; the worker lives and goes on with what it knows of."""
    heard, unheard, theirs = running_job(db), running_job(db), running_job(db, claimed_by="other")
    assert leases_rows.release_unheard(db, "worker", [heard.id]) == [unheard.id]
    assert statuses(db) == {heard.id: "RUNNING", unheard.id: "PENDING", theirs.id: "RUNNING"}
    assert (row(db, unheard.id).attempt_count, row(db, unheard.id).errors) == (0, [])


# --- pruned -----------------------------------------------------------------------------------------------------

DAY = timedelta(days=1)


def prune_all(db: Db) -> int:
    deleted, after = 0, 0
    while True:
        count, last = retention.prune(db, keep=DAY, after=after, limit=3)
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
    assert retention.prune(db, keep=DAY, limit=10) == (1, 1)
    assert retention.prune(db, keep=DAY, after=1, limit=10) == (0, None)
    assert retention.prune(db, keep=DAY, after=10**12) == (0, None)

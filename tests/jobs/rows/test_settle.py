"""How an attempt ends: what is written, and that only the holder of the lease can write it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy

from snapapp.jobs.model import (
    JSON_CAP,
    PROGRESS_CAP,
    Buried,
    Dropped,
    Failure,
    Finished,
    Job,
    Outcome,
    Retried,
    Snoozed,
    Stopped,
    Succeeded,
    to_json,
)
from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows import leases, lifecycle, notes, settle
from tests.factory import (
    MINUTE,
    OOPS,
    OTHER,
    SECOND,
    Db,
    ago,
    beat,
    bury,
    claim,
    claimed,
    complete,
    enqueue,
    hand_back,
    hence,
    job,
    make_job,
    move,
    retry,
    row,
    running_job,
    scalar,
    snooze,
    statuses,
)

pytestmark = pytest.mark.both_servers


WIDE = [0] * (JSON_CAP // 2 - 1)  # the largest that a value can become: two bytes of text, twelve of jsonb each


def test_a_result_and_a_progress_as_large_as_allowed_are_kept(db: Db) -> None:
    held = running_job(db)
    notes.progress(db, {held.lease: to_json(WIDE[: PROGRESS_CAP // 2 - 1], cap=PROGRESS_CAP)})
    assert settle.complete(db, [(held.lease, to_json(WIDE), 0.1)]) == {held.id}


def test_a_completion_keeps_the_result_and_frees_the_lease(db: Db) -> None:
    """W5, Q27, R26."""
    held = running_job(db)
    assert settle.complete(db, [(held.lease, '{"frames":12}', 2.5)]) == {held.id}
    now = row(db, held.id)
    assert (now.status, now.result, now.lease_seq, now.attempt_count) == ("COMPLETED", {"frames": 12}, 2, 1)
    assert (now.claimed_by, now.locked_at, now.lock_expires_at) == (None, None, None)
    assert now.finished_at - now.started_at == pytest.approx(timedelta(seconds=2.5), abs=timedelta(milliseconds=1))


def test_a_batch_completes_what_is_still_ours(db: Db) -> None:
    held = [running_job(db) for _ in range(5)]
    move(db, held[2].id, lease_seq=7)
    assert complete(db, *reversed(held)) == {one.id for one in held} - {held[2].id}
    assert row(db, held[2].id).status == "RUNNING"


def test_a_failed_attempt_comes_back_after_its_delay(db: Db) -> None:
    """W6, Q28, Q29, R27, S6, D3."""
    held = running_job(db)
    assert retry(db, held, OOPS, MINUTE, 0.5) == "RETRY_WAIT"
    now = row(db, held.id)
    assert hence(seconds=50) < now.next_retry_at < hence(seconds=61)
    assert (now.attempt_count, now.lease_seq, now.claimed_by, now.finished_at) == (1, 2, None, None)
    assert now.last_error == OOPS.error
    assert now.errors == [{"attempt": 1, "error": OOPS.error, "trace": OOPS.trace, "ran_ms": 500.0}]
    assert claim(db) == []


def test_a_buried_job_is_a_dead_letter(db: Db) -> None:
    """R28, Q26."""
    held = running_job(db, attempt_count=3)
    assert bury(db, held, Buried(OOPS), 0.5) == "FAILED"
    now = row(db, held.id)
    assert now.finished_at > ago(seconds=5)
    assert (now.attempt_count, now.last_error, len(now.errors)) == (3, OOPS.error, 1)
    assert scalar(db, "SELECT id FROM queue_dead_letters") == held.id


def test_burying_an_exhausted_job_counts_no_attempt_that_never_ran(db: Db) -> None:
    held = running_job(db, attempt_count=4, max_attempts=3, errors=[{"error": "worker lost"}] * 3)
    bury(db, held, Buried(Failure("worker lost"), ran=False), None)
    now = row(db, held.id)
    assert (now.status, now.attempt_count, now.started_at, len(now.errors)) == ("FAILED", 3, None, 3)


def test_a_snoozed_job_gets_its_attempt_back(db: Db) -> None:
    """W53."""
    held = running_job(db, attempt_count=2, losses=2)
    assert snooze(db, held, MINUTE) == "PENDING"
    now = row(db, held.id)
    assert (now.attempt_count, now.losses, now.errors, now.started_at) == (1, 0, [], None)
    assert now.next_retry_at > hence(seconds=50)


@pytest.mark.parametrize(
    ("ending", "status"),
    [(Snoozed(SECOND, ran=False), "PENDING"), (Retried(OOPS, SECOND, ran=False), "RETRY_WAIT")],
    ids=["no place now", "no place as large"],
)
def test_a_suspect_without_a_place_to_run_is_as_suspect_as_it_was(db: Db, ending: Outcome, status: str) -> None:
    held = running_job(db, losses=2, gate="alone")
    assert settle.settle(db, Finished(held, ending, None)) == status
    now = row(db, held.id)
    assert (now.losses, now.gate, now.next_retry_at > hence(seconds=0)) == (2, "alone", True)


def test_the_last_twenty_errors_are_kept(db: Db) -> None:
    """FD13, R8."""
    made = make_job(db, "RUNNING", max_attempts=100, errors=[{"attempt": n} for n in range(1, 20)])
    for attempt in (20, 21, 22):
        move(db, made, status="RUNNING", claimed_by="w", locked_at=ago(), lock_expires_at=hence(minutes=1))
        move(db, made, attempt_count=attempt)
        retry(db, job(db, made), OOPS, SECOND, None)
    assert [error["attempt"] for error in row(db, made).errors] == [*range(3, 23)]


def test_the_longest_error_is_kept(db: Db) -> None:
    """S16."""
    held = running_job(db)
    retry(db, held, Failure.of(ValueError("\0\ud800" * 10**6)), SECOND, 0.1)
    assert len(row(db, held.id).last_error) == 4000


@pytest.mark.parametrize("is_second_try", [False, True])
@pytest.mark.parametrize("ending", [Succeeded(None), Retried(OOPS, SECOND)], ids=["completion", "retry"])
def test_a_settle_goes_on_without_a_row_that_somebody_has_locked(
    db: Db, other: Db, ending: Outcome, is_second_try: bool
) -> None:
    """Promise 11. Which of the missing are locked, and which are another's, is known."""
    before = scalar(db, "SHOW lock_timeout")
    free, locked, gone = (Finished(running_job(db), ending, 0.1) for _ in range(3))
    move(db, gone.job.id, lease_seq=7)
    batch = [gone, locked, free]
    with other.transaction():
        other.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [locked.job.id])
        settled = settle.settle_batch(db, batch, interruptions_allowed=9, is_second_try=is_second_try)
        assert ([*settled.landed], settled.locked) == ([free.job.id], {locked.job.id})
    again = settle.settle_batch(db, batch, interruptions_allowed=9, is_second_try=True)
    assert ([*again.landed], again.locked) == ([locked.job.id], set())
    assert scalar(db, "SHOW lock_timeout") == before  # what it waits for is its own affair


ENDINGS: dict[str, Outcome] = {
    "retry": Retried(OOPS, SECOND),
    "bury": Buried(OOPS),
    "stop": Stopped(OOPS),
    "snooze": Snoozed(SECOND),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_wish_to_cancel_is_granted_at_every_end_but_a_completion(db: Db, ending: str) -> None:
    held = running_job(db, attempt_count=1)
    assert lifecycle.cancel(db, held.id) == "RUNNING"
    assert settle.settle(db, Finished(held, ENDINGS[ending], 0.1)) == "CANCELLED"
    now = row(db, held.id)
    assert (now.status, now.losses, now.finished_at is None) == ("CANCELLED", 0, False)


@pytest.mark.parametrize("ending", ["hand_back", "recover", "release", "release unstarted"])
def test_a_wish_to_cancel_is_granted_where_no_attempt_ends(db: Db, ending: str) -> None:
    held = running_job(db, lock_expires_at=ago(seconds=1), losses=2, gate="alone", attempt_count=3, interruptions=9)
    lifecycle.cancel(db, held.id)
    ends: dict[str, Callable[[], object]] = {
        "hand_back": lambda: hand_back(db, held),
        "recover": lambda: leases.recover(db),
        "release": lambda: leases.release(db, "worker", [held.id]),
        "release unstarted": lambda: leases.release(db, "worker", []),
    }
    ends[ending]()
    now = row(db, held.id)
    assert (now.status, now.losses, now.finished_at is None) == ("CANCELLED", 0, False)


def test_a_completion_comes_before_a_wish_to_cancel(db: Db) -> None:
    held = running_job(db)
    lifecycle.cancel(db, held.id)
    assert settle.settle(db, Finished(held, Succeeded(None), 0.1)) == "COMPLETED"


@pytest.mark.parametrize("ending", [Succeeded('{"n":1}'), *ENDINGS.values()], ids=lambda ending: type(ending).__name__)
def test_a_settle_is_the_same_on_both_carriers(db: Db, engine: sqlalchemy.Engine, ending: Any) -> None:
    one, two = running_job(db), running_job(db)
    with engine.begin() as connection:
        statuses = settle.settle(db, Finished(one, ending, 0.5)), settle.settle(connection, Finished(two, ending, 0.5))
    assert statuses[0] == statuses[1]
    columns = ("status", "result", "errors", "last_error", "attempt_count", "lease_seq", "claimed_by")
    assert [getattr(row(db, one.id), name) for name in columns] == [getattr(row(db, two.id), name) for name in columns]


def test_what_is_no_end_of_an_attempt_is_not_settled(db: Db) -> None:
    with pytest.raises(TypeError, match="Dropped"):
        settle.settle(db, Finished(running_job(db), Dropped(), 0.1))


@pytest.mark.parametrize("settle_in", ["commit", "rollback"])
def test_a_hook_and_its_settle_land_together_or_not_at_all(db: Db, engine: sqlalchemy.Engine, settle_in: str) -> None:
    held = running_job(db)
    with engine.connect() as connection, connection.begin() as transaction:
        settle.settle(connection, Finished(held, Succeeded(None), 0.1))
        enqueue(connection, "next")
        if settle_in == "rollback":
            transaction.rollback()
    assert [*statuses(db).values()] == (["RUNNING"] if settle_in == "rollback" else ["COMPLETED", "PENDING"])


Step = Callable[[Db, Job], object]


def in_turn(*steps: Step) -> Step:
    return lambda db, held: [step(db, held) for step in steps]


RECOVERED: Step = lambda db, held: leases.recover(db, spread=timedelta(0))  # noqa: E731
HANDED_BACK: Step = lambda db, held: hand_back(db, held)  # noqa: E731
BURIED: Step = lambda db, held: bury(db, held, Buried(OOPS), 0.1)  # noqa: E731
# What may have happened to a job since a zombie last looked.
SINCE: dict[str, Step] = {
    "recovered": RECOVERED,
    "released": lambda db, held: leases.release(db, "worker", [held.id]),
    "released unstarted": lambda db, held: leases.release(db, "worker", []),
    "handed back": HANDED_BACK,
    "completed": complete,
    "retried": lambda db, held: retry(db, held, OOPS, timedelta(0), 0.1),
    "buried": BURIED,
    "snoozed": lambda db, held: snooze(db, held, timedelta(0)),
    "recovered and claimed": in_turn(RECOVERED, lambda db, held: claim(db)),
    "handed back and claimed": in_turn(HANDED_BACK, lambda db, held: claim(db, by=OTHER)),
    "buried and retried by a person": in_turn(BURIED, lambda db, held: lifecycle.retry_by_person(db, held.id)),
}
# What a zombie may try to write.
WRITES: dict[str, Step] = {
    "progress": lambda db, held: notes.progress(db, {held.lease: '"mine"'}) or None,
    "log": lambda db, held: notes.log(db, [notes.LogLine(held.lease, 1, "INFO", "mine", 0.0)]) or None,
    "complete": lambda db, held: settle.settle(db, Finished(held, Succeeded('"mine"'), 0.1)),
    "retry": lambda db, held: settle.settle(db, Finished(held, Retried(OOPS, SECOND), 0.1)),
    "bury": lambda db, held: settle.settle(db, Finished(held, Buried(OOPS), 0.1)),
    "stop": lambda db, held: settle.settle(db, Finished(held, Stopped(OOPS), 0.1)),
    "snooze": lambda db, held: settle.settle(db, Finished(held, Snoozed(SECOND), 0.1)),
    "hand back": lambda db, held: hand_back(db, held, started=False) or None,
    "payload": lambda db, held: claim_rows.payload(db, held.lease),
}


@pytest.mark.parametrize("since", SINCE)
def test_a_worker_that_lost_its_lease_cannot_write(db: Db, since: str) -> None:
    """W22: promise 2, I4, R18, W27, FA1, FA3, D10, D11."""
    held = running_job(db, lock_expires_at=ago(seconds=1))
    SINCE[since](db, held)
    before = row(db, held.id)
    assert beat(db, held.lease).lost == {held.id}
    assert {name: WRITES[name](db, held) for name in WRITES} == dict.fromkeys(WRITES)
    assert row(db, held.id) == before
    assert scalar(db, "SELECT count(*) FROM job_log") == 0


@pytest.mark.parametrize("since", SINCE)
def test_lease_seq_only_rises(db: Db, since: str) -> None:
    """I3: every change of status raises it, so no lease ever comes again."""
    held = running_job(db, lock_expires_at=ago(seconds=1))
    SINCE[since](db, held)
    assert row(db, held.id).lease_seq > held.lease_seq + (" and " in since)


def test_the_result_of_a_job_that_a_failover_lost_ends_no_newer_job_with_its_id(db: Db) -> None:
    waiting = make_job(db)
    [lost] = claimed(db).jobs
    db.execute("DELETE FROM snap_processing_job")
    db.execute(
        "INSERT INTO snap_processing_job (id, kind) OVERRIDING SYSTEM VALUE VALUES (%s, 'test')",
        [waiting],
    )
    [newer] = claimed(db).jobs
    assert beat(db, lost.lease).lost == {waiting}
    assert (complete(db, lost), complete(db, newer)) == (set(), {waiting})


def test_the_result_of_an_attempt_that_a_failover_lost_ends_no_newer_attempt(db: Db) -> None:
    """The claim was lost with the old server, the failed attempt before it was not."""
    make_job(db, "RETRY_WAIT", lease_seq=2)
    db.execute("CREATE TABLE replicated AS TABLE snap_processing_job")
    [lost] = claimed(db).jobs
    db.execute("DELETE FROM snap_processing_job")
    db.execute("INSERT INTO snap_processing_job OVERRIDING SYSTEM VALUE TABLE replicated")
    [newer] = claimed(db).jobs
    assert lost.id == newer.id
    assert beat(db, lost.lease).lost == {lost.id}
    assert (complete(db, lost), complete(db, newer)) == (set(), {newer.id})


def test_after_an_uncertain_commit_the_row_says_whether_it_landed(db: Db) -> None:
    """FC13, FE10."""
    completed, retried, recovered, running = (running_job(db, lock_expires_at=hence(minutes=1)) for _ in range(4))
    complete(db, completed)
    retry(db, retried, OOPS, SECOND, 0.1)
    move(db, recovered.id, lock_expires_at=ago(seconds=1))
    leases.recover(db)
    landed = [settle.landed_already(db, one.lease) for one in (completed, retried, recovered, running)]
    assert landed == ["COMPLETED", "RETRY_WAIT", None, None]


@pytest.mark.parametrize("started", [False, True])
def test_a_job_handed_back_gets_its_attempt_back(db: Db, started: bool) -> None:
    """Promise 3, FA6, D17: a deploy never fills the dead letters."""
    held = running_job(db, attempt_count=3, max_attempts=3, next_retry_at=ago(minutes=1))
    assert hand_back(db, held, started=started, allowed=20) == {held.id}
    now = row(db, held.id)
    assert (now.status, now.attempt_count, now.interruptions, now.losses) == ("PENDING", 2, int(started), 0)
    assert claim(db) == [held.id]


def test_interruptions_are_given_back_only_so_often(db: Db) -> None:
    made = make_job(db, max_attempts=2)
    counts = []
    for _ in range(5):
        taken = claimed(db, 1).jobs
        hand_back(db, taken[0], allowed=3)
        counts.append((row(db, made).attempt_count, row(db, made).interruptions, row(db, made).losses))
    assert counts == [(0, 1, 0), (0, 2, 0), (0, 3, 0), (1, 4, 0), (2, 5, 0)]
    assert claimed(db, 1).jobs[0].exhausted


def test_a_job_that_never_began_is_handed_back_for_ever(db: Db) -> None:
    held = running_job(db, interruptions=99)
    hand_back(db, held, started=False, allowed=3)
    assert (row(db, held.id).attempt_count, row(db, held.id).interruptions) == (0, 99)

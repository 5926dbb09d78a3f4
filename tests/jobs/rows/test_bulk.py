"""One step for many jobs, on every carrier that a caller may have."""

import pytest
import sqlalchemy

from snapapp.jobs.model import Status
from snapapp.jobs.rows.people import bulk
from tests.factory import BY_ITSELF, CARRIERS, Db, at_once, carried, make_job, make_jobs, row, statuses

RETRIED = "only a FAILED or CANCELLED job can be retried"


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_refused_job_does_not_spoil_it_for_the_others(
    db: Db, url: str, engine: sqlalchemy.Engine, carrier: str
) -> None:
    """R48."""
    failed = make_jobs(db, 250, status="FAILED")
    holder = make_job(db, unique_key="k", unique_scope="live")
    held = make_job(db, "FAILED", unique_key="k", unique_scope="live")
    running = make_job(db, "RUNNING")
    with carried(carrier, url, engine) as caller:
        answers = bulk.retry(caller, [4242, *failed, running, held])
        if carrier not in BY_ITSELF:
            caller.commit()
    assert answers.done == dict.fromkeys(failed, Status.PENDING)
    assert answers.refused == {
        held: f"job {held} cannot be retried: job {holder} holds its unique key k",
        running: f"job {running} is RUNNING: {RETRIED}",
        4242: "there is no job 4242",
    }
    assert statuses(db) == dict.fromkeys(failed, "PENDING") | {holder: "PENDING", held: "FAILED", running: "RUNNING"}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_what_a_caller_takes_back_never_was(db: Db, url: str, engine: sqlalchemy.Engine, carrier: str) -> None:
    waiting, over = make_jobs(db, 150), make_job(db, "COMPLETED")
    with carried(carrier, url, engine) as caller:
        answers = bulk.cancel(caller, [*waiting, over])
        caller.rollback()
    assert (len(answers.done), [*answers.refused]) == (150, [over])
    left = "CANCELLED" if carrier in BY_ITSELF else "PENDING"
    assert statuses(db) == dict.fromkeys(waiting, left) | {over: "COMPLETED"}


def test_a_page_is_one_transaction(db: Db) -> None:
    """A commit costs more than a job; a retried job is due at the time of its transaction."""
    bulk.retry(db, make_jobs(db, 250, status="FAILED"))
    counted = db.execute("SELECT count(*) FROM snap_processing_job GROUP BY next_retry_at ORDER BY 1").fetchall()
    assert counted == [(50,), (100,), (100,)]


def test_the_answer_to_a_cancel_is_what_became_of_the_job(db: Db) -> None:
    waiting, running, gone = make_job(db), make_job(db, "RUNNING"), make_job(db, "CANCELLED")
    over = [make_job(db, status) for status in ("COMPLETED", "FAILED")]
    done, refused = bulk.cancel(db, [waiting, running, gone, *over])
    assert done == {waiting: Status.CANCELLED, running: Status.RUNNING, gone: Status.CANCELLED}
    assert refused == {
        over[0]: f"job {over[0]} is COMPLETED: there is nothing to cancel",
        over[1]: f"job {over[1]} is FAILED: there is nothing to cancel",
    }
    assert row(db, running).cancel_requested_at is not None


def test_a_job_that_is_named_twice_is_answered_once(db: Db) -> None:
    [failed] = make_jobs(db, 1, status="FAILED")
    assert bulk.retry(db, [failed, failed]) == ({failed: Status.PENDING}, {})
    assert bulk.retry(db, []) == ({}, {})


def test_progress_is_told_page_by_page(db: Db) -> None:
    told: list[int] = []
    bulk.cancel(db, iter([*make_jobs(db, 230), 4242]), told.append)
    assert told == [100, 100, 31]


def test_two_who_name_the_same_jobs_in_opposite_order_do_not_wait_in_a_circle(
    db: Db, url: str, engine: sqlalchemy.Engine
) -> None:
    """FC5: all of them in one transaction each, so that every row stays locked until the end."""
    ids = make_jobs(db, 300)

    def cancel(order: list[int]) -> int:
        with engine.begin() as connection:
            return len(bulk.cancel(connection, order).done)

    assert at_once(lambda: cancel(ids), lambda: cancel(ids[::-1])) == [300, 300]

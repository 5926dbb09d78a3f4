"""Out of memory looks like bad data: whoever ran short gets one more attempt, alone, with a larger limit."""

from datetime import timedelta
from typing import Any

import pytest

from snapapp.jobs import enqueue, queue
from snapapp.jobs.model import Finished, Snoozed, Status
from tests.factory import Db, make_job, row, running_job
from tests.jobs import hungry
from tests.jobs.hungry import LIMIT_MB
from tests.jobs.working import until, until_status, working

DAMAGED = "Permanent: the video is damaged"


def put(db: Db, kind: str, **payload: Any) -> int:
    job_id = enqueue(db, kind, payload)
    assert job_id
    return job_id


def errors(job: Any) -> list[str]:
    return [entry["error"] for entry in job.errors]


@pytest.mark.parametrize("kind", ["hungry.child", "hungry.program"])
def test_what_needs_more_than_its_limit_gets_it_once(url: str, db: Db, kind: str) -> None:
    with working(url, hungry.registry):
        done = until_status(db, put(db, kind, mb=LIMIT_MB + 20), "COMPLETED")
    assert (done.attempt_count, done.memory_mb, done.suspect) == (2, 2 * LIMIT_MB, False)
    [error] = errors(done)
    assert error.startswith("MemoryExceeded: ")
    assert error.endswith(f"its limit is {LIMIT_MB} MB")


def test_a_second_shortage_is_an_ordinary_failure(url: str, db: Db) -> None:
    """The limit is raised once, not to whatever it wants."""
    with working(url, hungry.registry):
        dead = until_status(db, put(db, "hungry.child", mb=3 * LIMIT_MB), "FAILED")
    limits = [error.rpartition("its limit is ")[2] for error in errors(dead)]
    assert limits == [f"{LIMIT_MB} MB"] + 2 * [f"{2 * LIMIT_MB} MB"]


@pytest.mark.parametrize(("kind", "mb"), [("hungry.child", 55), ("hungry.refused", 0)])
def test_a_verdict_close_to_the_limit_is_not_believed_at_once(url: str, db: Db, kind: str, mb: int) -> None:
    """Permanent, had it been said with memory to spare."""
    with working(url, hungry.registry):
        dead = until_status(db, put(db, kind, mb=mb, verdict="the video is damaged"), "FAILED")
    assert errors(dead) == [DAMAGED, DAMAGED]
    assert (dead.attempt_count, dead.memory_mb) == (2, 2 * LIMIT_MB)


def test_a_verdict_with_memory_to_spare_is_final(url: str, db: Db) -> None:
    with working(url, hungry.registry):
        dead = until_status(db, put(db, "hungry.small"), "FAILED")
    assert errors(dead) == [DAMAGED]
    assert (dead.attempt_count, dead.memory_mb) == (1, None)


def test_the_last_attempt_is_the_last(url: str, db: Db) -> None:
    with working(url, hungry.registry):
        job_id = make_job(db, kind="hungry.child", payload={"mb": 3 * LIMIT_MB}, max_attempts=1)
        dead = until_status(db, job_id, "FAILED")
    assert (dead.attempt_count, dead.memory_mb) == (1, None)


def test_a_persons_retry_starts_from_the_beginning(db: Db) -> None:
    job_id = make_job(db, "FAILED", memory_mb=2 * LIMIT_MB, last_error="MemoryExceeded: …", attempt_count=4)
    db.execute("SELECT retry_job(%s)", [job_id])
    waiting = row(db, job_id)
    assert (waiting.status, waiting.memory_mb, waiting.suspect) == ("PENDING", None, False)


def test_a_snooze_keeps_its_place_among_those_that_run_alone(db: Db) -> None:
    held = running_job(db, kind="hungry.child", suspect=True, memory_mb=2 * LIMIT_MB)
    assert queue.settle(db, Finished(held, Snoozed(timedelta(0)), 0.1)) is Status.PENDING
    assert row(db, held.id).suspect is True


def test_a_wish_to_cancel_ends_it(url: str, db: Db) -> None:
    """A wish that came while it was being killed: nothing is over and still a suspect."""
    job_id = make_job(db, kind="hungry.child", payload={"mb": 3 * LIMIT_MB})
    db.execute(
        "CREATE FUNCTION wish() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " NEW.cancel_requested_at := now(); RETURN NEW; END $$"
    )
    db.execute(
        "CREATE TRIGGER wish BEFORE UPDATE ON snap_processing_job FOR EACH ROW"
        " WHEN (NEW.status = 'RUNNING' AND OLD.status <> 'RUNNING') EXECUTE FUNCTION wish()"
    )
    with working(url, hungry.registry):
        gone = until_status(db, job_id, "CANCELLED")
    assert gone.suspect is False


def test_it_runs_with_nothing_beside_it(url: str, db: Db) -> None:
    """Although it has a child of its own: the memory is the worker's."""
    with working(url, hungry.registry, children=2, concurrency=2) as (worker, _):
        job_id = make_job(
            db, "RETRY_WAIT", kind="hungry.child", payload={"mb": 1, "rest": 1}, suspect=True, memory_mb=2 * LIMIT_MB
        )
        until(lambda: row(db, job_id).status == "RUNNING" and row(db, job_id).started_at is not None)
        beside = [make_job(db, kind="hungry.beside") for _ in range(5)]
        done = until_status(db, job_id, "COMPLETED")
        until(lambda: worker.counts.completed == 6)
    assert min(row(db, each).started_at for each in beside) >= done.finished_at

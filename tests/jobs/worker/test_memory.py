"""Out of memory looks like bad data: whoever ran short gets one more attempt, alone, with a larger limit."""

from datetime import timedelta
from typing import Any

import pytest

from snapapp.jobs import enqueue
from snapapp.jobs.model import Finished, Snoozed, Status
from snapapp.jobs.rows import settle
from tests.factory import Db, make_job, row, running_job
from tests.jobs.kinds import hungry
from tests.jobs.kinds.hungry import LIMIT_MB
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
    assert (done.attempt_count, done.memory_mb, done.losses) == (2, 2 * LIMIT_MB, 0)
    [error] = errors(done)
    assert error.startswith("MemoryExceeded: ")
    assert error.endswith(f"its limit is {LIMIT_MB} MB")


@pytest.mark.at_length  # the last attempt is the last in every run, below
def test_a_second_shortage_is_an_ordinary_failure(url: str, db: Db) -> None:
    """The limit is raised once, not to whatever it wants."""
    with working(url, hungry.registry):
        dead = until_status(db, put(db, "hungry.child", mb=3 * LIMIT_MB), "FAILED")
    limits = [error.rpartition("its limit is ")[2] for error in errors(dead)]
    assert limits == [f"{LIMIT_MB} MB"] + 2 * [f"{2 * LIMIT_MB} MB"]


@pytest.mark.parametrize(("kind", "mb"), [("hungry.child", 97), ("hungry.refused", 0)])
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
    job_id = make_job(
        db, "FAILED", gate="alone", memory_mb=2 * LIMIT_MB, last_error="MemoryExceeded: …", attempt_count=4
    )
    db.execute("SELECT retry_job(%s)", [job_id])
    waiting = row(db, job_id)
    assert (waiting.status, waiting.memory_mb, waiting.gate) == ("PENDING", None, "open")


def test_a_snooze_keeps_its_place_among_those_that_run_alone(db: Db) -> None:
    held = running_job(db, kind="hungry.child", gate="alone", memory_mb=2 * LIMIT_MB)
    assert settle.settle(db, Finished(held, Snoozed(timedelta(0)), 0.1)) is Status.PENDING
    assert row(db, held.id).gate == "alone"


def test_a_wish_to_cancel_ends_it(url: str, db: Db) -> None:
    """A wish that came while it was being killed: nothing is over and still counts losses."""
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
    assert gone.losses == 0


def test_it_begins_with_nothing_beside_it_and_shuts_the_door_on_nobody(url: str, db: Db) -> None:
    """The memory is the worker's; what begins later is weighed against what this one may take."""
    with working(url, hungry.registry, children=2, concurrency=2):
        before = make_job(db, kind="hungry.child", payload={"mb": 1, "rest": 1})
        until(lambda: row(db, before).started_at is not None)
        payload = {"mb": 1, "rest": 2}
        alone = make_job(db, kind="hungry.child", payload=payload, gate="alone", memory_mb=2 * LIMIT_MB)
        until(lambda: row(db, alone).started_at is not None)
        others = [make_job(db, kind="hungry.beside") for _ in range(5)]
        done = until_status(db, alone, "COMPLETED")
    assert done.started_at >= row(db, before).finished_at
    assert max(row(db, each).finished_at for each in others) < done.finished_at

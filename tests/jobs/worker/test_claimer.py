"""What a worker with several rooms claims: as much as each of them can take, and nobody waits for another's backlog."""

import threading
from datetime import timedelta

import pytest

from snapapp.demo import kinds
from snapapp.jobs import Job, events
from snapapp.jobs.registry import Registry
from tests.factory import Db, make_job, make_jobs, row
from tests.jobs.working import until, until_status, working


@pytest.fixture
def registry() -> Registry:
    """Three rooms: threads, an event loop, and a single child."""
    registry = Registry()
    registry.processor("quick")(lambda job: None)
    registry.processor("nap")(nap)
    registry.processor("crunch", executor="process")(kinds.crunch)
    return registry


async def nap(_job: Job) -> None:
    """Nothing."""


def test_a_small_room_does_not_keep_the_others_from_claiming_in_batches(url: str, db: Db, registry: Registry) -> None:
    """Measured before each room was claimed for by itself: 2,000 jobs a second beside an idle room of two slots."""
    make_jobs(db, 3000, kind="quick")
    with working(url, registry, children=1, batch_size=100) as (worker, heard):
        until(lambda: worker.counts.completed == 3000)
        batches = [event.facts["jobs"] for event in heard.all(events.JOBS_CLAIMED)]
    assert max(batches) == 100
    assert len(batches) < 300


def test_a_job_of_another_room_is_soon_found_beside_a_backlog(url: str, db: Db, registry: Registry) -> None:
    many = "INSERT INTO snap_processing_job (kind) SELECT 'quick' FROM generate_series(1, 20000)"
    db.execute(many)
    with working(url, registry, children=1) as (worker, _):
        until(lambda: worker.counts.completed > 500)
        job_id = make_job(db, kind="nap")
        until_status(db, job_id, "COMPLETED")
        assert worker.counts.completed < 20_000


def test_a_room_that_is_full_is_claimed_for_again_when_it_has_a_slot(url: str, db: Db) -> None:
    registry, gate = Registry(), threading.Event()
    registry.processor("held")(lambda job: gate.wait(20))
    registry.processor("nap")(nap)
    made = make_jobs(db, 4, kind="held")
    with working(url, registry, concurrency=1, poll_delay=timedelta(hours=1)) as (worker, _):
        until(lambda: [row(db, job_id).status for job_id in made].count("RUNNING") == 1)
        late = make_job(db, kind="held", queue="other")
        gate.set()
        until(lambda: {row(db, job_id).status for job_id in (*made, late)} == {"COMPLETED"})
        assert worker.counts.completed == 5

"""What a worker with several executors claims: as much as each of them can take, whatever waits for the others."""

import threading
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from snapapp.demo import kinds
from snapapp.jobs import Job, events
from snapapp.jobs.events import Events
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import claim, limits
from snapapp.jobs.rows.claim import HEADS_AT_ONCE
from snapapp.jobs.worker.claiming import claimer
from tests.factory import Db, hence, make_job, make_jobs, row
from tests.jobs.working import quick_settings, until, until_status, working


@pytest.fixture
def registry() -> Registry:
    """Three executors: threads, an event loop, and a single child."""
    registry = Registry()
    registry.processor("quick")(lambda job: None)
    registry.processor("nap")(nap)
    registry.processor("crunch", executor="process")(kinds.crunch)
    return registry


async def nap(_job: Job) -> None:
    """Nothing."""


def test_a_small_executor_does_not_keep_the_others_from_claiming_in_batches(
    url: str, db: Db, registry: Registry
) -> None:
    """Measured before each executor was claimed for by itself: 2,000 jobs a second beside an idle one of two slots."""
    make_jobs(db, 3000, kind="quick")
    with working(url, registry, children=1, batch_size=100) as (worker, heard):
        until(lambda: worker.counts.completed == 3000)
        batches = [event.facts["jobs"] for event in heard.all(events.JOBS_CLAIMED)]
    assert max(batches) == 100
    assert len(batches) < 300


def test_a_job_of_another_executor_is_soon_found_beside_a_backlog(url: str, db: Db, registry: Registry) -> None:
    many = "INSERT INTO snap_processing_job (kind) SELECT 'quick' FROM generate_series(1, 20000)"
    db.execute(many)
    with working(url, registry, children=1) as (worker, _):
        until(lambda: worker.counts.completed > 500)
        job_id = make_job(db, kind="nap")
        until_status(db, job_id, "COMPLETED")
        assert worker.counts.completed < 20_000


def test_an_executor_that_is_full_is_claimed_for_again_when_it_has_a_slot(url: str, db: Db) -> None:
    registry, gate = Registry(), threading.Event()
    registry.processor("held")(lambda job: gate.wait(20))
    registry.processor("nap")(nap)
    made = make_jobs(db, 4, kind="held")
    with working(url, registry, concurrency=1, poll_delay=timedelta(hours=1)) as (worker, _):
        until(lambda: [row(db, job_id).status for job_id in made].count("RUNNING") == 1)
        late = make_job(db, kind="held", queue="other")
        gate.set()
        until(lambda: {row(db, job_id).status for job_id in (*made, late)} == {"COMPLETED"})
        until(lambda: worker.counts.completed == 5)  # counted when the row has been written


def test_of_a_queue_with_many_heads_each_is_looked_at_once(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a walk through the heads that a lost connection ended midway, the next NOTIFY names a queue: a claim that
    looked at its first heads only never came to an end, and never to the job behind them."""
    for priority in range(HEADS_AT_ONCE + 1):
        make_job(db, kind="quick", queue="many", priority=priority, next_retry_at=hence(hours=1))
    claims, as_ever = 0, claim.claim

    def claim_and_count(*given: Any) -> claim.Claimed:
        nonlocal claims
        claims += 1
        if claims == 2:
            raise psycopg.OperationalError("the connection is lost")
        assert claims < 20, "it goes round in circles"
        return as_ever(*given)

    monkeypatch.setattr(claim, "claim", claim_and_count)
    with closing(Runtime(quick_settings(url), registry=registry, events=Events())) as runtime:
        worker = runtime.worker()
        with pytest.raises(psycopg.OperationalError):
            worker.tick()
        behind = make_job(db, kind="quick", queue="many", priority=1000)
        worker.wake(queue="many")
        worker.tick()
        worker._claimer.close()
    assert row(db, behind).status == "RUNNING"


def test_the_turns_of_queues_that_are_gone_are_forgotten(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name of its own for each customer or day: every claim would send all that there ever were."""
    monkeypatch.setattr(claimer, "_TURNS", 3)
    db.execute("INSERT INTO job_limit VALUES ('queue:*', 1)")
    with working(url, registry) as (worker, _):
        for number in range(8):
            make_job(db, kind="quick", queue=f"day {number}")
            until(lambda: worker.counts.completed == number + 1)  # noqa: B023
        assert [queue for queue, _ in worker._claimer._turns] == ["day 5", "day 6", "day 7"]


def test_news_that_come_while_a_claim_looks_for_them_are_kept(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that changed again, a suspect that was recovered: they waited for the next beat."""
    relabel, claim_as_ever = limits.relabel, claim.claim
    with closing(Runtime(quick_settings(url), registry=registry, events=Events())) as runtime:
        worker = runtime.worker()
        claimer = worker._claimer

        def labelled(db: Any) -> bool:
            has_more = relabel(db)
            claimer.rules_change = True  # as the listener says
            return has_more

        def claimed(db: Any, by: Any, wanted: Any, look: claim.Look) -> claim.Claimed:
            seen = claim_as_ever(db, by, wanted, look)
            claimer.suspects_wait = look.takes_suspect  # as the duty says that recovers jobs
            return seen

        monkeypatch.setattr(limits, "relabel", labelled)
        monkeypatch.setattr(claim, "claim", claimed)
        claimer.rules_change = claimer.suspects_wait = True
        claimer._take_suspect()
        claimer._relabel()
        claimer.close()
    assert (claimer.rules_change, claimer.suspects_wait) == (True, True)


def test_whether_there_are_limits_is_known_once_a_change_of_them_was_looked_at(
    url: str, db: Db, registry: Registry
) -> None:
    """The listener says at its start that limits may have changed: each claim looked for some until the next beat."""
    with closing(Runtime(quick_settings(url), registry=registry, events=Events())) as runtime:
        claimer = runtime.worker()._claimer
        seen = []
        for sql in ("SELECT", "INSERT INTO job_limit VALUES ('queue:test', 1)", "DELETE FROM job_limit"):
            db.execute(sql)
            claimer.has_rules = claimer.rules_change = True  # as the listener says
            claimer.tick()
            seen.append(claimer.has_rules)
        claimer.close()
    assert seen == [False, True, False]

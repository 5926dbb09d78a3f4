"""How a running job keeps its lease, what it may say meanwhile, and what becomes of a lost lease, or a lost worker."""

import os
import threading
from datetime import timedelta
from typing import Any

import pytest

from snapapp.jobs import Job, enqueue, enqueue_many, events
from snapapp.jobs.errors import LeaseLost
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import leases, roster
from snapapp.jobs.rows.roster import Report
from snapapp.jobs.worker.leases.held import HeldJobs
from tests.factory import Db, ago, make_job, row, scalar
from tests.jobs.doctor.examining import member
from tests.jobs.worker.test_hooks import effects, make_effects, put_effect
from tests.jobs.worker.test_neighbours import refuse
from tests.jobs.working import Gate, quick_settings, until, until_status, working


def test_a_worker_that_lost_its_lease_cannot_complete(url: str, db: Db, registry: Registry) -> None:
    """D11, W25, promise 2: the late result is dropped, its commit with it."""
    make_effects(db)
    gate = Gate()
    registry.processor("slow", commit=put_effect)(gate)
    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "slow")
        assert job_id
        gate.wait_until_entered()
        db.execute("UPDATE snap_processing_job SET lease_seq = lease_seq + 2 WHERE id = %s", [job_id])
        gate.open.set()
        told = heard.wait_for(events.JOB_LOST)
    assert told.facts["error"] == "its result was not written"
    assert effects(db) == []
    assert row(db, job_id).status == "RUNNING"


def add_patient(registry: Registry) -> threading.Event:
    """A kind that runs until its lease is lost, and tells so."""
    stopped = threading.Event()

    @registry.processor("patient")
    def patient(job: Job) -> None:
        while not stopped.wait(0.01):
            try:
                job.raise_if_cancelled()
            except LeaseLost:
                stopped.set()
                raise

    return stopped


def test_the_beat_tells_a_job_that_its_lease_is_gone(url: str, db: Db, registry: Registry) -> None:
    stopped = add_patient(registry)
    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "patient")
        assert job_id
        until_status(db, job_id, "RUNNING")
        heard.wait_for(events.JOB_ACTIVE)
        db.execute("UPDATE snap_processing_job SET lease_seq = lease_seq + 2 WHERE id = %s", [job_id])
        assert stopped.wait(10)
        heard.wait_for(events.JOB_LOST)


def test_a_job_whose_lease_ran_out_is_stopped_while_a_beat_hangs(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stands still, and another one has been promoted: the job may run there by now."""
    stopped, thawed = add_patient(registry), threading.Event()
    with working(url, registry, lease_for=timedelta(seconds=1), beat_every=timedelta(seconds=0.2)):
        job_id = enqueue(db, "patient")
        assert job_id
        until_status(db, job_id, "RUNNING")
        monkeypatch.setattr(leases, "beat", lambda *_: thawed.wait(60))
        try:
            assert stopped.wait(10)
        finally:
            monkeypatch.undo()
            thawed.set()
            stopped.set()  # else a job that was not stopped would go on


def test_what_runs_is_seen_with_its_worker_and_since_when(url: str, db: Db, registry: Registry) -> None:
    """M44: of every host, in psql."""
    gate = Gate()
    registry.processor("long")(gate)
    running = """
        SELECT job.id, job.kind, job.queue, job.tenant, host, pid, job.started_at <= now()
          FROM snap_processing_job AS job
          JOIN job_worker ON job_worker.id = job.claimed_by AND job.id = ANY (current_jobs)
         WHERE job.status = 'RUNNING'
    """
    with working(url, registry):
        job_id = make_job(db, kind="long", queue="mail", tenant="ana")
        gate.wait_until_entered()
        until(lambda: scalar(db, "SELECT count(*) FROM job_worker WHERE current_jobs <> '{}'") == 1)
        seen = db.execute(running).fetchall()
        assert seen == [(job_id, "long", "mail", "ana", os.uname().nodename, os.getpid(), True)]
        gate.open.set()
        until(lambda: db.execute(running).fetchall() == [])


def test_a_long_job_keeps_its_lease_by_beats(url: str, db: Db, registry: Registry) -> None:
    """W26, Q44, M40, FA12: though the job holds a transaction of its own all the time."""
    gate = Gate()
    registry.processor("long")(gate)
    with working(url, registry) as (worker, _):
        job_id = enqueue(db, "long")
        assert job_id
        gate.wait_until_entered()
        first = row(db, job_id).lock_expires_at
        until(lambda: row(db, job_id).lock_expires_at > first)
        assert row(db, job_id).started_at is not None
        assert leases.recover(db) == []
        gate.open.set()
        until_status(db, job_id, "COMPLETED")
    assert worker.counts.recovered == 0


def test_a_job_that_runs_for_longer_than_a_lease_keeps_it(url: str, db: Db, registry: Registry) -> None:
    """W23, W25, R16, Q22, D9, D2: beats go on beside it; a neighbour who looks for ended leases finds none."""
    registry.processor("long")(lambda job: threading.Event().wait(5))
    brief: dict[str, Any] = {"lease_for": timedelta(seconds=1.5), "recover_every": timedelta(milliseconds=300)}
    with working(url, registry, **brief), working(url, registry, **brief):
        job_id = enqueue(db, "long")
        assert job_id
        done = until_status(db, job_id, "COMPLETED")
    assert (done.attempt_count, done.errors) == (1, [])


def test_a_job_whose_beat_postgresql_refuses_takes_its_lease_for_lost(url: str, db: Db, registry: Registry) -> None:
    """By its own clock, because nobody looks for ended leases here. Its neighbour, of the same statement, goes on."""
    ends: dict[str, BaseException | None] = {}

    def patient(job: Job) -> None:
        for _ in range(500):
            if "bad" in ends:
                break
            try:
                job.raise_if_cancelled()
            except LeaseLost as lost:
                ends[job.kind] = lost
                raise
            threading.Event().wait(0.01)

    registry.processor("bad")(patient)
    registry.processor("good")(patient)
    refuse(db, "snap_processing_job", "NEW.kind = 'bad' AND NEW.status = 'RUNNING' AND NEW.started_at IS NOT NULL")
    with working(url, registry, lease_for=timedelta(seconds=1), recover_every=timedelta(hours=1)) as (_, heard):
        bad, good = enqueue(db, "bad"), enqueue(db, "good")
        assert bad
        assert good
        heard.wait_for(events.JOB_LOST)
        until_status(db, good, "COMPLETED")
    assert [*ends] == ["bad"]


def test_a_lease_counts_from_its_own_claim_and_from_beats_that_were_for_it() -> None:
    """The answer to a claim may take long, and a beat that was sent meanwhile knows nothing of its jobs."""
    held_jobs = HeldJobs(lease_for=timedelta(seconds=10), beat_every=timedelta(seconds=2))
    early, late = (Job(number, "noop", "default", "", 0, None, None, 1, 3, 1, None, None) for number in (1, 2))
    held_jobs.add([early], claimed_at=100)
    held_jobs.confirm(held_jobs.all(), sent_at=105)
    held_jobs.add([late], claimed_at=101)  # asked for before the beat, answered after it
    assert [held_jobs.is_sure(late, now) for now in (108.9, 109.1)] == [True, False]
    assert [held_jobs.is_over(late, now) for now in (110.9, 111.1)] == [False, True]
    assert [held_jobs.is_sure(early, now) for now in (112.9, 113.1)] == [True, False]


AN_HOUR_ON = """
WITH workers AS (
    UPDATE job_worker SET beat_at = beat_at - interval '1 hour', expires_at = expires_at - interval '1 hour'
)
UPDATE snap_processing_job
   SET locked_at = locked_at - interval '1 hour', lock_expires_at = lock_expires_at - interval '1 hour'
 WHERE status = 'RUNNING'
"""


@pytest.mark.parametrize("is_taken_for_dead", [False, True])
def test_when_the_clock_of_the_database_is_set_the_living_keep_their_jobs(
    url: str, db: Db, registry: Registry, is_taken_for_dead: bool
) -> None:
    """FB1, promise 4: all leases look ended until the next beats. As after a suspend of the machine. Another worker may
    have removed our row meanwhile, because it looks as old."""
    gate = Gate()
    registry.processor("long")(gate)
    times: dict[str, Any] = {"beat_every": timedelta(seconds=2), "lease_for": timedelta(seconds=61)}
    with working(url, registry, recover_every=timedelta(hours=1), **times) as (worker, _):
        job_id = enqueue(db, "long")
        assert job_id
        gate.wait_until_entered()
        worker._duties.stop()  # only the test's own beats: none that was under way when the rows were moved
        worker._duties.wait_for("heartbeat", timeout=20)
        make_job(db, "RUNNING", claimed_by="dead", lock_expires_at=ago(seconds=1))
        until(lambda: worker.recover() == 1)
        neighbours = make_job(db, "RUNNING", claimed_by="living", lock_expires_at=ago(seconds=-60))
        roster.beat(db, member("living"), Report(), lives_for=timedelta(seconds=61))
        db.execute(AN_HOUR_ON)
        if is_taken_for_dead:
            roster.leave(db, worker.id, "lost: its heartbeat stopped")
        assert worker.recover() == 0, "before its own beat"
        worker.beat()
        assert worker.recover() == 0, "before the others' beats"
        assert row(db, neighbours).status == "RUNNING"
        of_the_living = "FROM job_worker_exit WHERE worker_id = 'living'"
        assert scalar(db, f"SELECT count(*) {of_the_living}") == 0, "neither is it taken for dead"
        until(lambda: worker.recover() == 1)
        assert scalar(db, f"SELECT reason {of_the_living}") == "lost: its heartbeat stopped"
        assert row(db, neighbours).status == "RETRY_WAIT"
        gate.open.set()
        assert until_status(db, job_id, "COMPLETED").attempt_count == 1


def test_a_worker_that_starts_after_a_step_of_the_databases_clock_takes_nobody_for_dead(
    url: str, db: Db, registry: Registry
) -> None:
    """Before its first beat it cannot know of the step."""
    registry.processor("noop")(lambda job: None)
    roster.beat(db, member("living"), Report(), lives_for=timedelta(seconds=1))
    db.execute(AN_HOUR_ON)
    with working(url, registry, recover_every=timedelta(hours=1)) as (worker, _):
        job_id = enqueue(db, "noop")
        assert job_id
        until_status(db, job_id, "COMPLETED")
        assert scalar(db, "SELECT count(*) FROM job_worker WHERE id = 'living'") == 1
        until(lambda: worker.recover() or not scalar(db, "SELECT count(*) FROM job_worker WHERE id = 'living'"))


def test_at_its_end_a_jobs_lease_is_not_extended_any_more(url: str, db: Db, registry: Registry) -> None:
    """W24, R29: those of others are."""
    gate, short_gate = Gate(), Gate()
    registry.processor("long")(gate)
    registry.processor("short")(short_gate)
    with working(url, registry) as (_, heard):
        long, short = enqueue(db, "long"), enqueue(db, "short")
        assert short
        until(lambda: any(short in event.facts["job_ids"] for event in heard.all(events.LEASES_EXTENDED)))
        short_gate.open.set()
        until_status(db, short, "COMPLETED")
        until(lambda: heard.all(events.LEASES_EXTENDED)[-1].facts["job_ids"] == [long])
        gate.open.set()


def test_what_a_job_leaves_behind_says_nothing_after_its_end(url: str, db: Db, registry: Registry) -> None:
    """W18, W22."""
    left: list[Job] = []

    @registry.processor("leaves")
    def leave(job: Job) -> None:
        job.update_progress(99)
        left.append(job)

    @registry.processor("says")
    def say(job: Job) -> None:
        job.log("something")

    with working(url, registry):
        job_id = enqueue(db, "leaves")
        assert job_id
        until_status(db, job_id, "COMPLETED")
        until(lambda: row(db, job_id).progress)
        left[0].update_progress(1)
        left[0].log("too late")
        enqueue(db, "says")  # whose words are written after those
        until(lambda: db.execute("SELECT FROM job_log WHERE message = 'something'").fetchall())
    assert row(db, job_id).progress == {"percent": 99, "note": None}
    assert db.execute("SELECT message FROM job_log").fetchall() == [("something",)]


@pytest.mark.direct
def test_words_that_cannot_be_written_are_the_workers_trouble_and_come_later(
    url: str, db: Db, registry: Registry
) -> None:
    """W20, W31."""
    gate = Gate()

    @registry.processor("chatty")
    def chatty(job: Job) -> None:
        job.log("before")
        gate(job)
        job.log("after")

    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "chatty")
        assert job_id
        until(lambda: db.execute("SELECT FROM job_log").fetchall())
        with db.transaction():
            db.execute("LOCK TABLE job_log IN EXCLUSIVE MODE")
            gate.open.set()
            waiting = "NOT granted AND relation = 'job_log'::regclass"
            until(lambda: db.execute(f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE {waiting}").fetchall())
        assert until_status(db, job_id, "COMPLETED").errors == []
        until(lambda: db.execute("SELECT message FROM job_log ORDER BY id").fetchall() == [("before",), ("after",)])
        until(lambda: "write notes" in [event.facts["doing"] for event in heard.all("worker.error")])


def test_a_row_of_the_roster_lasts_as_long_as_a_lease(url: str, db: Db, registry: Registry) -> None:
    """M43."""
    registry.processor("any")(lambda job: None)
    with working(url, registry, lease_for=timedelta(seconds=7)):
        lasts = "SELECT expires_at - beat_at FROM job_worker"
        until(lambda: db.execute(lasts).fetchall())
        assert scalar(db, lasts) == timedelta(seconds=7)
        first = scalar(db, "SELECT beat_at FROM job_worker")
        until(lambda: scalar(db, "SELECT beat_at FROM job_worker") > first)
        assert scalar(db, lasts) == timedelta(seconds=7)


def test_a_dead_neighbours_jobs_come_back_at_once_and_only_the_running_one_is_charged(
    url: str, db: Db, registry: Registry
) -> None:
    """Promise 4 and 3, D2, D10, Q25: its end is seen, and the marks it left say what it was running."""
    registry.processor("any")(lambda job: None)
    with working(url, registry) as (worker, _):
        until(lambda: db.execute("SELECT FROM job_worker").fetchall())
        with db.transaction():  # a sweep between the two would find a dead worker without jobs
            job_id = make_job(db, "RUNNING", kind="any", claimed_by="dead", lock_expires_at=ago(hours=-1))
            db.execute(
                "INSERT INTO job_worker"
                " (id, name, host, machine, pid, pid_started, queues, kinds, slots, state_file, expires_at)"
                " SELECT 'dead', 'dead', host, machine, 2147483, 1, '{}', '{}', 4, NULL, now() + interval '1 hour'"
                "   FROM job_worker"
            )
        done = until_status(db, job_id, "COMPLETED", within=5)
        assert db.execute("SELECT reason FROM job_worker_exit WHERE worker_id = 'dead'").fetchall() == [
            ("lost: its process is gone",)
        ]
    assert done.attempt_count == 2
    assert done.errors[0]["error"] == "worker lost"
    assert worker.counts.recovered == 1


def test_a_suspect_begins_with_nothing_beside_it_and_keeps_nobody_away(url: str, db: Db, registry: Registry) -> None:
    """Promise 3: so that another loss names the culprit. It waits for an empty worker; others do not wait for it."""
    gate = Gate()
    beside: list[int] = []

    @registry.processor("suspect")
    def suspect(job: Job) -> None:
        beside.append(len(running) if (running := held()) else 0)

    registry.processor("other")(gate)

    def held() -> list[tuple[Any, ...]]:
        with runtime.connect("look") as look:
            return look.execute("SELECT id FROM snap_processing_job WHERE status = 'RUNNING'").fetchall()

    runtime = Runtime(quick_settings(url), registry=registry)
    with working(url, registry, concurrency=4):
        enqueue_many(db, [{"kind": "other"}] * 3)
        gate.wait_until_entered(3)
        job_id = make_job(
            db, "RETRY_WAIT", kind="suspect", losses=2, gate="alone", attempt_count=1, next_retry_at=ago(seconds=1)
        )
        enqueue_many(db, [{"kind": "other"}] * 3)
        gate.wait_until_entered()
        assert row(db, job_id).status == "RETRY_WAIT"
        gate.open.set()
        until_status(db, job_id, "COMPLETED")
        until(lambda: db.execute("SELECT FROM snap_processing_job WHERE status <> 'COMPLETED'").fetchall() == [])
    runtime.close()
    assert beside == [1]

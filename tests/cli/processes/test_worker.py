"""`snapapp worker`: it drains, stops, is told twice, and waits for its database. Those without the product are begun as
people do."""

import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from snapapp.jobs.os import processes
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.database import connect
from snapapp.jobs.rows.people import overviews
from snapapp.jobs.rows.roster import Member, Report
from tests.commands import NOWHERE, Call, until_status
from tests.databases import Postgres
from tests.factory import Db, hence, make_job, make_jobs, row, statuses
from tests.jobs.working import until
from tests.running import Running

STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def test_drain_runs_what_is_due_and_leaves_the_rest(call: Call, db: Db) -> None:
    """R34."""
    due = make_jobs(db, 20, kind="demo.hello", queue="demo")
    slow = [make_job(db, kind="demo.sleep", payload={"seconds": 0.3}) for _ in range(250)]  # more than it has slots
    failing = make_job(db, kind="demo.fail")
    later, unknown = make_job(db, kind="demo.hello", next_retry_at=hence(hours=1)), make_job(db, kind="unknown")
    assert call("worker", "--drain").code == 0
    found = statuses(db)
    assert {found[job_id] for job_id in [*due, *slow]} == {"COMPLETED"}
    assert [found[job_id] for job_id in (failing, later, unknown)] == ["RETRY_WAIT", "PENDING", "PENDING"]
    assert overviews.workers(db) == []


def test_drain_keeps_to_its_queues(call: Call, db: Db) -> None:
    ours, theirs = (make_job(db, kind="demo.hello", queue=queue) for queue in ("a", "b"))
    assert call("worker", "--drain", "--queues", "a,c", "--name", "ana").code == 0
    assert statuses(db) == {ours: "COMPLETED", theirs: "PENDING"}
    assert db.execute("SELECT name, queues, reason FROM job_worker_exit").fetchall() == [("ana", ["a", "c"], "done")]


@pytest.mark.parametrize(
    ("typed", "settings"),
    [
        ("worker --processors tests.jobs.kinds.plain", {}),
        ("worker", {"SNAPAPP_PROCESSORS": "tests.jobs.kinds.plain", "SNAPAPP_PRODUCT": "false"}),
    ],
)
def test_a_worker_without_the_product_knows_only_the_kinds_it_is_told(
    run: Callable[..., Running], url: str, db: Db, typed: str, settings: dict[str, str]
) -> None:
    job = make_job(db, kind="plain.greet", payload={"name": "Ana"})
    worker = run(*typed.split(), SNAPAPP_DATABASE_URL=url, **settings)
    until_status(db, job, "COMPLETED")
    assert [one.kinds for one in overviews.workers(db)] == [["plain.apart", "plain.greet"]]
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0


def test_drain_takes_over_from_a_dead_worker(call: Call, db: Db) -> None:
    lost = make_job(db, "RUNNING", kind="demo.hello", claimed_by="dead", max_attempts=3)
    dead = Member("dead", "dead", "box", processes.machine(), 2**22 + 1, 1, [], ["demo.hello"], 1)
    roster.beat(db, dead, Report(), lives_for=timedelta(minutes=1))
    assert call("worker", "--drain").code == 0
    assert row(db, lost).status == "COMPLETED"


def test_once_runs_one_batch_and_no_more(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_WORKER_BATCH_SIZE", "2")
    make_jobs(db, 10, kind="demo.hello")
    for done in (2, 4):
        assert call("worker", "--once").code == 0
        assert sorted(statuses(db).values()) == ["COMPLETED"] * done + ["PENDING"] * (10 - done)
    assert db.execute("SELECT sum(attempt_count) FROM snap_processing_job").fetchone() == (4,)


def test_once_with_an_empty_queue_ends(call: Call, db: Db) -> None:
    make_job(db, kind="unknown")
    assert call("worker", "--once").code == 0


@pytest.mark.parametrize("stop", STOPS)
def test_a_stopped_worker_finishes_what_it_runs(
    url: str, db: Db, quick: Callable[..., Running], stop: signal.Signals
) -> None:
    """R1. What was claimed and has not begun is handed back, so the job must have said something."""
    worker = quick("worker", SNAPAPP_DATABASE_URL=url, SNAPAPP_JOB_HEARTBEAT_INTERVAL_MS="200")
    job_id, later = (make_job(db, kind="demo.sleep", payload={"seconds": 2}, **more) for more in ({}, LATER))
    until(lambda: row(db, job_id).progress is not None)
    worker.signal(stop)
    assert worker.end() == 0
    assert (row(db, job_id).status, row(db, later).status) == ("COMPLETED", "PENDING")
    assert overviews.workers(db) == []
    assert worker.family() == []


IGNORE = """if True:
    import os, signal, sys
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.execv(sys.argv[1], sys.argv[1:])"""


class Deaf(Running):
    """Begun by a program that ignores how its children end, which a new program inherits."""

    within = (sys.executable, "-c", IGNORE)


def test_a_worker_hears_of_its_children_also_where_whoever_began_it_does_not(url: str, db: Db, tmp_path: Path) -> None:
    job_id = make_job(db, kind="demo.crunch", payload={"seconds": 0})
    worker = Deaf(tmp_path, "worker", "--drain", SNAPAPP_DATABASE_URL=url)
    assert worker.end() == 0, worker.said()
    assert row(db, job_id).status == "COMPLETED"


LATER: dict[str, Any] = {"next_retry_at": hence(hours=1)}


@pytest.mark.parametrize("kind", ["demo.sleep", "demo.crunch"])
def test_a_second_signal_ends_a_worker_now_and_hands_its_job_back(
    url: str, db: Db, quick: Callable[..., Running], kind: str
) -> None:
    """FD8."""
    often = {"SNAPAPP_JOB_HEARTBEAT_INTERVAL_MS": "500"}
    worker = quick("worker", SNAPAPP_DATABASE_URL=url, SNAPAPP_SHUTDOWN_GRACE_MS="3600000", **often)
    job_id = make_job(db, kind=kind, payload={"seconds": 3600})
    until_status(db, job_id, "RUNNING")
    until(lambda: row(db, job_id).progress is not None)
    worker.signal(signal.SIGINT)
    worker.hear("1 job runs and may finish within 3600 s. A second signal (Ctrl-C) ends them now")
    # two at once reach the threads of a process in any order, so not before the first was heard
    until(lambda: db.execute("SELECT status FROM job_worker").fetchall() == [("DRAINING",)])
    worker.signal(signal.SIGTERM)
    assert worker.end() == 128 + signal.SIGTERM
    assert (row(db, job_id).status, row(db, job_id).attempt_count, row(db, job_id).interruptions) == ("PENDING", 0, 1)
    assert worker.family() == []


def test_the_grace_ends_a_worker_that_would_go_on(url: str, db: Db, quick: Callable[..., Running]) -> None:
    worker = quick("worker", SNAPAPP_DATABASE_URL=url, SNAPAPP_SHUTDOWN_GRACE_MS="500")
    job_id = make_job(db, kind="demo.sleep", payload={"seconds": 3600})
    until_status(db, job_id, "RUNNING")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    assert (row(db, job_id).status, row(db, job_id).attempt_count) == ("PENDING", 0)


def test_a_worker_waits_for_a_database_that_is_away_at_its_start(
    server: Postgres, db: Db, quick: Callable[..., Running]
) -> None:
    worker = quick("worker", SNAPAPP_DATABASE_URL=server.url_of("not_yet"))
    worker.hear("The database cannot be reached, trying again until it can")
    admin = psycopg.connect(server.url_of("postgres"), autocommit=True)
    admin.execute("CREATE DATABASE not_yet TEMPLATE migrated")
    worker.hear("worker.started")
    with connect(server.url_of("not_yet"), name="test") as there:
        job_id = make_job(there, kind="demo.hello")
        until_status(there, job_id, "COMPLETED")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    admin.execute("DROP DATABASE not_yet WITH (FORCE)")
    admin.close()


def test_a_worker_that_still_waits_for_its_database_stops_at_once(quick: Callable[..., Running]) -> None:
    worker = quick("worker", SNAPAPP_DATABASE_URL=NOWHERE)
    worker.hear("trying again")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    assert "Traceback" not in worker.said()

"""The database is away: at the start, in the middle, for want of disk. Nothing is lost, nothing runs twice."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from snapapp import postgres
from snapapp.jobs import Job, enqueue_many, events
from snapapp.jobs.registry import Registry
from tests.factory import Db, scalar
from tests.jobs.executors.test_executors import put
from tests.jobs.working import PATIENCE, Gate, Heard, put_effect, until, until_status, working

CALM: dict[str, Any] = {"beat_every": timedelta(seconds=1), "lease_for": timedelta(seconds=20)}


@pytest.fixture
def home(make_home: Callable[[Path], None]) -> Iterator[Path]:
    """Of a server with a migrated database."""
    with tempfile.TemporaryDirectory(prefix="snapapp-outage-") as folder:
        make_home(Path(folder))
        yield Path(folder)


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.processor("plain")(lambda job: threading.Event().wait(0.002))
    registry.processor("paint", commit=put_effect)(lambda job: threading.Event().wait(0.002))
    return registry


def prepare(url: str, jobs: int) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE IF NOT EXISTS effect (job_id bigint)")
        enqueue_many(db, [{"kind": "plain"}, {"kind": "paint"}] * (jobs // 2))


def is_done(url: str) -> bool:
    with psycopg.connect(url) as db:
        return not db.execute("SELECT FROM snap_processing_job WHERE status <> 'COMPLETED' LIMIT 1").fetchall()


def assert_each_ran_once(url: str, jobs: int) -> None:
    with psycopg.connect(url) as db:
        counts = "SELECT count(*), count(DISTINCT job_id) FROM effect"
        assert db.execute(counts).fetchall() == [(jobs // 2, jobs // 2)]
        attempts = "SELECT count(*), max(attempt_count) FROM snap_processing_job WHERE status = 'COMPLETED'"
        assert db.execute(attempts).fetchall() == [(jobs, 1)]


def test_a_server_that_stops_and_comes_back_costs_no_job_and_no_attempt(home: Path, registry: Registry) -> None:
    """Promise 7: the worker backs off, results wait, leases are compared, not clocks."""
    gate = Gate()
    registry.processor("late")(gate)
    server = postgres.start(home, create=False)
    with psycopg.connect(server.url, autocommit=True) as db:
        put(db, "late")
    prepare(server.url, 400)
    with working(server.url, registry, **CALM) as (worker, heard):
        gate.wait_until_entered()
        until(lambda: worker.counts.completed > 100)
        server.stop()
        gate.open.set()  # at least this result is there while no server is
        until(lambda: worker.counts.lost or tries_to_settle(heard) > 2)
        assert worker.counts.lost == 0
        with postgres.start(home, create=False) as again:
            until(lambda: is_done(again.url), within=60)
            assert_each_ran_once(again.url, 401)
            worker.stop()


def tries_to_settle(heard: Heard) -> int:
    return sum(error.facts["doing"] == "settle" for error in heard.all(events.WORKER_ERROR))


@pytest.mark.at_length  # cli/processes/test_worker waits for a database that is away, in every run
def test_a_worker_may_start_before_its_database(home: Path, registry: Registry) -> None:
    with postgres.start(home, create=False) as server:
        prepare(server.url, 20)
    with working(server.url, registry, **CALM) as (worker, heard):
        assert "connection" in heard.wait_for(events.WORKER_ERROR).facts["error"]
        with postgres.start(home, create=False):
            until(lambda: is_done(server.url))
            worker.stop()


@pytest.mark.at_length  # process/test_shutdown keeps to it in every run
def test_a_stop_while_the_database_is_away_keeps_to_its_grace(home: Path, registry: Registry) -> None:
    with postgres.start(home, create=False) as server:
        prepare(server.url, 200)
        brief = {"beat_every": timedelta(seconds=1), "lease_for": timedelta(seconds=4)}
        with working(server.url, registry, context=None, **brief) as (worker, heard):
            until(lambda: worker.counts.completed > 10)
            server.stop()
            heard.wait_for(events.WORKER_ERROR)
            stopper = threading.Thread(target=worker.stop, args=[timedelta(seconds=3)])
            stopper.start()
            stopper.join(10)
            assert not stopper.is_alive()
    with postgres.start(home, create=False) as again, working(again.url, registry, lease_for=timedelta(seconds=2)):
        until(lambda: is_done(again.url), within=60)


def test_a_database_that_is_read_only_for_a_while_costs_no_attempt(url: str, db: Db) -> None:
    """Providers make it so while a disk is full; a session that begins meanwhile stays read-only."""
    registry, running, may_end = Registry(), threading.Event(), threading.Event()

    @registry.processor("paint", commit=put_effect)
    def paint(_: Job) -> None:
        running.set()
        may_end.wait(PATIENCE)

    db.execute("CREATE TABLE effect (job_id bigint)")
    with working(url, registry, **CALM) as (_, heard):
        job_id = put(db, "paint")
        assert running.wait(PATIENCE)
        db.execute(f"ALTER DATABASE {db.info.dbname} SET default_transaction_read_only = on")
        may_end.set()
        until(lambda: "settle with hook" in [error.facts["doing"] for error in heard.all(events.WORKER_ERROR)])
        db.execute(f"ALTER DATABASE {db.info.dbname} RESET default_transaction_read_only")
        done = until_status(db, job_id, "COMPLETED", "RETRY_WAIT")
    assert (done.status, done.attempt_count) == ("COMPLETED", 1)
    assert scalar(db, "SELECT count(*) FROM effect") == 1


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="snapapp-disk-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", folder]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            pytest.skip("there is no small disk: whoever mounts this one must be root")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_says_so_and_loses_nothing(registry: Registry, make_home: Callable[[Path], None]) -> None:
    """FC16: enqueueing fails with PostgreSQL's own words; when there is room again, everything goes on."""
    with small_disk(150) as disk:
        make_home(disk)
        server = postgres.start(disk, create=False)
        prepare(server.url, 200)
        with working(server.url, registry, **CALM) as (worker, heard):
            until(lambda: worker.counts.completed > 10)
            with pytest.raises(psycopg.Error, match=r"No space left|terminating|connection|closed"):
                fill(server.url, disk / "ballast")
            (disk / "ballast").unlink()
            with postgres.start(disk, create=False) as again:  # a server that could not write its log ends
                until(lambda: is_done(again.url), within=60)
                with psycopg.connect(again.url) as db:
                    assert db.execute("SELECT count(DISTINCT job_id) = count(*) FROM effect").fetchall() == [(True,)]
                worker.stop()
            server.stop()
        assert heard.all(events.JOB_FAILED) == []


def fill(url: str, ballast: Path) -> None:
    """Takes the disk's last byte, then enqueues until PostgreSQL notices."""
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(b"\0" * 65536)
                file.flush()
        except OSError:
            pass
    with psycopg.connect(url, autocommit=True) as db:
        for _ in range(1000):
            enqueue_many(db, [{"kind": "plain", "payload": {"padding": os.urandom(500).hex()}}] * 100)


@pytest.mark.direct
def test_results_wait_for_a_right_that_was_revoked(url: str, db: Db) -> None:
    """They were dropped, each with its lease, and all jobs ran again."""
    registry = Registry()
    gate = Gate()
    registry.processor("plain")(gate)
    registry.processor("paint", commit=put_effect)(gate)
    db.execute("CREATE TABLE effect (job_id bigint)")
    db.execute("CREATE ROLE deprived LOGIN")
    try:
        db.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO deprived")
        its_url = sqlalchemy.make_url(url).set(username="deprived").render_as_string(hide_password=False)
        with working(its_url, registry, **CALM) as (worker, heard):
            jobs = [put(db, "plain"), put(db, "paint")]
            gate.wait_until_entered(times=2)
            db.execute("REVOKE UPDATE ON snap_processing_job FROM deprived")
            gate.open.set()
            until(lambda: {"settle", "settle with hook"} <= {e.facts["doing"] for e in heard.all(events.WORKER_ERROR)})
            assert worker.counts.lost == 0
            db.execute("GRANT UPDATE ON snap_processing_job TO deprived")
            assert [until_status(db, job_id, "COMPLETED").attempt_count for job_id in jobs] == [1, 1]
        assert heard.all(events.SETTLE_DROPPED) == []
        assert db.execute("SELECT job_id FROM effect").fetchall() == [(jobs[1],)]
    finally:
        db.execute("DROP OWNED BY deprived")
        db.execute("DROP ROLE deprived")

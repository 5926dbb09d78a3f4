"""One process that serves and works: with a database and without, with its worker and without."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from snapapp import postgres
from snapapp.domain import tenants
from snapapp.jobs.rows.database import connect
from snapapp.postgres import connections
from snapapp.postgres.migrate import migrate
from snapapp.process import monolith
from snapapp.process.monolith import Monolith
from snapapp.settings.table import Environment, Settings
from tests import ROOT
from tests.commands import until_status
from tests.databases import Postgres
from tests.factory import Db, make_job, make_jobs, row, statuses
from tests.jobs.working import until
from tests.postgres.clusters import is_stopped, pid_of
from tests.running import Running, Served

Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[Served] = []

    def begin(url: str, **settings: str) -> Served:
        started.append(Served(tmp_path, SNAPAPP_DATABASE_URL=url, **settings))
        return started[-1]

    yield begin
    for served in started:
        served.process.kill()
        served.process.wait()


def test_one_process_answers_and_works(url: str, db: Db, serve: Serve) -> None:
    """S1, S2, S9: the worker is a part of the API process, and its health says so."""
    served = serve(url).until_up()
    job_id = make_job(db, kind="demo.hello")
    until(lambda: row(db, job_id).status == "COMPLETED")
    health = served.ask("/actuator/health")
    assert (health.status, health.body["status"]) == (200, "UP")
    assert {name: part["status"] for name, part in health.body["components"].items()} == {
        "database": "UP",
        "worker": "UP",
        "listener": "UP",
        "disk": "UP",
    }
    assert served.ask("/actuator/liveness").body == served.ask("/actuator/health/liveness").body == {"status": "UP"}
    assert served.ask("/actuator/readiness").status == 200


def test_a_start_that_migrates_nothing_loads_nothing_for_it(url: str) -> None:
    """An eighth of the memory of `serve`, when it imported them."""
    script = f"""
import sys
import snapapp.app
from snapapp.process.monolith import bring_up_to_date
from snapapp.settings.table import Settings
bring_up_to_date({url!r}, Settings())
print({{"alembic", "mako", "pygments", "obstore"}} & {{name.partition(".")[0] for name in sys.modules}})
"""
    said = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert said.stdout.strip() == "set()"


@pytest.mark.at_length  # cli/processes/test_serve has the worker off in every run
def test_without_its_worker_nothing_is_claimed_and_another_process_takes_over(
    url: str, db: Db, serve: Serve, tmp_path: Path
) -> None:
    served = serve(url, SNAPAPP_WORKER_ENABLED="false").until_up()
    made = make_jobs(db, 10, kind="demo.hello")
    assert served.ask("/actuator/health").body["components"]["worker"] == {"status": "UP", "state": "off"}
    assert db.execute("SELECT count(*) FROM job_worker").fetchone() == (0,)
    assert set(statuses(db).values()) == {"PENDING"}
    worker = Running(tmp_path, "worker", SNAPAPP_DATABASE_URL=url)
    try:
        until(lambda: {statuses(db)[job_id] for job_id in made} == {"COMPLETED"})
    finally:
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0
    assert served.ask("/actuator/health").status == 200


@pytest.mark.at_length  # one that goes and comes back is, below, and cli/processes/test_worker waits, in every run
def test_a_database_that_comes_late_is_waited_for(tmp_path: Path, serve: Serve) -> None:
    """Promise 7, from the first second: the process stays, says why, and begins by itself."""
    with postgres.start(tmp_path / "late", create=True) as server:
        url = server.url
    served = serve(url, SNAPAPP_DEMO="false").until_up()
    health = served.ask("/actuator/health")
    assert (health.status, health.body["status"]) == (503, "DOWN")
    assert "onnection" in health.body["components"]["database"]["error"]
    assert served.ask("/actuator/readiness").status == 503
    assert served.ask("/actuator/liveness").status == 200
    refused = served.ask("/internal/jobs/1")
    assert (refused.status, refused.body["message"]) == (503, "The database is away, try again")
    assert refused.headers["retry-after"]
    with postgres.start(tmp_path / "late", create=False):
        until(lambda: served.ask("/actuator/health").status == 200)
        with connect(url, name="test") as db:
            job_id = make_job(db, kind="demo.hello")
            until(lambda: row(db, job_id).status == "COMPLETED")
        assert served.ask(f"/internal/jobs/{job_id}").body["status"] == "COMPLETED"
        served.signal(signal.SIGTERM)
        assert served.end() == 0
    assert "Traceback" not in served.said()


def test_a_database_that_goes_away_is_missed_aloud_and_found_again(
    tmp_path: Path, serve: Serve, make_home: Callable[[Path], None]
) -> None:
    (tmp_path / "there").mkdir()
    make_home(tmp_path / "there")
    server = postgres.start(tmp_path / "there", create=False)
    served = serve(server.url, SNAPAPP_JOB_HEARTBEAT_INTERVAL_MS="1000", SNAPAPP_DEMO="false").until_up()
    # the first answers go out before the worker has beaten
    until(lambda: served.ask("/actuator/health").status == 200)
    server.stop()
    until(lambda: served.ask("/actuator/health").status == 503)
    assert served.ask("/internal/jobs/1").status == 503
    assert served.ask("/actuator/liveness").status == 200
    with postgres.start(tmp_path / "there", create=False) as again, connect(again.url, name="test") as db:
        until(lambda: served.ask("/actuator/health").status == 200)
        job_id = make_job(db, kind="demo.hello")
        until(lambda: row(db, job_id).status == "COMPLETED")
        assert served.ask(f"/internal/jobs/{job_id}").status == 200
        served.signal(signal.SIGTERM)
        assert served.end() == 0


def test_a_read_only_database_is_said_to_be_so_and_written_to_when_it_is_no_longer(
    url: str, db: Db, serve: Serve
) -> None:
    served = serve(url, SNAPAPP_WORKER_ENABLED="false").until_up()
    job = {"kind": "demo.hello", "payload": {}}
    until(lambda: served.ask("/internal/jobs", "POST", job).status == 201)
    db.execute(f"ALTER DATABASE {db.info.dbname} SET default_transaction_read_only = on")
    db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    until(lambda: served.ask("/actuator/health").status == 503)
    database = served.ask("/actuator/health").body["components"]["database"]
    assert database["error"] == "it accepts no writes: default_transaction_read_only is on"
    assert served.ask("/actuator/readiness").status == 200, "it can be read"
    refused = served.ask("/internal/jobs", "POST", job)
    assert (refused.status, refused.body["message"]) == (503, "The database takes no writes at the moment, try again")
    db.execute(f"ALTER DATABASE {db.info.dbname} RESET default_transaction_read_only")
    until(lambda: served.ask("/actuator/health").status == 200)
    assert served.ask("/internal/jobs", "POST", job).status == 201


# a worker has the same keeper
@pytest.mark.at_length  # postgres/test_server has a killed server, and a database that goes away is above, in every run
@pytest.mark.parametrize("command", ["serve", pytest.param("worker", marks=pytest.mark.at_length)])
def test_an_embedded_server_that_is_killed_is_started_again(
    tmp_path: Path, serve: Serve, run: Callable[..., Running], command: str
) -> None:
    """Promise 7: nobody types anything."""
    with postgres.start(tmp_path, create=True) as server:
        migrate(server.url)
        here = {"SNAPAPP_DATA_DIR": str(tmp_path), "SNAPAPP_DEMO": "false"}
        running = serve("", **here) if command == "serve" else run(command, **here)
        with connect(server.url, name="test") as db:
            until_status(db, make_job(db, kind="demo.hello"), "COMPLETED")
    os.kill(pid_of(tmp_path), signal.SIGKILL)
    running.hear("PostgreSQL had died and serves")
    with connect(server.url, name="test") as db:
        until_status(db, make_job(db, kind="demo.hello"), "COMPLETED")
    if isinstance(running, Served):
        assert running.ask("/v2/videos").status == 200
        assert running.ask("/actuator/health").status == 200
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    assert is_stopped(tmp_path)


# --- clear errors at the start ----------------------------------------------------------------------------------


def test_more_connections_than_the_server_allows_are_refused_at_the_start(url: str, serve: Serve) -> None:
    served = serve(url, SNAPAPP_WEB_CONNECTIONS="200")
    assert served.end() == 1
    assert "This process may need 2" in served.said()
    assert "lower SNAPAPP_WEB_CONNECTIONS" in served.said()
    assert "Traceback" not in served.said()


def test_a_chosen_port_that_is_taken_is_an_error(url: str, serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        served = serve(url, SNAPAPP_PORT=str(port))
        assert served.end() == 1
    assert f"Cannot listen on 127.0.0.1: port {port} in use" in served.said()


@pytest.mark.at_length  # cli/processes/test_serve has a port that is taken, in every run
def test_where_nobody_chose_a_port_the_next_free_one_is_taken(url: str, serve: Serve) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        except OSError:
            pass  # then somebody else has it, which is as good
        served = serve(url, SNAPAPP_PORT="").until_up()
        assert 8000 < served.port <= 8020


def test_prod_refuses_a_schema_that_is_not_current(server: Postgres, empty_url: str, serve: Serve) -> None:
    served = serve(empty_url, **PROD)
    assert served.end() == 1
    assert "type `snapapp migrate`" in served.said()


def test_prod_refuses_to_leave_internal_open(url: str, serve: Serve) -> None:
    served = serve(url, **PROD | {"SNAPAPP_INTERNAL_TOKEN": ""})
    assert served.end() == 1
    assert "SNAPAPP_INTERNAL_TOKEN is required in prod" in served.said()


PROD: dict[str, Any] = {
    "SNAPAPP_ENV": "prod",
    "SNAPAPP_INTERNAL_TOKEN": "a-token-for-the-tests",
    "SNAPAPP_SIGNING_SECRET": "a-secret-of-the-tests-that-signs-links",
}


def test_a_house_that_is_told_to_leave_before_it_begins_does_not_wait(url: str, tmp_path: Path) -> None:
    process = Monolith(replace(Settings(), database_url=url, data_dir=tmp_path))
    process.leave()
    began = monotonic()
    process.start()
    process.stop()
    assert monotonic() - began < 10


def test_a_start_that_cannot_keep_the_secret_of_links_says_so(url: str, serve: Serve, tmp_path: Path) -> None:
    """It was made for the first link: on a disk that was full by then, reads were answered with 500."""
    (tmp_path / "full").write_bytes(b"")
    served = serve(url, SNAPAPP_DATA_DIR=str(tmp_path / "full"))
    assert served.end() == 1
    last = served.said().strip().splitlines()[-1]
    assert "full/signing-secret cannot keep the secret that signs media links" in last


@pytest.mark.parametrize("web_first", [True, False])
def test_the_worker_waits_for_requests_only_where_the_web_comes_first(
    web_first: bool, url: str, db: Db, tmp_path: Path
) -> None:
    process = Monolith(replace(Settings(), database_url=url, data_dir=tmp_path, web_first=web_first, worker_children=0))
    process.start()
    try:
        until(lambda: process.worker is not None)
        process.web_priority.arrive()
        job_id = make_job(db, kind="demo.hello")
        until(lambda: row(db, job_id).status == "COMPLETED")
        process.web_priority.depart()
        assert (process.web_priority.held_back > 0) is web_first
    finally:
        process.stop()


def test_a_refusal_that_comes_after_the_start_is_told_and_tried_again(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is silent for half a minute, and then has another schema than this code needs."""
    monkeypatch.setattr(monolith, "_OPEN_WITHIN", 0.0)
    given: dict[str, Any] = {"env": Environment.PROD, "worker_enabled": False, "data_dir": tmp_path}
    process = Monolith(replace(Settings(), database_url=empty_url, internal_token="x" * 32, **given))
    process.start()
    try:
        until(lambda: "type `snapapp migrate`" in str(process.waits_for))
        migrate(empty_url)
        until(lambda: process.waits_for is None)
    finally:
        process.stop()


def test_a_stop_cuts_the_requests_that_wait_for_a_silent_database(url: str, db: Db, serve: Serve) -> None:
    """FD6: their threads would keep the process for ever: SIGTERM, grace, second signal, all in vain."""
    served = serve(url, SNAPAPP_WORKER_ENABLED="false", SNAPAPP_SHUTDOWN_GRACE_MS="1000").until_up()
    assert served.ask("/internal/jobs").status == 200
    frozen = [pid for (pid,) in db.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'snapapp web'")]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
            connection.sendall(b"GET /internal/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: served.ask("/actuator/metrics/web.pool.in.use").body["measurements"][0]["value"] == 1)
            served.signal(signal.SIGTERM)
            assert served.end() == 0
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert frozen


def test_while_every_request_waits_for_the_database_we_still_say_that_we_live(url: str, db: Db, serve: Serve) -> None:
    """A slow database must not make whoever watches us restart us."""
    served = serve(url, SNAPAPP_WORKER_ENABLED="false").until_up()
    head = b"GET /internal/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with ExitStack() as stack:
        stack.enter_context(db.transaction())
        db.execute("LOCK TABLE snap_processing_job")
        for _ in range(60):  # more than there are threads for them
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=20)).sendall(head)
        until(lambda: served.ask("/actuator/metrics/web.pool.in.use").body["measurements"][0]["value"] >= 5)
        began = monotonic()
        statuses = [served.ask(path).status for path in ("/actuator/liveness", "/actuator/readiness", "/", "/nothing")]
        took = monotonic() - began
    assert statuses == [200, 200, 200, 404]
    assert took < 5, "by threads the first alone would take the 5 s that a request waits for a connection"


def test_prod_refuses_the_token_that_everybody_knows(url: str, serve: Serve) -> None:
    """S34: where tokens are required, the seeded one must be gone."""
    served = serve(url, **PROD, SNAPAPP_REQUIRE_API_TOKEN="true")
    assert served.end() == 1
    assert "type `snapapp tenants rotate-token default`" in served.said()
    with connections.transaction(url) as connection:
        tenants.rotate_token(connection, "default")
    serve(url, **PROD, SNAPAPP_REQUIRE_API_TOKEN="true").until_up()


def test_prod_warns_where_no_token_is_required(url: str, serve: Serve) -> None:
    served = serve(url, **PROD).until_up()
    served.hear("SNAPAPP_REQUIRE_API_TOKEN is false")

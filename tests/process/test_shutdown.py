"""A signal to the process that serves and works: nobody is cut off, no attempt is charged, no process is left."""

import asyncio
import dataclasses
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from time import monotonic
from unittest.mock import ANY

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from snapapp.cli.processes import service
from snapapp.cli.processes.service import Server
from snapapp.jobs.os.signals import handled
from snapapp.process.monolith import Monolith
from snapapp.process.shutdown import Shutdown
from snapapp.settings.table import Settings
from tests.factory import Db, make_job, make_jobs, row
from tests.jobs.working import until
from tests.running import Served, is_open

Serve = Callable[..., Served]
GRACE = 20.0


class ServedByUvicorn(Served):
    """The same application under uvicorn's own command, as a stranger would start it."""

    is_warm = False
    announced = r"Uvicorn running on http://127\.0\.0\.1:(\d+)"

    def __init__(self, folder: Path, *more: str, **settings: str) -> None:
        self.module = ("uvicorn",)
        self.command = ("snapapp.app:app", "--port", "0", *more)
        super().__init__(folder, **settings)


# What `snapapp serve` does in every run.
at_length = pytest.mark.at_length
under_both = pytest.mark.parametrize("serve", ["serve", pytest.param("uvicorn", marks=at_length)], indirect=True)


@pytest.fixture
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serve]:
    started: list[Served] = []

    def begin(url: str, **settings: str) -> Served:
        kind = Served if request.param == "serve" else ServedByUvicorn
        started.append(kind(tmp_path, SNAPAPP_DATABASE_URL=url, **settings))
        return started[-1]

    yield begin
    for served in started:
        served.process.kill()
        served.process.wait()


def assert_ended_well(served: Served, by: signal.Signals = signal.SIGTERM) -> None:
    """`snapapp serve` says 0; uvicorn's own command, when all is done, dies of the signal."""
    assert served.end() in ((0,) if type(served) is Served else (-by, 128 + by, 0)), served.said()
    assert "Traceback" not in served.said()
    until(lambda: not served.family())


@pytest.mark.parametrize(
    ("serve", "number"),
    [
        ("serve", signal.SIGTERM),
        ("serve", signal.SIGINT),
        ("serve", signal.SIGHUP),
        pytest.param("uvicorn", signal.SIGTERM, marks=at_length),
        pytest.param("uvicorn", signal.SIGINT, marks=at_length),
        pytest.param("uvicorn", signal.SIGHUP, marks=at_length),
    ],
    indirect=["serve"],
)
def test_what_runs_is_finished_and_what_waits_is_left_for_others(
    url: str, db: Db, serve: Serve, number: signal.Signals
) -> None:
    """W38, W40: close() takes no more jobs and drains. What was claimed and has not begun goes back, so all must have
    said something."""
    served = serve(url, SNAPAPP_JOB_HEARTBEAT_INTERVAL_MS="200").until_up()
    running = make_jobs(db, 3, kind="demo.sleep", payload={"seconds": 2})
    until(lambda: all(row(db, job_id).progress is not None for job_id in running))
    served.signal(number)
    assert_ended_well(served, by=signal.SIGTERM if number is signal.SIGHUP else number)
    assert {row(db, job_id).status for job_id in running} == {"COMPLETED"}
    assert db.execute("SELECT count(*) FROM job_worker").fetchone() == (0,)
    assert db.execute("SELECT reason FROM job_worker_exit").fetchall() == [(number.name,)]


@under_both
def test_a_request_whose_body_is_still_on_its_way_is_answered(url: str, db: Db, serve: Serve) -> None:
    served = serve(url).until_up()
    body = b'{"kind": "demo.hello", "payload": {"name": "slow"}}'
    with socket.create_connection(("127.0.0.1", served.port), timeout=GRACE) as connection:
        head = "POST /internal/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:10])
        until(lambda: served.ask("/actuator/liveness").status == 200)
        served.signal(signal.SIGTERM)
        until(lambda: not is_open(served.port))
        connection.sendall(body[10:])
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 201"), answer
    assert b"connection: close" in answer.lower()
    assert_ended_well(served)
    [(name, status)] = db.execute("SELECT payload->>'name', status FROM snap_processing_job").fetchall()
    assert (name, status) == ("slow", "PENDING")


@under_both
def test_an_open_stream_ends_at_once(url: str, serve: Serve) -> None:
    served = serve(url).until_up()
    with socket.create_connection(("127.0.0.1", served.port), timeout=GRACE) as connection:
        connection.sendall(b"GET /internal/jobs/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        began = monotonic()
        served.signal(signal.SIGTERM)
        read_all(connection)
        assert_ended_well(served)
    assert monotonic() - began < GRACE / 2


@under_both
def test_the_second_signal_means_now(url: str, db: Db, serve: Serve) -> None:
    """M61, FD6: a job that would take an hour goes back with its attempt."""
    served = serve(url, SNAPAPP_SHUTDOWN_GRACE_MS="3600000").until_up()
    job_id = make_job(db, kind="demo.sleep", payload={"seconds": 3600})
    until(lambda: row(db, job_id).progress is not None)
    served.signal(signal.SIGTERM)
    served.hear("1 job runs and may finish within 3600 s. A second signal (Ctrl-C) ends them now")
    until(lambda: not is_open(served.port))
    threading.Event().wait(1.1)  # sooner, it would be taken for the terminal's echo of the first one
    served.signal(signal.SIGTERM)
    code = served.end()
    assert code == 128 + signal.SIGTERM or type(served) is ServedByUvicorn
    assert served.said().count("1 job runs and may finish") == 1
    job = row(db, job_id)
    assert (job.status, job.attempt_count, job.interruptions) == ("PENDING", 0, 1)
    until(lambda: not served.family())


@under_both
def test_the_grace_ends_what_would_go_on(url: str, db: Db, serve: Serve) -> None:
    served = serve(url, SNAPAPP_SHUTDOWN_GRACE_MS="1500").until_up()
    job_id = make_job(db, kind="demo.sleep", payload={"seconds": 3600})
    until(lambda: row(db, job_id).progress is not None)
    with socket.create_connection(("127.0.0.1", served.port), timeout=GRACE) as lazy:
        lazy.sendall(b"POST /internal/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        until(lambda: served.ask("/actuator/liveness").status == 200)
        served.signal(signal.SIGTERM)
        served.end()
    assert (row(db, job_id).status, row(db, job_id).attempt_count) == ("PENDING", 0)


@under_both
def test_a_signal_during_the_start_ends_it(url: str, serve: Serve) -> None:
    served = serve(url)
    until(lambda: "worker.started" in served.said() or "server process" in served.said())
    served.signal(signal.SIGINT)
    served.end()
    until(lambda: not served.family())


def test_a_signal_between_uvicorns_first_moments_and_ours_is_noted_for_the_application() -> None:
    """By itself uvicorn would leave, and the worker's last words would not say why."""
    noted: list[signal.Signals] = []
    server = Server(FastAPI(), noted)
    with server.capture_signals():
        signal.raise_signal(signal.SIGINT)
        assert (noted, server.should_exit) == ([signal.SIGINT], False)
        server.handle_exit(signal.SIGINT, None)  # as the application passes it on
        assert (server.should_exit, server.force_exit) == (True, False)
        server._captured_signals.clear()  # it would raise them again, here


def test_where_no_thread_can_be_started_a_signal_ends_the_process_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It served on, and took no further signal."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    passed_on: list[int] = []

    async def leave(monolith: Monolith) -> None:
        with Shutdown(monolith) as shutdown:
            shutdown.serving([])
            monkeypatch.setattr(threading.Thread, "start", refuse)
            signal.raise_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                await shutdown.begun.wait()
                while len(passed_on) < 3:  # the last two come at the end of the grace
                    await asyncio.sleep(0.01)

    with handled(lambda number, _frame: passed_on.append(number), signal.SIGTERM, signal.SIGINT):
        monolith = Monolith(Settings(shutdown_grace=timedelta(seconds=0.5)))
        asyncio.run(leave(monolith))
    assert monolith.is_leaving
    assert passed_on == [signal.SIGTERM, signal.SIGINT, signal.SIGINT]


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such option")
def test_a_client_that_takes_nothing_is_given_up_only_when_the_server_leaves() -> None:
    """A player that pauses looks just the same: with the option set from the beginning it was cut after 10 s."""
    server = Server(_endless(), [])
    listening = service.bound_socket(dataclasses.replace(Settings(), port=0, given={"SNAPAPP_PORT": ANY}))
    serving = threading.Thread(target=server.run, args=[[listening]])
    serving.start()
    try:
        until(lambda: server.started)
        with socket.create_connection(listening.getsockname(), timeout=GRACE) as paused:
            paused.sendall(b"GET /film HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert paused.recv(12) == b"HTTP/1.1 200"
            [connection] = server.server_state.connections
            ours = connection.transport.get_extra_info("socket")
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
            server.should_exit = True
            until(lambda: ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000)
    finally:
        server.should_exit = True
        serving.join()


def test_who_waits_to_be_accepted_when_the_server_leaves_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel had made their connections, and the event loop accepts one in each round: the others were reset."""
    app, held, go_on, leave = FastAPI(), threading.Event(), threading.Event(), asyncio.Event()

    @app.get("/")
    async def hold() -> None:
        held.set()
        go_on.wait(GRACE)
        leave.set()

    server = Server(app, [])
    monkeypatch.setattr(server, "main_loop", lambda: leave.wait())
    listening = service.bound_socket(dataclasses.replace(Settings(), port=0, given={"SNAPAPP_PORT": ANY}))
    serving = threading.Thread(target=server.run, args=[[listening]])
    serving.start()
    with ExitStack() as clients:
        until(lambda: server.started)
        waiting = []
        for _ in range(30):
            waiting.append(clients.enter_context(socket.create_connection(listening.getsockname(), timeout=GRACE)))
            waiting[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert held.wait(GRACE)
        go_on.set()
        assert {each.recv(12) for each in waiting} == {b"HTTP/1.1 200"}
    serving.join()


def _endless() -> FastAPI:
    app = FastAPI()

    @app.get("/film")
    async def film() -> StreamingResponse:
        return StreamingResponse(iter(lambda: b"." * 65536, b""))

    return app


def read_all(connection: socket.socket) -> bytes:
    said = b""
    while piece := connection.recv(65536):
        said += piece
    return said


# --- uvicorn's other ways to run it -----------------------------------------------------------------------------


@pytest.mark.at_length  # the same signals under one worker of uvicorn, and two workers on one queue, in every run
def test_two_workers_of_uvicorn_share_the_queue_and_leave_together(url: str, db: Db, tmp_path: Path) -> None:
    """FD5: N processes are N embedded workers, which is safe: they share the queue."""
    served = ServedByUvicorn(tmp_path, "--workers", "2", SNAPAPP_DATABASE_URL=url)
    try:
        until(lambda: db.execute("SELECT count(*) FROM job_worker").fetchone() == (2,), within=60)
        made = make_jobs(db, 50, kind="demo.hello")
        until(lambda: {row(db, job_id).status for job_id in made} == {"COMPLETED"})
        assert {row(db, job_id).attempt_count for job_id in made} == {1}
        served.signal(signal.SIGTERM)
        served.end()
        until(lambda: not served.family())
        assert db.execute("SELECT count(*) FROM job_worker").fetchone() == (0,)
    finally:
        served.process.kill()
        served.process.wait()


@pytest.mark.at_length  # what runs is finished or handed back in every run, above
def test_a_reload_in_the_middle_of_a_job_gives_it_back(url: str, db: Db, tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    (watched / "some.py").write_text("# before\n")
    served = ServedByUvicorn(
        tmp_path,
        "--reload",
        "--reload-dir",
        str(watched),
        SNAPAPP_DATABASE_URL=url,
        SNAPAPP_SHUTDOWN_GRACE_MS="1000",
    )
    try:
        job_id = make_job(db, kind="demo.sleep", payload={"seconds": 3600})
        until(lambda: row(db, job_id).progress is not None, within=60)
        first = row(db, job_id).claimed_by
        (watched / "some.py").write_text("# after\n")
        until(lambda: row(db, job_id).claimed_by not in (None, first), within=60)
        assert (row(db, job_id).attempt_count, row(db, job_id).interruptions) == (1, 1)
        served.signal(signal.SIGINT)
        served.end()
        until(lambda: not served.family())
        assert row(db, job_id).status == "PENDING"
    finally:
        served.process.kill()
        served.process.wait()

"""The live stream as a client sees it: a real server, a real socket."""

import dataclasses
import http.client
import json
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import uvicorn
from fastapi import FastAPI

from snapapp import postgres
from snapapp.api.http import streams
from snapapp.app import create_app
from snapapp.jobs.adding import enqueue, enqueue_many
from snapapp.jobs.rows import lifecycle
from snapapp.settings.table import Settings
from tests.factory import Db, ago, as_it_runs, make_job, make_jobs, move
from tests.jobs.working import until
from tests.running import Served

WITHIN = 20.0


class Event(NamedTuple):
    name: str
    data: Any


class Client:
    """Reads events off a connection of its own."""

    def __init__(self, port: int, query: str = "", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("localhost", port, timeout=WITHIN)
        self._connection.request("GET", f"/internal/jobs/stream{query}", headers=headers)
        self.answer = self._connection.getresponse()

    def line(self) -> str:
        return self.answer.readline().decode()

    def next(self) -> Event | None:
        """None: the stream has ended."""
        name = ""
        while line := self.line():
            if line.startswith("event: "):
                name = line[7:].rstrip()
            elif line.startswith("data: "):
                return Event(name, json.loads(line[6:]))
        return None

    def until(self, name: str) -> Any:
        while event := self.next():
            if event.name == name:
                return event.data
        raise AssertionError(f"the stream ended without {name}")

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


class Serving(NamedTuple):
    app: FastAPI
    port: int

    @property
    def watcher(self) -> streams.Watcher:
        watcher: streams.Watcher = self.app.state.watcher
        return watcher


@contextmanager
def serving(url: str, **changes: Any) -> Iterator[Serving]:
    settings = dataclasses.replace(Settings(), database_url=url, worker_enabled=False, **changes)
    app = create_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            yield Serving(app, listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(WITHIN)
            assert not thread.is_alive()


@pytest.fixture
def served(url: str) -> Iterator[Serving]:
    with serving(url) as served:
        yield served


@pytest.fixture
def watch(served: Serving) -> Iterator[Callable[..., Client]]:
    with ExitStack() as stack:

        def begin(query: str = "", **headers: str) -> Client:
            return stack.enter_context(closing(Client(served.port, query, **headers)))

        yield begin


# --- what is told -----------------------------------------------------------------------------------------------


def test_a_stream_begins_with_the_newest_jobs_and_goes_on_with_what_changes(
    db: Db, watch: Callable[..., Client]
) -> None:
    """W37: job.added, job.active, job.progress, job.completed. R50: /events SSE."""
    first = make_job(db, kind="before", tenant="t")
    client = watch()
    assert client.answer.status == 200
    assert client.answer.headers["Content-Type"].startswith("text/event-stream")
    assert client.answer.headers["Cache-Control"] == "no-store"
    assert client.line() == "retry: 2000\n"
    snapshot = client.until("snapshot")
    [item] = snapshot["items"]
    assert (item["id"], item["kind"], item["attemptCount"], snapshot["next"]) == (first, "before", 0, None)

    job_id = make_job(db)
    assert is_told(client.next(), "job.added", job_id, status="PENDING")
    move(db, job_id, **as_it_runs())
    assert is_told(client.next(), "job.active", job_id, status="RUNNING", claimedBy="worker")
    move(db, job_id, progress={"percent": 40, "note": "frames"})
    assert is_told(client.next(), "job.progress", job_id, progress={"percent": 40, "note": "frames"})
    move(
        db,
        job_id,
        status="COMPLETED",
        finished_at=ago(),
        claimed_by=None,
        locked_at=None,
        lock_expires_at=None,
    )
    assert is_told(client.next(), "job.completed", job_id, status="COMPLETED", claimedBy=None)


class Having(dict[str, Any]):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and {name: other.get(name) for name in self} == dict(self)

    __hash__ = None


def is_told(event: Event | None, name: str, job_id: int, **facts: Any) -> bool:
    return event is not None and event.name == name and Having(id=job_id, **facts) == event.data


def test_a_job_looks_in_the_stream_as_it_does_in_the_list(
    db: Db, served: Serving, watch: Callable[..., Client]
) -> None:
    make_job(db, "FAILED", last_error="no", progress={"percent": 3}, started_at=ago(minutes=1))
    client = watch()
    [item] = client.until("snapshot")["items"]
    connection = http.client.HTTPConnection("localhost", served.port)
    connection.request("GET", "/internal/jobs")
    assert json.loads(connection.getresponse().read())["items"] == [item]
    connection.close()


def test_running_jobs_that_are_too_old_for_the_page_are_in_the_snapshot(db: Db, watch: Callable[..., Client]) -> None:
    running = make_job(db, "RUNNING")
    enqueue_many(db, [{"kind": "test"}] * 60)
    snapshot = watch().until("snapshot")
    assert len(snapshot["items"]) == 50
    assert snapshot["next"] == snapshot["items"][-1]["id"]
    assert [job["id"] for job in snapshot["running"]] == [running]


@pytest.mark.parametrize("query", ["?kind=mine", "?queue=mine", "?tenant=mine"])
def test_only_what_was_asked_for_is_told(db: Db, watch: Callable[..., Client], query: str) -> None:
    make_job(db)
    client = watch(query)
    assert client.until("snapshot")["items"] == []
    make_job(db)
    mine = make_job(db, kind="mine", queue="mine", tenant="mine")
    assert is_told(client.next(), "job.added", mine)


def test_named_jobs_come_with_what_they_say(db: Db, watch: Callable[..., Client]) -> None:
    """W37: job.log."""
    one, other, third = make_jobs(db, 3)
    client = watch(f"?id={one}&id={other}")
    assert [job["id"] for job in client.until("snapshot")["items"]] == [other, one]
    lifecycle.cancel(db, third)
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, 'frame\n\ndata: forged')", [other])
    event = client.next()
    assert event is not None
    assert event == Event("job.log", Having(jobId=other, message="frame\n\ndata: forged", level="INFO"))


@pytest.mark.parametrize(
    "query", ["?id=0", "?id=x", "?id=9223372036854775808", "?kind=", "?kind=%00", "?" + "id=1&" * 101]
)
def test_what_cannot_be_watched_is_refused(watch: Callable[..., Client], query: str) -> None:
    assert watch(query).answer.status == 400


def test_a_flood_is_told_as_far_as_a_look_sees_and_the_rest_is_counted(db: Db, watch: Callable[..., Client]) -> None:
    make_job(db)
    client = watch()
    client.until("snapshot")
    enqueue_many(db, [{"kind": "flood"}] * 3000)
    assert 0 < client.until("stream.skipped")["atMost"] <= 2500


# --- who watches ------------------------------------------------------------------------------------------------


def backends(db: Db) -> int:
    counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'snapapp stream'"
    [(count,)] = db.execute(counted + " AND datname = current_database()").fetchall()
    return int(count)


def test_however_many_watch_the_database_sees_one(db: Db, served: Serving, watch: Callable[..., Client]) -> None:
    """FC11: no connection is held by a stream."""
    assert backends(db) == 0
    clients = [watch(query) for query in ["", "", "?kind=a", "?queue=b"] for _ in range(5)]
    for client in clients:
        client.until("snapshot")
    assert backends(db) == 1
    job_id = make_job(db, kind="a", queue="b")
    assert all(is_told(client.next(), "job.added", job_id) for client in clients)
    for client in clients:
        client.close()
    until(lambda: served.watcher._thread is None and backends(db) == 0)
    assert watch().until("snapshot")["items"][0]["id"] == job_id


def test_beyond_a_number_of_streams_one_is_told_to_come_again(
    served: Serving, watch: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAMS_MAX", 2)
    first, second = watch(), watch()
    first.until("snapshot")
    second.until("snapshot")
    third = watch()
    assert (third.answer.status, third.answer.headers["Retry-After"]) == (503, "5")
    first.close()
    until(lambda: not served.watcher.is_full)
    assert watch().answer.status == 200


def test_a_quiet_stream_is_pinged(watch: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PING_EVERY", 0.2)
    client = watch()
    client.until("snapshot")
    until(lambda: client.line() == ": still here\n")


def test_a_client_that_does_not_read_is_cut_and_its_neighbours_are_not(
    db: Db, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R50: slow readers. Nothing is kept for them without bound."""
    monkeypatch.setattr(streams, "BUFFER", 3_000_000)
    monkeypatch.setattr(streams, "SEND_WITHIN", 1.0)
    with closing(socket.socket()) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("localhost", served.port))
        slow.sendall(b"GET /internal/jobs/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: hasattr(served.app.state, "watcher") and served.watcher._clients)
        [lazy] = served.watcher._clients
        heard = threading.Event()
        neighbour = threading.Thread(target=read_to_the_end, args=[served.port, heard])
        neighbour.start()
        assert heard.wait(WITHIN)
        ids = make_jobs(db, 400, status="RUNNING")
        most = 0

        def is_cut() -> bool:
            nonlocal most
            note = json.dumps({"at": time.monotonic(), "note": "x" * 5000})
            db.execute("UPDATE snap_processing_job SET progress = %s WHERE id = ANY (%s)", [note, ids])
            most = max(most, lazy._bytes)
            return lazy not in served.watcher._clients

        until(is_cut)
        assert len(served.watcher._clients) == 1
        assert neighbour.is_alive()
        assert 0 < most < 3 * 3_000_000
        served.watcher._loop.call_soon_threadsafe(served.app.state.shutdown.begun.set)
        neighbour.join(WITHIN)
        assert not neighbour.is_alive()


def read_to_the_end(port: int, heard: threading.Event) -> None:
    with closing(Client(port)) as client:
        while client.next():
            heard.set()


# --- outages and ends -------------------------------------------------------------------------------------------


def test_a_stream_outlives_the_database_and_says_so(make_home: Callable[[Path], None]) -> None:
    """Promise 7: what happened meanwhile is in the snapshot that follows."""
    with tempfile.TemporaryDirectory(prefix="snapapp-stream-") as folder:
        make_home(Path(folder))
        server = postgres.start(Path(folder), create=False)
        with serving(server.url) as served, closing(Client(served.port)) as client:
            assert client.until("snapshot")["items"] == []
            server.stop()
            assert "message" in client.until("database.away")
            with closing(Client(served.port)) as late:
                assert "message" in late.until("database.away")
                with postgres.start(Path(folder), create=False) as again:
                    with psycopg.connect(again.url, autocommit=True) as db:
                        job_id = enqueue(db, "test", {})
                    for each in (client, late):
                        assert [job["id"] for job in each.until("snapshot")["items"]] == [job_id]
                        assert each.until("database.back") == {}


@pytest.mark.at_length  # process/test_shutdown ends an open stream in every run
def test_a_departure_ends_every_stream_at_once(url: str, tmp_path: Path) -> None:
    """FD6: SIGTERM with open streams; uvicorn alone waited for them."""
    with ExitStack() as stack, Served(tmp_path, SNAPAPP_DATABASE_URL=url).up() as process:
        clients = [stack.enter_context(closing(Client(process.port))) for _ in range(5)]
        for client in clients:
            client.until("snapshot")
        process.signal(signal.SIGTERM)
        for client in clients:
            assert client.next() is None  # or WITHIN is over
        assert process.end() == 0


def test_the_token_guards_the_stream(url: str) -> None:
    with serving(url, internal_token="secret") as served:
        with closing(Client(served.port)) as client:
            assert client.answer.status == 401
        with closing(Client(served.port, **{"X-Internal-Token": "secret"})) as client:
            assert client.until("snapshot")["items"] == []

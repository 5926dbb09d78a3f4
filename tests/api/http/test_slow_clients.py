"""Clients that keep a connection and say nothing, or little: they keep nobody else out, and are not waited for."""

import asyncio
import gc
import json
import logging
import select
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from unittest.mock import AsyncMock, Mock
from weakref import ref

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from uvicorn import Config
from uvicorn.server import ServerState

from snapapp.api.http import errors
from snapapp.api.http.requests import body_memory, connections, exchange, middleware
from snapapp.api.http.requests.access import Access
from snapapp.api.http.requests.body_memory import BodyMemory
from snapapp.api.http.requests.connections import Connection
from snapapp.api.http.requests.exchange import Body
from snapapp.api.http.requests.middleware import Requests
from snapapp.api.http.requests.route_counts import Traffic
from snapapp.api.http.requests.tokens import Keys
from snapapp.cli.processes.service import Server
from snapapp.jobs.worker.capacity.web_priority import WebPriority
from tests.jobs.working import until

WITHIN = 20.0
UPLOAD = "/v2/uploads/1"
HEAD = b"POST /v2/snaps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"


class Slow:
    """An application whose answers wait until they are let go, behind everything that ours is behind."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.app = FastAPI()
        errors.add_handlers(self.app)
        self.app.add_api_route("/slow", self.slow)
        self.app.add_api_route("/long", self.long)
        self.app.add_api_route("/standing", self.standing)
        self.app.add_api_route("/big", self.big)
        self.app.add_api_route("/actuator/liveness", self.quick)
        self.app.add_api_route("/v2/snaps", self.quick)
        self.app.add_api_route("/v2/snaps", self.body, methods=["POST"])
        self.app.add_api_route(UPLOAD, self.body, methods=["POST"])
        self.app.add_middleware(
            Requests,
            web_priority=WebPriority(),
            traffic=Traffic(),
            keys=Keys.of(None, None),
            access=Access(()),
            upload_max=1000,
            is_leaving=lambda: False,
        )
        self.server = Server(self.app, [])
        self.listening = socket.create_server(("127.0.0.1", 0))

    async def slow(self) -> str:
        self.entered.release()
        while not self.open.is_set():
            await asyncio.sleep(0.01)
        return "slow"

    async def big(self) -> Response:
        return Response(bytes(8_000_000))

    async def long(self) -> StreamingResponse:
        self.entered.release()
        return StreamingResponse(self.blocks())

    async def blocks(self) -> AsyncIterator[bytes]:
        while not self.open.is_set():
            await asyncio.sleep(0.01)
        for _ in range(20):
            yield b"x" * 1_000_000
            await asyncio.sleep(0.01)

    async def standing(self) -> None:
        self.entered.release()
        self.open.wait(WITHIN)

    async def quick(self) -> str:
        return "quick"

    async def body(self, request: Request) -> int:
        self.entered.release()
        return len(await request.body())

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listening.getsockname(), timeout=WITHIN)

    def ask(self, path: str) -> tuple[int, Any, dict[str, str]]:
        host, port = self.listening.getsockname()
        connection = HTTPConnection(host, port, timeout=WITHIN)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return (
                answer.status,
                json.loads(answer.read()),
                {name.lower(): value for name, value in answer.getheaders()},
            )
        finally:
            connection.close()

    def are_open(self) -> int:
        return len(self.server.server_state.connections)


@contextmanager
def serving(slow: Slow) -> Iterator[Slow]:
    thread = threading.Thread(target=slow.server.run, args=[[slow.listening]])
    thread.start()
    try:
        until(lambda: slow.server.started)
        yield slow
    finally:
        slow.open.set()
        slow.server.should_exit = True
        thread.join()


@pytest.fixture
def slow() -> Iterator[Slow]:
    with serving(Slow()) as slow:
        yield slow


def rest_of(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def refusal(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    said: dict[str, Any] = json.loads(body)
    assert said.keys() == {"timestamp", "status", "error", "message", "details"}
    return said


# --- how many ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHo", HEAD + b"{"], ids=["nothing", "half a head", "a body"])
def test_clients_that_only_hold_connections_keep_nobody_out(said: bytes) -> None:
    app = Slow()
    app.server.config.limit_concurrency = 20
    with serving(app) as slow, ExitStack() as held:
        for _ in range(50):
            connection = held.enter_context(slow.connect())
            connection.sendall(said)
            assert slow.ask("/v2/snaps")[0] == 200
        until(lambda: slow.are_open() <= 20)


def test_whoever_was_silent_longest_is_closed_and_who_is_being_answered_is_not() -> None:
    app = Slow()
    app.server.config.limit_concurrency = 3
    with serving(app) as slow, slow.connect() as asking, slow.connect() as first, slow.connect() as second:
        asking.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert slow.entered.acquire(timeout=WITHIN)
        until(lambda: slow.are_open() == 3)
        threading.Event().wait(0.1)  # the loop's clock counts milliseconds
        first.sendall(b"GET /v2/snaps HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert first.recv(12) == b"HTTP/1.1 200"
        with slow.connect() as third:
            assert second.recv(1) == b""
            slow.open.set()
            assert rest_of(asking).endswith(b'"slow"')
            for still in (first, third):
                still.sendall(b"GET /v2/snaps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert b'"quick"' in rest_of(still)


@pytest.mark.parametrize("path", [b"/big", b"/long"])
def test_clients_that_take_no_answer_keep_nobody_out(path: bytes) -> None:
    """The rest of an answer waits in memory, or the route does."""
    app = Slow()
    app.server.config.limit_concurrency = 5
    app.open.set()
    with serving(app) as slow, ExitStack() as held:
        for _ in range(15):
            connection = held.enter_context(slow.connect())
            connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
            until(lambda: all(each.flow.write_paused for each in [*slow.server.server_state.connections]))  # type: ignore[union-attr]
        assert slow.ask("/v2/snaps")[0] == 200
        until(lambda: slow.are_open() <= 5)


def test_a_client_that_takes_its_answer_slowly_is_not_silent() -> None:
    app = Slow()
    app.server.config.limit_concurrency = 2
    app.open.set()
    with serving(app) as slow, slow.connect() as taking:
        [connection] = until_open(slow, 1)
        # for one that reads quickly the kernel widens this, up to more than the rest of the answer
        taking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262_144)
        taking.sendall(b"GET /long HTTP/1.0\r\nHost: localhost\r\n\r\n")
        until(lambda: connection.flow.write_paused)
        with slow.connect() as silent:
            until_open(slow, 2)
            threading.Event().wait(0.1)  # the loop's clock counts milliseconds
            taken = 0
            while taken < 10_000_000:
                taken += len(taking.recv(65536))
            until(lambda: connection.flow.write_paused)
            with slow.connect():
                assert silent.recv(1) == b""
            assert taken + len(rest_of(taking)) > 20_000_000


def until_open(slow: Slow, number: int) -> list[Any]:
    until(lambda: slow.are_open() == number)
    return [*slow.server.server_state.connections]


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_of_those_who_come_at_once_no_more_stay_than_may(loop: str) -> None:
    """While the event loop stands still they queue up; asyncio's own then accepts all of them in one round."""
    app = Slow()
    app.server.config.loop = loop
    app.server.config.limit_concurrency = 20
    with serving(app) as slow, ExitStack() as held:
        asking = held.enter_context(slow.connect())
        asking.sendall(b"GET /standing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert slow.entered.acquire(timeout=WITHIN)
        for _ in range(100):
            held.enter_context(slow.connect())
        slow.open.set()
        rest_of(asking)
        until(lambda: 0 < slow.are_open() <= 20)


def test_who_comes_while_all_others_are_at_work_is_not_closed() -> None:
    app = Slow()
    app.server.config.limit_concurrency = 2
    with serving(app) as slow, ExitStack() as held:
        for _ in range(4):
            connection = held.enter_context(slow.connect())
            connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert slow.entered.acquire(timeout=WITHIN)
        with slow.connect() as last:
            until(lambda: slow.are_open() == 5)
            last.sendall(b"GET /v2/snaps HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert last.recv(12) == b"HTTP/1.1 200"


def test_a_thousand_silent_connections_keep_nobody_out(slow: Slow) -> None:
    """The application's own limit."""
    with ExitStack() as held:
        for _ in range(1100):
            held.enter_context(slow.connect())
        assert [slow.ask(path)[0] for path in ("/v2/snaps", "/actuator/liveness")] == [200, 200]


def test_too_many_requests_are_refused_in_our_shape_and_liveness_is_told(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "RUNNING_MAX", 2)
    with slow.connect() as one, slow.connect() as other, slow.connect() as unfinished:
        unfinished.sendall(HEAD + b"{")  # which does not count
        assert slow.entered.acquire(timeout=WITHIN)
        for each in (one, other):
            each.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert slow.entered.acquire(timeout=WITHIN)
        status, said, headers = slow.ask("/v2/snaps")
        assert (status, said["message"], headers["retry-after"]) == (503, "Too many requests at once, try again", "5")
        assert said.keys() == {"timestamp", "status", "error", "message", "details"}
        assert slow.ask("/actuator/liveness")[0] == 200
        slow.open.set()
        assert all(b'"slow"' in rest_of(each) for each in (one, other))
        until(lambda: slow.ask("/v2/snaps")[0] == 200)


def test_answers_that_nobody_takes_are_not_requests_at_work(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipelined request's answer cannot even begin before the one before it is taken."""
    monkeypatch.setattr(middleware, "RUNNING_MAX", 2)
    slow.open.set()
    with ExitStack() as held:
        for _ in range(5):
            connection = held.enter_context(slow.connect())
            connection.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4)
            assert connection.recv(12) == b"HTTP/1.1 200"
        until(lambda: all(each.flow.write_paused for each in [*slow.server.server_state.connections]))  # type: ignore[union-attr]
        until(lambda: slow.ask("/v2/snaps")[0] == 200)


# --- whom is refused before all has come ------------------------------------------------------------------------


def test_who_is_still_sending_reads_why_it_is_refused(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """It read of a connection that was reset. Who sends no more is not waited for."""
    head = b"POST /v2/snaps HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\n"
    with slow.connect() as connection:
        connection.sendall(head + bytes(20_000_000))
        assert refusal(rest_of(connection))["status"] == 413
    with slow.connect() as connection:
        last = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: TE, Close\r\nContent-Length: 2000000\r\n\r\n"
        connection.sendall(last + bytes(2_000_000))
        assert refusal(rest_of(connection))["status"] == 404
    monkeypatch.setattr(exchange, "LINGERS_SILENT", 0.1)
    with slow.connect() as connection:
        connection.sendall(head + b"{")
        assert refusal(rest_of(connection))["status"] == 413


# --- when the server leaves --------------------------------------------------------------------------------------


def test_requests_that_a_leaving_server_cuts_short_are_503_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A bucket without answer held fifty: each was a traceback of a hundred lines, and a 500 in plain text."""
    said = list[Any]()

    async def send(message: Any) -> None:
        said.append(message.get("status"))

    async def cut(*, leaving: bool) -> list[Any]:
        begun = asyncio.Semaphore(0)

        async def hold(*_: Any) -> None:
            begun.release()
            await asyncio.Event().wait()

        app = Requests(
            hold,
            web_priority=WebPriority(),
            traffic=Traffic(),
            keys=Keys.of(None, None),
            access=Access(()),
            upload_max=1000,
            is_leaving=lambda: leaving,
        )
        scope = {"type": "http", "method": "GET", "path": "/media/x", "headers": [], "client": ("127.0.0.1", 1)}
        running = [asyncio.create_task(app(dict(scope), AsyncMock(), send)) for _ in range(3)]
        for each in running:
            await begun.acquire()
            each.cancel()
        return await asyncio.gather(*running, return_exceptions=True)

    assert asyncio.run(cut(leaving=True)) == [None] * 3
    assert said == [503, None] * 3
    assert [record.getMessage() for record in caplog.records if "leaves" in record.message] == [
        "The server leaves without the answers that it waited for; the first: GET /media/***"
    ]
    assert {type(end) for end in asyncio.run(cut(leaving=False))} == {asyncio.CancelledError}


# --- how much memory --------------------------------------------------------------------------------------------


def test_bodies_that_do_not_end_take_no_more_than_their_memory(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred of 2 MB took 410 MB."""
    size = body_memory.FREE + 60_000
    monkeypatch.setattr(body_memory, "MOST", 100_000)
    monkeypatch.setattr(exchange, "LINGERS_SILENT", 0.1)
    large = HEAD.replace(b"10\r\n", b"%d\r\n" % size) + b"x" * (size - 1)
    with slow.connect() as one, slow.connect() as other, slow.connect() as small:
        one.sendall(large)
        other.sendall(large)
        [refused], _, _ = select.select([one, other], [], [], WITHIN)
        said = rest_of(refused)
        assert (refusal(said)["status"], b"retry-after: 5" in said.lower()) == (503, True)
        small.sendall(HEAD + b"0123456789")
        assert small.recv(12) == b"HTTP/1.1 200"
        held = other if refused is one else one
        for rest in (b"x", large + b"x"):  # when it is answered, the next one has its memory
            held.sendall(rest)
            answer = HTTPResponse(held)
            answer.begin()
            assert (answer.status, answer.read()) == (200, b"%d" % size)


def test_one_client_gets_a_part_of_it() -> None:
    bodies, (here, one, other) = BodyMemory(), [{"client": (f"{each}", 1)} for each in ("127.0.0.1", "10.0.0.1", "::2")]
    held = bodies.share_of(one)
    most = body_memory.FREE + body_memory.MOST_OF_ONE
    assert [held.grow_to(most), held.grow_to(most + 1)] == [True, False]
    next_one = bodies.share_of(one)
    assert [next_one.grow_to(body_memory.FREE), next_one.grow_to(body_memory.FREE + 1)] == [True, False]
    assert [bodies.share_of(each).grow_to(most) for each in (other, here, here, here)] == [True, True, True, False]
    held.give_back()
    assert next_one.grow_to(most)


# --- what they offer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_in_one_piece", [True, False])
@pytest.mark.parametrize(
    "framed", [b"Content-Length: 12\r\n\r\n%b", b"Transfer-Encoding: chunked\r\n\r\nc\r\n%b\r\n0\r\n\r\n"]
)
def test_a_body_comes_also_with_an_offer_of_http_2(slow: Slow, framed: bytes, is_in_one_piece: bool) -> None:
    """Java's own client makes one with each request; its bodies were dropped, and then what followed was no HTTP."""
    offer = b"POST /v2/snaps HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n"
    head, blank, body = (offer + framed % b"\r\nUpgrade: 1").partition(b"\r\n\r\n")
    with slow.connect() as connection:
        for _ in range(2):
            if is_in_one_piece:
                connection.sendall(head + blank + body)
            else:
                connection.sendall(head + blank)
                until(slow.entered.acquire)
                connection.sendall(body)
            answer = HTTPResponse(connection)
            answer.begin()
            assert (answer.status, answer.read()) == (200, b"12")


@pytest.mark.parametrize("before_the_cut", [b"", b"\r\nUpg", b"\r\nUpgrade", b"\r\nUpgrade: h"])
def test_an_offer_may_come_in_two_packets_or_behind_another_one(slow: Slow, before_the_cut: bytes) -> None:
    body = b"hello\r\nUpgrade: x"
    head = b"POST /v2/snaps HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(body)
    cut = head.index(before_the_cut) + len(before_the_cut)
    with slow.connect() as connection:
        connection.sendall((head + body) * 2 + head[:cut])
        heard = b""
        for rest, answers in ((b"", 2), (head[cut:] + body, 3)):
            connection.sendall(rest)
            while heard.count(b" 200 OK\r\n") < answers or not heard.endswith(b"\r\n\r\n17"):
                heard += connection.recv(65536) or pytest.fail(f"closed after {heard!r}")


def test_a_connection_that_ends_is_gone_without_a_garbage_collection() -> None:
    async def talk() -> None:
        connection = Connection(config, ServerState(), {})
        connection.connection_made(Mock(is_closing=Mock(return_value=False)))
        connection.data_received(b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
        assert connection.cycle is not None
        await asyncio.gather(*connection.tasks)
        connection.connection_lost(None)
        known.append(ref(connection))

    known: list[ref[Connection]] = []
    config = Config(Response("hello"), log_config=None)
    gc.disable()
    try:
        asyncio.run(talk())
        assert known[0]() is None
    finally:
        gc.enable()


# --- how long ---------------------------------------------------------------------------------------------------


def test_headers_that_do_not_come_are_not_waited_for(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a byte of them comes; and also on a connection that had an answer."""
    monkeypatch.setattr(connections, "HEAD_WITHIN", 1.5)
    with slow.connect() as fresh, slow.connect() as used:
        used.sendall(b"GET /v2/snaps HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert used.recv(12) == b"HTTP/1.1 200"
        until(lambda: b'"quick"' in used.recv(65536))
        for connection in (fresh, used):
            connection.sendall(b"GET / HTTP/1.1\r\nX: ")
            connection.settimeout(0.2)
        assert [refusal(trickled(each))["status"] for each in (fresh, used)] == [408, 408]


@pytest.mark.parametrize("piece", [b"X: 1\r\n", b"x"], ids=["many", "one"])
@pytest.mark.parametrize(
    "after", [b"X: ", b"Host: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "], ids=["head", "body"]
)
def test_headers_without_an_end_are_not_kept(slow: Slow, after: bytes, piece: bytes) -> None:
    """200 MB of short ones took 2.4 GB."""
    with slow.connect() as connection:
        connection.sendall(b"POST /v2/snaps HTTP/1.1\r\n" + after + piece * (70_000 // len(piece)))
        assert refusal(rest_of(connection))["status"] == 431


def test_no_more_headers_and_requests_are_kept_than_anybody_needs(slow: Slow) -> None:
    """What comes in one piece: 250 kB of requests that wait took 10 MB."""
    ask = b"GET /v2/snaps HTTP/1.1\r\n%b\r\n"
    with slow.connect() as connection:
        connection.sendall(ask % (b"X: 1\r\n" * 200))
        assert connection.recv(12) == b"HTTP/1.1 200"
    with slow.connect() as connection:
        connection.sendall(ask % (b"X: 1\r\n" * 201))
        assert refusal(rest_of(connection))["status"] == 431
    with slow.connect() as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\n\r\n" + ask % b"" * 102)
        assert refusal(rest_of(connection))["status"] == 400


def trickled(connection: socket.socket) -> bytes:
    """What is said at last to who sends a byte now and then."""
    for _ in range(100):
        try:
            if said := connection.recv(65536):
                connection.settimeout(WITHIN)  # its head may come alone
                return said + rest_of(connection)
        except TimeoutError:
            connection.sendall(b"x")
    raise AssertionError("it was waited for")


def test_a_body_that_comes_after_its_answer_begins_no_headers(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_WITHIN", 1.0)
    ask = b"POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"  # which has no POST, and reads none
    with slow.connect() as connection:
        connection.sendall(ask)
        assert connection.recv(12) == b"HTTP/1.1 405"
        until(lambda: b"}" in connection.recv(65536))
        connection.sendall(b"12345")
        connection.settimeout(2.0)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_a_connection_that_says_nothing_is_closed_like_an_idle_one() -> None:
    app = Slow()
    app.server.config.timeout_keep_alive = 1
    with serving(app) as slow, slow.connect() as silent:
        assert silent.recv(1) == b""


@pytest.mark.parametrize("path", [b"/v2/snaps", UPLOAD.encode()])
def test_a_body_that_falls_silent_is_not_waited_for(slow: Slow, monkeypatch: pytest.MonkeyPatch, path: bytes) -> None:
    monkeypatch.setattr(exchange, "SILENT", 1.0)
    with slow.connect() as connection:
        connection.sendall(HEAD.replace(b"/v2/snaps", path) + b"{")
        assert refusal(rest_of(connection))["message"] == "The rest of the body did not come in time"


def test_a_chunked_body_without_a_chunk_is_not_waited_for(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "SILENT", 1.0)
    with slow.connect() as connection:
        connection.sendall(HEAD.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked"))
        assert refusal(rest_of(connection))["status"] == 408


def test_json_that_trickles_is_not_waited_for(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "UNHURRIED", 1.5)
    with slow.connect() as connection:
        connection.sendall(HEAD.replace(b": 10", b": 1000"))
        connection.settimeout(0.2)
        assert refusal(trickled(connection))["status"] == 408


def test_an_upload_that_trickles_is_waited_for(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """A farm's line is slow: only silence ends it."""
    monkeypatch.setattr(exchange, "UNHURRIED", 0.1)
    with slow.connect() as connection:
        connection.sendall(HEAD.replace(b"/v2/snaps", UPLOAD.encode()))
        for _ in range(10):
            threading.Event().wait(0.1)
            connection.sendall(b"x")
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_a_body_may_be_as_slow_as_a_poor_line() -> None:
    small = Body(most=10, in_time=True)
    assert small.patience(0, 0.0) == exchange.SILENT
    assert small.patience(0, 50.0) == 10.0
    assert small.patience(0, 61.0) == 0.0
    assert small.patience(1024 * 100, 150.0) == 10.0
    assert Body(most=10, in_time=False).patience(0, 5000.0) == exchange.SILENT


# --- who goes ---------------------------------------------------------------------------------------------------


def test_who_goes_with_requests_unanswered_is_forgotten_in_silence(slow: Slow, caplog: Any) -> None:
    """Each connection wrote two tracebacks: the answer met a closed one."""
    caplog.set_level(logging.INFO)
    with slow.connect() as hasty:
        hasty.sendall(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
        assert slow.entered.acquire(timeout=WITHIN)
        hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    slow.open.set()  # with others waiting, nothing is read: that it went is noticed by writing
    until(lambda: slow.are_open() == 0 and not slow.server.server_state.tasks)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert not slow.entered.acquire(blocking=False), "what waited behind it has nobody to hear it"

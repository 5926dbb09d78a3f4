"""Streams of server-sent events about jobs. One thread of this process looks at the database for all clients of a
stream, and only while there are clients."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any, NoReturn, Protocol

import psycopg
from fastapi import HTTPException
from starlette.types import Receive, Scope, Send

from snapapp.api.http.errors import COME_BACK
from snapapp.api.http.timely import TimelyResponse
from snapapp.jobs.rows.database import Database, Db, Row, connect
from snapapp.jobs.rows.people.changes import Interest, News, Tail

_log = logging.getLogger(__name__)

STREAMS_MAX = 100
PING_EVERY = 15.0  # seconds; proxies cut a connection that is silent for a minute
BUFFER = 1024 * 1024  # bytes that may wait for a slow client
SEND_WITHIN = 10.0  # seconds that a client may take to receive one piece

_LOOK_EVERY = 0.3  # seconds
_REST = 9  # the pause after a look, in times its duration: watching takes at most a tenth of the database's time
_AGAIN_EVERY = 1.0  # seconds, while the database is away
_ANSWER_WITHIN = timedelta(seconds=5)

# --- the events -------------------------------------------------------------------------------------------------


def event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


class EventEncoder(Protocol):
    """Turns what a look found into events for clients."""

    def told(self, db: Db, news: News) -> bytes:
        """The events of one look; empty if there is nothing new."""
        ...

    def snapshot(self, db: Db, tail: Tail) -> bytes:
        """The first event for a new client."""
        ...


_AWAY = event("database.away", '{"message":"The database is away; the stream goes on when it is back."}')
_BACK = event("database.back", "{}")


# --- the clients ------------------------------------------------------------------------------------------------


class StreamClient:
    """A client, and the events that wait for it. Used on the event loop's thread only."""

    def __init__(self, interest: Interest) -> None:
        self.interest = interest
        self.is_over = False
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()

    def tell(self, events: bytes) -> None:
        if self.is_over:
            return
        is_behind = self._bytes > 0
        self._bytes += len(events)
        if is_behind and self._bytes > BUFFER:
            self.end()  # the client reconnects, and begins with a snapshot
        else:
            self._waiting.append(events)
            self._news.set()

    def end(self) -> None:
        self.is_over = True
        self._waiting.clear()
        self._news.set()

    async def events(self) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n\n"
        while not self.is_over:
            try:
                async with asyncio.timeout(PING_EVERY):
                    await self._news.wait()
            except TimeoutError:
                yield b": still here\n\n"
                continue
            self._news.clear()
            if self._waiting:
                events = b"".join(self._waiting)
                self._waiting.clear()
                yield events
                self._bytes -= len(events)


class Watcher:
    """Looks at the database while there are clients. Made for the first one, once for each process and encoder."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop, encoder: EventEncoder) -> None:
        self._loop = loop
        self._encoder = encoder
        self._database = Database(lambda: _connect(url))
        self._lock = threading.Lock()  # clients join on the event loop's thread and are read on ours
        self._clients: list[StreamClient] = []
        self._newcomers: set[StreamClient] = set()
        self._thread: threading.Thread | None = None
        self._has_come = threading.Event()
        self._tails: dict[Interest, Tail] = {}  # these two are used by our thread only
        self._warned: set[StreamClient] = set()  # clients that were told that the database cannot be reached

    @property
    def is_full(self) -> bool:
        return len(self._clients) >= STREAMS_MAX

    @property
    def clients(self) -> list[StreamClient]:
        with self._lock:
            return list(self._clients)

    def join(self, client: StreamClient) -> None:
        with self._lock:
            self._clients.append(client)
            self._newcomers.add(client)
            self._has_come.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="stream", daemon=True)
                self._thread.start()

    def leave(self, client: StreamClient) -> None:
        with self._lock:
            self._clients.remove(client)
            self._newcomers.discard(client)
            self._has_come.set()

    def look(self) -> None:
        """Sends the changes since the last look to all clients, and a snapshot to new ones."""
        with self._lock:
            clients, newcomers = list(self._clients), set(self._newcomers)
        try:
            with self._database.connection() as db:
                for interest, group in _by_interest(clients).items():
                    self._look_for(db, interest, group, newcomers)
        except psycopg.Error as error:
            self._lose(error, clients)
        else:
            self._tell(self._warned, _BACK)
            self._warned = set()
            with self._lock:
                self._newcomers -= newcomers

    def _look_for(
        self, db: psycopg.Connection[Row], interest: Interest, group: list[StreamClient], newcomers: set[StreamClient]
    ) -> None:
        tail = self._tails.setdefault(interest, Tail(interest))
        if events := self._encoder.told(db, tail.look(db)):
            self._tell([client for client in group if client not in newcomers], events)
        if fresh := [client for client in group if client in newcomers]:
            self._tell(fresh, self._encoder.snapshot(db, tail))

    def _lose(self, error: psycopg.Error, clients: list[StreamClient]) -> None:
        """Handles a database that cannot be reached. All clients are treated as new, so they get a snapshot when it is
        back: a look would not find all that happened meanwhile."""
        if not self._warned:
            _log.warning("The stream waits for the database: %s", " ".join(str(error).split()))
        self._tell([client for client in clients if client not in self._warned], _AWAY)
        self._warned = set(clients)
        self._tails.clear()
        self._database.reset()
        with self._lock:
            self._newcomers = set(self._clients)

    def _tell(self, clients: Iterable[StreamClient], events: bytes) -> None:
        if present := list(clients):
            with suppress(RuntimeError):  # the event loop has ended, and its clients with it
                self._loop.call_soon_threadsafe(_hand_out, present, events)

    def _watch(self) -> None:
        while self._is_wanted():
            self._has_come.clear()
            began = monotonic()
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a thread's outermost edge
                _log.exception("The stream's look at the queue failed.")
            pause = _AGAIN_EVERY if self._warned else max(_LOOK_EVERY, _REST * (monotonic() - began))
            self._has_come.wait(pause)

    def _is_wanted(self) -> bool:
        with self._lock:
            interests = {client.interest for client in self._clients}
            self._tails = {interest: tail for interest, tail in self._tails.items() if interest in interests}
            if interests:
                return True
            self._database.reset()
            self._warned = set()
            self._thread = None
            return False


def _connect(url: str) -> psycopg.Connection[Row]:
    return connect(url, name="snapapp stream", statement_timeout=_ANSWER_WITHIN, prepared_statements=False)


def _by_interest(clients: Iterable[StreamClient]) -> dict[Interest, list[StreamClient]]:
    groups: dict[Interest, list[StreamClient]] = {}
    for client in clients:
        groups.setdefault(client.interest, []).append(client)
    return groups


def _hand_out(clients: list[StreamClient], events: bytes) -> None:
    for client in clients:
        client.tell(events)


# --- the answer -------------------------------------------------------------------------------------------------


class EventStream(TimelyResponse):
    """The answer of a stream. It ends when the process leaves, or when the client disconnects or reads too
    slowly."""

    def __init__(self, watcher: Watcher, client: StreamClient, leaving: asyncio.Event) -> None:
        headers = {"Content-Type": "text/event-stream; charset=utf-8"}
        headers |= {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(client.events(), headers, what="A stream", send_within=SEND_WITHIN)
        self._watcher = watcher
        self._client = client
        self._leaving = leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ending = asyncio.ensure_future(self._leaving.wait())
        ending.add_done_callback(lambda _: self._client.end())
        self._watcher.join(self._client)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._watcher.leave(self._client)
            ending.cancel()


def described(events: str, example: str) -> dict[int | str, dict[str, Any]]:
    """The description of a stream for /openapi.json."""
    content = {"schema": {"type": "string"}, "example": example}
    return {200: {"description": f"Events without end: {events}", "content": {"text/event-stream": content}}}


def refuse(leaving: asyncio.Event) -> NoReturn:
    why = "The process is leaving" if leaving.is_set() else "Too many streams are open"
    raise HTTPException(503, f"{why}, try again", headers=COME_BACK)

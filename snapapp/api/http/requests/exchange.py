"""One request and its answer: its id, how much body it may have and how slowly that may come."""

import asyncio
import json
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from snapapp.api.http.requests.body_memory import BodyShare
from snapapp.api.http.requests.scopes import is_upload
from snapapp.jobs.worker.capacity.web_priority import WebPriority

REQUEST_ID_MAX = 64
BODY_MAX = 2 * 1024 * 1024  # a payload may have 1 MiB, and its JSON may have as much white space

# For how many seconds a body is waited for. An upload may be as slow as a farm's line: only silence ends it.
SILENT = 30.0  # without a byte
UNHURRIED = 60.0  # in all; more where the mean is above the pace
_PACE = 1024  # bytes a second

# For how many seconds the rest of a refused body is taken: closed at once, the client's system would throw away an
# answer that the client has not read yet, because it was still sending.
LINGERS = 30.0
LINGERS_SILENT = 2.0  # without a byte

request_id: ContextVar[str] = ContextVar("request_id")


@dataclass(slots=True)
class Running:
    """Counts the requests whose body has arrived and whose answer has not begun: the rest of an answer may wait for its
    client for as long as the connection is there. For these the worker pauses. Only the event loop's thread writes
    it."""

    web_priority: WebPriority
    count: int = 0

    def begin(self) -> None:
        self.count += 1
        self.web_priority.arrive()

    def end(self) -> None:
        self.count -= 1
        self.web_priority.depart()


@dataclass(frozen=True, slots=True)
class Body:
    """What is accepted as the body of a request: at most `most` bytes, and, if `in_time`, not slower than the pace. An
    upload goes to the disk as it comes; any other body is held in memory."""

    most: int
    in_time: bool

    @property
    def is_held(self) -> bool:
        return self.in_time

    @classmethod
    def of(cls, scope: Scope, upload_max: int) -> "Body":
        if is_upload(scope):
            return cls(upload_max + BODY_MAX, in_time=False)  # a form has more bytes than its file
        return cls(BODY_MAX, in_time=True)

    def patience(self, received: int, waited: float) -> float:
        """How many seconds the next bytes may take, after `received` bytes and `waited` seconds of waiting."""
        if not self.in_time:
            return SILENT
        return min(SILENT, max(0.0, UNHURRIED + received / _PACE - waited))


class TooLarge(HTTPException):
    """The body has more bytes than were announced or than are accepted. It is an HTTPException, because FastAPI turns
    any other error while it reads a body into a 400."""

    def __init__(self, most: int) -> None:
        super().__init__(413, f"The body is larger than {most} bytes", {"Connection": "close"})


class TooSlow(HTTPException):
    """The body did not arrive in time."""

    def __init__(self) -> None:
        super().__init__(408, "The rest of the body did not come in time", {"Connection": "close"})


class TooMuch(HTTPException):
    """The bodies of all requests, or those of this client, take all the memory that they may."""

    def __init__(self) -> None:
        super().__init__(503, "Too many large bodies at once, try again", {"Connection": "close", "Retry-After": "5"})


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: dict[bytes, bytes],
        *,
        body: Body,
        share: BodyShare,
        running: Running,
        is_leaving: Callable[[], bool],
    ) -> None:
        self.began = monotonic()
        self.id = _clean_id(headers.get(b"x-request-id", b""))
        self.status: int | None = None
        self.fields = {"fields": {"requestId": self.id}}
        self._receive = receive
        self._send = send
        self._body = body
        self._share = share
        self._running = running
        self._is_leaving = is_leaving
        self._is_whole = False
        self._is_at_work = False
        self._received = 0
        self._waited = 0.0
        self._answered: float | None = None  # when, if more follows
        self._is_last = b"close" in headers.get(b"connection", b"").lower()  # of its connection, says the client
        self._is_refused = False  # with a part of the body unread, and the connection closed
        if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
            self._arrive()

    async def receive(self) -> Message:
        message = await (self._receive() if self._is_whole else self._more())
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            if self._received > self._body.most:
                raise TooLarge(self._body.most)
            if self._body.is_held and not self._share.grow_to(self._received):
                raise TooMuch
            if not message.get("more_body"):
                self._arrive()  # only now: the worker need not wait for a client that sends slowly
        return message

    async def _more(self) -> Message:
        """The next part of the body, if it comes in time. Only the time in which the application reads counts, so that
        a client that the application keeps waiting is not late."""
        asked = monotonic()
        try:
            async with asyncio.timeout(self._body.patience(self._received, self._waited)):
                return await self._receive()
        except TimeoutError:
            if self.status is None:
                raise TooSlow from None
            return {"type": "http.disconnect"}  # the answer has begun, so that no other one can be sent
        finally:
            self._waited += monotonic() - asked

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message.setdefault("headers", [])
            message["headers"] = [*message["headers"], (b"x-request-id", self.id.encode())]
            headers = dict(message["headers"])
            if headers.get(b"content-type", b"").startswith(b"application/json") and b"cache-control" not in headers:
                message["headers"].append((b"cache-control", b"no-store"))  # it is private, or true only for a moment
            closes = self._is_last or headers.get(b"connection") == b"close"
            self._is_refused = closes and not (self._is_whole or self._is_leaving() or self.status == 408)
            if self._is_leaving():
                message["headers"].append((b"connection", b"close"))
            self.end()  # the rest depends on the network, so the worker may go on
            if any(
                value.startswith(b"text/event-stream") for name, value in message["headers"] if name == b"content-type"
            ):
                self._answered = monotonic()
        elif self._is_refused and not message.get("more_body"):
            self._answered = monotonic()
            await self._send({**message, "more_body": True})
            await self._take_the_rest()
            message = {"type": "http.response.body"}
        await self._send(message)

    async def _take_the_rest(self) -> None:
        until, is_more = monotonic() + LINGERS, True
        with suppress(TimeoutError):
            while is_more:
                async with asyncio.timeout(min(LINGERS_SILENT, until - monotonic())):
                    is_more = (await self._receive()).get("more_body", False)

    async def answer(self, status: int, body: dict[str, Any], *besides: tuple[bytes, bytes]) -> None:
        content = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode()), *besides]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": content})

    def took(self) -> float:
        """How long the answer took to its end, or for a stream, which the client ends, to its beginning."""
        return (self._answered or monotonic()) - self.began

    def forget(self) -> None:
        """Called when nothing of the request is needed any more."""
        self.end()
        self._share.give_back()

    def end(self) -> None:
        """Called when the answer begins, and when there is none."""
        if self._is_at_work:
            self._is_at_work = False
            self._running.end()

    def _arrive(self) -> None:
        self._is_whole = True
        if not self._is_at_work and self.status is None:
            self._is_at_work = True
            self._running.begin()


def _clean_id(given: bytes) -> str:
    """The request's id: the client's, reduced to 64 printable ASCII characters because it goes into logs and rows, or a
    new one."""
    clean = re.sub(rb"[^\x21-\x7e]", b"", given)[:REQUEST_ID_MAX].decode()
    return clean or uuid.uuid4().hex

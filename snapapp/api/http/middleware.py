"""What every request passes through: its id, the check of the internal token, the limit on its body, the priority of
requests over jobs, and counting."""

import asyncio
import json
import logging
import re
import secrets
import uuid
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import Any

from fastapi.security import APIKeyHeader
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from snapapp.api.http.access import Access, is_here
from snapapp.api.http.errors import asked_for, body_of
from snapapp.api.http.route_counts import Traffic, pattern_of
from snapapp.jobs import tracing
from snapapp.jobs.worker.capacity.web_priority import WebPriority

_log = logging.getLogger(__name__)

# status, body, perhaps a header
_Refusal = tuple[int, dict[str, Any]] | tuple[int, dict[str, Any], tuple[bytes, bytes]]

REQUEST_ID_MAX = 64
BODY_MAX = 2 * 1024 * 1024  # a payload may have 1 MiB, and its JSON may have as much white space
_DIGITS_MAX = 20  # of a body's length; int() raises for thousands, even if all of them are zeros
RUNNING_MAX = 1000  # requests at work; one whose body is still arriving costs little and does not count

# For how many seconds a body is waited for. An upload may be as slow as a farm's line: only silence ends it.
SILENT = 30.0  # without a byte
UNHURRIED = 60.0  # in all; more where the mean is above the pace
_PACE = 1024  # bytes a second

request_id: ContextVar[str] = ContextVar("request_id")

# Routers of /internal depend on this, so that /openapi.json shows it. The middleware checks the token, before a body is
# read: a dependency would come after that, and never for paths without a route.
INTERNAL_TOKEN = APIKeyHeader(
    name="X-Internal-Token",
    scheme_name="InternalToken",
    description="What `SNAPAPP_INTERNAL_TOKEN` holds, or, to read only, `SNAPAPP_INTERNAL_READ_TOKEN`. Where neither "
    "is set, only this machine may ask.",
    auto_error=False,
)


_UNTRACED = ("/actuator", "/metrics")  # asked every few seconds, and of no interest in a trace

_READS = ("GET", "HEAD", "OPTIONS")

_ALWAYS_ANSWERED = ("/actuator/health", "/actuator/liveness", "/actuator/readiness")


class Role(StrEnum):
    """What a token allows on /internal."""

    READER = "reader"
    OPERATOR = "operator"


@dataclass(slots=True)
class Running:
    """Counts the requests whose body has arrived and whose answer has not begun: the rest of an answer may wait for its
    client for as long as the connection is there. Only the event loop's thread writes it."""

    count: int = 0


@dataclass(frozen=True, slots=True)
class Body:
    """What is accepted as the body of a request: at most `most` bytes, and, if `in_time`, not slower than the pace."""

    most: int
    in_time: bool

    @classmethod
    def of(cls, scope: Scope, upload_max: int) -> "Body":
        if _is_upload(scope):
            return cls(upload_max + BODY_MAX, in_time=False)  # a form has more bytes than its file
        return cls(BODY_MAX, in_time=True)

    def patience(self, received: int, waited: float) -> float:
        """How many seconds the next bytes may take, after `received` bytes and `waited` seconds of waiting."""
        if not self.in_time:
            return SILENT
        return min(SILENT, max(0.0, UNHURRIED + received / _PACE - waited))


@dataclass(frozen=True, slots=True)
class Keys:
    """The tokens for /internal. If the operator's is not set, every client on this machine is an operator."""

    operator: bytes | None
    reader: bytes | None

    @classmethod
    def of(cls, operator: str | None, reader: str | None) -> "Keys":
        return cls(*(token.encode() if token else None for token in (operator, reader)))

    def role_of(self, headers: Mapping[bytes, bytes]) -> Role | None:
        """The role of the request's token; None if it has none, or a wrong one."""
        sent_token = headers.get(b"x-internal-token", b"")
        tokens = ((self.operator, Role.OPERATOR), (self.reader, Role.READER))
        roles = [role for token, role in tokens if token is not None and secrets.compare_digest(sent_token, token)]
        return roles[0] if roles else None


class Requests:
    """The middleware around the whole application, so that every answer has an id and every internal path needs the
    token."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        web_priority: WebPriority,
        traffic: Traffic,
        keys: Keys,
        access: Access,
        upload_max: int,
        is_leaving: Callable[[], bool],
    ) -> None:
        self._app = app
        self._upload_max = upload_max
        self._web_priority = web_priority
        self._traffic = traffic
        self._keys = keys
        self._access = access
        self._is_leaving = is_leaving
        self._running = Running()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        body = Body.of(scope, self._upload_max)
        exchange = _Exchange(
            receive, send, self._web_priority, headers, body=body, running=self._running, is_leaving=self._is_leaving
        )
        request_id.set(exchange.id)
        try:
            if refusal := self._refusal(scope, headers, body.most):
                await exchange.answer(*refusal)
            else:
                await self._run_traced(scope, headers, exchange)
        except Exception:
            _log.exception("A request failed: %s", asked_for(scope), extra=exchange.fields)
            if exchange.status is None:
                await exchange.answer(500, body_of(500, "Internal server error"))
            else:
                raise  # a part of the answer is sent: the connection is cut, so that the client notices
        finally:
            exchange.end()
            if exchange.status == 401 and _shows_a_token(scope, headers):
                self._access.was_wrong(scope, _token_shown(scope))
            self._traffic.count(scope, exchange.status or 500, exchange.took())

    async def _run_traced(self, scope: Scope, headers: dict[bytes, bytes], exchange: "_Exchange") -> None:
        if tracing.tracer is None or scope["path"].startswith(_UNTRACED):
            await self._app(scope, exchange.receive, exchange.send)
            return
        facts = {"http.request.method": scope["method"], "snapapp.request.id": exchange.id}
        under = headers.get(b"traceparent", b"").decode("latin-1")
        with tracing.span("request", scope["method"], facts, under=under or None) as span:
            await self._app(scope, exchange.receive, exchange.send)
            method, route = pattern_of(scope)
            span.name(f"{method} {route}")
            status = exchange.status or 500
            span.tell({"http.route": route, "http.response.status_code": status})
            if status >= 500:
                span.fail(f"it was answered with {status}")

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes], most: int) -> _Refusal | None:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > _DIGITS_MAX or int(length) > most:
            # closed, because otherwise the server would read the whole body
            return 413, body_of(413, f"The body is larger than {most} bytes"), (b"connection", b"close")
        if self._running.count > RUNNING_MAX and not _path_of_route(scope).startswith(_ALWAYS_ANSWERED):
            return 503, body_of(503, "Too many requests at once, try again"), (b"retry-after", b"5")
        if _shows_a_token(scope, headers) and (seconds := self._access.wait_for(scope)):
            come_back = (b"retry-after", str(seconds).encode())
            return 429, body_of(429, f"Too many wrong tokens: wait {seconds} s"), come_back
        if not _is_internal(scope):
            return None
        if not self._access.may_ask(scope):
            return 403, body_of(403, "SNAPAPP_INTERNAL_ALLOW does not name your address")
        if self._keys.operator is not None:
            match self._keys.role_of(headers):
                case None:
                    return 401, {"status": 401, "message": "Internal API token required"}
                case Role.READER if scope["method"] not in _READS:
                    return 403, body_of(403, "This token reads and changes nothing: SNAPAPP_INTERNAL_TOKEN does")
            return None
        if not _is_of_this_machine(scope, headers):
            # without a token only this machine may ask, and no web page of another site in its browser
            return 403, body_of(403, "Without SNAPAPP_INTERNAL_TOKEN, /internal answers only to localhost")
        return None


class TooLarge(HTTPException):
    """The body has more bytes than were announced or than are accepted. It is an HTTPException, because FastAPI turns
    any other error while it reads a body into a 400."""

    def __init__(self, most: int) -> None:
        super().__init__(413, f"The body is larger than {most} bytes", {"Connection": "close"})


class TooSlow(HTTPException):
    """The body did not arrive in time."""

    def __init__(self) -> None:
        super().__init__(408, "The rest of the body did not come in time", {"Connection": "close"})


class _Exchange:
    """One request and its answer."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        web_priority: WebPriority,
        headers: dict[bytes, bytes],
        *,
        body: Body,
        running: Running,
        is_leaving: Callable[[], bool],
    ) -> None:
        self.began = monotonic()
        self.id = _clean_id(headers.get(b"x-request-id", b""))
        self.status: int | None = None
        self.fields = {"fields": {"requestId": self.id}}
        self._receive = receive
        self._send = send
        self._web_priority = web_priority
        self._body = body
        self._running = running
        self._is_leaving = is_leaving
        self._is_whole = False
        self._is_at_work = False
        self._received = 0
        self._waited = 0.0
        self._streams_since: float | None = None
        if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
            self._arrive()

    async def receive(self) -> Message:
        message = await (self._receive() if self._is_whole else self._more())
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            if self._received > self._body.most:
                raise TooLarge(self._body.most)
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
            if self._is_leaving():
                message["headers"].append((b"connection", b"close"))
            self.end()  # the rest depends on the network, so the worker may go on
            if any(
                value.startswith(b"text/event-stream") for name, value in message["headers"] if name == b"content-type"
            ):
                self._streams_since = monotonic()
        await self._send(message)

    async def answer(self, status: int, body: dict[str, Any], *besides: tuple[bytes, bytes]) -> None:
        content = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode()), *besides]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": content})

    def took(self) -> float:
        """How long the answer took to its end, or for a stream, which the client ends, to its beginning."""
        return (self._streams_since or monotonic()) - self.began

    def end(self) -> None:
        """Called when the answer begins, and when there is none."""
        if self._is_at_work:
            self._is_at_work = False
            self._running.count -= 1
            self._web_priority.depart()

    def _arrive(self) -> None:
        self._is_whole = True
        if not self._is_at_work and self.status is None:
            self._is_at_work = True
            self._running.count += 1
            self._web_priority.arrive()


def _headers(scope: Scope) -> dict[bytes, bytes]:
    return dict(scope["headers"])


def _clean_id(given: bytes) -> str:
    """The request's id: the client's, reduced to 64 printable ASCII characters because it goes into logs and rows, or a
    new one."""
    clean = re.sub(rb"[^\x21-\x7e]", b"", given)[:REQUEST_ID_MAX].decode()
    return clean or uuid.uuid4().hex


def _is_internal(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.startswith("/internal") or _path_of_route(scope).startswith("/internal")


def _shows_a_token(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether the request has anything that could be a guessed token."""
    has_header = b"x-internal-token" in headers or b"x-assinatura-token" in headers
    return has_header or _is_sign_in(scope) or _path_of_route(scope).startswith("/sign-in/")


def _token_shown(scope: Scope) -> bytes | None:
    """The token in the request's path or headers, with whose it claims to be; None where it is in the body, which is
    not read here. Of a header that is there twice both count: it is not decided here which one is looked at."""
    path = _path_of_route(scope)
    if _is_sign_in(scope):
        return None
    if path.startswith("/sign-in/"):
        return path.encode("utf-8", "surrogatepass")
    return b"\n".join(value for name, value in scope["headers"] if name in _OF_TOKENS)


_OF_TOKENS = {b"x-internal-token", b"x-assinatura-codigo", b"x-assinatura-token"}


def _is_sign_in(scope: Scope) -> bool:
    return scope["method"] == "POST" and _path_of_route(scope) in ("/v2/session", "/sign-in")


def _is_upload(scope: Scope) -> bool:
    path = _path_of_route(scope)
    if path.startswith("/v2/uploads/"):
        return scope["method"] in ("PATCH", "POST")  # POST replaces PATCH in networks that block PATCH
    return scope["method"] == "POST" and path == "/v2/videos"


def _path_of_route(scope: Scope) -> str:
    """The path as routes see it, without the prefix of `uvicorn --root-path /app`."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def may_know(scope: Scope, keys: Keys) -> bool:
    """Whether the client may see reasons, which name hosts, users and paths: on this machine, or with a token."""
    headers = _headers(scope)
    return keys.role_of(headers) is not None or _is_of_this_machine(scope, headers)


def _is_of_this_machine(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    return is_here(scope) and _is_meant_for_here(headers)


def _is_meant_for_here(headers: dict[bytes, bytes]) -> bool:
    """Whether the request is meant for localhost. A page of another site can reach localhost too, by a host name of its
    own or across sites."""
    host = headers.get(b"host", b"localhost").lower()
    name = re.sub(r":\d+$", "", host.decode("latin-1")).strip("[]")
    crossed = headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")
    origin = headers.get(b"origin", host).lower().rpartition(b"://")[2]  # for browsers that send no Sec-Fetch-Site
    return name in _LOCAL_NAMES and not crossed and origin == host


_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}

"""What every request passes through: its id, the check of the internal token, the limit on its body, the priority of
requests over jobs, and counting."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from snapapp.api.http.errors import asked_for, body_of
from snapapp.api.http.requests.access import Access, is_of_this_machine
from snapapp.api.http.requests.body_memory import BodyMemory
from snapapp.api.http.requests.exchange import Body, Exchange, Running, request_id
from snapapp.api.http.requests.route_counts import Traffic, pattern_of
from snapapp.api.http.requests.scopes import headers_of, is_internal, path_of_route
from snapapp.api.http.requests.tokens import Keys, Role, shows_a_token, token_shown
from snapapp.jobs import tracing
from snapapp.jobs.worker.capacity.web_priority import WebPriority

_log = logging.getLogger(__name__)

# status, body, perhaps a header
_Refusal = tuple[int, dict[str, Any]] | tuple[int, dict[str, Any], tuple[bytes, bytes]]

RUNNING_MAX = 1000  # requests at work; one whose body is still arriving costs little and does not count
_DIGITS_MAX = 20  # of a body's length; int() raises for thousands, even if all of them are zeros
_UNTRACED = ("/actuator", "/metrics")  # asked every few seconds, and of no interest in a trace
_READS = ("GET", "HEAD", "OPTIONS")
_ALWAYS_ANSWERED = ("/actuator/health", "/actuator/liveness", "/actuator/readiness")


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
        self._traffic = traffic
        self._keys = keys
        self._access = access
        self._is_leaving = is_leaving
        self._running = Running(web_priority)
        self._bodies = BodyMemory()
        self._has_cut_short = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = headers_of(scope)
        body = Body.of(scope, self._upload_max)
        exchange = Exchange(
            receive,
            send,
            headers,
            body=body,
            share=self._bodies.share_of(scope),
            running=self._running,
            is_leaving=self._is_leaving,
        )
        request_id.set(exchange.id)
        try:
            if refusal := self._refusal(scope, headers, body.most):
                await exchange.answer(*refusal)
            else:
                await self._run_traced(scope, headers, exchange)
        except asyncio.CancelledError:
            if not self._is_leaving():
                raise
            await self._cut_short(scope, exchange)
        except Exception:
            _log.exception("A request failed: %s", asked_for(scope), extra=exchange.fields)
            if exchange.status is None:
                await exchange.answer(500, body_of(500, "Internal server error"))
            else:
                raise  # a part of the answer is sent: the connection is cut, so that the client notices
        finally:
            exchange.forget()
            if self._keys.refuse(headers) or (exchange.status == 401 and shows_a_token(scope, headers)):
                self._access.was_wrong(scope, token_shown(scope))
            self._traffic.count(scope, exchange.status or 500, exchange.took())

    async def _cut_short(self, scope: Scope, exchange: Exchange) -> None:
        """Answers a request that the server, which leaves, has waited for long enough. For each of them uvicorn would
        log a traceback, of the fifty that a bucket without answer held; one line names the first."""
        if not self._has_cut_short:
            self._has_cut_short = True
            _log.warning("The server leaves without the answers that it waited for; the first: %s", asked_for(scope))
        if exchange.status is None:
            await exchange.answer(503, body_of(503, "The server stops, try again"), (b"retry-after", b"5"))

    async def _run_traced(self, scope: Scope, headers: dict[bytes, bytes], exchange: "Exchange") -> None:
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
        if self._running.count > RUNNING_MAX and not path_of_route(scope).startswith(_ALWAYS_ANSWERED):
            return 503, body_of(503, "Too many requests at once, try again"), (b"retry-after", b"5")
        if shows_a_token(scope, headers) and (seconds := self._access.wait_for(scope)):
            come_back = (b"retry-after", str(seconds).encode())
            return 429, body_of(429, f"Too many wrong tokens: wait {seconds} s"), come_back
        if not is_internal(scope):
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
        if not is_of_this_machine(scope):
            # without a token only this machine may ask, and no web page of another site in its browser
            return 403, body_of(403, "Without SNAPAPP_INTERNAL_TOKEN, /internal answers only to localhost")
        return None

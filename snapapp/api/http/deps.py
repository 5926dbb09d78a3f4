"""The dependencies of routes: the monolith, a connection, the request's id. All but the connections are async: FastAPI
would run others in threads, and while all threads wait for the database even a health check would hang."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, TypeVar, cast
from urllib.parse import unquote

import sqlalchemy.exc
from fastapi import Depends, Header, Request
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from snapapp.api.http.header_text import as_sent
from snapapp.api.http.requests.exchange import request_id
from snapapp.jobs.rows.people.audit import Actor
from snapapp.postgres.connections import CHECKOUT_TIMEOUT
from snapapp.postgres.database import session
from snapapp.process.monolith import Monolith

T = TypeVar("T")


async def monolith(request: Request) -> Monolith:
    return cast(Monolith, request.app.state.monolith)


MonolithDep = Annotated[Monolith, Depends(monolith)]


def of_process(request: Request, name: str, make: Callable[[], T]) -> T:
    """A value of this process, made for the first request that needs it."""
    state = request.app.state
    if not hasattr(state, name):
        setattr(state, name, make())
    return cast(T, getattr(state, name))


async def _turn(request: Request, monolith: MonolithDep) -> AsyncIterator[None]:
    """A turn to have a connection while the route's function waits for its thread. Whoever waits for a turn takes no
    thread: while all threads waited for the pool, nobody who had a connection could go on. One connection is left to
    the functions that take one in their own thread, and so give it back without another."""
    turns = of_process(request, "turns", lambda: asyncio.Semaphore(max(1, monolith.settings.web_connections - 1)))
    try:
        async with asyncio.timeout(CHECKOUT_TIMEOUT):
            await turns.acquire()
    except TimeoutError:
        raise sqlalchemy.exc.TimeoutError("No connection became free") from None
    try:
        yield
    finally:
        turns.release()


Turn = Annotated[None, Depends(_turn, scope="function")]


def _reading(monolith: MonolithDep, _turn: Turn) -> Iterator[Connection]:
    """A connection in autocommit: this saves a round trip, and leaves no transaction open."""
    with monolith.web.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


def _writing(monolith: MonolithDep, _turn: Turn) -> Iterator[Connection]:
    with monolith.web.begin() as connection:
        yield connection


def _transaction(monolith: MonolithDep, _turn: Turn) -> Iterator[Session]:
    with session(monolith.web) as db, db.begin():
        yield db


# With this scope the code after `yield` runs before the response is sent, so the response is true: its changes are
# committed.
Reading = Annotated[Connection, Depends(_reading, scope="function")]
Writing = Annotated[Connection, Depends(_writing, scope="function")]
Transaction = Annotated[Session, Depends(_transaction, scope="function")]  # for mapped classes


async def _request_id() -> str:
    return request_id.get()


RequestId = Annotated[str, Depends(_request_id)]


_NAME_MAX = 80


async def _actor(
    monolith: MonolithDep,
    request_id: RequestId,
    operator_header: Annotated[
        str | None,
        Header(alias="X-Operator", description="Who asks, percent-encoded; it stands in the audit.", examples=["ana"]),
    ] = None,
) -> Actor:
    name = "".join(each for each in unquote(as_sent(operator_header or "")) if each.isprintable()).strip()[:_NAME_MAX]
    door = "this machine" if monolith.settings.internal_token is None else "token"
    return Actor(name, door, request_id)


Who = Annotated[Actor, Depends(_actor)]

"""The product's own connections to the database: the web's pool, and one for a command."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import sqlalchemy
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from snapapp.jobs.rows.database import open_connection, sqlalchemy_url
from snapapp.postgres.database import session
from snapapp.settings.table import Settings

_CHECKOUT_TIMEOUT = 5  # seconds a request waits for a connection before it is told to come again
_SETTINGS = {
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "60s",
    "timezone": "UTC",
}


@contextmanager
def web_engine(url: str, settings: Settings) -> Iterator[Engine]:
    """A pool of the web's own: however busy the worker is, a request finds a connection. In the end all of them are
    cut: a request that waits for a silent database would keep its thread, and so the process, for ever."""
    engine = sqlalchemy.create_engine(
        sqlalchemy_url(url),
        pool_size=settings.web_connections,
        max_overflow=0,
        pool_timeout=_CHECKOUT_TIMEOUT,
        pool_pre_ping=True,  # a restarted server costs no request
        hide_parameters=True,
        connect_args={
            "application_name": "snapapp web",
            "connect_timeout": 3,
            "tcp_user_timeout": 10_000,
            "prepare_threshold": 3 if settings.prepared_statements else None,
        },
    )
    lines: set[psycopg.Connection[Any]] = set()
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "connect", lambda connection, _: lines.add(connection))
    event.listen(engine, "close", lambda connection, _: lines.discard(connection))
    try:
        yield engine
    finally:
        engine.dispose()
        for connection in list(lines):
            _cut(connection)


def _connect(_dialect: object, _record: object, arguments: Any, parameters: Any) -> psycopg.Connection[Any]:
    return open_connection(*arguments, settings=_SETTINGS, **parameters)


def _cut(connection: psycopg.Connection[Any]) -> None:
    """Below psycopg, which another thread may be using at this moment: that one sees the server hang up."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


@contextmanager
def transaction(url: str) -> Iterator[Session]:
    """One, on a connection of its own: for commands and for the start. Committed in the end."""
    engine = sqlalchemy.create_engine(
        sqlalchemy_url(url),
        poolclass=sqlalchemy.NullPool,
        hide_parameters=True,
        connect_args={"application_name": "snapapp cli", "connect_timeout": 10},
    )
    with session(engine) as db, db.begin():
        db.connection().exec_driver_sql(
            "SELECT set_config('statement_timeout', '60s', true), set_config('timezone', 'UTC', true)"
        )
        yield db

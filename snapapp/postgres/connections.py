"""The product's own connections to the database: the web's pool, and one for a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from snapapp.jobs.rows.database import cut, engine_connections, leave_read_only_server, sqlalchemy_url
from snapapp.postgres.database import session
from snapapp.settings.table import Settings

CHECKOUT_TIMEOUT = 5  # seconds a request waits for a connection before it is told to come again
_SETTINGS = {
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "60s",
}


@contextmanager
def web_engine(url: str, settings: Settings) -> Iterator[Engine]:
    """The web's own pool, so that a request gets a connection however busy the worker is. At the end its connections
    are shut down: a request that waits for a database without answer would otherwise keep the process from ending."""
    engine = sqlalchemy.create_engine(
        sqlalchemy_url(url),
        pool_size=settings.web_connections,
        max_overflow=0,
        pool_timeout=CHECKOUT_TIMEOUT,
        pool_pre_ping=True,  # so that no request fails after a restart of the server
        hide_parameters=True,
        connect_args={
            "application_name": "snapapp web",
            "connect_timeout": 3,
            "tcp_user_timeout": 10_000,
            "prepare_threshold": 3 if settings.prepared_statements else None,
        },
    )
    lines: set[psycopg.Connection[Any]] = set()
    event.listen(engine, "do_connect", engine_connections(_SETTINGS))
    event.listen(engine, "handle_error", leave_read_only_server)
    event.listen(engine, "connect", lambda connection, _: lines.add(connection))
    event.listen(engine, "close", lambda connection, _: lines.discard(connection))
    try:
        yield engine
    finally:
        engine.dispose()
        for connection in list(lines):
            cut(connection)


@contextmanager
def transaction(url: str) -> Iterator[Session]:
    """A transaction on a connection of its own, for commands and for the start; committed at the end of the block."""
    engine = sqlalchemy.create_engine(
        sqlalchemy_url(url),
        poolclass=sqlalchemy.NullPool,
        hide_parameters=True,
        connect_args={"application_name": "snapapp cli", "connect_timeout": 10},
    )
    event.listen(engine, "do_connect", engine_connections({}))
    with session(engine) as db, db.begin():
        db.connection().exec_driver_sql(
            "SELECT set_config('statement_timeout', '60s', true), set_config('timezone', 'UTC', true)"
        )
        yield db

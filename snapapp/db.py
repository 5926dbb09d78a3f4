"""The database in use, and the web's connections to it."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import psycopg
import sqlalchemy
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, event

from snapapp import postgres
from snapapp.errors import PostgresError, SnapError
from snapapp.settings import Settings

_CHECKOUT_TIMEOUT = 5  # seconds a request waits for a connection before it is told to come again
_STATEMENT_TIMEOUT = "30s"


@contextmanager
def in_use(settings: Settings, *, create: bool = False) -> Iterator[str]:
    """The URL of the database in use: the one that is set, else the embedded one, for as long as we need it."""
    if settings.database_url:
        yield settings.database_url
        return
    try:
        server = postgres.start(settings.data_dir, create=create)
    except PostgresError as error:
        if settings.data_dir.exists():
            raise
        places = " and ".join(settings.looked_in)
        raise PostgresError(f"{error} (SNAPAPP_DATABASE_URL was looked for in {places}.)") from error
    with server:
        yield server.url


def sqlalchemy_url(url: str) -> sqlalchemy.URL:
    """The same address, with the driver's name in it. The queue has its own: neither knows the other."""
    return sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")


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
    opened: set[psycopg.Connection[Any]] = set()
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "connect", lambda connection, _: opened.add(connection))
    event.listen(engine, "close", lambda connection, _: opened.discard(connection))
    try:
        yield engine
    finally:
        engine.dispose()
        for connection in list(opened):
            _cut(connection)


def _set_up(connection: psycopg.Connection[Any], _record: object) -> None:
    connection.autocommit = True
    connection.execute(
        "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', '5s', false),"
        " set_config('idle_in_transaction_session_timeout', '60s', false), set_config('timezone', 'UTC', false)",
        [_STATEMENT_TIMEOUT],
    )
    connection.autocommit = False


def _cut(connection: psycopg.Connection[Any]) -> None:
    """Below psycopg, which another thread may be using at this moment: that one sees the server hang up."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


@contextmanager
def transaction(url: str) -> Iterator[Connection]:
    """One, on a connection of its own: for commands and for the start. Committed in the end."""
    engine = sqlalchemy.create_engine(
        sqlalchemy_url(url),
        poolclass=sqlalchemy.NullPool,
        hide_parameters=True,
        connect_args={"application_name": "snapapp cli", "connect_timeout": 10},
    )
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "SELECT set_config('statement_timeout', '60s', true), set_config('timezone', 'UTC', true)"
        )
        yield connection


# --- the tenant -------------------------------------------------------------------------------------------------

# A plan made for any value suits none: half of all animals are female, one has the ear tag A777. (At 100,000 snaps
# 1,167 ms from the sixth execution on, when PostgreSQL turns to a generic plan; 6 ms before.)
_ENTER = """
WITH outside AS MATERIALIZED (
    SELECT current_setting('role') AS role, coalesce(current_setting('snapapp.tenant', true), '') AS tenant,
           current_setting('plan_cache_mode') AS plans
)
SELECT outside.role, outside.tenant, outside.plans, set_config('role', 'snapapp_tenant', true),
       set_config('snapapp.tenant', %(tenant)s, true), set_config('plan_cache_mode', 'force_custom_plan', true)
  FROM outside
"""

_LEAVE = """
SELECT set_config('role', %(role)s, true), set_config('snapapp.tenant', %(tenant)s, true),
       set_config('plan_cache_mode', %(plans)s, true)
"""


@contextmanager
def scope(connection: Connection, tenant: str) -> Iterator[None]:
    """Within, the connection's transaction sees and writes the rows of this tenant and nothing else, whatever a
    statement says: row level security, in a role that owns nothing. Needs a transaction; one that is over in the
    middle takes the scope with it."""
    if not tenant:
        raise ValueError("a scope is somebody's")
    line = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    if line.autocommit:
        raise ValueError("a scope holds within a transaction, and this connection commits by itself")
    [(role, outside, plans, *_)] = connection.exec_driver_sql(_ENTER, {"tenant": tenant}).fetchall()
    try:
        yield
    finally:
        if line.info.transaction_status is TransactionStatus.INTRANS:  # elsewhere the rollback puts both back
            connection.exec_driver_sql(_LEAVE, {"role": role, "tenant": outside, "plans": plans})


# --- the budget -------------------------------------------------------------------------------------------------

ALLOWED_CONNECTIONS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
     - coalesce(current_setting('reserved_connections', true), '0')::int
"""


def check_budget(url: str, needed: int) -> None:
    """Found out at the start, not when the last connection is gone and a person waits."""
    with psycopg.connect(url, connect_timeout=5, application_name="snapapp start") as connection:
        [(allowed,)] = connection.execute(ALLOWED_CONNECTIONS).fetchall()
    if needed > allowed:
        raise SnapError(
            f"This process may need {needed} connections and the server allows {allowed}: lower "
            "SNAPAPP_WEB_CONNECTIONS or SNAPAPP_WORKER_CONCURRENCY, or raise its max_connections."
        )

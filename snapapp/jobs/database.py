"""Opens the worker's own connections (autocommit, deadlines on both sides, no session state that matters) and runs
statements on them or on the caller's."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, cast

import psycopg
import sqlalchemy
from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.rows import TupleRow
from sqlalchemy.orm import Session

Row = TupleRow
Rows = list[tuple[Any, ...]]
Db = Connection[Any] | sqlalchemy.Connection | Session
Connect = Callable[[str], Connection[Row]]  # purpose -> a new connection

KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # a half-open connection ends in 30 s, not in hours
}

PREPARE_AFTER = 3  # executions of a statement


class _RawJson(Loader):
    """Leaves jsonb as it came: most jobs never look at their payload, so it is decoded when asked for."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class _RawBinaryJson(_RawJson):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)[1:]  # the first byte is jsonb's version


def sqlalchemy_url(url: str) -> str:
    """The same address, with the driver's name in it."""
    return re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", url)


def connect(
    url: str,
    *,
    name: str,
    statement_timeout: timedelta = timedelta(seconds=30),
    lock_timeout: timedelta = timedelta(seconds=2),
    prepared_statements: bool = True,
    **options: Any,
) -> Connection[Row]:
    """An autocommit connection. Nothing set here is needed for correctness, so a pooler may sit in between."""
    connection = psycopg.connect(url, autocommit=True, application_name=name, **KEEPALIVE, **options)
    connection.prepare_threshold = PREPARE_AFTER if prepared_statements else None
    connection.adapters.register_loader("jsonb", _RawJson)
    connection.adapters.register_loader("jsonb", _RawBinaryJson)
    connection.execute(
        # A generic plan saves the claim 0.8 ms of planning; its statements are written so that the plan is right.
        "SELECT set_config('plan_cache_mode', 'force_generic_plan', false),"
        " set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),"
        " set_config('idle_in_transaction_session_timeout', %s, false), set_config('timezone', 'UTC', false)",
        [_milliseconds(statement_timeout), _milliseconds(lock_timeout), _milliseconds(statement_timeout)],
    )
    return connection


def run(db: Db, sql: str, parameters: Mapping[str, Any]) -> Rows:
    """One SQL, two carriers: text with psycopg placeholders, on psycopg itself or through SQLAlchemy."""
    if isinstance(db, psycopg.Connection):
        return db.execute(cast(Any, sql), parameters).fetchall()
    connection = db.connection() if isinstance(db, Session) else db
    return cast(Rows, connection.exec_driver_sql(sql, dict(parameters)).fetchall())


def _milliseconds(duration: timedelta) -> str:
    return str(int(duration.total_seconds() * 1000))


class Line:
    """A connection that comes back: opened when first used, closed by any failure of its own, opened again."""

    def __init__(self, connect: Callable[[], Connection[Row]]) -> None:
        self._connect = connect
        self._connection: Connection[Row] | None = None
        self._opening = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[Connection[Row]]:
        with self._opening:  # two duties may come at once, and the second must not open another
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            connection = self._connection
        try:
            yield connection
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self.close()
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

"""A worker's SQLAlchemy engines: one for hooks, one for the connections that jobs borrow. No other file of a worker
imports SQLAlchemy, and this file is imported only when an engine is needed, to save its memory."""

from typing import Any

import psycopg
import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import PoolResetState

from snapapp.jobs.rows.database import (
    KEEPALIVE,
    PREPARE_AFTER,
    engine_connections,
    leave_read_only_server,
    sqlalchemy_url,
)
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker.connections import BEFORE_EACH_STATEMENT


def hook_engine(settings: JobsSettings) -> Engine:
    return _engine(settings, "hooks", settings.hooks, PREPARE_AFTER if settings.prepared_statements else None)


def job_engine(settings: JobsSettings) -> Engine:
    """The pool that jobs borrow from. Between two jobs a connection is reset: no setting, temporary table or lock of
    one job reaches the next."""
    # never prepared: DISCARD ALL would remove prepared statements unknown to psycopg
    engine = _engine(settings, "job", max(1, settings.job_connections), None, pool_reset_on_return=None)
    event.listen(engine, "reset", _discard_all)
    event.listen(engine, "before_cursor_execute", _check_before_statement)
    return engine


def _engine(settings: JobsSettings, name: str, size: int, prepare_threshold: int | None, **options: Any) -> Engine:
    engine = sqlalchemy.create_engine(
        sqlalchemy_url(settings.database_url),
        pool_size=size,
        max_overflow=0,
        pool_timeout=30,
        pool_pre_ping=True,
        hide_parameters=True,  # payloads and results do not belong in error messages
        connect_args={**KEEPALIVE, "application_name": f"snapapp {name}", "prepare_threshold": prepare_threshold},
        **options,
    )
    event.listen(engine, "do_connect", engine_connections({}))
    event.listen(engine, "handle_error", leave_read_only_server)
    return engine


def close(engine: Engine) -> None:
    """Closes the pool. Connections that are lent out are closed when they come back; SQLAlchemy alone would leave them
    to the garbage collector."""
    event.listen(engine.pool, "checkin", lambda _driver, record: record.invalidate())
    engine.dispose()


def _check_before_statement(connection: Connection, *_statement: object) -> None:
    if check := connection.info.get(BEFORE_EACH_STATEMENT):
        check()


def _discard_all(driver: psycopg.Connection[Any], _record: object, state: PoolResetState) -> None:
    if not state.terminate_only:
        driver.rollback()
        driver.autocommit = True
        driver.execute("DISCARD ALL")
        driver.autocommit = False

"""SQLAlchemy's engines of a worker: one for the hooks, one for what jobs borrow. The only part of a worker that imports
SQLAlchemy, and imported itself only when one of them is asked for."""

from typing import Any

import psycopg
import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import PoolResetState

from snapapp.jobs.rows.database import KEEPALIVE, PREPARE_AFTER, sqlalchemy_url
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker.connections import BEFORE_EACH_STATEMENT


def made(purpose: str, settings: JobsSettings) -> Engine:
    return {"hooks": hook_engine, "jobs": job_engine}[purpose](settings)


def hook_engine(settings: JobsSettings) -> Engine:
    return sqlalchemy.create_engine(
        sqlalchemy_url(settings.database_url),
        pool_size=settings.hooks,
        max_overflow=0,
        pool_timeout=30,
        pool_pre_ping=True,
        hide_parameters=True,  # payloads and results do not belong in error messages
        connect_args={
            **KEEPALIVE,
            "application_name": "snapapp hooks",
            "prepare_threshold": PREPARE_AFTER if settings.prepared_statements else None,
        },
    )


def job_engine(settings: JobsSettings) -> Engine:
    """The pool. Nothing that a job leaves on a connection (settings, temporary tables, locks) is there for the next."""
    engine = sqlalchemy.create_engine(
        sqlalchemy_url(settings.database_url),
        pool_size=max(1, settings.job_connections),
        max_overflow=0,
        pool_timeout=30,
        pool_pre_ping=True,
        pool_reset_on_return=None,  # ours does it
        hide_parameters=True,
        connect_args={
            **KEEPALIVE,
            "application_name": "snapapp job",
            "prepare_threshold": None,  # DISCARD ALL would take them away again
        },
    )
    event.listen(engine, "reset", _discard_all)
    event.listen(engine, "before_cursor_execute", _ask_first)
    return engine


def close(engine: Engine) -> None:
    """Also what is out: it is closed as it comes back, which SQLAlchemy would leave to the garbage collector."""
    event.listen(engine.pool, "checkin", lambda _driver, record: record.invalidate())
    engine.dispose()


def _ask_first(connection: Connection, *_statement: object) -> None:
    if ask := connection.info.get(BEFORE_EACH_STATEMENT):
        ask()


def _discard_all(driver: psycopg.Connection[Any], _record: object, state: PoolResetState) -> None:
    if not state.terminate_only:
        driver.rollback()
        driver.autocommit = True
        driver.execute("DISCARD ALL")
        driver.autocommit = False

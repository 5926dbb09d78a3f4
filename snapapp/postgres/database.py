"""Sessions on the database in use, and the tenant whose rows they see."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from snapapp.errors import SnapError
from snapapp.settings.table import Settings


def session(bind: Engine | Connection) -> Session:
    """A session whose rows can still be read after its end. Given a connection, the session leaves the transaction to
    the connection's owner."""
    return Session(bind, expire_on_commit=False, join_transaction_mode="rollback_only")


# --- the tenant -------------------------------------------------------------------------------------------------

# force_custom_plan, because no single plan suits all values: half of all animals are female, one has the ear tag A777.
# (Measured with 100,000 snaps: 6 ms, and 1,167 ms from the sixth execution on, when PostgreSQL uses a generic plan.)
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


def enter(db: Session, tenant: str) -> Callable[[], None]:
    """From here on the session's transaction sees and writes only the rows of this tenant, whatever a statement says:
    it runs under row level security, in a role that owns nothing. Returns a function that leaves the tenant before the
    end of the transaction."""
    if not tenant:
        raise ValueError("a scope is somebody's")
    connection = db.connection()
    line = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    if line.autocommit:
        raise ValueError("a scope holds within a transaction, and this connection commits by itself")
    [(role, before, plans, *_)] = connection.exec_driver_sql(_ENTER, {"tenant": tenant}).fetchall()

    def leave() -> None:
        # if the transaction has ended, its end has reset these settings
        if not connection.closed and line.info.transaction_status is TransactionStatus.INTRANS:
            connection.exec_driver_sql(_LEAVE, {"role": role, "tenant": before, "plans": plans})

    return leave


@contextmanager
def scope(db: Session | Connection, tenant: str) -> Iterator[Session]:
    """Like `enter`, for a part of a transaction. What the session has to write is flushed at the end of the block."""
    own = db if isinstance(db, Session) else session(db)
    leave = enter(own, tenant)
    try:
        yield own
        own.flush()
    finally:
        leave()


@contextmanager
def unfiltered(db: Session) -> Iterator[None]:
    """For what is read outside of a tenant's scope: in this block the server refuses a role from which row level
    security would hide rows, such as one that only reads. It would be told that there is no such tenant."""
    db.connection().exec_driver_sql("SET LOCAL row_security = off")
    yield
    db.connection().exec_driver_sql("SET LOCAL row_security = on")  # an error has ended the transaction


# --- the budget -------------------------------------------------------------------------------------------------

_ALLOWED_CONNECTIONS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
     - coalesce(current_setting('reserved_connections', true), '0')::int
"""


def connections_needed(settings: Settings) -> int:
    """How many connections one process needs: the web's pool, the health check, the two streams, and its worker's."""
    return settings.web_connections + 3 + (settings.jobs("").connections if settings.worker_enabled else 0)


def check_budget(url: str, needed: int, *, who: str, lower: str) -> None:
    """Raises SnapError at the start if the server allows too few connections, so that no request fails for it later."""
    with psycopg.connect(url, connect_timeout=5, application_name="snapapp start") as connection:
        [(allowed,)] = connection.execute(_ALLOWED_CONNECTIONS).fetchall()
    if needed > allowed:
        raise SnapError(
            f"{who} may need {needed} connections and the server allows {allowed}: lower {lower}, or raise its "
            "max_connections."
        )

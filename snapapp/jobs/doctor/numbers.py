"""Numbers about the database server for a page. The checks judge them; some of the SQL statements are the checks'."""

import shutil
from dataclasses import dataclass

from snapapp.jobs.doctor.finding import one_line
from snapapp.jobs.doctor.tables import BACKENDS, OURS, PREPARED, SLOTS, TABLES, Holder, Table
from snapapp.jobs.rows.database import Db, run

_SERVER = """
SELECT current_setting('server_version'), extract(epoch FROM now() - pg_postmaster_start_time())::float8,
       pg_database_size(current_database()), current_setting('max_connections')::int,
       (inet_server_addr() IS NULL OR inet_server_addr() <<= '127.0.0.0/8' OR inet_server_addr() = '::1')
           AND pg_has_role('pg_read_all_settings', 'USAGE')
"""

_SESSIONS = """
SELECT coalesce(nullif(application_name, ''), 'without a name'), coalesce(state, 'unknown'), count(*),
       extract(epoch FROM clock_timestamp() - min(xact_start))::float8
  FROM pg_stat_activity WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'
 GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 50
"""


@dataclass(frozen=True, slots=True)
class Sessions:
    """How many sessions of one application are in one state."""

    application: str
    state: str
    sessions: int
    oldest_transaction: float | None  # seconds


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A session, prepared transaction or replication slot that keeps vacuum from removing dead rows."""

    who: str
    transactions: int
    seconds: float | None  # how long it has done so; None: not known
    doing: str


@dataclass(frozen=True, slots=True)
class Server:
    version: str
    up_for: float  # seconds
    database_bytes: int
    connections: int
    max_connections: int
    disk_free_bytes: int | None  # None: the server's disk cannot be seen from here
    tables: list[Table]
    sessions: list[Sessions]
    horizon: list[HeldBack]  # the oldest first


def look(db: Db) -> Server:
    [(version, up_for, size, most, may_look)] = run(db, _SERVER, {})
    sessions = [Sessions(*row) for row in run(db, _SESSIONS, {})]
    ours = [oid for oid, _ in run(db, OURS, {})]
    tables = [Table(*row) for row in run(db, TABLES, {"ours": ours})]
    connections = sum(each.sessions for each in sessions)
    free = _free(db) if may_look else None
    return Server(version, up_for, size, connections, most, free, tables, sessions, _horizon(db))


def _free(db: Db) -> int | None:
    [(folder,)] = run(db, "SELECT current_setting('data_directory')", {})
    try:
        return shutil.disk_usage(folder).free
    except OSError:  # this process may not read a folder above it
        return None


def _horizon(db: Db) -> list[HeldBack]:
    held = [_of_backend(Holder(*row)) for row in run(db, BACKENDS, {})]
    held += [HeldBack(f"prepared transaction {gid}", back, old, "") for gid, _, old, back in run(db, PREPARED, {})]
    slots = run(db, SLOTS, {})
    held += [HeldBack(f"replication slot {name}", back, None, "") for name, _, _, back, _ in slots if back]
    return sorted(held, key=lambda its: -its.transactions)


def _of_backend(its: Holder) -> HeldBack:
    doing = f"{its.state or its.type}: {one_line(its.query, 100)}" if its.query else its.state or its.type
    return HeldBack(f"pid {its.pid} ({its.name})", its.back, its.seconds, doing)

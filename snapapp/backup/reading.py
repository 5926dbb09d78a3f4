"""The role in which a backup reads every tenant's rows. Row level security applies even to the owner of the tables, so
a dump is made in a role that may bypass it: the connection's own role if it may, else snapapp_backup. Membership in
snapapp_backup gives the owner no new power, as the owner could switch row level security off; it only needs to be
granted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from snapapp.backup.errors import BackupError
from snapapp.jobs.rows.database import open_connection

Db = psycopg.Connection[tuple[Any, ...]]
ROLE = "snapapp_backup"
_LOCK = 0x736E6170  # "snap": one backup of a database at a time

_SEES_ALL = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
_MAY_BECOME = "SELECT coalesce((SELECT pg_has_role(oid, 'MEMBER') FROM pg_roles WHERE rolname = %s), false)"

# In the order of their names, so that two lists can be compared by eye. Tables of extensions (PostGIS, pg_cron) are
# left out, because a dump has them as the extension only: CREATE EXTENSION fills them, in its own version.
_TABLES = """
SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
 WHERE relkind IN ('r', 'p') AND NOT relispartition AND nspname <> 'information_schema' AND nspname !~ '^pg_'
   AND NOT EXISTS (SELECT FROM pg_depend
                    WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')
 ORDER BY 1
"""
# The roles that something is granted to, or that a policy is for (0 stands for PUBLIC). The rights that a superuser has
# as owner are left out, because no dump contains them.
_ROLES = """
SELECT DISTINCT rolname FROM pg_roles JOIN (
    SELECT (aclexplode(relacl)).grantee, relowner AS owner FROM pg_class
    UNION SELECT (aclexplode(attacl)).grantee, relowner FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    UNION SELECT (aclexplode(nspacl)).grantee, nspowner FROM pg_namespace
    UNION SELECT (aclexplode(proacl)).grantee, proowner FROM pg_proc
    UNION SELECT (aclexplode(typacl)).grantee, typowner FROM pg_type
    UNION SELECT unnest(polroles), 0 FROM pg_policy) AS named ON named.grantee = pg_roles.oid
 WHERE rolname !~ '^pg_' AND NOT (rolsuper AND grantee = owner) AND rolname <> current_user
 ORDER BY 1
"""


# The transaction of the snapshot stays idle while pg_dump reads, for hours perhaps. pg_dump lifts these limits for its
# own connection.
_LIFT_LIMITS = """
SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN (
    'idle_in_transaction_session_timeout', 'idle_session_timeout', 'statement_timeout', 'transaction_timeout')
"""


def connect(url: str) -> Db:
    return open_connection(url, settings={}, autocommit=True, connect_timeout=10, application_name="snapapp backup")


@contextmanager
def connected(url: str) -> Iterator[Db]:
    with connect(url) as db:
        db.execute(_LIFT_LIMITS)
        yield db


def require_sessions(url: str) -> None:
    """Refuses a pooler that takes any free connection for each transaction. The lock, the limits, and what pg_dump sets
    before its transaction (the role that sees all rows, among others) would stay behind on connections of the API, and
    be missing where pg_dump reads."""
    with connect(url) as one, connect(url) as other:
        mine = _one(one, "SELECT pg_backend_pid()")
        if mine == _one(other, "SELECT pg_backend_pid()") or _one(one, "SELECT pg_backend_pid()") != mine:
            raise BackupError(
                "SNAPAPP_DATABASE_URL leads through a pooler in transaction mode, where pg_dump and pg_restore cannot "
                "work. For this command, set it to the address of PostgreSQL itself."
            )


@contextmanager
def alone(url: str) -> Iterator[None]:
    """Allows one backup of a database at a time: a second one would delete the unfinished files of the first."""
    require_sessions(url)
    with connected(url) as db:
        if not _one(db, "SELECT pg_try_advisory_lock(%s)", _LOCK):
            raise BackupError("Another backup of this database is being made.")
        yield


def role(db: Db) -> str | None:
    """The role to act in; None: the connection's own role will do."""
    if _one(db, _SEES_ALL):
        return None
    if _one(db, _MAY_BECOME, ROLE):
        return ROLE
    [me] = db.execute("SELECT quote_ident(current_user)").fetchone() or ("?",)
    raise BackupError(
        f"{me} may not read the rows of all tenants. As a superuser of the database, type: "
        f"CREATE ROLE {ROLE} NOLOGIN BYPASSRLS; GRANT pg_read_all_data TO {ROLE}; GRANT {ROLE} TO {me};"
    )


def act_as(db: Db, name: str | None) -> None:
    if name:
        db.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(name)))


def tables(db: Db) -> list[str]:
    return [name for (name,) in db.execute(_TABLES)]


def rows(db: Db) -> dict[str, int]:
    """The number of rows of every table, in the caller's transaction, which must be one snapshot."""
    counts = {}
    for name in tables(db):
        # format('%I') has quoted the name
        [count] = db.execute(f"SELECT count(*) FROM {name}".encode()).fetchone() or (0,)  # noqa: S608
        counts[name] = int(count)
    return counts


def roles(db: Db) -> tuple[str, ...]:
    return tuple(name for (name,) in db.execute(_ROLES))


def major(db: Db) -> int:
    return db.info.server_version // 10_000


def _one(db: Db, statement: str, *values: object) -> Any:
    [answer] = db.execute(statement.encode(), values).fetchone() or (None,)
    return answer

"""Brings a database to the schema that this code needs: Alembic, one transaction, an advisory lock around it."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from snapapp.errors import MigrationError
from snapapp.jobs.database import sqlalchemy_url

_LOCK = 7_266_823_110_001  # any constant will do; two starters take turns on it


def migrations_folder() -> Path:
    """Beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).parent
    for folder in (package.parent / "migrations", package / "_migrations"):
        if (folder / "env.py").exists():
            return folder
    raise MigrationError(f"the folder migrations/ is missing beside {package}")


def migrate(
    url: str,
    target: str = "head",
    *,
    down: bool = False,
    if_new: Callable[[sqlalchemy.Connection], object] | None = None,
) -> str | None:
    """Runs what is missing and returns the revision reached. Two callers at once are fine: the second finds it done.
    What a database that was empty is to begin with, `if_new` adds in the same transaction."""
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), poolclass=sqlalchemy.NullPool)
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("SET LOCAL statement_timeout = '10min'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        # DDL that waits behind a long query makes everybody else wait behind it: give up soon, try again later
        connection.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
        is_new = _refuse_unknown(connection, config) is None
        config.attributes["connection"] = connection
        try:
            (command.downgrade if down else command.upgrade)(config, target)
        except sqlalchemy.exc.OperationalError as error:
            if isinstance(error.orig, psycopg.errors.LockNotAvailable):
                raise MigrationError(
                    "a table is in use by a long transaction; nothing was changed, try again"
                ) from error
            raise
        except sqlalchemy.exc.ProgrammingError as error:
            if isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
                raise MigrationError(f"{error.orig.diag.message_primary}; nothing was changed") from error
            raise
        if is_new and if_new:
            if_new(connection)
        return MigrationContext.configure(connection).get_current_revision()


def is_current(url: str) -> bool:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), poolclass=sqlalchemy.NullPool)
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return current == ScriptDirectory.from_config(config).get_current_head()


def _refuse_unknown(connection: sqlalchemy.Connection, config: Config) -> str | None:
    """The revision that it has; None: it is empty."""
    current = MigrationContext.configure(connection).get_current_revision()
    if current is not None and current not in {
        script.revision for script in ScriptDirectory.from_config(config).walk_revisions()
    }:
        raise MigrationError(
            f"the database is at revision {current}, which this code does not know: it is older than the database"
        )
    if current is None and connection.exec_driver_sql("SELECT to_regclass('snap_processing_job')").scalar():
        raise MigrationError(
            "the database already holds a table snap_processing_job that is not ours (the old service's?): "
            "use an empty database, and bring the old one's rows over with `snapapp import-legacy DSN`"
        )
    return current

"""Migrates a database to the schema that this code needs: by Alembic, in one transaction, under an advisory lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from snapapp.jobs.errors import MigrationFailed
from snapapp.jobs.rows.database import engine_connections, sqlalchemy_url
from snapapp.jobs.schema import QUEUE, History, check_server, migrations_folder

_LOCK = 7_266_823_110_001  # an arbitrary constant; two processes that migrate at once take turns by it


def migrate(url: str, *, schema: str | None = None) -> str:
    """Creates the queue's tables, functions and views, or brings them up to date; returns their revision. It touches
    nothing else in the database, and keeps the revision in a table of its own, `job_version`.

    The objects are created in the first schema of the URL's search_path, usually `public`, or in `schema`, which is
    created if need be. With a `schema`, every connection that enqueues or works needs it on its search_path; a URL sets
    that with `?options=-csearch_path%3Djobs,public`.
    """
    with transaction(url) as db:
        if schema is not None:
            _enter_schema(db, schema)
        revision = upgrade(db, QUEUE)
        if schema is not None:
            db.execution_options(no_parameters=True).exec_driver_sql(_BIND_NEW_FUNCTIONS)
        return revision


@contextmanager
def transaction(url: str) -> Iterator[sqlalchemy.Connection]:
    """The transaction of a migration. Two migrations at once take turns; the second one has nothing left to do."""
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), poolclass=sqlalchemy.NullPool)
    sqlalchemy.event.listen(engine, "do_connect", engine_connections({"lock_timeout": "0"}))  # takes its turn
    with engine.connect() as db, db.begin():
        check_server(cast("psycopg.Connection[Any]", db.connection.driver_connection))
        db.exec_driver_sql("SET LOCAL statement_timeout = '10min'")
        db.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        # While DDL waits for a long query, every other query waits behind the DDL: give up soon, try again later.
        db.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
        try:
            yield db
        except sqlalchemy.exc.OperationalError as error:
            if isinstance(error.orig, psycopg.errors.LockNotAvailable):
                raise MigrationFailed(
                    "a table is in use by a long transaction; nothing was changed, try again"
                ) from error
            raise
        except sqlalchemy.exc.InternalError as error:
            if isinstance(error.orig, psycopg.errors.ReadOnlySqlTransaction):
                raise MigrationFailed(
                    "the database takes no writes: it is a standby, or default_transaction_read_only is on; "
                    "nothing was changed"
                ) from error
            raise
        except sqlalchemy.exc.ProgrammingError as error:
            if isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
                raise MigrationFailed(f"{error.orig.diag.message_primary}; nothing was changed") from error
            raise


def upgrade(db: sqlalchemy.Connection, history: History) -> str:
    _refuse_unknown(db, history)
    command.upgrade(_config(db, history), "head")
    return history.head


def downgrade(db: sqlalchemy.Connection, history: History) -> None:
    command.downgrade(_config(db, history), "base")


def revision(db: sqlalchemy.Connection, history: History) -> str | None:
    options = {"version_table": history.version_table}
    return MigrationContext.configure(db, opts=options).get_current_revision()


def scripts(history: History) -> ScriptDirectory:
    return ScriptDirectory.from_config(_config(None, history))


def _config(db: sqlalchemy.Connection | None, history: History) -> Config:
    config = Config(attributes={"connection": db, "version_table": history.version_table})
    config.set_main_option("path_separator", "newline")  # a folder's name may hold the other separators
    config.set_main_option("script_location", _escaped(migrations_folder()))
    config.set_main_option("version_locations", _escaped(history.folder))
    return config


def _escaped(path: object) -> str:
    return str(path).replace("%", "%%")


def _refuse_unknown(db: sqlalchemy.Connection, history: History) -> None:
    current = revision(db, history)
    if current is not None and current not in {script.revision for script in scripts(history).walk_revisions()}:
        raise MigrationFailed(
            f"the database is at revision {current}, which this code does not know: it is older than the database"
        )
    if current is not None or history is not QUEUE:
        return
    if db.exec_driver_sql("SELECT to_regclass('snap_processing_job')").scalar():
        raise MigrationFailed(
            "the database already holds a table snap_processing_job that is not ours (the old service's?): "
            "use an empty database, and bring the old one's rows over with `snapapp import-legacy DSN`"
        )


def _enter_schema(db: sqlalchemy.Connection, schema: str) -> None:
    name = db.dialect.identifier_preparer.quote_identifier(schema)
    if not db.exec_driver_sql("SELECT to_regnamespace(%(name)s)", {"name": name}).scalar():
        db.exec_driver_sql(f"CREATE SCHEMA {name}")
    db.exec_driver_sql("SELECT set_config('search_path', %(name)s, true)", {"name": name})


# Sets the search_path of the queue's functions, so that they find its tables whatever the caller's search_path is. Only
# functions created in this transaction are changed, because the schema may hold functions of others.
_BIND_NEW_FUNCTIONS = """
DO $$
DECLARE it regprocedure;
BEGIN
    FOR it IN SELECT oid FROM pg_proc
               WHERE pronamespace = quote_ident(current_schema())::regnamespace AND xmin = pg_current_xact_id()::xid
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', it, current_schema());
    END LOOP;
END $$
"""

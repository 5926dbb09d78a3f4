"""Databases for tests. To make and drop one takes a processor 17 ms, to clean one 7, and the first statements of a new
connection 8: where a test has only written some rows, the next one gets the same database, cleaned. It is renamed, so
that nobody who was in it finds it again, or, where only the test's own connection was, given with that connection."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep
from typing import Any

import psycopg
import sqlalchemy
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from snapapp.jobs.rows.database import PREPARE_AFTER, Row, connect, sqlalchemy_url
from snapapp.postgres.migrate import migrate

_MIGRATED = "migrated"
_PATIENCE = 3000  # looks, of a millisecond and more each
_FEW = 300  # rows: of more, their dead versions would be in the way of the next test

# Where anything was written in these, it was more than rows of tables.
_CATALOGS = (
    *("pg_class", "pg_attribute", "pg_attrdef", "pg_proc", "pg_trigger", "pg_constraint", "pg_index", "pg_type"),
    *("pg_policy", "pg_rewrite", "pg_namespace", "pg_extension", "pg_default_acl", "pg_event_trigger"),
    *("pg_description", "pg_depend", "pg_publication", "pg_statistic_ext", "pg_largeobject_metadata"),
)
_WRITTEN = "pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid)"

# In one question, because several took a processor a millisecond more: is a database as it was migrated but for rows of
# tables, and, where so many of its sessions are ours, was nobody else in it? Whoever is gone was counted, whoever is
# there is listed. And in which tables were rows written, and how many?
_LEFT = f"""
SELECT (%(ours)s::int IS NULL OR EXISTS (
           SELECT FROM pg_database AS this
            WHERE datname = current_database() AND pg_stat_get_db_sessions(this.oid) <= %(ours)s
              AND NOT EXISTS (SELECT FROM pg_stat_get_activity(NULL) AS its
                               WHERE its.datid = this.oid AND its.pid <> pg_backend_pid())))
   AND NOT EXISTS (SELECT FROM unnest(%(catalogs)s::regclass[]) AS its (oid) WHERE {_WRITTEN} > 0)
   AND NOT EXISTS (SELECT FROM unnest(%(tables)s::oid[]) AS its (oid)
                    WHERE greatest(pg_stat_get_last_vacuum_time(oid), pg_stat_get_last_autovacuum_time(oid),
                                   pg_stat_get_last_analyze_time(oid), pg_stat_get_last_autoanalyze_time(oid))
                          IS NOT NULL)
   AND NOT EXISTS (SELECT FROM pg_db_role_setting
                     JOIN pg_database AS this ON this.oid = setdatabase WHERE datname = current_database())
   AND NOT EXISTS (SELECT FROM pg_prepared_xacts WHERE database = current_database()),
       coalesce(array_agg(oid), '{{}}'), coalesce(sum(written), 0)
  FROM (SELECT oid, {_WRITTEN} AS written FROM unnest(%(tables)s::oid[]) AS its (oid)) AS every
 WHERE written > 0
"""
_REWIND = """
SELECT count(setval(oid::regclass, coalesce(last, first), last IS NOT NULL))
  FROM unnest(%s::oid[], %s::bigint[], %s::bigint[]) AS its (oid, first, last)
 WHERE pg_sequence_last_value(oid) IS DISTINCT FROM last
"""


class Postgres:
    """A running server and the databases that tests get from it."""

    def __init__(self, url: str, pooled: str = "") -> None:
        """Databases are made directly, and used through the pooler, if there is one."""
        self._url = pooled or url
        self._admin = psycopg.connect(_url_of(url, "postgres"), autocommit=True)
        self._left: list[str] = []  # by tests that are over
        self._versions: dict[str, str] = {}  # of those that may be left to another test
        self._kept: dict[str, _Kept] = {}
        self._compiled: tuple[sqlalchemy.Dialect, Any] | None = None  # and the statements that it has compiled
        self._names = (f"test_{number}" for number in itertools.count())
        version = self._admin.info.server_version
        # copying files is four times as quick as logging them; PostgreSQL 14 knows no other way
        self._copied = "STRATEGY FILE_COPY" if version >= 150000 else ""
        if not self._admin.execute("SELECT FROM pg_database WHERE datname = %s", [_MIGRATED]).rowcount:
            self._admin.execute(f"CREATE DATABASE {_MIGRATED}")
            migrate(_url_of(url, _MIGRATED))
        # a pooler keeps its connections, and before version 15 what was written is counted late
        self._may_clean = version >= 150000 and not pooled
        with psycopg.connect(_url_of(url, _MIGRATED), autocommit=True) as db:
            self._as_made = _Content.of(db)

    def url_of(self, database: str) -> str:
        return _url_of(self._url, database)

    @contextmanager
    def database(self, template: str) -> Iterator[str]:
        name = (self._take_over() if template == _MIGRATED else None) or next(self._names)
        if name not in self._versions:
            self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} {self._copied}")
            if template == _MIGRATED and self._may_clean:
                self._versions[name] = self._version(name)
        try:
            yield self.url_of(name)
        finally:
            self._left.append(name)

    @contextmanager
    def connection(self, url: str) -> Iterator[psycopg.Connection[Row]]:
        """The test's own, as a worker opens it."""
        name = str(sqlalchemy.make_url(url).database)
        kept = self._kept.pop(name, None) or _Kept(connect(url, name="test"), counted=1)
        try:
            yield kept.connection
        finally:
            if name in self._versions and kept.is_as_new():
                self._kept[name] = kept
            else:
                kept.connection.close()

    @contextmanager
    def engine(self, url: str) -> Iterator[sqlalchemy.Engine]:
        """What the first has learned of the server, and its statements, compiled, are those of all: each would ask and
        compile anew, which took a sixth of the time of the tests that have one."""
        engine = sqlalchemy.create_engine(sqlalchemy_url(url), _initialize=self._compiled is None)
        if self._compiled is None:
            engine.connect().close()
            self._compiled = engine.dialect, engine._compiled_cache
        engine.dialect, engine._compiled_cache = self._compiled
        try:
            yield engine
        finally:
            engine.dispose()

    def _take_over(self) -> str | None:
        """The name of one that is left. Those that do not do are dropped, here and not when they are left: DROP waits
        100 ms for a backend that is just ending."""
        while self._left:
            left = self._left.pop()
            if self._versions.get(left, None) == self._version(left) != "":
                if left in self._kept and self._clean_through(self._kept[left]):
                    return left
                self._forget(left)
                if self._clean(left):
                    name = next(self._names)
                    self._admin.execute(f"ALTER DATABASE {left} RENAME TO {name}")
                    self._versions.pop(left)
                    self._versions[name] = self._version(name)
                    return name
            self._forget(left)
            self._versions.pop(left, None)
            self._admin.execute(f"DROP DATABASE IF EXISTS {left} WITH (FORCE)")
        return None

    def _forget(self, name: str) -> None:
        if kept := self._kept.pop(name, None):
            kept.connection.close()

    def _clean_through(self, kept: "_Kept") -> bool:
        try:
            kept.connection.execute("SELECT pg_stat_force_next_flush()")
            is_restored = self._as_made.restore(kept.connection, ours=kept.counted)
        except psycopg.Error:
            return False
        kept.counted = 0
        return is_restored

    def _version(self, name: str) -> str:
        """Changes with the database's own row: its name, its owner, who may connect. Empty: there is none."""
        found = self._admin.execute("SELECT xmin::text FROM pg_database WHERE datname = %s", [name]).fetchone()
        return found[0] if found else ""

    def _clean(self, name: str) -> bool:
        if not self._empty(name):
            return False
        try:
            with psycopg.connect(self.url_of(name), autocommit=True) as db:
                is_restored = self._as_made.restore(db)
        except psycopg.OperationalError:  # a test may have closed it to everybody
            return False
        return is_restored and self._empty(name)

    def _empty(self, name: str) -> bool:
        """Whether nobody is in it any more: something that a test has left behind may come again and again."""
        leave = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        for _ in range(_PATIENCE):
            if not self._admin.execute(leave, [name]).fetchall():
                return True
            sleep(0.001)
        return False

    def close(self) -> None:
        for name in list(self._kept):
            self._forget(name)
        self._admin.close()


@dataclass(slots=True)
class _Kept:
    """The connection of a test that is over."""

    connection: psycopg.Connection[Row]
    counted: int  # of the sessions that the server has counted in the database since it was cleaned, those of ours

    def is_as_new(self) -> bool:
        db = self.connection
        if db.closed or db.info.transaction_status != TransactionStatus.IDLE or not db.autocommit:
            return False
        try:
            db.execute("DISCARD ALL")
        except psycopg.Error:
            return False
        db._prepared.clear()
        handlers = (*db._notice_handlers, *db._notify_handlers, *(db._notifies_backlog or ()))
        return (db.row_factory, db.prepare_threshold) == (tuple_row, PREPARE_AFTER) and not handlers


@dataclass(frozen=True, slots=True)
class _Content:
    """What is in a database that was just migrated. Copies of it have the same oids."""

    names: dict[int, str]  # of its tables, by oid
    rows: dict[int, Sequence[bytes]]  # of the tables that are not empty
    rewind: bytes  # a statement that sets the sequences back

    @classmethod
    def of(cls, db: psycopg.Connection[Any]) -> "_Content":
        ours = "relnamespace = 'public'::regnamespace"
        names = dict(
            db.execute(f"SELECT oid, oid::regclass::text FROM pg_class WHERE relkind = 'r' AND {ours}").fetchall()
        )
        rows: dict[int, Sequence[bytes]] = {}
        for oid, name in names.items():
            if db.execute(f"SELECT EXISTS (SELECT FROM {name})").fetchone() == (True,):
                with db.cursor().copy(f"COPY {name} TO STDOUT") as copy:
                    rows[oid] = [bytes(line) for line in copy]
        sequences = db.execute(
            "SELECT seqrelid, seqstart, pg_sequence_last_value(seqrelid) FROM pg_sequence"
        ).fetchall()
        return cls(
            names,
            rows,
            psycopg.ClientCursor(db)
            .mogrify(_REWIND, [list(column) for column in zip(*sequences, strict=True)])
            .encode(),
        )

    def restore(self, db: psycopg.Connection[Any], *, ours: int | None = None) -> bool:
        """False: more was done to it than some rows written, or somebody else was there, where that matters."""
        asked = {"ours": ours, "catalogs": list(_CATALOGS), "tables": list(self.names)}
        may_be_cleaned, changed, written = db.execute(_LEFT, asked).fetchone() or (False, [], 0)
        if not may_be_cleaned or written > _FEW:
            return False
        # no triggers, and foreign keys in any order
        emptying = ["BEGIN", "SET LOCAL session_replication_role = replica"]
        db.execute("; ".join([*emptying, *(f"DELETE FROM {self.names[oid]}" for oid in changed)]).encode())
        for oid in self.rows.keys() & {*changed}:
            with db.cursor().copy(f"COPY {self.names[oid]} FROM STDIN") as copy:
                for line in self.rows[oid]:
                    copy.write(line)
        # else the end of this connection would count the above
        db.execute(self.rewind + b"; COMMIT; SELECT pg_stat_force_next_flush()")
        db.execute("SELECT pg_stat_reset()")
        return True


def _url_of(url: str, database: str) -> str:
    return sqlalchemy.make_url(url).set(database=database).render_as_string(hide_password=False)

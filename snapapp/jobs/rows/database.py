"""Opens the worker's own connections and runs statements, on these or on the caller's. The worker's are autocommit,
have timeouts on client and server, and depend on no session state, so that a pooler may stand between."""

import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, urlencode

import psycopg
from psycopg import Connection, errors
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, Format, PGconn, TransactionStatus
from psycopg.rows import TupleRow, tuple_row

from snapapp.jobs.errors import JobsError
from snapapp.jobs.os.waiting import readable

if TYPE_CHECKING:  # a caller that passes one of these has imported SQLAlchemy; a worker without hooks never does
    import sqlalchemy
    from sqlalchemy.orm import Session, scoped_session

    SqlDb = sqlalchemy.Connection | Session | scoped_session[Any]
    Db = Connection[Any] | SqlDb
else:
    Db = object

T = TypeVar("T")
R = TypeVar("R")

Row = TupleRow
Rows = list[tuple[Any, ...]]
Connect = Callable[[str], Connection[Row]]  # purpose -> a new connection

KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # a half-open connection ends in 30 s, not in hours
}

# Whatever the environment, the role or the database says: our statements hold characters that LATIN1 lacks, and with
# SQL_ASCII psycopg returns bytes for text.
ENCODING: dict[str, Any] = {"client_encoding": "utf8"}

# The same of what our statements and psycopg depend on. In another isolation a claim that has waited for its lock does
# not see the jobs that began meanwhile, and goes beyond a limit; psycopg reads dates and intervals in one style only.
_ALWAYS = {
    "default_transaction_isolation": r"read\ committed",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "standard_conforming_strings": "on",
    "row_security": "on",
    "array_nulls": "on",
    "extra_float_digits": "1",  # with fewer, numbers are rounded: the doctor saw a clock that was years ahead
    "timezone": "UTC",
    "idle_session_timeout": "0",  # a worker that listens is idle
    # The server's half of KEEPALIVE: when a network fails in silence, our old sessions would stay on the server for two
    # hours, and after a few such failures the new ones are refused (max_connections).
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

PREPARE_AFTER = 3  # executions after which psycopg prepares a statement


class _RawJson(Loader):
    """Leaves jsonb as bytes: most jobs never read their payload, so it is decoded on first use."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class _RawBinaryJson(_RawJson):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)[1:]  # the first byte is jsonb's version


def sqlalchemy_url(url: str) -> str:
    """The URL as SQLAlchemy needs it: with the driver's name, and with the host in the query. It is made of what libpq
    has read, because SQLAlchemy reads some URLs in another way: a + in the query as a blank, a host that is written
    with %2F (the folder of a socket) as a name, and several hosts as one."""
    scheme, separator, rest = url.partition("://")
    parts = conninfo_to_dict(scheme.partition("+")[0] + separator + rest) | ENCODING
    user, password, database = (parts.pop(name, None) for name in ("user", "password", "dbname"))
    secret = "" if password is None else f":{quote(str(password), safe='')}"
    who = f"{quote(str(user or ''), safe='')}{secret}@"
    return f"postgresql+psycopg://{who}/{quote(str(database or ''), safe='')}?{urlencode(parts)}"


def connect(
    url: str,
    *,
    name: str,
    statement_timeout: timedelta = timedelta(seconds=30),
    lock_timeout: timedelta = timedelta(seconds=2),
    prepared_statements: bool = True,
    **options: Any,
) -> Connection[Row]:
    """Opens an autocommit connection of the worker's own."""
    connection = open_connection(
        url,
        settings={
            # A generic plan saves 0.8 ms of planning per claim; our statements are written so that it is a good one.
            "plan_cache_mode": "force_generic_plan",
            # A generic plan made while a table was empty is kept after the table has grown, until it is analysed. So
            # no plan may read a whole table where an index exists. That inflates cost estimates, so JIT is off, too.
            "enable_seqscan": "off",
            "jit": "off",
            "statement_timeout": _milliseconds(statement_timeout),
            "lock_timeout": _milliseconds(lock_timeout),
            "idle_in_transaction_session_timeout": _milliseconds(statement_timeout),
        },
        autocommit=True,
        application_name=name,
        **KEEPALIVE,
        **options,
    )
    connection.prepare_threshold = PREPARE_AFTER if prepared_statements else None
    connection.adapters.register_loader("jsonb", _RawJson)
    connection.adapters.register_loader("jsonb", _RawBinaryJson)
    return connection


def open_connection(
    conninfo: str = "", *, settings: Mapping[str, str], options: str | None = None, **arguments: Any
) -> Connection[Row]:
    """Opens a connection with these settings as startup parameters: a SET would stay on a pooler's server connection
    for its next client. Where a pooler refuses startup parameters, it connects without them: nothing relies on them
    but where the role or the database has strange ones. Options in the URL come after ours, so they win."""
    arguments |= ENCODING
    caller = conninfo_to_dict(conninfo) | arguments
    caller_options = options or caller.get("options") or _options_from_elsewhere(caller.get("service"))
    our_options = [f"-c {name}={value}" for name, value in {**_ALWAYS, **settings}.items()]
    try:
        connection = psycopg.connect(conninfo, options=" ".join([*our_options, str(caller_options)]), **arguments)
    except psycopg.OperationalError as error:
        if "unsupported startup parameter" not in str(error):
            raise
        connection = psycopg.connect(conninfo, options=options, **arguments)
    _require_readable_dates(connection)
    return connection


def _require_readable_dates(connection: Connection[Row]) -> None:
    """PGDATESTYLE in the environment wins over our options, and psycopg reads ISO only. The server has told the style
    when it answered, and poolers keep it for each client, so here a SET stays where it belongs."""
    if not (connection.info.parameter_status("DateStyle") or "ISO").startswith("ISO"):
        connection.pgconn.exec_(b"SET datestyle = ISO")  # outside of any transaction, so no rollback takes it back


def engine_connections(settings: Mapping[str, str]) -> Callable[..., Connection[Row]]:
    """For SQLAlchemy's event do_connect: opens an engine's connections with these settings."""

    def connect(_dialect: object, _record: object, arguments: Any, parameters: Any) -> Connection[Row]:
        return open_connection(*arguments, settings=settings, **parameters)

    return connect


def leave_read_only_server(context: Any) -> None:
    """For SQLAlchemy's event handle_error: empties the pool. Sessions that are read-only, because another server takes
    writes now or because somebody set default_transaction_read_only, stay so for as long as they live."""
    if isinstance(context.original_exception, errors.ReadOnlySqlTransaction):
        context.is_disconnect = True


def _options_from_elsewhere(service: str | None) -> str:
    """Those of a service file, else PGOPTIONS: libpq ignores them when `options` is passed, so we pass them on."""
    found = Conninfo.get_defaults()  # with those of PGSERVICE
    if service:
        # libpq reads the file of a named service only when it connects; this address it gives up at once
        attempt = PGconn.connect_start(make_conninfo(service=service, host=os.devnull).encode())
        found = attempt.info
        attempt.finish()
    return next((each.val or b"" for each in found if each.keyword == b"options"), b"").decode()


def run(db: Db, sql: str, parameters: Mapping[str, Any]) -> Rows:
    """Runs a statement with psycopg placeholders, on psycopg directly or through SQLAlchemy, and fetches all rows."""
    if isinstance(db, psycopg.Connection):
        return _plain_cursor(db).execute(cast(Any, sql), parameters).fetchall()
    return cast(Rows, _connection(db).exec_driver_sql(sql, dict(parameters)).fetchall())


def _plain_cursor(db: Connection[Any]) -> psycopg.Cursor[TupleRow]:
    """A cursor that returns tuples, because the caller's connection may make dicts, or cursors that take other
    placeholders."""
    return psycopg.Cursor(db, row_factory=tuple_row)


def run_prepared(db: Db, sql: str, parameters: Mapping[str, Any]) -> Rows:
    """As `run`, but prepares the statement when it first runs, and reads its placeholders once: psycopg reads those of
    a statement above 4,096 bytes at each execution, which for the claim took a tenth of a millisecond."""
    if not isinstance(db, psycopg.Connection):
        return run(db, sql, parameters)
    numbered, names = _numbered(sql)
    return psycopg.RawCursor(db).execute(numbered, [parameters[name] for name in names], prepare=True).fetchall()


def array(values: Iterable[float]) -> str:
    """Numbers as the text of a PostgreSQL array: ten times as fast as psycopg's adaptation of a list."""
    return "{" + ",".join(map(str, values)) + "}"


def array_of_texts(values: Iterable[str]) -> str:
    """Likewise. All are quoted, because unquoted NULL, commas and braces mean something else."""
    return "{" + ",".join(['"' + value.replace("\\", r"\\").replace('"', r"\"") + '"' for value in values]) + "}"


@cache
def _numbered(sql: str) -> tuple[bytes, list[str]]:
    """Returns the statement with $1, $2 … in place of its named placeholders, and their names in this order."""
    placeholder = re.compile(r"%\((\w+)\)s")
    names = list(dict.fromkeys(placeholder.findall(sql)))
    numbered = placeholder.sub(lambda found: f"${names.index(found[1]) + 1}", sql)
    return numbered.replace("%%", "%").encode(), names


Refusals = Mapping[str | None, type[JobsError]]  # by SQLSTATE


@contextmanager
def refusals(known: Refusals, *, of_constraints: bool = False) -> Iterator[None]:
    """Turns what our SQL functions refuse into our errors, with the same message. An error that names a constraint
    comes from elsewhere, such as a user's trigger, unless the functions leave checks to constraints."""
    try:
        yield
    except Exception as error:
        refusal: Any = getattr(error, "orig", error)  # SQLAlchemy wraps psycopg's errors
        ours = known.get(getattr(refusal, "sqlstate", None))
        if ours is None or (refusal.diag.constraint_name and not of_constraints):
            raise
        raise ours(refusal.diag.message_primary) from error


def value_of(kind: type[T], row: Sequence[Any], **read: Callable[[Any], Any]) -> T:
    """Makes a dataclass of a row whose columns have the order of its fields; the values of the fields in `read` go
    through these functions."""
    names: Mapping[str, Any] = kind.__dataclass_fields__  # type: ignore[attr-defined]
    values = dict(zip(names, row, strict=True))
    return kind(**values | {name: function(values[name]) for name, function in read.items()})


def _milliseconds(duration: timedelta) -> str:
    return str(int(duration.total_seconds() * 1000))


_OF_THE_SERVER = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,  # this process was frozen within a transaction
)
# A statement waited too long, was too large, was in conflict with another transaction (40), or met a row that a trigger
# refuses or that cannot be read (58).
_OF_A_STATEMENT = ("40", "55", "57014", "54", "58")
# Where the server refuses every write, because its transaction numbers run out. It uses the SQLSTATE of what is too
# large, and a message in its own language.
_OUT_OF_NUMBERS = ("GetNewTransactionId", "GetNewMultiXactId")


def is_away(error: BaseException) -> bool:
    """Is the cause the server or the connection (broken, gone, full, read-only, pool empty) or a right that our role
    lacks, not the rows written? Then the same statement is worth another try."""
    cause = getattr(error, "orig", error)
    if isinstance(cause, _OF_THE_SERVER):
        is_of_statement = (getattr(cause, "sqlstate", None) or "").startswith(_OF_A_STATEMENT)
        return not is_of_statement or _is_out_of_numbers(cause)
    sqlalchemy_errors = sys.modules.get("sqlalchemy.exc")  # without SQLAlchemy loaded no pool of it is empty
    return _is_denied(cause) or (sqlalchemy_errors is not None and isinstance(cause, sqlalchemy_errors.TimeoutError))


def _is_out_of_numbers(error: BaseException) -> bool:
    return isinstance(error, errors.ProgramLimitExceeded) and error.diag.source_function in _OUT_OF_NUMBERS


def _is_denied(error: BaseException) -> bool:
    """PostgreSQL asks for rights before it looks at a row. What a trigger lacks has a context, and may depend on the
    row; so does what row-level security refuses, in another function."""
    return (
        isinstance(error, errors.InsufficientPrivilege)
        and error.diag.source_function == "aclcheck_error"
        and not error.diag.context
    )


def waited_in_vain(error: BaseException) -> bool:
    """Did the statement time out, or its transaction, or did it wait too long for a lock of another one?"""
    cause = getattr(error, "orig", error)
    return isinstance(cause, errors.LockNotAvailable | errors.QueryCanceled | errors.TransactionTimeout)


def was_in_conflict(error: BaseException) -> bool:
    """Did the server roll the transaction back because of others, as in a deadlock (class 40)? It may end well the next
    time; but a trigger may also say so of a row each time."""
    return (getattr(getattr(error, "orig", error), "sqlstate", None) or "").startswith("40")


def row_by_row(
    write: Callable[[Sequence[T]], Iterable[R]],
    rows: Sequence[T],
    refused: Callable[[T, Exception], None],
    *,
    can_wait: bool = False,
) -> list[R]:
    """Returns what `write` returns for all rows. Where PostgreSQL refuses them (a trigger, a CHECK added later), the
    rows are halved and tried again, until only the bad ones are left out, each reported to `refused`. Raises when the
    server is away. A row behind another transaction's lock is left out like a bad one, so that it holds up no other;
    if the rows `can_wait`, it raises instead."""
    if not rows:
        return []
    try:
        return [*write(rows)]
    except psycopg.Error as error:
        if is_away(error) or (can_wait and isinstance(error, errors.LockNotAvailable)):
            raise
        if len(rows) == 1:
            refused(rows[0], error)
            return []
    middle = len(rows) // 2
    halves = (rows[:middle], rows[middle:])
    return [result for half in halves for result in row_by_row(write, half, refused, can_wait=can_wait)]


def cut(connection: Connection[Any]) -> None:
    """Shuts the socket below psycopg, because another thread may be using the connection: to that thread it looks as if
    the server had hung up."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def place_of(connection: Connection[Any]) -> str:
    """Which server it leads to, of those that the URL names."""
    info = connection.info
    return f"{info.hostaddr or info.host} port {info.port}"


class Database:
    """A connection that is opened on first use, closed when it fails, and opened again on the next use. It is also
    opened again if the server or a proxy has hung up since the last use. After `close` it stays closed, also for a
    thread that is just opening it."""

    def __init__(self, connect: Callable[[], Connection[Row]]) -> None:
        self._connect = connect
        self._connection: Connection[Row] | None = None
        self._opening = threading.Lock()
        self._users = 0  # under the lock
        self._used_since: float | None = None  # monotonic; written under the lock
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection[Row]]:
        with self._opening:  # two duties may come at once, and must share one connection
            if self._users == 0 and self._connection and _has_news(self._connection):
                self.reset()
            connection = self._connection
            if (connection is None or connection.closed) and not self._is_closed:
                connection = self._connection = self._connect()
            if connection is None or self._is_closed:  # `close` may have been called while we connected
                self.reset()
                raise psycopg.InterfaceError("its owner has closed this connection for good")
            self._users += 1
            self._used_since = self._used_since or monotonic()
        try:
            yield connection
        except _OF_THE_SERVER:  # also a server that became a standby: another server takes writes now
            self.reset()
            raise
        finally:
            with self._opening:
                self._users -= 1
                if self._users == 0:
                    self._used_since = None

    @property
    def used_for(self) -> float:
        """Seconds since its present use began; 0 while nobody uses it."""
        since = self._used_since
        return 0.0 if since is None else monotonic() - since

    def cut(self, *, unless_at: str | None = None) -> bool:
        """Whoever uses it now gets an error, as if the server had hung up. Returns whether it was cut."""
        connection = self._connection
        with suppress(psycopg.Error):  # it is just being closed
            if connection is not None and not connection.closed and place_of(connection) != unless_at:
                cut(connection)
                return True
        return False

    def close(self) -> None:
        self._is_closed = True
        self.reset()

    def reset(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


def _has_news(connection: Connection[Any]) -> bool:
    """Can something be read while no statement runs? Nearly always that is the end of the connection."""
    return not connection.closed and bool(readable(connection.fileno(), within=0))


def together(db: Db) -> AbstractContextManager[object]:
    """Everything in the block happens, or nothing: a savepoint in the caller's transaction or, on an autocommit
    connection, a transaction."""
    if not isinstance(db, psycopg.Connection):
        driver = _driver(db)
        if not driver.autocommit:
            return db.begin_nested()
        db = driver  # on an autocommit connection SQLAlchemy sends no BEGIN, so psycopg must
    if not db.autocommit and db.info.transaction_status == TransactionStatus.IDLE:
        # begins the caller's transaction: db.transaction() would begin it, and so also commit it
        _plain_cursor(db).execute("SELECT")
    return db.transaction()


def _connection(db: "SqlDb") -> "sqlalchemy.Connection":
    """The connection of a Session. get_bind, which only sessions have, tells the two apart. TypeError: another driver
    than psycopg would send our placeholders to the server, which would abort the caller's transaction."""
    connection = cast("Session", db).connection() if hasattr(db, "get_bind") else db
    if connection.dialect.paramstyle != "pyformat":
        raise TypeError(
            "snapapp runs its statements by the driver psycopg (postgresql+psycopg://), not "
            f"{connection.dialect.driver}: there, execute SELECT enqueue_job('kind', '{{…}}')"
        )
    return connection


def _driver(db: "SqlDb") -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", _connection(db).connection.driver_connection)

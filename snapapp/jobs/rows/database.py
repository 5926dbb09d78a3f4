"""Opens the worker's own connections (autocommit, deadlines on both sides, no session state that matters) and runs
statements on them or on the caller's."""

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlencode

import psycopg
from psycopg import Connection, errors
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo, Format, TransactionStatus
from psycopg.rows import TupleRow

if TYPE_CHECKING:  # whoever hands us one of them has imported it; a worker for plain jobs need not
    import sqlalchemy
    from sqlalchemy.orm import Session

    Db = Connection[Any] | sqlalchemy.Connection | Session
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
    """The same address, with the driver's name in it, and several hosts where SQLAlchemy looks for them: it takes what
    libpq has before the path for a single one."""
    url = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", url)
    several = _SEVERAL_HOSTS.fullmatch(url)  # whole: a comma may be in a password, too
    if several is None:
        return url
    scheme, user, hosts, path, query = several.groups()
    found = conninfo_to_dict(f"postgresql://{hosts}")
    where = urlencode({name: found[name] for name in ("host", "port") if found.get(name)})
    return f"{scheme}{user or ''}{path or '/'}?{where}{f'&{query}' if query else ''}"


_SEVERAL_HOSTS = re.compile(r"([^:/]+://)([^@/?]*@)?([^@/?]*,[^@/?]*)(/[^?]*)?(?:\?(.*))?", re.DOTALL)


def connect(
    url: str,
    *,
    name: str,
    statement_timeout: timedelta = timedelta(seconds=30),
    lock_timeout: timedelta = timedelta(seconds=2),
    prepared_statements: bool = True,
    **options: Any,
) -> Connection[Row]:
    """An autocommit connection."""
    connection = opened(
        url,
        settings={
            # A generic plan saves the claim 0.8 ms of planning; its statements are written so that the plan is right.
            "plan_cache_mode": "force_generic_plan",
            # A plan made while a table was empty is kept when it has grown, until somebody analyses it: so none reads a
            # whole table where there is an index. What the others then seem to cost is no reason to compile them.
            "enable_seqscan": "off",
            "jit": "off",
            "statement_timeout": _milliseconds(statement_timeout),
            "lock_timeout": _milliseconds(lock_timeout),
            "idle_in_transaction_session_timeout": _milliseconds(statement_timeout),
            "timezone": "UTC",
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


def opened(
    conninfo: str = "", *, settings: Mapping[str, str], options: str | None = None, **given: Any
) -> Connection[Row]:
    """A connection that has these settings from its start on: what is SET on a session stays behind in a pooler, for
    whoever has its connection next. A pooler that does not let them through gives a connection without them: no promise
    depends on them. What the URL asks for comes after ours, and so holds."""
    theirs = options or conninfo_to_dict(conninfo).get("options") or _options_of_the_environment()
    ours = [f"-c {name}={value}" for name, value in settings.items()]
    try:
        return psycopg.connect(conninfo, options=" ".join([*ours, str(theirs)]), **given)
    except psycopg.OperationalError as error:
        if "unsupported startup parameter" not in str(error):
            raise
        return psycopg.connect(conninfo, options=options, **given)


def _options_of_the_environment() -> str:
    """PGOPTIONS, which an argument would hide."""
    return next((each.val or b"" for each in Conninfo.get_defaults() if each.keyword == b"options"), b"").decode()


def run(db: Db, sql: str, parameters: Mapping[str, Any]) -> Rows:
    """One SQL, two carriers: text with psycopg placeholders, on psycopg itself or through SQLAlchemy."""
    if isinstance(db, psycopg.Connection):
        return db.execute(cast(Any, sql), parameters).fetchall()
    return cast(Rows, _connection(db).exec_driver_sql(sql, dict(parameters)).fetchall())


def value_of(kind: type[T], row: Sequence[Any], **decoded: Any) -> T:
    """A row as a dataclass whose fields stand in the order of its columns, but for those that came encoded."""
    names: Mapping[str, Any] = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return kind(**dict(zip(names, row, strict=True)) | decoded)


def _milliseconds(duration: timedelta) -> str:
    return str(int(duration.total_seconds() * 1000))


_OF_THE_SERVER = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
_OF_A_STATEMENT = ("55P03", "57014", "54")  # these say nothing of the server: it waited too long, or was too much


def is_away(error: BaseException) -> bool:
    """The connection is broken, the server is gone, full or read-only, or the pool has none left: no row's fault, and
    worth trying again."""
    cause = getattr(error, "orig", error)
    if isinstance(cause, _OF_THE_SERVER):
        return not (getattr(cause, "sqlstate", None) or "").startswith(_OF_A_STATEMENT)
    return is_pool_empty(cause)


def is_pool_empty(error: BaseException) -> bool:
    """Somebody's pool of SQLAlchemy's, which is then imported."""
    theirs = sys.modules.get("sqlalchemy.exc")
    return theirs is not None and isinstance(error, theirs.TimeoutError)


def waited_in_vain(error: BaseException) -> bool:
    """Somebody held a lock for longer than the statement could wait."""
    return isinstance(getattr(error, "orig", error), errors.LockNotAvailable | errors.QueryCanceled)


def row_by_row(
    write: Callable[[Sequence[T]], Iterable[R]], rows: Sequence[T], refused: Callable[[T, Exception], None]
) -> list[R]:
    """What `write` returns for all of them; where PostgreSQL refuses it (a trigger, a CHECK that came later), for ever
    smaller parts: a row that nobody can write costs nothing but itself."""
    if not rows:
        return []
    try:
        return [*write(rows)]
    except psycopg.Error as error:
        if is_away(error):
            raise
        if len(rows) == 1:
            refused(rows[0], error)
            return []
    middle = len(rows) // 2
    return row_by_row(write, rows[:middle], refused) + row_by_row(write, rows[middle:], refused)


class Line:
    """A connection that comes back: opened when first used, closed by any failure of its own, opened again. Once closed
    by its owner it stays closed, for whoever is just opening it as well."""

    def __init__(self, connect: Callable[[], Connection[Row]]) -> None:
        self._connect = connect
        self._connection: Connection[Row] | None = None
        self._opening = threading.Lock()
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection[Row]]:
        with self._opening:  # two duties may come at once, and the second must not open another
            connection = self._connection
            if (connection is None or connection.closed) and not self._is_closed:
                connection = self._connection = self._connect()
            if connection is None or self._is_closed:  # perhaps while we were connecting
                self.reset()
                raise psycopg.InterfaceError("its owner has closed this connection for good")
        try:
            yield connection
        except _OF_THE_SERVER:  # a server that has become a standby as well: another one takes writes now
            self.reset()
            raise

    def close(self) -> None:
        self._is_closed = True
        self.reset()

    def reset(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


def together(db: Db) -> AbstractContextManager[object]:
    """All that is done within, or nothing: a savepoint in the caller's transaction; where each statement would commit
    by itself, a transaction."""
    if not isinstance(db, psycopg.Connection):
        driver = _driver(db)
        if not driver.autocommit:
            return db.begin_nested()
        db = driver  # SQLAlchemy sends no BEGIN there
    if not db.autocommit and db.info.transaction_status == TransactionStatus.IDLE:
        db.execute("SELECT")  # else psycopg takes the block for the caller's whole transaction, and commits it
    return db.transaction()


def _connection(db: "sqlalchemy.Connection | Session") -> "sqlalchemy.Connection":
    """That of a session, which differs by a method that only sessions have."""
    return cast("Session", db).connection() if hasattr(db, "get_bind") else db


def _driver(db: "sqlalchemy.Connection | Session") -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", _connection(db).connection.driver_connection)

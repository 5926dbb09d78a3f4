"""The connections that we open, and what a pooler that hands them round finds on them."""

import socket
import struct
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
import sqlalchemy
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import DiagnosticField

from snapapp.backup import reading
from snapapp.jobs import cli, migrations
from snapapp.jobs.doctor.examination import consulting
from snapapp.jobs.os.waiting import readable
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import Database, Row, connect, is_away, run_prepared, sqlalchemy_url
from snapapp.postgres.connections import transaction, web_engine
from snapapp.settings.table import Settings
from tests.factory import Db, at_once, claim, make_job, running_job, scalar
from tests.jobs.working import quick_settings


def test_a_line_that_two_threads_open_at_once_has_one_connection(url: str) -> None:
    """The sweep and the pruning share one; a second one would be left open and forgotten."""
    opened: list[psycopg.Connection[Row]] = []

    def open_one() -> psycopg.Connection[Row]:
        opened.append(connect(url, name="test"))
        return opened[-1]

    database = Database(open_one)

    def use() -> int:
        with database.connection() as db:
            return db.info.backend_pid

    assert len(set(at_once(*[use] * 8))) == 1
    assert len(opened) == 1
    database.reset()
    assert opened[0].closed
    use()
    database.close()
    with pytest.raises(psycopg.InterfaceError, match="for good"):
        use()
    assert all(connection.closed for connection in opened)


@pytest.mark.direct
def test_a_line_that_was_cut_while_nobody_used_it_is_opened_again(url: str, db: Db) -> None:
    """As by a proxy between two beats: each beat failed first, and no lost job was recovered in the time after it."""
    database = Database(lambda: connect(url, name="test"))
    with database.connection() as ours:
        before = ours.info.backend_pid
    db.execute("SELECT pg_terminate_backend(%s, 10000)", [before])
    with database.connection() as ours:
        assert scalar(ours, "SELECT pg_backend_pid()") != before
    database.close()


def test_a_line_with_an_answer_for_another_thread_is_left_alone(url: str) -> None:
    database = Database(lambda: connect(url, name="test"))
    with database.connection() as ours:
        ours.pgconn.send_query(b"SELECT 1")
        assert readable(ours.fileno(), within=10)
        with database.connection() as theirs:
            assert theirs is ours
        assert not ours.closed
    database.close()


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://ana@h/db", {"host": "h", "user": "ana", "dbname": "db"}),
        ("postgresql://ana:p,q@h:1/db", {"host": "h", "port": "1", "user": "ana", "password": "p,q", "dbname": "db"}),
        ("postgres:///db?host=/tmp", {"host": "/tmp", "dbname": "db"}),
        (
            "postgresql://ana:p%40%2Cq@h1:1,h2:2/db?target_session_attrs=read-write",
            {"host": "h1,h2", "port": "1,2", "user": "ana", "password": "p@,q", "dbname": "db"}
            | {"target_session_attrs": "read-write"},
        ),
        ("postgresql://h1,[::1]:5433/db", {"host": "h1,::1", "port": ",5433", "dbname": "db"}),
        (
            "postgresql://ana:p%40@%2Fvar%2Frun%20x:5433/db",
            {"host": "/var/run x", "port": "5433", "user": "ana", "password": "p@", "dbname": "db"},
        ),
        ("postgresql://ana@h1,h2?options=-ca%3Db", {"host": "h1,h2", "port": ",", "user": "ana", "options": "-ca=b"}),
        ("postgresql:///db?host=/a+b&password=c+d", {"host": "/a+b", "password": "c+d", "dbname": "db"}),
        ("postgresql://ana@h:/db?ssl=true", {"host": "h", "user": "ana", "dbname": "db", "sslmode": "require"}),
    ],
)
def test_sqlalchemy_and_libpq_read_the_same_in_an_address(url: str, found: dict[str, str]) -> None:
    """By itself SQLAlchemy refuses several hosts before the path and an empty port, takes a socket's folder for a name,
    and reads a + as a blank."""
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    read = engine.dialect.create_connect_args(engine.url)[1]
    assert read.pop("client_encoding") == "utf8"
    assert {name: str(value) for name, value in read.items() if name != "context"} == found
    assert conninfo_to_dict(url) == found


@pytest.mark.direct
def test_a_line_leaves_a_server_that_takes_no_writes_any_more(url: str) -> None:
    """It has become a standby; of the hosts in the address another one may take them."""
    database = Database(lambda: connect(url, name="test"))
    with database.connection() as db:
        before = db.info.backend_pid
        db.execute("SET default_transaction_read_only = on")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), database.connection() as db:
        db.execute("CREATE TABLE nothing ()")
    with database.connection() as db:
        assert db.info.backend_pid != before
        db.execute("CREATE TABLE nothing ()")
    database.close()


@pytest.mark.parametrize(
    ("function", "of_the_server"),
    [("GetNewTransactionId", True), ("GetNewMultiXactId", True), ("_bt_check_third_page", False)],
)
def test_a_server_without_transaction_numbers_is_told_from_a_row_that_is_too_large(
    function: str, of_the_server: bool
) -> None:
    """Both come as 54000. Each worker gave up the results of all its jobs."""
    said = {DiagnosticField.SQLSTATE: b"54000", DiagnosticField.SOURCE_FUNCTION: function.encode()}
    error = errors.ProgramLimitExceeded(info=cast(Any, {int(field): value for field, value in said.items()}))
    assert is_away(error) == of_the_server


@pytest.mark.parametrize("prepared", [True, False])
def test_a_hooks_connection_ends_when_its_server_is_silent_and_prepares_only_what_it_may(
    url: str, db: Db, prepared: bool
) -> None:
    runtime = Runtime(quick_settings(url, prepared_statements=prepared), registry=Registry())
    with runtime.transaction(running_job(db)) as hooks:
        driver = cast("psycopg.Connection[Row]", hooks.connection.driver_connection)
        told = driver.info.get_parameters()
        assert (told["keepalives_idle"], told["tcp_user_timeout"]) == ("30", "30000")
        assert (driver.prepare_threshold is not None) == prepared
    runtime.close()


@pytest.mark.direct
@pytest.mark.parametrize("prepared", [True, False])
def test_a_hot_statement_is_prepared_when_it_first_runs_where_that_is_allowed(url: str, prepared: bool) -> None:
    hot = "SELECT %(one)s::integer - %(two)s::integer - %(one)s::integer, '5 %%'"
    with closing(connect(url, name="test", prepared_statements=prepared)) as db:
        assert run_prepared(db, hot, {"two": 2, "one": 1}) == [(-2, "5 %")]
        told = db.execute("SELECT statement FROM pg_prepared_statements").fetchall()
    assert told == ([("SELECT $1::integer - $2::integer - $1::integer, '5 %'",)] if prepared else [])


# --- the settings of a session ----------------------------------------------------------------------------------


def left_behind(db: Any) -> list[str]:
    """What whoever has the session next would find changed."""
    run = getattr(db, "exec_driver_sql", None) or db.execute
    return [name for (name,) in run("SELECT name FROM pg_settings WHERE source = 'session'").fetchall()]


@pytest.mark.direct
@pytest.mark.both_servers_at_length
def test_nothing_is_set_on_a_session_that_a_pooler_would_hand_to_somebody_else(url: str) -> None:
    seen: list[list[str]] = []
    cli.run(url, Namespace(act=lambda db, _: seen.append(left_behind(db))))
    with closing(connect(url, name="test")) as db:
        seen.append(left_behind(db))
        told = db.execute("SELECT current_setting('lock_timeout'), current_setting('plan_cache_mode')").fetchone()
        assert told == ("2s", "force_generic_plan")
        db.execute("SET statement_timeout = '1min'")
        assert left_behind(db) == ["statement_timeout"]  # so it would be seen
    with web_engine(url, Settings()) as engine, engine.connect() as web:
        seen.append(left_behind(web))
        assert web.exec_driver_sql("SHOW lock_timeout").scalar() == "5s"
    assert seen == [[], [], []]


@pytest.mark.direct
@pytest.mark.parametrize("where", ["url", "environment"])
def test_options_that_somebody_gives_hold(url: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = "-c search_path=theirs -c lock_timeout=7s"
    if where == "environment":
        monkeypatch.setenv("PGOPTIONS", theirs)
    given = url if where == "environment" else psycopg.conninfo.make_conninfo(url, options=theirs)
    with closing(connect(given, name="test")) as db:
        told = "SELECT current_setting('search_path'), current_setting('lock_timeout'), current_setting('timezone')"
        assert db.execute(told).fetchone() == ("theirs", "7s", "UTC")


@pytest.mark.direct
@pytest.mark.parametrize("where", ["url", "environment"])
def test_options_of_a_service_file_hold(url: str, where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There a search_path was ignored, and no worker found the tables of a schema of their own."""
    file = tmp_path / "services"
    told = "".join(f"{name}={value}\n" for name, value in conninfo_to_dict(url).items())
    file.write_text(f"[ours]\n{told}options=-c search_path=theirs\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    if where == "environment":
        monkeypatch.setenv("PGSERVICE", "ours")
    given = "postgresql://" if where == "environment" else "postgresql://?service=ours"
    with closing(connect(given, name="test")) as db, web_engine(given, Settings()) as engine, engine.connect() as web:
        assert scalar(db, "SHOW search_path") == "theirs"
        assert web.exec_driver_sql("SHOW search_path").scalar() == "theirs"


@pytest.mark.direct
@pytest.mark.parametrize("where", ["environment", "database"])
@pytest.mark.parametrize("encoding", ["latin1", "sql_ascii"])
def test_jobs_are_claimed_whatever_encoding_clients_are_given(
    url: str, db: Db, where: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No claim worked with LATIN1, and no connection read text with SQL_ASCII."""
    jobs = [make_job(db, payload=payload) for payload in ('{"price": "5 €"}', "{}")]
    if where == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", encoding)
    else:
        name = psycopg.sql.Identifier(db.info.dbname)
        db.execute(psycopg.sql.SQL("ALTER DATABASE {} SET client_encoding = {}").format(name, encoding))
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), poolclass=sqlalchemy.NullPool)
    with closing(connect(url, name="test")) as worker, engine.connect() as web:
        assert claim(worker) == jobs
        assert web.exec_driver_sql("SELECT payload->>'price' FROM snap_processing_job ORDER BY id").scalar() == "5 €"


@pytest.mark.direct
def test_dates_are_read_whatever_style_the_environment_gives(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PGDATESTYLE wins over the options of a connection: commands ended with a traceback."""
    monkeypatch.setenv("PGDATESTYLE", "German")
    with closing(connect(url, name="test")) as worker, web_engine(url, Settings()) as engine, engine.connect() as web:
        for _ in range(2):
            assert worker.execute("SELECT timestamptz '2026-01-31'").fetchone()
            assert web.exec_driver_sql("SELECT timestamptz '2026-01-31'").scalar()
            web.rollback()


STRANGE = {
    "default_transaction_isolation": "repeatable read",
    "datestyle": "German, DMY",
    "intervalstyle": "iso_8601",
    "standard_conforming_strings": "off",
    "row_security": "off",
    "array_nulls": "off",
    "idle_session_timeout": "1min",
    "tcp_keepalives_idle": "7200",
    "timezone": "America/Sao_Paulo",
    "extra_float_digits": "-5",
}


@pytest.mark.direct
def test_sessions_depend_on_nothing_that_the_database_says(url: str, db: Db) -> None:
    """With repeatable read, claims went beyond a limit; dates and intervals in another style could not be read; a
    backslash in a text of the migrations was none; the database's clock was hours away."""
    for name, value in STRANGE.items():
        statement = psycopg.sql.SQL("ALTER DATABASE {} SET {} = {}")
        db.execute(statement.format(psycopg.sql.Identifier(db.info.dbname), psycopg.sql.SQL(name), value))
    seen: list[Any] = []

    def look(session: Any) -> None:
        run = getattr(session, "exec_driver_sql", None) or session.execute
        [(moment, *rest)] = run(
            "SELECT now(), interval '1 day', current_setting('transaction_isolation'),"
            r" length('\\'), current_setting('row_security'),"
            " current_setting('array_nulls'), current_setting('idle_session_timeout'),"
            # a session on a Unix socket always shows 0
            " (SELECT reset_val FROM pg_settings WHERE name = 'tcp_keepalives_idle'), 1795803012.34567::float8"
        ).fetchall()
        seen.append((moment.tzname(), *rest))

    cli.run(url, Namespace(act=lambda session, _: look(session)))
    runtime = Runtime(quick_settings(url), registry=Registry())
    with closing(connect(url, name="test")) as worker, runtime.transaction(running_job(db)) as hooks:
        look(worker)
        look(hooks)
    with runtime.parts().job_engine().connect() as lent:
        look(lent)
    runtime.close()
    with reading.connected(url) as backup:
        look(backup)
    with web_engine(url, Settings()) as engine, engine.connect() as web:
        look(web)
    with transaction(url) as command:
        look(command.connection())
    with migrations.transaction(url) as migration:
        look(migration)
    with consulting(url) as doctor:
        look(doctor)
    assert seen == 9 * [("UTC", timedelta(days=1), "read committed", 2, "on", "on", "0", "30", 1795803012.34567)]


@contextmanager
def strict_pooler(url: str) -> Iterator[str]:
    """As PgBouncer answers whoever brings settings, if it was not told to ignore them."""
    there = conninfo_to_dict(url)
    with ExitStack() as lines, socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            while True:
                try:
                    client = lines.enter_context(door.accept()[0])
                except OSError:
                    return
                hello = client.recv(10_000)
                while struct.unpack("!i", hello[4:8])[0] in (80877103, 80877104):  # is there TLS, or GSSAPI?
                    client.sendall(b"N")
                    hello = client.recv(10_000)
                if b"\0options\0" in hello:
                    said = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
                    client.sendall(b"E" + struct.pack("!i", len(said) + 4) + said)
                    client.close()
                    continue
                server = lines.enter_context(socket.socket(socket.AF_UNIX))
                server.connect(f"{there['host']}/.s.PGSQL.{there['port']}")
                server.sendall(hello)
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=passed_on, args=(one, other), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield psycopg.conninfo.make_conninfo(url, host="127.0.0.1", port=door.getsockname()[1])
        door.shutdown(socket.SHUT_RDWR)


def passed_on(one: socket.socket, other: socket.socket) -> None:
    try:
        while said := one.recv(65_536):
            other.sendall(said)
    except OSError:
        return


@pytest.mark.direct
def test_a_pooler_that_lets_no_settings_through_is_worked_with(url: str) -> None:
    with strict_pooler(url) as through, closing(connect(through, name="test")) as db:
        assert db.execute("SHOW lock_timeout").fetchone() == ("0",)
        assert left_behind(db) == []

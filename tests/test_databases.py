"""A database that another test had: as if it were new, or not given at all."""

from contextlib import suppress

import psycopg
import pytest

from snapapp.jobs import enqueue
from snapapp.jobs.rows.database import connect
from tests.databases import Postgres
from tests.factory import Db, scalar

OID = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()"
SEEN = """
SELECT (SELECT array_agg(tenant::text ORDER BY code) FROM tenant),
       (SELECT array_agg(template::text ORDER BY id) FROM template),
       (SELECT count(*) FROM snap_processing_job), (SELECT count(*) FROM job_worker),
       (SELECT array_agg((schemaname, sequencename, last_value)::text ORDER BY sequencename) FROM pg_sequences),
       (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del + n_dead_tup) FROM pg_stat_user_tables)
"""


def seen(db: Db) -> tuple[object, ...]:
    [row] = db.execute(SEEN).fetchall()
    return tuple(row)


def test_rows_and_numbers_are_as_in_a_new_one(server: Postgres) -> None:
    with connect(server.url_of("migrated"), name="test") as db:
        *content, _ = seen(db)
    with server.database("migrated") as url:
        with connect(url, name="test") as db:
            oid = scalar(db, OID)
            assert enqueue(db, "x") == 1
            db.execute("INSERT INTO tenant (code, name) VALUES ('ana', 'Ana')")
            db.execute("UPDATE tenant SET name = 'Other' WHERE code = 'default'")
            db.execute("DELETE FROM template")
        left_behind = psycopg.connect(url)
    with server.database("migrated") as url, connect(url, name="test") as db:
        assert scalar(db, OID) == oid, "it was made anew, so this proves nothing"
        assert seen(db) == (*content, 0)
        with pytest.raises(psycopg.OperationalError):
            left_behind.execute("SELECT 1")
    left_behind.close()


@pytest.mark.parametrize(
    "deed",
    [
        "CREATE TABLE ours ()",
        "DROP FUNCTION explain_job(bigint)",
        "ALTER TABLE tenant DISABLE TRIGGER ALL",
        "GRANT SELECT ON tenant TO PUBLIC",
        "ANALYZE tenant",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 65', current_database()); END $$",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 7', current_database()); END $$",
        "INSERT INTO job_limit_key (key, full_at) SELECT n::text, now() FROM generate_series(1, 301) AS n",
    ],
)
def test_after_more_than_some_rows_the_next_one_is_new(server: Postgres, deed: str) -> None:
    with server.database("migrated") as url, connect(url, name="test") as db:
        oid = scalar(db, OID)
        db.execute(deed.encode())
    with server.database("migrated") as url, connect(url, name="test") as db:
        assert scalar(db, OID) != oid


def test_who_was_alone_hands_its_connection_on_and_nothing_that_it_set(server: Postgres) -> None:
    with server.database("migrated") as url, server.connection(url) as db:
        first = scalar(db, "SELECT pg_backend_pid()")
        for said in (
            "SET work_mem = '65kB'",
            "LISTEN ours",
            "SELECT pg_advisory_lock(1)",
            "SELECT set_config('a.b', 'c', false)",
        ):
            db.execute(said.encode())
        for _ in range(5):  # it is prepared by then
            enqueue(db, "x")
    with server.database("migrated") as again, server.connection(again) as db:
        assert (again, scalar(db, "SELECT pg_backend_pid()")) == (url, first)
        assert scalar(db, "SELECT count(*) FROM snap_processing_job") == 0
        assert scalar(db, "SELECT current_setting('work_mem')") != "65kB"
        assert not scalar(db, "SELECT current_setting('a.b', true)")
        assert scalar(db, "SELECT count(*) FROM pg_listening_channels()") == 0
        assert scalar(db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == 0
        assert enqueue(db, "x") == 1


@pytest.mark.parametrize("is_gone", [True, False])
def test_where_somebody_else_was_the_next_one_gets_another_name_and_connection(server: Postgres, is_gone: bool) -> None:
    with server.database("migrated") as url, server.connection(url) as db:
        first = scalar(db, "SELECT pg_backend_pid()")
        other = psycopg.connect(url)
        if is_gone:
            other.close()
    with server.database("migrated") as again, server.connection(again) as db:
        assert again != url
        assert scalar(db, "SELECT pg_backend_pid()") != first
    other.close()


@pytest.mark.parametrize("deed", ["BEGIN", "SELECT pg_terminate_backend(pg_backend_pid())"])
def test_a_connection_that_is_not_as_it_was_is_not_handed_on(server: Postgres, deed: str) -> None:
    with server.database("migrated") as url, server.connection(url) as db:
        first = scalar(db, "SELECT pg_backend_pid()")
        with suppress(psycopg.OperationalError):
            db.execute(deed.encode())
    with server.database("migrated") as again, server.connection(again) as db:
        assert scalar(db, "SELECT pg_backend_pid()") != first

"""A database that another test had: as if it were new, or not given at all."""

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

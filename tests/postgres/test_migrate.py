"""Migrations: up, down, alone and in a crowd, interrupted; and what comes out, which is what the files say."""

import difflib
import re
import signal
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from functools import partial

import psycopg
import pytest
from psycopg import sql

from snapapp.errors import MigrationError
from snapapp.jobs import migrations
from snapapp.jobs.errors import MigrationFailed
from snapapp.jobs.model import Buried, Failure
from snapapp.jobs.rows import claim, leases, lifecycle, notes, retention, settle
from snapapp.jobs.rows.database import connect
from snapapp.jobs.schema import QUEUE, History
from snapapp.postgres.binaries import program
from snapapp.postgres.migrate import migrate
from snapapp.postgres.psql import psql_argv
from snapapp.postgres.schema import PRODUCT, is_current, require
from tests import ROOT
from tests.factory import Db, ago, at_once, bury, claimed, hand_back, job, make_job, retry, statuses, until_blocking
from tests.postgres.clusters import take_down

SQL = ROOT / "migrations" / "sql"
NOISE = re.compile(
    r"--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*|"
    # Debian's 15.20 notes on every column when it was made; only its own pg_dump knows to leave that out
    r"|ALTER TABLE .* SET \(pg_attver=\d+\);"
)


def dump(url: str) -> list[str]:
    """The schema as pg_dump writes it, without what differs from one run to the next."""
    argv = [str(program("pg_dump")), "--schema-only", "--no-owner", psql_argv(url)[-1]]
    lines = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if not NOISE.fullmatch(line)]


def relations(url: str) -> set[str]:
    with closing(psycopg.connect(url)) as db:
        return {
            name for (name,) in db.execute("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
        }


@pytest.mark.both_servers
def test_up_and_down_and_up_again(empty_url: str) -> None:
    migrate(empty_url)
    first = dump(empty_url)
    assert is_current(empty_url)
    take_down(empty_url)
    assert {name for name in relations(empty_url) if not name.endswith("_pkc")} == {"job_version", "product_version"}
    assert not is_current(empty_url)
    migrate(empty_url)
    assert dump(empty_url) == first


@pytest.mark.both_servers
def test_the_queue_lives_without_the_product(empty_url: str) -> None:
    assert migrations.migrate(empty_url) == QUEUE.head
    with closing(connect(empty_url, name="test")) as db:
        live_a_little(db)
        for (view,) in db.execute("SELECT viewname FROM pg_views WHERE schemaname = 'public'").fetchall():
            db.execute(f'TABLE "{view}"')
        assert db.execute("SELECT to_regclass('snap'), to_regclass('tenant')").fetchone() == (None, None)


@pytest.mark.parametrize("history", [QUEUE, PRODUCT], ids=lambda history: history.name)
def test_the_newest_revision_is_told_without_alembic(history: History) -> None:
    assert history.head == migrations.scripts(history).get_current_head()


@pytest.mark.both_servers
def test_the_queue_lives_in_a_schema_of_its_own_beside_an_application_with_alembic(empty_url: str) -> None:
    """Whoever has the schema on the search_path enqueues and works; SQL may also name it, whatever its search_path."""
    with closing(psycopg.connect(empty_url, autocommit=True)) as theirs:
        theirs.execute("CREATE TABLE alembic_version AS SELECT 'abc123' AS version_num")
        for _ in range(2):
            migrations.migrate(empty_url, schema="My jobs")
        assert relations(empty_url) == {"alembic_version"}
        assert theirs.execute("TABLE alembic_version").fetchall() == [("abc123",)]
        theirs.execute("""SELECT "My jobs".enqueue_job('of.theirs')""")
        assert theirs.execute('SELECT kind FROM "My jobs".snap_processing_job').fetchall() == [("of.theirs",)]
    with closing(connect(f"{empty_url}&options=-csearch_path%3D%22My%5C%20jobs%22", name="test")) as db:
        live_a_little(db)


@pytest.mark.at_length  # it goes up and down and up again, in every run
@pytest.mark.both_servers
def test_nothing_is_left_of_a_schema_taken_down(empty_url: str) -> None:
    migrate(empty_url)
    take_down(empty_url)
    with closing(psycopg.connect(empty_url)) as db:
        left = db.execute("SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace").fetchall()
    assert left == []


@pytest.mark.both_servers
def test_migrating_what_is_current_changes_nothing(url: str) -> None:
    assert is_current(url)
    before = relations(url)
    migrate(url)
    assert relations(url) == before


@pytest.mark.both_servers
def test_of_several_starters_one_migrates_and_the_others_find_it_done(empty_url: str) -> None:
    """FC19. The turn is longer than the wait for a lock that somebody has set."""
    with closing(psycopg.connect(empty_url, autocommit=True)) as db:
        name = sql.Identifier(db.info.dbname)
        db.execute(sql.SQL("ALTER DATABASE {} SET lock_timeout = '1ms'").format(name))
    at_once(*[partial(migrate, empty_url)] * 4)
    assert is_current(empty_url)


def test_a_table_of_the_old_service_is_refused_with_the_way_out(empty_url: str) -> None:
    with closing(psycopg.connect(empty_url, autocommit=True)) as db:
        db.execute("CREATE TABLE snap_processing_job (id uuid PRIMARY KEY)")
    with pytest.raises(MigrationError, match="snapapp import-legacy DSN"):
        migrate(empty_url)
    assert relations(empty_url) == {"snap_processing_job", "snap_processing_job_pkey"}


def test_a_database_that_is_newer_than_the_code_is_refused(url: str) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as db:
        db.execute("UPDATE product_version SET version_num = '9999'")
    with pytest.raises(MigrationError, match="revision 9999, which this code does not know"):
        migrate(url)
    assert not is_current(url)
    with pytest.raises(MigrationError, match="a newer release has migrated it"):
        require(url)


def test_a_migration_behind_an_idle_transaction_gives_up_and_can_be_repeated(url: str) -> None:
    """FC17: whoever waits for a lock makes everybody behind it wait too."""
    with closing(psycopg.connect(url)) as idle:
        idle.execute("SELECT FROM snap_processing_job")
        with pytest.raises(MigrationFailed, match="in use by a long transaction"):
            take_down(url)
        assert is_current(url)
    take_down(url)


def test_a_database_that_takes_no_writes_is_said_to(empty_url: str) -> None:
    with closing(psycopg.connect(empty_url, autocommit=True)) as db:
        db.execute(f"ALTER DATABASE {db.info.dbname} SET default_transaction_read_only = on")
    with pytest.raises(
        MigrationError, match="takes no writes: it is a standby, or default_transaction_read_only is on"
    ):
        migrate(empty_url)


def test_a_migration_killed_in_the_middle_leaves_nothing_and_can_be_repeated(empty_url: str) -> None:
    """FC19."""
    script = [sys.executable, "-c", "import sys, snapapp.postgres.migrate as m; m.migrate(sys.argv[1])", empty_url]
    with closing(connect(empty_url, name="test")) as db:
        with db.transaction(force_rollback=True):
            db.execute("CREATE TABLE job_worker_exit ()")  # which it will come to, having made others
            with subprocess.Popen(script, cwd=ROOT) as process:
                until_blocking(db)
                process.kill()
        assert process.returncode == -signal.SIGKILL
        assert "snap_processing_job" not in relations(empty_url)
    migrate(empty_url)
    assert is_current(empty_url)


# --- the files ----------------------------------------------------------------------------------------------------


def files() -> list[str]:
    """Every file below migrations/sql that the baselines name, in their order."""
    queue_, product = (migrations.scripts(one).get_revision("0001").module.OBJECTS for one in (QUEUE, PRODUCT))
    return [f"queue/{path}" for path in queue_] + [f"product/{path}" for path in ("role", *product, "seeds")]


def apply(db: psycopg.Connection, path: str) -> None:
    db.execute((SQL / f"{path}.sql").read_bytes())


@pytest.mark.both_servers
def test_the_migrated_database_is_what_the_files_say(url: str, empty_url: str) -> None:
    """The file of an object always has its current text, with all that hangs on it; pg_dump leaves nothing out."""
    with closing(psycopg.connect(empty_url)) as db, db:
        for path in files():
            apply(db, path)
        # Alembic's own, which no file makes
        for table in ("job_version", "product_version"):
            db.execute(f"CREATE TABLE {table} (version_num varchar(32) CONSTRAINT {table}_pkc PRIMARY KEY)")
    drift = difflib.unified_diff(dump(empty_url), dump(url), "the files", "the database", lineterm="", n=1)
    assert "\n".join(drift) == ""


@pytest.mark.at_length  # the migrated database is compared with the files, in every run
def test_the_comparison_sees_whatever_is_changed_in_the_database_alone(url: str) -> None:
    seen = dump(url)
    with closing(psycopg.connect(url, autocommit=True)) as db:
        for change in (
            "CREATE OR REPLACE FUNCTION job_after_insert() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'",
            "ALTER FUNCTION job_span VOLATILE",
            "COMMENT ON FUNCTION job_span IS 'Something else.'",
            "ALTER VIEW snap_job SET (security_barrier = false)",
            "ALTER TABLE job_log ALTER COLUMN attempt TYPE bigint",
            "ALTER TABLE job_log ALTER COLUMN attempt SET DEFAULT 1",
            "ALTER TABLE job_log DROP CONSTRAINT job_log_message_check",
            "DROP INDEX snap_processing_job_running",
            "ALTER TABLE snap_processing_job SET (fillfactor = 100)",
            "COMMENT ON COLUMN snap_processing_job.kind IS NULL",
            "ALTER TABLE snap_processing_job DISABLE TRIGGER job_after_insert",
            "ALTER TABLE snap NO FORCE ROW LEVEL SECURITY",
            "GRANT DELETE ON operator TO snapapp_tenant",
        ):
            db.execute(change)
            now = dump(url)
            assert now != seen, change
            seen = now


def test_every_file_is_made_by_a_baseline() -> None:
    assert sorted(files()) == sorted(str(path.relative_to(SQL).with_suffix("")) for path in SQL.rglob("*.sql"))


# Every object with the folder that its file is in, and what hangs on objects, with whose file it may stand in.
PARTS = """
WITH relation AS (
    SELECT oid, relname::text AS name, CASE WHEN relkind IN ('r', 'p') THEN 'tables' ELSE 'views' END AS folder
      FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
), routine AS (
    SELECT oid, proname::text AS name FROM pg_proc WHERE pronamespace = 'public'::regnamespace
)
SELECT 'it', oid, ARRAY[name], folder FROM relation
UNION ALL SELECT 'it', oid, ARRAY[name], 'functions' FROM routine
UNION ALL SELECT 'column ' || attname, oid, ARRAY[name], NULL FROM relation JOIN pg_attribute ON attrelid = oid
UNION ALL SELECT 'index', indexrelid, ARRAY[name], NULL FROM relation JOIN pg_index ON indrelid = oid
UNION ALL SELECT 'constraint', its.oid, ARRAY[name], NULL
  FROM relation JOIN pg_constraint AS its ON conrelid = relation.oid
UNION ALL SELECT 'policy', its.oid, ARRAY[name], NULL FROM relation JOIN pg_policy AS its ON polrelid = relation.oid
UNION ALL SELECT 'comment ' || description, oid, ARRAY[name], NULL
  FROM (TABLE routine UNION ALL SELECT oid, name FROM relation) AS its JOIN pg_description ON objoid = oid
-- the product's triggers on the queue's table stand with their function
UNION ALL SELECT 'trigger', its.oid, ARRAY[relation.name, routine.name], NULL
  FROM pg_trigger AS its JOIN relation ON tgrelid = relation.oid JOIN routine ON tgfoid = routine.oid
"""


def test_a_file_holds_one_object_that_has_its_name(empty_url: str) -> None:
    known: set[tuple[object, ...]] = set()
    with closing(psycopg.connect(empty_url, autocommit=True)) as db:
        for path in files():
            apply(db, path)
            new = [part for part in db.execute(PARTS) if part[:2] not in known]
            known |= {part[:2] for part in new}
            *_, folder, name = path.split("/")
            objects = [f"{its_folder}/{home[0]}" for _, _, home, its_folder in new if its_folder]
            assert objects == ([] if name in {"role", "seeds"} else [f"{folder}/{name}"]), path
            assert [part for part in new if name not in part[2]] == [], f"{path} has what belongs elsewhere"


@pytest.mark.both_servers
def test_everything_that_people_see_in_psql_is_explained(db: Db) -> None:
    """R4, S8: \\d+ is the manual of whoever is on call."""
    silent = db.execute(
        """
        SELECT relname FROM pg_class AS it WHERE relnamespace = 'public'::regnamespace
           AND relkind IN ('r', 'p', 'v', 'm') AND relname NOT LIKE '%%_version'
           AND obj_description(it.oid, 'pg_class') IS NULL
        UNION ALL
        SELECT proname FROM pg_proc AS it WHERE pronamespace = 'public'::regnamespace
           AND obj_description(it.oid, 'pg_proc') IS NULL
        UNION ALL
        SELECT attname FROM pg_attribute WHERE attrelid = 'snap_processing_job'::regclass AND attnum > 0
           AND NOT attisdropped AND col_description(attrelid, attnum) IS NULL
        UNION ALL
        SELECT relname || '.' || attname FROM pg_class AS it JOIN pg_attribute ON attrelid = it.oid
         WHERE relrowsecurity AND attnum > 0 AND NOT attisdropped AND col_description(attrelid, attnum) IS NULL
        """
    ).fetchall()
    assert silent == []


@pytest.mark.both_servers
def test_a_worker_goes_on_while_a_new_release_adds_a_column(db: Db, url: str) -> None:
    """FC18, Q8: its statements are prepared, and name their columns."""
    for _ in range(6):
        live_a_little(db)
    assert db.execute("SELECT count(*) > 5 FROM pg_prepared_statements").fetchone() == (True,)
    with closing(psycopg.connect(url, autocommit=True)) as release:
        release.execute("ALTER TABLE snap_processing_job ADD COLUMN colour text NOT NULL DEFAULT 'green'")
        release.execute("ALTER TABLE job_queue ADD COLUMN colour text")
        live_a_little(db)
        release.execute("ALTER TABLE snap_processing_job DROP COLUMN colour")
        live_a_little(db)
    assert {*statuses(db).values()} == {"COMPLETED", "CANCELLED"}


def live_a_little(db: Db) -> None:
    """Every statement of a worker and a person, once."""
    minute = timedelta(minutes=1)
    make_job(db)
    [first] = claimed(db, 1).jobs
    assert leases.beat(db, [first.lease], [0.1], minute) == (set(), set())
    notes.progress(db, {first.lease: "1"})
    notes.log(db, [notes.LogLine(first.lease, 1, "INFO", "here", 0.0)])
    retry(db, first, Failure("oops"), timedelta(0), 0.1)
    [second] = claimed(db, 1).jobs
    hand_back(db, second)
    last = claimed(db, 1, claim.Look(bookmarks={claim.Head("default", "test", 0): claim.Bookmark(ago(days=1), 0)}))
    assert [one.id for one in last.jobs] == [first.id]
    bury(db, job(db, first.id), Buried(Failure("oops")), 0.1)
    lifecycle.retry_by_person(db, first.id)
    lifecycle.cancel(db, lifecycle.replay(db, first.id))
    [third] = claimed(db, 1).jobs
    assert claimed(db, look=claim.Look(takes_suspect=True)).jobs == []
    assert leases.recover(db) == leases.release(db, "nobody", []) == []
    assert retention.prune(db, keep=minute) == (0, None)
    assert settle.complete(db, [(third.lease, None, 0.1)]) == {first.id}

"""Migrations: up, down, alone and in a crowd, interrupted; and the schema that comes out, as `schema.sql` has it."""

import difflib
import re
import signal
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest

from snapapp.errors import MigrationError
from snapapp.jobs import queue
from snapapp.jobs.database import connect
from snapapp.jobs.model import Buried, Failure
from snapapp.migrate import is_current, migrate
from snapapp.postgres.binaries import program
from snapapp.postgres.psql import psql_argv
from tests.conftest import Postgres, embedded_server
from tests.factory import Db, at_once, job, make_job, row, statuses, until_blocking

ROOT = Path(__file__).parent.parent
SCHEMA = ROOT / "tests" / "schema.sql"
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
    head = migrate(empty_url)
    first = dump(empty_url)
    assert is_current(empty_url)
    assert migrate(empty_url, "base", down=True) is None
    assert relations(empty_url) == {"alembic_version", "alembic_version_pkc"}
    assert not is_current(empty_url)
    assert migrate(empty_url) == head
    assert dump(empty_url) == first


@pytest.mark.both_servers
def test_nothing_is_left_of_a_schema_taken_down(empty_url: str) -> None:
    migrate(empty_url)
    migrate(empty_url, "base", down=True)
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
    """FC19."""
    assert len({*at_once(*[partial(migrate, empty_url)] * 4)}) == 1
    assert is_current(empty_url)


def test_a_table_of_the_old_service_is_refused_with_the_way_out(empty_url: str) -> None:
    with closing(psycopg.connect(empty_url, autocommit=True)) as db:
        db.execute("CREATE TABLE snap_processing_job (id uuid PRIMARY KEY)")
    with pytest.raises(MigrationError, match="snapapp import-legacy DSN"):
        migrate(empty_url)
    assert relations(empty_url) == {"snap_processing_job", "snap_processing_job_pkey"}


def test_a_database_that_is_newer_than_the_code_is_refused(url: str) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(MigrationError, match="revision 9999, which this code does not know"):
        migrate(url)
    assert not is_current(url)


def test_a_migration_behind_an_idle_transaction_gives_up_and_can_be_repeated(url: str) -> None:
    """FC17: whoever waits for a lock makes everybody behind it wait too."""
    with closing(psycopg.connect(url)) as idle:
        idle.execute("SELECT FROM snap_processing_job")
        with pytest.raises(MigrationError, match="in use by a long transaction"):
            migrate(url, "base", down=True)
        assert is_current(url)
    assert migrate(url, "base", down=True) is None


def test_a_migration_killed_in_the_middle_leaves_nothing_and_can_be_repeated(empty_url: str) -> None:
    """FC19."""
    script = [sys.executable, "-c", "import sys, snapapp.migrate as m; m.migrate(sys.argv[1])", empty_url]
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


def test_the_schema_is_the_one_on_file(url: str) -> None:
    difference = difflib.unified_diff(
        SCHEMA.read_text().splitlines(), dump(url), "tests/schema.sql", "migrated", lineterm=""
    )
    changed = "\n".join(difference)
    assert not changed, f"If that is meant, type: .venv/bin/python -m tests.test_migrate\n{changed}"


@pytest.mark.both_servers
def test_everything_that_people_see_in_psql_is_explained(db: Db) -> None:
    """R4, S8: \\d+ is the manual of whoever is on call."""
    silent = db.execute(
        """
        SELECT relname FROM pg_class AS it WHERE relnamespace = 'public'::regnamespace
           AND relkind IN ('r', 'p', 'v', 'm') AND relname <> 'alembic_version'
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
    by = queue.Claimant("worker", minute)
    make_job(db)
    (first,), _ = queue.claim(db, by, ["test"], 1)
    assert queue.beat(db, [first.lease], [0.1], minute) == (set(), set())
    queue.progress(db, {first.lease: "1"})
    queue.log(db, [queue.LogLine(first.lease, "INFO", "here", 0.0)])
    queue.retry(db, first, Failure("oops"), timedelta(0), 0.1)
    (second,), mark = queue.claim(db, by, ["test"], 1)
    queue.hand_back(db, [(second.lease, True)], interruptions_allowed=9)
    assert mark
    queue.claim_on(db, by, mark._replace(id=0, next_retry_at=row(db, first.id).created_at), 1)
    queue.bury(db, job(db, first.id), Buried(Failure("oops")), 0.1)
    queue.retry_by_person(db, first.id)
    queue.cancel(db, queue.replay(db, first.id))
    (third,), _ = queue.claim(db, by, ["test"], 1)
    assert queue.next_due(db, ["test"], []) is None
    assert queue.recover(db) == queue.release(db, "nobody", []) == []
    assert queue.prune(db, keep=minute) == (0, None)
    assert queue.complete(db, [(third.lease, None, 0.1)]) == {first.id}


if __name__ == "__main__":
    with embedded_server() as address, closing(Postgres(address)) as server:
        SCHEMA.write_text("\n".join(dump(server.url_of("migrated"))) + "\n")

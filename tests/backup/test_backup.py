"""Backups made, kept, brought back and tried out, with the real pg_dump, pg_restore and age."""

import errno
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy

from snapapp import backup, postgres
from snapapp.backup import reading, records, retention, temporary
from snapapp.backup.errors import BackupError, Damaged, Incomplete, NotEmpty
from snapapp.backup.manifest import new_id
from snapapp.backup.place import Place
from snapapp.backup.records import What
from snapapp.errors import PostgresError
from snapapp.jobs.os import processes
from snapapp.postgres import connections, database, dump, postmaster
from snapapp.postgres.migrate import migrate
from snapapp.postgres.schema import is_current
from snapapp.storage import Local, ObjectRefused, Reader, Room, Storage, Upload
from tests import ROOT
from tests.backup.conftest import FILES, admin, content, made
from tests.commands import Call
from tests.conftest import OLDEST, needs_oldest, pgbouncer
from tests.databases import Postgres
from tests.factory import Db, make_jobs
from tests.jobs.working import until
from tests.storage.conftest import Bucket

SNAPS = "INSERT INTO tenant (code, name) VALUES ('north', 'North'), ('south', 'South')"
NIGHT = timedelta(days=1)


@pytest.fixture
def filled(url: str, db: Db) -> str:
    """A database with something in it."""
    db.execute(SNAPS)
    make_jobs(db, 3)
    return url


def rows(url: str) -> dict[str, int]:
    with reading.connected(url) as db:
        return reading.rows(db)


# --- there and back ---------------------------------------------------------------------------------------------


@pytest.mark.both_servers
def test_what_was_backed_up_comes_back(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    before = rows(filled)
    made(filled, media, place)
    restored = backup.restore(empty_url, empty_media, place, None, tmp_path)
    assert (rows(empty_url), content(empty_media)) == (before, FILES)
    assert before["public.snap_processing_job"] == 3
    assert (restored.tables, restored.objects) == (before, len(FILES))
    assert is_current(empty_url)


@pytest.mark.at_length  # storage/test_storage has a bucket in every run
def test_a_bucket_can_hold_both(filled: str, empty_url: str, bucket: Bucket, place: Place, tmp_path: Path) -> None:
    media, away = bucket.storage(tmp_path / "spool", prefix="live"), bucket.storage(tmp_path / "spool", prefix="away")
    large = b"0123456789abcdef" * 2**20  # more than one part
    media.put("snaps/a/1/clip.mp4", large)
    made(filled, media, Place(away, None))
    into = bucket.storage(tmp_path / "spool", prefix="restored")
    backup.restore(empty_url, into, Place(away, None), None, tmp_path)
    assert content(into) == {"snaps/a/1/clip.mp4": large}


@pytest.fixture
def only_bundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in the image of ops/container: no programs of PostgreSQL but those of the wheel."""
    monkeypatch.setattr(dump, "_OF_THE_SYSTEM", tmp_path / "nowhere")
    monkeypatch.setattr(shutil, "which", lambda _name: None)


@pytest.mark.usefixtures("only_bundled")
@needs_oldest
@pytest.mark.parametrize("server_name", [OLDEST])
def test_the_bundled_programs_bring_a_backup_back_into_an_older_server(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    made(filled, media, place)
    with psycopg.connect(empty_url, autocommit=True) as db:
        db.execute("CREATE VIEW tenant AS SELECT 1")
        with pytest.raises(PostgresError, match=r'nothing was restored: .*"tenant" already exists'):
            backup.restore(empty_url, empty_media, place, None, tmp_path)
        assert reading.tables(db) == []
        db.execute("DROP VIEW tenant")
    backup.restore(empty_url, empty_media, place, None, tmp_path)
    assert (rows(empty_url), is_current(empty_url)) == (rows(filled), True)


@pytest.mark.at_length  # one with roles of its own gets a backup in every run, below
def test_roles_that_only_the_old_server_has_do_not_keep_a_backup_from_coming_back(
    filled: str, db: Db, media: Local, place: Place, tmp_path: Path
) -> None:
    """A drill's server is new, and so is the one after a fire."""
    reader = f"reader_{uuid4().hex}"
    db.execute(f"CREATE ROLE {reader}")
    try:
        db.execute(f"GRANT SELECT (id) ON snap_processing_job TO {reader}")
        db.execute(f"CREATE TYPE mood AS ENUM ('well'); GRANT USAGE ON TYPE mood TO {reader}")
        db.execute(f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {reader}")
        assert reader in made(filled, media, place).manifest.roles
    finally:
        db.execute(f"DROP OWNED BY {reader}; DROP ROLE {reader}")
    backup.drill(place, None, tmp_path)


def test_a_limit_on_idle_transactions_does_not_end_a_long_dump(filled: str, db: Db, media: Local, place: Place) -> None:
    """The doctor recommends one, and our transaction is idle while pg_dump reads."""
    [name] = db.execute("SELECT quote_ident(current_database())").fetchone() or ("?",)
    db.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '20ms'")
    assert made(filled, media, place).manifest.tables["public.snap_processing_job"] == 3


def test_a_backup_is_made_whatever_encoding_clients_are_given(
    filled: str, db: Db, media: Local, place: Place, tmp_path: Path
) -> None:
    """With SQL_ASCII psycopg returns bytes for text."""
    [name] = db.execute("SELECT quote_ident(current_database())").fetchone() or ("?",)
    db.execute(f"ALTER DATABASE {name} SET client_encoding = sql_ascii")
    assert made(filled, media, place).manifest.tables["public.snap_processing_job"] == 3
    backup.drill(place, None, tmp_path)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    if not shutil.which("age"):
        pytest.skip("age is not installed")
    subprocess.run(["age-keygen", "-o", str(tmp_path / "key")], check=True, capture_output=True)
    return tmp_path / "key"


def test_a_sealed_backup_opens_with_its_key_and_no_other_way(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, key: Path, tmp_path: Path
) -> None:
    made(filled, media, Place(place.store, key))
    lying = b"".join(path.read_bytes() for path in (tmp_path / "backups").rglob("*") if path.is_file())
    assert b"a clip" not in lying
    assert b"frame.jpg" not in lying
    with pytest.raises(BackupError, match="SNAPAPP_BACKUP_KEY_FILE"):
        backup.restore(empty_url, empty_media, place, None, tmp_path)
    backup.restore(empty_url, empty_media, Place(place.store, key), None, tmp_path)
    assert content(empty_media) == FILES


def test_a_sealed_backup_that_was_touched_does_not_open(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, key: Path, tmp_path: Path
) -> None:
    made(filled, media, Place(place.store, key))
    [dump] = (tmp_path / "backups").glob("backups/*/database.age")
    dump.write_bytes(dump.read_bytes()[:-1])
    with pytest.raises(BackupError, match="age failed"):
        backup.restore(empty_url, empty_media, Place(place.store, key), None, tmp_path)
    assert rows(empty_url) == {}


# --- nothing is lost --------------------------------------------------------------------------------------------


def test_a_database_that_has_tables_is_not_restored_into(
    filled: str, url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    made(filled, media, place)
    with pytest.raises(NotEmpty, match="The database has tables"):
        backup.restore(url, empty_media, place, None, tmp_path)
    assert content(empty_media) == {}


def test_a_storage_that_has_something_else_is_not_restored_into(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    made(filled, media, place)
    [key, *_] = FILES
    empty_media.put(key, b"another")
    with pytest.raises(NotEmpty, match="The storage has something"):
        backup.restore(empty_url, empty_media, place, None, tmp_path)
    assert (content(empty_media), rows(empty_url)) == ({key: b"another"}, {})


def test_a_restore_that_was_interrupted_goes_on(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    """Killed while pg_restore read the dump, in its folder."""
    made(filled, media, place)
    [(key, first), *_] = FILES.items()
    empty_media.put(key, first)
    left = tmp_path / f"{temporary.RESTORE}ab12cd34"
    left.mkdir()
    (left / "database").write_bytes(b"every tenant's rows")
    backup.restore(empty_url, empty_media, place, None, tmp_path)
    assert (content(empty_media), left.exists()) == (FILES, False)


def test_a_restore_that_was_interrupted_at_its_very_end_has_ended_well(
    filled: str,
    empty_url: str,
    media: Local,
    empty_media: Local,
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed after pg_restore's transaction. Typed again, it refused, because the database had tables."""
    made(filled, media, place)
    with monkeypatch.context() as patch:
        patch.setattr("snapapp.backup.restoring.compare_rows", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            backup.restore(empty_url, empty_media, place, None, tmp_path)
    assert backup.restore(empty_url, empty_media, place, None, tmp_path).id == place.whole()[-1]
    with psycopg.connect(empty_url) as restored:
        restored.execute("DELETE FROM snap_processing_job")
    with pytest.raises(NotEmpty, match="The database has tables"):
        backup.restore(empty_url, empty_media, place, None, tmp_path)


def test_a_restore_that_the_server_refuses_says_why(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    """Of a long function it showed the last lines, and not the error before them."""
    made(filled, media, place)
    with psycopg.connect(empty_url) as db:
        db.execute("CREATE FUNCTION cancel_job(bigint) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'")
    with pytest.raises(PostgresError, match=r'function "cancel_job" already exists with same argument types$'):
        backup.restore(empty_url, empty_media, place, None, tmp_path)


def test_a_damaged_dump_changes_nothing(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    made(filled, media, place)
    [dump] = (tmp_path / "backups").glob("backups/*/database")
    dump.write_bytes(dump.read_bytes()[:-1] + b"?")
    with pytest.raises(Damaged, match="database is damaged"):
        backup.restore(empty_url, empty_media, place, None, tmp_path)
    assert rows(empty_url) == {}


# --- half a backup is none --------------------------------------------------------------------------------------


class Failing(Local):
    """A disk that is full when something of this name comes."""

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(root, Room(root, 0))
        self.name = name

    def upload(self, key: str, *, max_bytes: int | None = None, announced: int | None = None) -> Upload:
        if self.name in key:
            raise OSError(28, "No space left on device")
        return super().upload(key, max_bytes=max_bytes, announced=announced)


@pytest.mark.parametrize("name", ["objects/", "/database", "/media", "/manifest"])
def test_a_backup_that_fails_midway_is_none(filled: str, media: Local, place: Place, tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match="No space"):
        made(filled, media, Place(Failing(tmp_path / "backups", name), None))
    assert place.whole() == []


def test_a_dump_that_breaks_off_is_not_kept(
    filled: str, media: Local, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pg_dump writes what it has, and fails: here because a table is taken away from it."""
    (tmp_path / "pg_dump").write_text("#!/bin/sh\necho half; echo 'the server has gone' >&2; exit 1\n")
    (tmp_path / "pg_dump").chmod(0o755)
    monkeypatch.setattr("snapapp.postgres.dump._program_for", lambda *_: tmp_path / "pg_dump")
    with pytest.raises(BackupError, match="the server has gone"):
        made(filled, media, place)
    assert [stored.key for stored in place.store.listed("backups/")] == []


def test_the_next_backup_clears_away_what_an_interrupted_one_left(
    filled: str, media: Local, place: Place, tmp_path: Path
) -> None:
    place.put("20200101T000000Z", "database", io.BytesIO(b"half"))
    place.store.put("objects/ab/ab12", b"of nobody")
    killed = tmp_path / "backups/.incoming/0123"
    killed.write_bytes(b"half")
    os.utime(killed, (0, 0))
    made(filled, media, place)
    assert not killed.exists()
    assert place.unfinished() == []
    assert not place.store.exists("objects/ab/ab12")


def test_a_backup_whose_files_another_installation_clears_away_is_none(
    filled: str, media: Local, place: Place, tmp_path: Path
) -> None:
    """Each installation locks its own database, so neither sees that the other is at work in the same place."""

    class Shared(Local):
        def upload(self, key: str, *, max_bytes: int | None = None, announced: int | None = None) -> Upload:
            if key.endswith("/media"):
                retention.apply(place, datetime.now(UTC), keep=7, keep_for=NIGHT)  # the end of the other's backup
            return super().upload(key, max_bytes=max_bytes, announced=announced)

    with pytest.raises(BackupError, match="another installation"):
        made(filled, media, Place(Shared(tmp_path / "backups", Room(tmp_path, 0)), None))
    assert place.whole() == []


def test_a_note_beside_the_backups_is_in_nobodys_way(filled: str, media: Local, place: Place, tmp_path: Path) -> None:
    (tmp_path / "backups/backups").mkdir()
    (tmp_path / "backups/backups/README").write_text("ask Ana before you remove anything here")
    made(filled, media, place)
    assert (len(place.whole()), place.unfinished()) == (1, [])
    assert (tmp_path / "backups/backups/README").exists()


@pytest.mark.parametrize("name", ["media", "manifest"])
def test_the_cure_for_a_damaged_backup_lets_the_next_one_end_well(
    filled: str, media: Local, place: Place, tmp_path: Path, name: str
) -> None:
    made_at(filled, media, place, NIGHT)
    [damaged] = place.whole()
    place.store.put(f"backups/{damaged}/{name}", b"?")
    with pytest.raises(Damaged, match=f"Backup {damaged}: .* lost: remove (its folder|all of backups/{damaged})"):
        made(filled, media, place)
    shutil.rmtree(tmp_path / "backups/backups" / damaged)
    place.store.delete_prefix(f"backups/{place.whole()[-1]}/")  # or the next one is of the same second
    made(filled, media, place)


@needs_oldest
@pytest.mark.skipif(not shutil.which("pgbouncer"), reason="PgBouncer is not installed")
@pytest.mark.parametrize("server_name", [OLDEST])
def test_through_a_pooler_in_transaction_mode_nothing_is_backed_up_and_nothing_left_behind(
    filled: str, db: Db, media: Local, place: Place
) -> None:
    url = sqlalchemy.make_url(filled)
    db.execute(f"ALTER DATABASE {url.database} SET idle_in_transaction_session_timeout = '20min'")
    with pgbouncer(filled) as pooled:
        through = sqlalchemy.make_url(pooled).set(database=url.database).render_as_string()
        records.add(through, What.BACKUP, took=NIGHT, is_good=False, said="it was refused")
        with pytest.raises(BackupError, match="a pooler in transaction mode"):
            made(through, media, place)
        [locks] = db.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() or ("?",)
        assert locks == 0
        with psycopg.connect(through) as next_client:
            [limit] = next_client.execute("SHOW idle_in_transaction_session_timeout").fetchone() or ("?",)
            assert limit == "20min"


def test_two_at_once_are_one_too_many(filled: str, media: Local, place: Place) -> None:
    with reading.alone(filled), pytest.raises(BackupError, match="Another backup"):
        made(filled, media, place)


# --- only what is new -------------------------------------------------------------------------------------------


def test_an_object_is_copied_once(filled: str, media: Local, place: Place) -> None:
    assert made_at(filled, media, place, NIGHT) == len(FILES)
    media.put("snaps/b/1/frame.jpg", b"another frame")
    media.put("snaps/b/1/same.jpg", b"a frame")
    assert made(filled, media, place).copied == 1
    assert [place.manifest(id_).objects for id_ in place.whole()] == [len(FILES), len(FILES) + 2]


def test_an_object_whose_content_changed_is_copied_again(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    made_at(filled, media, place, NIGHT)
    [key, *_] = FILES
    media.put(key, b"a frame, made anew")
    made(filled, media, place)
    older, newer = place.whole()
    backup.restore(empty_url, empty_media, place, older, tmp_path)
    assert content(empty_media) == FILES
    [now] = [file for file in place.media(place.manifest(newer)) if file.key == key]
    assert now.size == len(b"a frame, made anew")


def made_at(url: str, media: Storage, place: Place, ago: timedelta) -> int:
    """A backup of some time ago; how many objects were new."""
    done = made(url, media, place)
    then = new_id(datetime.now(UTC) - ago)
    for stored in list(place.store.listed(f"backups/{done.manifest.id}/")):
        content = place.store.read(stored.key, 0, stored.size).replace(done.manifest.id.encode(), then.encode())
        place.store.put(stored.key.replace(done.manifest.id, then), content)
    place.store.delete_prefix(f"backups/{done.manifest.id}/")
    return done.copied


class PartlyUnreadable(Local):
    """It has files that it does not give: `refused`, or on a bad block of the disk."""

    def open(self, key: str) -> Reader:
        if "refused" in key:
            raise ObjectRefused(key, "403 Forbidden: InvalidObjectState")
        if "bad" in key:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().open(key)


def test_a_file_that_cannot_be_read_keeps_no_other_out_of_the_backup(
    call: Call, filled: str, empty_url: str, media: Local, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator is told each night, and no backup that may have the file goes. Such a backup is told from others."""
    made_at(filled, media, place, 3 * NIGHT)
    for key in ("snaps/b/1/refused.jpg", "snaps/b/1/bad.jpg", "snaps/b/1/good.jpg"):
        media.put(key, key.encode())
    with pytest.raises(Incomplete) as caught:
        made(filled, PartlyUnreadable(tmp_path / "media", Room(tmp_path, 0)), place, keep=1, keep_for=NIGHT)
    said = "but 2 of the storage's files, which cannot be read: snaps/b/1/bad.jpg, snaps/b/1/refused.jpg. Of "
    assert said in str(caught.value)
    assert "Input/output error" in str(caught.value)
    monkeypatch.setenv("SNAPAPP_BACKUP_TO", str(tmp_path / "backups"))
    head, whole, lacking = (line.split() for line in call("backup", "--list").out.splitlines())
    assert [head[3], whole[3], lacking[3]] == ["LACKING", "0", "2"]
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", empty_url)
    monkeypatch.setenv("SNAPAPP_DATA_DIR", str(tmp_path / "new"))
    assert ", without 2 files that could not be read" in call("restore").out
    restored = content(Local(tmp_path / "new/media", Room(tmp_path, 0)))
    assert restored == FILES | {"snaps/b/1/good.jpg": b"snaps/b/1/good.jpg"}


# --- how long they are kept -------------------------------------------------------------------------------------


def test_the_newest_stay_and_so_do_the_young() -> None:
    now = datetime(2026, 1, 31, 3, tzinfo=UTC)
    ids = [new_id(now - days * NIGHT) for days in (40, 30, 2, 1, 0)]
    gone = retention.outlived(ids, now, keep=2, keep_for=10 * NIGHT)
    assert gone == ids[:2]
    assert retention.outlived(ids, now, keep=4, keep_for=timedelta(0)) == ids[:1]


def test_a_backup_of_the_future_is_not_the_newest(place: Place) -> None:
    """It was made while a clock was wrong. A clock that is a little behind another one changes no order."""
    now = datetime.now(UTC)
    old, new, ahead, wrong = ids = [new_id(now + days * NIGHT) for days in (-1, 0, 0.5, 365)]
    for id_ in ids:
        place.put(id_, "manifest", io.BytesIO())
    assert place.whole() == [wrong, old, new, ahead]
    assert retention.outlived(ids, now, keep=2, keep_for=timedelta(0)) == [old]


def test_with_a_backup_go_the_objects_that_no_other_has(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    made_at(filled, media, place, 3 * NIGHT)
    [gone, *left] = FILES
    media.delete(gone)
    assert len(made(filled, media, place, keep=1, keep_for=NIGHT).removed) == 1
    assert len(list(place.objects())) == len(left)
    backup.restore(empty_url, empty_media, place, None, tmp_path)
    assert content(empty_media) == {key: FILES[key] for key in left}


# --- who may read all rows --------------------------------------------------------------------------------------


@pytest.fixture
def owned(server: Postgres) -> Iterator[str]:
    """A database of an owner whom row level security holds, as on a box."""
    with admin(server) as db:
        db.execute("CREATE ROLE farmer LOGIN")
        db.execute("GRANT snapapp_tenant TO farmer")
    with server.database("template0") as url:
        place = sqlalchemy.make_url(url)
        with admin(server, str(place.database)) as db:
            db.execute(f"ALTER DATABASE {place.database} OWNER TO farmer")
            db.execute("ALTER SCHEMA public OWNER TO farmer")
        yield place.set(username="farmer").render_as_string(hide_password=False)
    with admin(server) as db:
        db.execute(f"DROP DATABASE {place.database} WITH (FORCE)")
        db.execute("DROP ROLE IF EXISTS snapapp_backup")
        db.execute("DROP ROLE farmer")


@pytest.mark.both_servers_at_length
def test_an_owner_behind_the_wall_is_told_what_it_needs_and_then_gets_every_row(
    owned: str, server: Postgres, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    migrate(owned)
    with admin(server, str(sqlalchemy.make_url(owned).database)) as db:
        db.execute(SNAPS)
        db.execute("INSERT INTO operator (tenant, email, nickname) VALUES ('north', 'ana@example.com', 'Ana')")
    with pytest.raises(BackupError, match="CREATE ROLE snapapp_backup") as refused:
        made(owned, media, place)
    with admin(server) as db:
        db.execute(str(refused.value).partition("type: ")[2].encode())
    assert made(owned, media, place).manifest.tables["public.operator"] == 1
    with admin(server, str(sqlalchemy.make_url(owned).database)) as db:
        db.execute("DROP SCHEMA public CASCADE")
        db.execute("CREATE SCHEMA public AUTHORIZATION farmer")
    backup.restore(owned, empty_media, place, None, tmp_path)  # into a database of theirs, which they own
    assert is_current(owned)


# one who may make the role needs nobody
@pytest.mark.parametrize("rights", [pytest.param("CREATEROLE", marks=pytest.mark.at_length), ""])
def test_on_a_new_server_whoever_brought_a_backup_back_may_act_for_a_tenant(
    filled: str, media: Local, empty_media: Local, place: Place, tmp_path: Path, rights: str
) -> None:
    """It has neither the tenants' role nor a member of it; a dump cannot bring them."""
    made(filled, media, place)
    with postgres.start(tmp_path, create=True) as new, psycopg.connect(new.url, autocommit=True) as db:
        db.execute(f"CREATE ROLE farmer LOGIN {rights}".encode())
        db.execute("CREATE DATABASE farm OWNER farmer")
        db.execute("CREATE ROLE snapapp_backup BYPASSRLS IN ROLE pg_read_all_data ROLE farmer")
        url = new.url.replace("postgres@/snapapp?", "farmer@/farm?")
        if not rights:
            with pytest.raises(BackupError, match="role snapapp_tenant is missing") as refused:
                backup.restore(url, empty_media, place, None, tmp_path)
            db.execute(str(refused.value).partition("type: ")[2].encode())
        backup.restore(url, empty_media, place, None, tmp_path)
        with connections.transaction(url) as ours, database.scope(ours, "north"):
            assert ours.scalar(sqlalchemy.text("SELECT current_user")) == "snapapp_tenant"


# --- the drill --------------------------------------------------------------------------------------------------


def test_a_drill_restores_and_leaves_nothing_behind(filled: str, media: Local, place: Place, tmp_path: Path) -> None:
    made(filled, media, place)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    drilled = backup.drill(place, None, scratch)
    assert drilled.tables == rows(filled)
    assert list(scratch.iterdir()) == []


KILLED_DRILL = """
import os, signal, sys
from pathlib import Path
from snapapp import postgres
from snapapp.backup import restoring
from snapapp.backup.drill import drill
from snapapp.backup.place import Place
from snapapp.storage import Local, Room
restoring.restore_database = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
backups, scratch = map(Path, sys.argv[1:])
drill(Place(Local(backups, Room(backups, 0)), None), None, scratch)
"""


@pytest.mark.at_length  # a drill leaves nothing behind in every run, above
def test_the_next_drill_removes_what_a_killed_one_left_and_ends_its_server(
    filled: str, media: Local, place: Place, tmp_path: Path
) -> None:
    """It has the rows of every tenant."""
    made(filled, media, place)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED_DRILL, tmp_path / "backups", scratch], cwd=ROOT, check=False)
    [left] = scratch.iterdir()
    server = postmaster.find(left / temporary.DATABASE / "postgres")
    assert (killed.returncode, server is not None) == (-signal.SIGKILL, True)
    backup.drill(place, None, scratch)
    assert (list(scratch.iterdir()), server and processes.started(server.pid)) == ([], None)


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param("streams.Program(argv).read()", id="pg_dump"),
        pytest.param("dump._run(argv, 'postgresql:///')", id="pg_restore"),
        pytest.param("dump._run_script(argv, 'postgresql:///')", id="pg_restore for psql"),
        pytest.param("dump.psql_argv = lambda _: argv; dump._run_script(['cat'], 'postgresql:///')", id="psql"),
    ],
)
def test_a_program_ends_with_the_command_that_runs_it(tmp_path: Path, runs: str) -> None:
    """After a kill -9 of `snapapp restore` pg_restore went on, and filled the database that was tried again."""
    said = tmp_path / "pid"
    argv = ["sh", "-c", f"echo $$ > {said}.new; mv {said}.new {said}; exec sleep 600"]
    code = f"from snapapp.backup import streams; from snapapp.postgres import dump; argv = {argv}; {runs}"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as running:
        until(said.exists)
        pid = int(said.read_text())
        running.kill()
    until(lambda: processes.started(pid) is None)


def test_two_drills_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    with temporary.folder(tmp_path, temporary.DRILL) as first, temporary.folder(tmp_path, temporary.RESTORE) as second:
        assert first.is_dir()
        assert second.is_dir()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.at_length  # a drill restores in every run, above
@needs_oldest
@pytest.mark.parametrize("server_name", [OLDEST])
def test_a_drill_does_without_an_extension_that_the_embedded_server_lacks(
    filled: str, db: Db, media: Local, place: Place, tmp_path: Path
) -> None:
    db.execute("CREATE EXTENSION pg_trgm")
    made(filled, media, place)
    assert backup.drill(place, None, tmp_path).tables == rows(filled)


@pytest.mark.at_length  # all other tables come back in every run
def test_the_table_of_an_extension_comes_with_the_extension_and_hinders_neither_drill_nor_restore(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    """As that of PostGIS; where only a superuser may add it, it is there before the restore."""
    for url in (filled, empty_url):
        with psycopg.connect(url, autocommit=True) as one:
            one.execute("CREATE TABLE of_it AS SELECT 4326; ALTER EXTENSION plpgsql ADD TABLE of_it")
    made(filled, media, place)
    backup.drill(place, None, tmp_path)
    backup.restore(empty_url, empty_media, place, None, tmp_path)


def test_a_drill_finds_an_object_that_is_not_what_it_was(
    filled: str, media: Local, place: Place, tmp_path: Path
) -> None:
    made(filled, media, place)
    [(_, key), *_] = place.objects()
    place.store.put(key, b"rotten")
    with pytest.raises(Damaged, match="is damaged"):
        backup.drill(place, None, tmp_path)


def test_a_backup_that_tells_of_other_rows_fails_its_drill_and_its_restore(
    filled: str, empty_url: str, media: Local, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    place.put_manifest(replace(made(filled, media, place).manifest, tables={**rows(filled), "public.snap": 7}))
    with pytest.raises(Damaged, match=r"public\.snap 0 instead of 7"):
        backup.drill(place, None, tmp_path)
    with pytest.raises(Damaged, match=r"public\.snap 0 instead of 7"):
        backup.restore(empty_url, empty_media, place, None, tmp_path)


def test_without_a_backup_there_is_nothing_to_restore(
    empty_url: str, empty_media: Local, place: Place, tmp_path: Path
) -> None:
    with pytest.raises(BackupError, match="no whole backup"):
        backup.restore(empty_url, empty_media, place, None, tmp_path)

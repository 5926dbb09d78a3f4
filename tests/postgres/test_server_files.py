"""The embedded server's files: its configuration, its sockets, and directories that it refuses."""

import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from snapapp.errors import PostgresError
from snapapp.postgres import account, binaries, cluster, locks, postmaster, server, sockets
from snapapp.postgres import start as start_server
from snapapp.postgres.home import Home
from snapapp.postgres.migrate import migrate
from tests import small_disk
from tests.jobs.working import until
from tests.postgres.clusters import BRIEFLY, ENVIRONMENT, Adopter, ask, is_stopped, needs_root


def test_the_server_is_set_for_a_small_box_that_loses_nothing(data_dir: Path) -> None:
    expected = {
        "listen_addresses": "",
        "shared_buffers": "128MB",
        "max_connections": "60",
        "jit": "off",
        "wal_compression": "pglz",
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "autovacuum_naptime": "15s",
        "idle_in_transaction_session_timeout": "1min",
        "TimeZone": "UTC",
    }
    with start_server(data_dir, create=False) as started, psycopg.connect(started.url) as db:
        rows = db.execute("SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)", [list(expected)])
        assert dict(rows.fetchall()) == expected


def test_our_configuration_is_renewed_and_peoples_own_wins(data_dir: Path) -> None:
    (data_dir / "postgres" / cluster.CONFIGURATION).write_text("jit = on\n")
    (data_dir / cluster.LOCAL_CONFIGURATION).write_text("work_mem = 7MB\n")
    with start_server(data_dir, create=False) as started:
        assert ask(started.url, "SHOW jit") == "off"
        assert ask(started.url, "SHOW work_mem") == "7MB"


def test_a_mistake_in_peoples_own_configuration_is_reported_at_once(data_dir: Path) -> None:
    (data_dir / cluster.LOCAL_CONFIGURATION).write_text("work_mam = 7MB\n")
    with pytest.raises(PostgresError, match=r"(?s)postgres\.log:\n.*work_mam"):
        start_server(data_dir, create=False)


def test_a_big_log_is_put_aside_at_start(data_dir: Path) -> None:
    with (data_dir / "postgres.log").open("ab") as log:
        log.truncate(11 * 2**20)
    start_server(data_dir, create=False).stop()
    assert (data_dir / "postgres.log.1").stat().st_size == 11 * 2**20
    assert "ready to accept connections" in (data_dir / "postgres.log").read_text()


# --- sockets


@pytest.mark.parametrize("name", ["deep" * 20, "comma, 'quoted' and ünspelled"])
def test_a_path_unfit_for_a_socket_gets_a_short_private_directory(
    tmp_path: Path, template: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(template, tmp_path / name)
    with tempfile.TemporaryDirectory() as short, start_server_below(tmp_path / name, short, monkeypatch) as started:
        assert ask(started.url, "SELECT current_database()") == "snapapp"
        [folder] = Path(short).iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert is_stopped(tmp_path / name)


def start_server_below(data_dir: Path, temporary: str, monkeypatch: pytest.MonkeyPatch) -> server.Server:
    monkeypatch.setattr(tempfile, "tempdir", temporary)
    return start_server(data_dir, create=False)


def test_an_adopter_with_another_temporary_directory_finds_the_socket(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("deep" * 20)
    shutil.copytree(template, deep)
    with (
        tempfile.TemporaryDirectory() as short,
        start_server_below(deep, short, monkeypatch) as first,
        start_server_below(deep, "/tmp", monkeypatch) as second,
    ):
        assert second.url == first.url


@pytest.mark.parametrize("trap", ["open directory", "symlink", "file"])
def test_a_premade_socket_directory_is_refused(
    tmp_path: Path, template: Path, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("deep" * 20)
    shutil.copytree(template, deep)
    with tempfile.TemporaryDirectory() as short:
        start_server_below(deep, short, monkeypatch).stop()
        [folder] = Path(short).iterdir()
        folder.rename(folder.with_name("good"))
        match trap:
            case "open directory":
                folder.mkdir(mode=0o755)
            case "symlink":
                folder.symlink_to(folder.with_name("good"))
            case "file":
                folder.touch(mode=0o600)
        with pytest.raises(PostgresError, match=f"{folder} must be a directory"):
            start_server(deep, create=False)


@needs_root
def test_a_socket_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    who = account.Account(0, 0)
    folder = sockets._private(tmp_path / "ours", who)
    os.chown(folder, 1, 1)
    with pytest.raises(PostgresError, match="has uid 1"):
        sockets._private(folder, who)


def test_a_server_that_only_its_socket_betrays_is_not_doubled(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postmaster, "_FALLS_SILENT_WITHIN", BRIEFLY)
    with socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind(str(sockets.path_in(data_dir / "postgres")))
        hidden.listen(100)
        with pytest.raises(PostgresError, match="perhaps in another container"):
            start_server(data_dir, create=False)


# --- what cannot work is refused in words


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "var").touch()
    for create in (True, False):
        with pytest.raises(PostgresError, match=f"{tmp_path}/var.*file"):
            start_server(tmp_path / "var", create=create)


def test_an_unwritable_data_directory_is_refused(tmp_path: Path) -> None:
    unwritable = tmp_path
    if os.geteuid() == 0:
        unwritable = Path("/sys/kernel")  # where not even root may make anything
    else:
        tmp_path.chmod(0o500)
    with pytest.raises(PostgresError, match="is not open to the user"):
        start_server(unwritable / "var", create=True)


def test_a_directory_with_foreign_files_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "thesis.tex").touch()
    with pytest.raises(PostgresError, match=r"holds files \(thesis.tex\) that snapapp did not make"):
        start_server(tmp_path, create=True)
    assert [entry.name for entry in (tmp_path / "postgres").iterdir()] == ["thesis.tex"]


def test_a_foreign_cluster_is_refused(data_dir: Path) -> None:
    (data_dir / "postgres" / cluster.MARKER).unlink()
    with pytest.raises(PostgresError, match="holds a PostgreSQL cluster that snapapp did not make"):
        start_server(data_dir, create=True)


@pytest.mark.parametrize("version", ["16", "19"])
def test_a_cluster_of_another_major_version_is_refused_with_both_named(data_dir: Path, version: str) -> None:
    (data_dir / "postgres" / "PG_VERSION").write_text(f"{version}\n")
    with pytest.raises(PostgresError, match=rf"PostgreSQL {version}, this snapapp brings PostgreSQL 18.*`mv "):
        start_server(data_dir, create=True)


@pytest.mark.at_length  # makes a cluster, migrates it, backs it up and restores it
def test_what_a_cluster_of_another_version_says_to_type_brings_all_rows_over(data_dir: Path) -> None:
    with start_server(data_dir, create=False) as started:
        migrate(started.url)
        with psycopg.connect(started.url, autocommit=True) as db:
            db.execute("INSERT INTO tenant (code, name) VALUES ('north', 'North')")
    version = data_dir / "postgres" / "PG_VERSION"
    version.write_text("17\n")
    with pytest.raises(PostgresError) as refusal:
        start_server(data_dir, create=False)
    version.write_text("18\n")
    typed = [command for command in re.findall("`(.+?)`", str(refusal.value)) if command != "make run"]
    script = "\n".join(["set -e", 'snapapp() { "$0" -m snapapp "$@"; }', *typed])
    environment = ENVIRONMENT | {"SNAPAPP_DATA_DIR": str(data_dir)}
    subprocess.run(["/bin/sh", "-c", script, sys.executable], env=environment, check=True)
    with start_server(data_dir, create=False) as started:
        assert ask(started.url, "SELECT name FROM tenant WHERE code = 'north'") == "North"


def test_a_server_that_somebody_else_started_on_our_files_is_refused(data_dir: Path) -> None:
    folder = data_dir / "postgres"
    foreign = account.choose(Home.at(data_dir)).run(
        *("/bin/sh", "-c", '"$0" -D "$1" -k "$1" >/dev/null 2>&1 & echo $!', binaries.program("postgres"), folder),
        within=timedelta(seconds=10),
    )
    try:
        until(lambda: sockets.answers(folder))
        with pytest.raises(PostgresError, match=f"did not start runs in {folder} as pid {foreign.stdout.strip()}"):
            start_server(data_dir, create=False)
    finally:
        os.kill(int(foreign.stdout), signal.SIGQUIT)
    until(lambda: not sockets.answers(folder))


def test_a_pid_that_has_become_another_users_server_keeps_nothing_from_starting(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reboot; where it runs, only its own user may see."""

    def hidden(*_: object) -> bool:
        raise PermissionError

    monkeypatch.setattr(Path, "samefile", hidden)
    argv = ["/usr/lib/postgresql/15/bin/postgres -D /var/lib/postgresql/15/main -c config_file=/etc/x", "-c", "input()"]
    with subprocess.Popen(argv, executable=sys.executable, stdin=subprocess.PIPE) as other:
        (data_dir / "postgres" / "postmaster.pid").write_text(f"{other.pid}\n{data_dir}\n0\n5432\n\n\n\nready\n")
        with start_server(data_dir, create=False) as started:
            assert ask(started.url, "SELECT 1") == 1
        other.kill()


def test_missing_programs_are_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "MAJOR", 99)
    with pytest.raises(PostgresError, match=r"pginstall99/bin/postgres is missing\. Type `pip install"):
        start_server(data_dir, create=False)


def test_an_interrupted_initdb_is_redone_and_nothing_else_touched(
    empty_dir: Path, request: pytest.FixtureRequest
) -> None:
    empty_dir.mkdir()
    (empty_dir / "frames").mkdir()
    starter = Adopter(empty_dir)
    request.addfinalizer(starter.close)
    starter.tell()
    until(lambda: list(empty_dir.glob("postgres.initdb-in-progress.*/PG_VERSION")))
    starter.kill()
    with pytest.raises(PostgresError, match="There is no database in"):
        start_server(empty_dir, create=False)
    with start_server(empty_dir, create=True) as started:
        assert ask(started.url, "SELECT 1") == 1
    left = {entry.name for entry in empty_dir.iterdir()}
    assert left == {"frames", "postgres", "postgres.adopters", "postgres.gate", "postgres.log"}


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    attempt = "import sys, pathlib, snapapp.postgres as p; p.start(pathlib.Path(sys.argv[1]), create=True)"
    result = small_disk.run(attempt, tmp_path, "8m", ENVIRONMENT)
    assert "PostgresError: PostgreSQL's files cannot be made" in result.stderr
    assert "is nearly full: 7 MB left" in result.stderr or "No space left on device" in result.stderr


def test_a_disk_without_room_for_a_lock_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(locks, "open_private", full)
    with pytest.raises(PostgresError, match=f"The disk that holds {tmp_path} is full"):
        start_server(tmp_path, create=True)

"""The embedded server with real clusters, real processes and real kill -9."""

import errno
import os
import pty
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

import snapapp
from snapapp.errors import PostgresError
from snapapp.postgres import account, binaries, cluster, locks, postmaster, psql_argv, run_psql, server, sockets
from snapapp.postgres import start as start_server
from snapapp.postgres.home import Home
from tests.jobs.working import until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="about what root does")

SOURCE = str(Path(snapapp.__file__).parents[1])
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])])}
BRIEFLY = timedelta(milliseconds=300)

ADOPTER = """
import sys
from pathlib import Path
from snapapp.postgres import start
print("here", flush=True)
sys.stdin.readline()
server = start(Path(sys.argv[1]), create=True)
print(server.url, flush=True)
sys.stdin.readline()
server.stop()
"""


class Adopter:
    """A process of its own that starts or adopts the server, and leaves when it is told to."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ADOPTER, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        assert self.hear() == "here"

    def tell(self) -> "Adopter":
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def start(self) -> str:
        return self.tell().hear()

    def leave(self) -> None:
        self.tell()
        assert self.process.wait(timeout=20) == 0
        self.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=20)

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster as initdb leaves it, to be copied where the test is not about initdb."""
    data_dir = tmp_path_factory.mktemp("template") / "var"
    start_server(data_dir, create=True).stop()
    return data_dir


@pytest.fixture
def empty_dir(tmp_path: Path) -> Iterator[Path]:
    data_dir = tmp_path / "var"
    yield data_dir
    put_down(data_dir)


@pytest.fixture
def data_dir(template: Path, empty_dir: Path) -> Path:
    shutil.copytree(template, empty_dir)
    return empty_dir


@pytest.fixture
def adopters(data_dir: Path) -> Iterator[Callable[[], Adopter]]:
    born: list[Adopter] = []

    def bear() -> Adopter:
        born.append(Adopter(data_dir))
        return born[-1]

    yield bear
    for adopter in born:
        adopter.kill()
        adopter.close()


def put_down(data_dir: Path) -> None:
    with suppress(PostgresError):
        found = postmaster.find(data_dir / "postgres")
        if found is not None:
            os.kill(found.pid, signal.SIGQUIT)
            until(lambda: postmaster.find(data_dir / "postgres") is None)


def pid_of(data_dir: Path) -> int:
    found = postmaster.find(data_dir / "postgres")
    assert found is not None
    return found.pid


def is_stopped(data_dir: Path) -> bool:
    return postmaster.find(data_dir / "postgres") is None


def kill_server(data_dir: Path) -> None:
    os.kill(pid_of(data_dir), signal.SIGKILL)
    until(lambda: is_stopped(data_dir))


def ask(url: str, question: str) -> object:
    with psycopg.connect(url) as db:
        row = db.execute(question.encode()).fetchone()
    return row and row[0]


@contextmanager
def lost(url: str) -> Iterator[psycopg.Connection]:
    """A connection that its server will not live to see closed."""
    db = psycopg.connect(url)
    try:
        yield db
    finally:
        db.close()


def backend_of(db: psycopg.Connection) -> int:
    return db.info.backend_pid


# --- one server: the first starts it, the last one out stops it


def test_the_first_start_makes_a_cluster_with_our_database(empty_dir: Path) -> None:
    with start_server(empty_dir, create=True) as started:
        assert ask(started.url, "SELECT current_database() || ' ' || current_user") == "snapapp postgres"
        assert ask(started.url, "SHOW server_encoding") == "UTF8"
        question = "SELECT datlocprovider::text || ' ' || datlocale FROM pg_database WHERE datname = 'snapapp'"
        assert ask(started.url, question) == "b C.UTF-8"
    assert is_stopped(empty_dir)


def test_the_url_is_good_for_sqlalchemy(data_dir: Path) -> None:
    with start_server(data_dir, create=False) as started:
        engine = sqlalchemy.create_engine(started.url.replace("postgresql:", "postgresql+psycopg:", 1))
        with engine.connect() as db:
            assert db.scalar(sqlalchemy.text("SELECT current_database()")) == "snapapp"
        engine.dispose()


def test_without_create_nothing_is_made_and_the_error_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(PostgresError, match=rf"{tmp_path}/var/postgres.*`make run`.*SNAPAPP_DATABASE_URL"):
        start_server(tmp_path / "var", create=False)
    assert list(tmp_path.iterdir()) == []


def test_without_create_an_empty_directory_stays_empty_of_clusters(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    with pytest.raises(PostgresError, match="There is no database in"):
        start_server(tmp_path, create=False)
    assert list((tmp_path / "postgres").iterdir()) == []


def test_an_existing_cluster_starts_and_stops_within_a_second(data_dir: Path) -> None:
    took = []
    for _ in range(4):  # at best: a neighbour's load is not ours
        began = time.monotonic()
        start_server(data_dir, create=False).stop()
        took.append(time.monotonic() - began)
    assert min(took) < 1


def test_the_second_adopts_and_the_last_one_out_stops(data_dir: Path) -> None:
    first = start_server(data_dir, create=False)
    pid = pid_of(data_dir)
    second = start_server(data_dir, create=False)
    assert (second.url, pid_of(data_dir)) == (first.url, pid)
    first.stop()
    first.stop()
    assert ask(second.url, "SELECT 1") == 1
    second.stop()
    assert is_stopped(data_dir)


def test_every_spelling_of_a_directory_is_the_same_server(data_dir: Path) -> None:
    link = data_dir.with_name("link")
    link.symlink_to(data_dir)
    with start_server(data_dir, create=False) as one, start_server(link, create=False) as other:
        assert one.url == other.url


def test_starters_at_the_same_moment_share_one_new_server(empty_dir: Path, request: pytest.FixtureRequest) -> None:
    crowd = [Adopter(empty_dir) for _ in range(4)]
    for one in crowd:
        request.addfinalizer(one.close)
        request.addfinalizer(one.kill)
    for one in crowd:
        one.tell()
    assert len({one.hear() for one in crowd}) == 1
    for one in crowd[:3]:
        one.leave()
    assert not is_stopped(empty_dir)
    crowd[3].leave()
    assert is_stopped(empty_dir)


def test_starters_and_leavers_in_a_crowd_always_meet_a_server(data_dir: Path) -> None:
    failures: list[BaseException] = []

    def come_and_go() -> None:
        try:
            for _ in range(6):
                with start_server(data_dir, create=False) as started:
                    assert ask(started.url, "SELECT 1") == 1
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    crowd = [threading.Thread(target=come_and_go) for _ in range(4)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    assert failures == []
    assert is_stopped(data_dir)


def test_settings_of_other_clusters_in_the_environment_do_not_disturb(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    with start_server(data_dir, create=False) as started:
        assert ask(started.url, "SELECT 1") == 1


# --- death: the kernel forgets the dead, and so do we


def test_the_server_outlives_a_killed_starter_and_its_share_is_forgotten(
    data_dir: Path, adopters: Callable[[], Adopter]
) -> None:
    starter, adopter = adopters(), adopters()
    starter.start()
    url = adopter.start()
    starter.kill()
    assert ask(url, "SELECT 1") == 1
    adopter.leave()
    assert is_stopped(data_dir)


def test_the_server_survives_ctrl_c_in_its_starters_terminal(data_dir: Path, adopters: Callable[[], Adopter]) -> None:
    starter, adopter = adopters(), adopters()
    starter.start()
    url = adopter.start()
    os.killpg(starter.process.pid, signal.SIGINT)
    starter.process.wait(timeout=20)
    assert ask(url, "SELECT 1") == 1


def test_the_server_does_not_keep_its_starters_output_open(data_dir: Path, adopters: Callable[[], Adopter]) -> None:
    starter = adopters()
    starter.start()
    starter.kill()
    assert starter.process.stdout is not None
    assert starter.process.stdout.read() == ""
    assert not is_stopped(data_dir)


def test_a_server_whose_users_all_died_is_adopted_and_stopped(data_dir: Path, adopters: Callable[[], Adopter]) -> None:
    lonely = [adopters(), adopters()]
    for one in lonely:
        one.start()
    for one in lonely:
        one.kill()
    pid = pid_of(data_dir)
    with start_server(data_dir, create=False):
        assert pid_of(data_dir) == pid
    assert is_stopped(data_dir)


def test_after_kill_9_of_everything_the_next_start_recovers_what_was_committed(
    data_dir: Path, adopters: Callable[[], Adopter]
) -> None:
    starter = adopters()
    with psycopg.connect(starter.start(), autocommit=True) as db:
        db.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        starter.kill()
        kill_server(data_dir)
    assert (data_dir / "postgres" / "postmaster.pid").exists()
    with start_server(data_dir, create=False) as started:
        assert ask(started.url, "SELECT answer FROM kept") == 42
    assert is_stopped(data_dir)


def test_a_start_waits_for_the_orphans_of_a_killed_server(data_dir: Path) -> None:
    first = start_server(data_dir, create=False)
    with lost(first.url) as db:
        orphan = backend_of(db)
        os.kill(orphan, signal.SIGSTOP)
        kill_server(data_dir)
        starter = threading.Thread(target=lambda: second.append(start_server(data_dir, create=False)))
        second: list[server.Server] = []
        starter.start()
        until(lambda: "is still in use" in (data_dir / "postgres.log").read_text())
        os.kill(orphan, signal.SIGCONT)
        starter.join()
    assert ask(second[0].url, "SELECT 1") == 1
    first.stop()
    second[0].stop()
    assert is_stopped(data_dir)


def test_an_orphan_that_stays_is_reported_with_the_servers_last_words(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postmaster, "RETRIED_FOR", BRIEFLY)
    with start_server(data_dir, create=False) as first, lost(first.url) as db:
        orphan = backend_of(db)
        os.kill(orphan, signal.SIGSTOP)
        try:
            kill_server(data_dir)
            with pytest.raises(PostgresError, match=r"(?s)does not start in.*is still in use"):
                start_server(data_dir, create=False)
        finally:
            os.kill(orphan, signal.SIGCONT)


@pytest.mark.parametrize("noted", [str(os.getpid()), "", "4194305"], ids=["alive", "nothing", "dead"])
def test_stale_lock_files_do_not_keep_the_server_down(data_dir: Path, noted: str) -> None:
    socket_lock = sockets.path_in(data_dir / "postgres").with_suffix(".5432.lock")
    for lock in (data_dir / "postgres" / "postmaster.pid", socket_lock):
        lock.write_text(f"{noted}\n{data_dir}/postgres\n" if noted else "")
    with start_server(data_dir, create=False) as started:
        assert ask(started.url, "SELECT 1") == 1


def test_a_stale_pid_file_that_names_another_clusters_server_is_no_obstacle(data_dir: Path, template: Path) -> None:
    other_dir = data_dir.with_name("other")
    shutil.copytree(template, other_dir)
    with start_server(other_dir, create=False):
        (data_dir / "postgres" / "postmaster.pid").write_text(f"{pid_of(other_dir)}\n{data_dir}/postgres\n")
        with start_server(data_dir, create=False):
            assert pid_of(data_dir) != pid_of(other_dir)


def test_children_do_not_inherit_a_share(data_dir: Path) -> None:
    started = start_server(data_dir, create=False)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False):
        started.stop()
        start_server(data_dir, create=False).stop()
        assert is_stopped(data_dir)


def test_the_server_does_not_inherit_a_share(data_dir: Path, adopters: Callable[[], Adopter]) -> None:
    starter = adopters()
    starter.start()
    starter.kill()
    share = locks.Share(data_dir / "postgres.adopters")
    assert share.is_the_last()
    share.release()


# --- stopping takes a bounded time


def test_stop_reports_a_server_that_does_not_stop(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postmaster, "STOPPED_WITHIN", ((signal.SIGINT, BRIEFLY), (signal.SIGQUIT, BRIEFLY)))
    started = start_server(data_dir, create=False)
    pid = pid_of(data_dir)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(PostgresError, match=f"kill -9 {pid}"):
            started.stop()
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: is_stopped(data_dir))


def test_stop_does_not_wait_for_ever_at_a_busy_gate(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_DISMISSED_WITHIN", BRIEFLY)
    started = start_server(data_dir, create=False)
    with locks.gate(data_dir / "postgres.gate", within=BRIEFLY):
        started.stop()
    share = locks.Share(data_dir / "postgres.adopters")
    assert share.is_the_last()
    share.release()


def test_stop_rolls_open_transactions_back_instead_of_waiting_for_them(data_dir: Path) -> None:
    started = start_server(data_dir, create=False)
    with lost(started.url) as db:
        db.execute("CREATE TABLE never AS SELECT 1")
        started.stop()
        assert is_stopped(data_dir)


def test_stop_is_content_when_somebody_removed_the_directory(data_dir: Path) -> None:
    started = start_server(data_dir, create=False)
    pid = pid_of(data_dir)
    shutil.rmtree(data_dir)
    started.stop()
    with suppress(ProcessLookupError):  # it notices within a minute; a test has no minute
        os.kill(pid, signal.SIGQUIT)


# --- configuration and log


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
    script = 'mount -t tmpfs -o size=8m none "$1" && exec "$2" -c "$3" "$1"'
    attempt = "import sys, pathlib, snapapp.postgres as p; p.start(pathlib.Path(sys.argv[1]), create=True)"
    result = subprocess.run(
        [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            tmp_path,
            sys.executable,
            attempt,
        ],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare:" in result.stderr or "mount:" in result.stderr:
        pytest.skip(f"no disk of our own to fill: {result.stderr.strip()}")
    assert "PostgresError: PostgreSQL's files cannot be made" in result.stderr
    assert "is nearly full: 7 MB left" in result.stderr or "No space left on device" in result.stderr


def test_a_disk_without_room_for_a_lock_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(locks, "open_private", full)
    with pytest.raises(PostgresError, match=f"The disk that holds {tmp_path} is full"):
        start_server(tmp_path, create=True)


# --- root


@needs_root
def test_for_root_the_server_runs_unprivileged_below_a_closed_parent(data_dir: Path) -> None:
    data_dir.parent.chmod(0o700)
    with start_server(data_dir, create=False):
        inside = Path(f"/proc/{pid_of(data_dir)}/uid_map").read_text().split()
        assert inside == [str(pwd.getpwnam("nobody").pw_uid), "0", "1"]
    assert data_dir.parent.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def without_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0 or not account._nobody().reaches(Path("/")):
        pytest.skip("nobody must reach PostgreSQL's programs, and only root can become nobody")
    monkeypatch.setattr(shutil, "which", lambda _name: None)


@needs_root
@pytest.mark.usefixtures("without_namespaces")
def test_for_root_without_namespaces_the_server_runs_as_nobody() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        for _ in range(2):
            with start_server(Path(folder), create=True) as started:
                assert ask(started.url, "SELECT 1") == 1
                assert Path(f"/proc/{pid_of(Path(folder))}").stat().st_uid == pwd.getpwnam("nobody").pw_uid


@needs_root
@pytest.mark.usefixtures("without_namespaces")
def test_for_root_a_parent_closed_to_nobody_is_refused_and_stays_closed(empty_dir: Path) -> None:
    empty_dir.parent.chmod(0o700)
    told = r"does not run as root.* Others may not enter /\S+, so move .*cd /opt/snapapp.*make run`"
    with pytest.raises(PostgresError, match=told):
        start_server(empty_dir, create=True)
    assert empty_dir.parent.stat().st_mode & 0o777 == 0o700


@needs_root
@pytest.mark.usefixtures("without_namespaces")
def test_root_starts_a_users_server_as_that_user() -> None:
    daemon = pwd.getpwnam("daemon")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, daemon.pw_uid, daemon.pw_gid)
        start_server(Path(folder), create=True).stop()
        assert {entry.owner() for entry in Path(folder).rglob("*")} == {"daemon"}


# --- psql


def test_psql_answers(data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with start_server(data_dir, create=False) as started:
        assert run_psql(started.url, ["-Atc", "SELECT 6 * 7"]) == 0
        assert run_psql(started.url, ["-c", "SELECT nonsense"]) == 1
    assert capfd.readouterr().out == "42\n"


def test_psql_talks_in_a_terminal(data_dir: Path) -> None:
    script = "import sys; from snapapp.postgres import run_psql; run_psql(sys.argv[1], ['-X', '-P', 'pager=off'])"
    ours, theirs = pty.openpty()
    with start_server(data_dir, create=False) as started:
        terminal = ENVIRONMENT | {"TERM": "xterm", "PSQL_HISTORY": os.devnull}
        with subprocess.Popen(
            [sys.executable, "-c", script, started.url], stdin=theirs, stdout=theirs, stderr=theirs, env=terminal
        ) as talking:
            os.close(theirs)
            heard = hear_until(ours, "snapapp=# ")
            os.write(ours, b"SELECT 6 * 7 AS answer;\n")
            heard = hear_until(ours, "(1 row)")
            os.write(ours, b"\\q\n")
            talking.wait(timeout=20)
    os.close(ours)
    assert "42" in heard


def hear_until(terminal: int, word: str) -> str:
    heard = ""
    while word not in heard:
        heard += os.read(terminal, 1000).decode()
    return heard


def test_psql_hides_the_password_of_a_foreign_database() -> None:
    argv = psql_argv("postgresql+psycopg://me:secret@db.example:6432/theirs?sslmode=require")
    assert "secret" not in " ".join(argv)
    assert set(argv[1].split()) == {"user=me", "host=db.example", "port=6432", "dbname=theirs", "sslmode=require"}


def test_psql_names_a_url_that_is_none() -> None:
    with pytest.raises(PostgresError, match="cannot use the database URL"):
        psql_argv("postgresql://host/?nonsense=1")

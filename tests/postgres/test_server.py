"""The embedded server with real clusters, real processes and real kill -9."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from snapapp.errors import PostgresError
from snapapp.postgres import locks, postmaster, server, sockets
from snapapp.postgres import start as start_server
from tests.jobs.working import until
from tests.postgres.clusters import BRIEFLY, Adopter, ask, is_stopped, pid_of


def kill_server(data_dir: Path) -> None:
    os.kill(pid_of(data_dir), signal.SIGKILL)
    until(lambda: is_stopped(data_dir))


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


@pytest.mark.at_length  # every test that has an engine uses such a URL
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


@pytest.mark.at_length  # a crowd meets a server that exists, below, in every run
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


# --- kept: started again by whoever uses it


def test_a_killed_server_is_started_again_by_those_who_keep_it_and_only_once(data_dir: Path) -> None:
    def starts() -> int:
        return (data_dir / "postgres.log").read_text().count("ready to accept connections")

    keepers = [start_server(data_dir, create=False) for _ in range(3)]
    before = starts()
    kill_server(data_dir)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda keeper: keeper.revive(), keepers))
    again = pid_of(data_dir)
    keepers[0].revive()
    assert (pid_of(data_dir), ask(keepers[0].url, "SELECT 1")) == (again, 1)
    assert starts() == before + 1
    for keeper in keepers:
        keeper.stop()
    assert is_stopped(data_dir)


def test_a_keeper_watches_until_its_stop_and_goes_on_when_a_start_fails(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_LOOK_EVERY", BRIEFLY)
    kept = start_server(data_dir, create=False)
    control = data_dir / "postgres" / "global" / "pg_control"
    kept.keep()
    control.rename(control.with_name("aside"))
    kill_server(data_dir)
    until(lambda: "PostgreSQL has died" in caplog.text)
    control.with_name("aside").rename(control)
    until(lambda: not is_stopped(data_dir))
    until(lambda: "serves" in caplog.text)
    kept.stop()
    assert is_stopped(data_dir)
    assert "postgres-keeper" not in {thread.name for thread in threading.enumerate()}
    kept.revive()
    assert is_stopped(data_dir)


def test_a_stop_waits_for_a_start_that_is_under_way_and_leaves_nothing(data_dir: Path) -> None:
    kept = start_server(data_dir, create=False)
    with lost(kept.url) as db:
        orphan = backend_of(db)
        os.kill(orphan, signal.SIGSTOP)
        kill_server(data_dir)
        with ThreadPoolExecutor(2) as pool:
            reviving = pool.submit(kept.revive)
            until(lambda: "is still in use" in (data_dir / "postgres.log").read_text())
            stopping = pool.submit(kept.stop)
            os.kill(orphan, signal.SIGCONT)
            reviving.result()
            stopping.result()
    assert is_stopped(data_dir)


def test_a_server_whose_directory_was_removed_is_not_made_again(data_dir: Path) -> None:
    with start_server(data_dir, create=False) as kept:
        kill_server(data_dir)
        shutil.rmtree(data_dir / "postgres")
        kept.revive()
        assert not (data_dir / "postgres").exists()


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

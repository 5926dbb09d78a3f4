"""The embedded server as root starts it."""

import os
import pwd
import shutil
import tempfile
from pathlib import Path

import pytest

from snapapp.errors import PostgresError
from snapapp.postgres import account
from snapapp.postgres import start as start_server
from tests.postgres.clusters import ask, needs_root, pid_of


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

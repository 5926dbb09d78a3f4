"""ops/linode: the installer, upgrades and rollbacks."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import sqlalchemy

from snapapp.postgres.migrate import migrate
from snapapp.postgres.schema import is_current
from tests import ROOT
from tests.conftest import NO_OLDEST, OLDEST, PROGRAMS, needs_oldest, system_server
from tests.ops.linode import BOX, SYSTEM_TAKES, installer, megabytes, postgres_conf, ran, tool


def test_the_installer_can_be_run_and_shellcheck_finds_nothing_in_it() -> None:
    assert os.access(BOX / "install.sh", os.X_OK)
    answer = ran(tool("shellcheck"), BOX / "install.sh")
    assert (answer.returncode, answer.stdout) == (0, "")


@pytest.mark.parametrize(("mb", "shared", "connections"), [(1950, 121, 50), (3920, 245, 100), (7950, 496, 200)])
def test_postgres_grows_with_the_memory(tmp_path: Path, mb: int, shared: int, connections: int) -> None:
    said = installer(f"memory_conf {mb}").stdout
    conf = dict(line.split(" = ") for line in said.splitlines() if "=" in line)
    assert (conf["shared_buffers"], conf["max_connections"]) == (f"{shared}MB", str(connections))
    sorts = connections * megabytes(postgres_conf()["work_mem"])
    vacuums = 3 * megabytes(conf["autovacuum_work_mem"])
    takes = megabytes(conf["shared_buffers"]) + sorts + vacuums + megabytes(conf["maintenance_work_mem"])
    slice_takes = re.findall(r"MemoryMax=(\d+)M", installer(f"slice_conf {mb}").stdout) or [1200]
    assert takes + int(slice_takes[0]) + SYSTEM_TAKES <= mb


def test_the_installer_gives_everything_a_place_that_it_names() -> None:
    text = (BOX / "install.sh").read_text()
    units = {path.name for path in BOX.glob("snapapp*.*") if path.suffix in (".service", ".timer", ".slice")}
    assert units == set(
        re.findall(r"snapapp[\w@-]*\.(?:service|timer|slice)", text.partition("SERVICES=(")[2].partition(")")[0])
    )
    for name in ("nftables.conf", "20auto-upgrades", "journald.conf", "Caddyfile", "snapapp.env.example"):
        assert f"ops/linode/{name}" in text
        assert "snapapp" in (BOX / name).read_text().replace("snapapp.example.com", ""), "the next time it is another's"


def test_a_file_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.write_text("table inet mine {}\n")
    ours.write_text("# snapapp's\n")
    assert [installer(f"is_ours {path}").returncode for path in (theirs, ours, tmp_path / "none")] == [1, 0, 0]


def test_a_file_as_its_package_brought_it_is_replaced(tmp_path: Path) -> None:
    """Whatever comes after it in the packages' list, which nobody reads to its end."""
    (tmp_path / "theirs").write_text("as it came\n")
    digest = hashlib.md5(b"as it came\n").hexdigest()
    listed = f"echo ' {tmp_path}/theirs {digest}'; seq 100000 || exit 141"
    answer = installer(f"dpkg-query() {{ {listed}; }}; is_ours {tmp_path}/theirs")
    assert answer.returncode == 0


def test_a_file_is_placed_once(tmp_path: Path) -> None:
    (tmp_path / "from").write_text("text")
    line = f"place {tmp_path}/from {tmp_path}/a/to && place {tmp_path}/from {tmp_path}/a/to || echo $CHANGES"
    assert installer(line).stdout.splitlines()[-1] == "1"


def test_cloud_init_runs_the_installer(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    text = (BOX / "cloud-init.yaml").read_text()
    assert text.startswith("#cloud-config\n")
    said = yaml.safe_load(text)
    [script] = said["write_files"]
    (tmp_path / "script").write_text(script["content"])
    assert said["runcmd"] == [[script["path"]]]
    assert 'ops/linode/install.sh "$DOMAIN"' in script["content"]
    assert ran("sh", "-n", tmp_path / "script").returncode == 0


class Box:
    """Calls the installer's functions: the database's programs are real, those that need root or systemd are stood in
    for."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder, self.server, self.started = folder, server, folder / "systemctl"
        programs = folder / "bin"
        programs.mkdir()
        self.stand_in("systemctl", f'echo "$@" >>{self.started}')
        self.stand_in("sudo", 'export PGUSER=$2; shift 2; exec "$@"')
        self.stand_in("install", 'for last; do true; done; mkdir -p "$last"')
        host = parse_qs(urlsplit(server).query)["host"][0]
        path = f"{programs}:{PROGRAMS[str(OLDEST)]}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "PGHOST": host}

    @property
    def url(self) -> str:
        place = sqlalchemy.make_url(self.server).set(username="snapapp", database="snapapp")
        return place.render_as_string(hide_password=False)

    def stand_in(self, name: str, body: str) -> None:
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)

    def calls(self, line: str) -> subprocess.CompletedProcess[str]:
        """The function, with its paths below our folder."""
        text = (BOX / "install.sh").read_text()
        for place in ("/opt/snapapp", "/var/lib/postgresql"):
            text = text.replace(place, f"{self.folder}{place}")
        (self.folder / "functions").write_text(text)
        line = f". {self.folder}/functions; units() {{ :; }}; RELEASE=new; {line}"
        said = subprocess.run(["bash", "-c", line], env=self.environment, capture_output=True, text=True, check=False)
        self.started.touch()
        return said

    def ask(self, statement: str, database: str = "snapapp") -> list[tuple[Any, ...]]:
        place = sqlalchemy.make_url(self.server).set(database=database).render_as_string(hide_password=False)
        with psycopg.connect(place, autocommit=True) as db:
            cursor = db.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def copy(self) -> Path:
        [found] = (self.folder / "var/lib/postgresql/before-upgrade").iterdir()
        return found


@pytest.fixture(scope="module")
def fresh_server() -> Iterator[str]:
    """A server of its own, because the installer makes roles."""
    if OLDEST is None:
        pytest.skip(NO_OLDEST)
    with system_server(PROGRAMS[OLDEST]) as url:
        yield url


@pytest.fixture
def box(tmp_path: Path, fresh_server: str) -> Iterator[Box]:
    """With the installer's roles and the schema, and a release that is about to be followed by another."""
    box = Box(tmp_path, fresh_server)
    made = box.calls("roles")
    assert made.returncode == 0, made.stderr
    migrate(box.url)
    for release in ("20260101-old", "20260202-new"):
        (tmp_path / "opt/snapapp/releases" / release).mkdir(parents=True)
    (tmp_path / "opt/snapapp/current").symlink_to(tmp_path / "opt/snapapp/releases/20260101-old")
    box.ask("SELECT enqueue_job('test', unique_key => 'before')")
    yield box
    for (name,) in box.ask("SELECT datname FROM pg_database WHERE datname LIKE 'snapapp%'", "postgres"):
        box.ask(f"DROP DATABASE {name} WITH (FORCE)", "postgres")
    box.ask("DROP ROLE snapapp_tenant, snapapp_backup, snapapp_reader, snapapp", "postgres")


def upgraded(box: Box) -> None:
    kept = box.calls("keep_copy")
    assert kept.returncode == 0, kept.stderr
    current, releases = box.folder / "opt/snapapp/current", box.folder / "opt/snapapp/releases"
    current.unlink()
    current.symlink_to(releases / "20260202-new")
    box.ask("SELECT enqueue_job('test', unique_key => 'after')")


TAKE_BACK = "PREVIOUS=$HOME_OF_RELEASES/releases/20260101-old; COPY=$COPIES/20260101-old.dump; take_back"

KEYS = "SELECT unique_key FROM snap_processing_job ORDER BY id"


def test_a_rollback_brings_the_copy_back_and_keeps_the_newer_database(box: Box) -> None:
    upgraded(box)
    assert box.copy.name == "20260101-old.dump"
    said = box.calls(TAKE_BACK)
    [newer] = re.findall(r"kept as (\w+)", said.stdout)
    assert (box.ask(KEYS), box.ask(KEYS, newer)) == ([("before",)], [("before",), ("after",)]), said.stderr
    assert (box.folder / "opt/snapapp/current").resolve().name == "20260101-old"
    assert said.returncode == 1  # it was no success
    assert is_current(box.url)  # and snapapp's own again


def test_a_rollback_with_a_torn_copy_changes_nothing(box: Box) -> None:
    upgraded(box)
    whole = box.copy.stat().st_size
    for torn in (0.99, 0.9, 0.2, 0.0):  # ever shorter
        os.truncate(box.copy, int(whole * torn))
        said = box.calls(TAKE_BACK)
        assert "nothing else was changed" in said.stderr, torn
        assert box.ask(KEYS) == [("before",), ("after",)], torn
    assert (box.folder / "opt/snapapp/current").resolve().name == "20260202-new"


def test_a_copy_that_fails_halfway_leaves_the_one_before(box: Box) -> None:
    assert box.calls("keep_copy").returncode == 0
    before = box.copy.read_bytes()
    box.stand_in("pg_dump", 'echo torn >"$4"; exit 1')
    assert box.calls("keep_copy").returncode != 0
    kept = {each.name: each.read_bytes() for each in box.folder.glob("var/lib/postgresql/before-upgrade/*.dump")}
    assert kept == {"20260101-old.dump": before}


@needs_oldest
@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ('SNAPAPP_PORT="8123"\n', "127.0.0.1:8123"),
        pytest.param("SNAPAPP_PORT=8123\nSNAPAPP_PORT=8125\r\n", "127.0.0.1:8125", marks=pytest.mark.at_length),
        pytest.param("SNAPAPP_HOST=::1\n", "[::1]:8000", marks=pytest.mark.at_length),
    ],
)
def test_the_new_release_is_asked_where_it_listens(tmp_path: Path, settings: str, asked: str) -> None:
    """A release that is asked elsewhere does not answer and is taken back, with its database."""
    box = Box(tmp_path, "postgresql://nobody@/nothing?host=/nowhere")
    (tmp_path / "settings").write_text(settings, newline="")
    box.environment |= {"SNAPAPP_ENV_FILE": str(tmp_path / "settings"), "PYTHONPATH": str(ROOT)}
    box.stand_in("curl", f'for last; do true; done; echo "$last" >>{tmp_path}/asked')
    (tmp_path / "opt/snapapp/current/.venv/bin").mkdir(parents=True)
    snapapp = tmp_path / "opt/snapapp/current/.venv/bin/snapapp"
    snapapp.write_text(f'#!/bin/sh\nexec {sys.executable} -m snapapp "$@"\n')
    snapapp.chmod(0o755)
    box.calls(f"is_running() {{ :; }}; SETTINGS={tmp_path}/settings; is_healthy")
    assert (tmp_path / "asked").read_text() == f"http://{asked}/actuator/health\n"


def test_an_upgrade_without_a_copy_starts_again_what_it_had_stopped(box: Box) -> None:
    box.stand_in("pg_dump", "exit 1")
    said = box.calls(
        "is_running() { :; }; running_units() { echo snapapp-worker@1.service; }; note_what_runs; migrate_with_a_copy"
    )
    assert (said.returncode, "cannot be copied" in said.stderr) == (1, True), said
    assert box.started.read_text().splitlines() == ["stop snapapp-worker@1.service", "start snapapp-worker@1.service"]
    assert (box.folder / "opt/snapapp/current").resolve().name == "20260101-old"


# Of each unit that runs there is a file with the release that it runs.
SYSTEMCTL = """
release=$(readlink -f {folder}/opt/snapapp/current)
verb=$1
shift
cd {folder}/running || exit
case $verb in
    start | restart) for unit; do basename $release >"${{unit%.service}}"; done ;;
    try-restart) for unit in $1; do [ ! -e "$unit" ] || basename $release >"$unit"; done ;;
    stop) for unit; do rm -f "${{unit%.service}}"; done ;;
    list-units) for unit in *; do [ ! -e "$unit" ] || echo "$unit.service loaded active"; done ;;
    is-failed) exit 1 ;;
esac
"""
# Whether the schema is the new one is whether there is a file; what needs root or a whole release is left out.
STOOD_IN = """
ln() {{ [[ "$*" == *" /usr/local/"* ]] || command ln "$@"; }}
is_running() {{ :; }}; has_schema() {{ :; }}; first_token() {{ :; }}
is_current() {{ [[ -e {folder}/schema ]]; }}
keep_copy() {{ COPY=copy; }}
migrate() {{ touch {folder}/schema; }}
bring_copy_back() {{ rm {folder}/schema; }}
is_healthy() {{ [[ -e {folder}/running/snapapp-api ]]; }}
RELEASE={folder}/opt/snapapp/releases/new
"""


@needs_oldest
@pytest.mark.parametrize("broken_off_in", ["keep_copy", "switch_to", "migrate", "start_again", "enable", "restart_all"])
def test_an_upgrade_that_was_interrupted_goes_on_when_it_is_typed_again(tmp_path: Path, broken_off_in: str) -> None:
    box = Box(tmp_path, "postgresql://nobody@/nothing?host=/nowhere")
    box.stand_in("systemctl", SYSTEMCTL.format(folder=tmp_path))
    ran = {"snapapp-api", "snapapp-worker@1"}
    for folder in ("opt/snapapp/releases/old", "opt/snapapp/releases/new", "running"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "opt/snapapp/current").symlink_to(tmp_path / "opt/snapapp/releases/old")
    for unit in ran:
        (tmp_path / "running" / unit).write_text("old\n")
    if broken_off_in == "restart_all":  # what a release with the same schema does
        (tmp_path / "schema").touch()
    stood_in = STOOD_IN.format(folder=tmp_path)
    assert box.calls(f"{stood_in} {broken_off_in}() {{ kill -9 $$; }}; deploy").returncode == -9
    for _ in range(2):  # once more changes nothing
        said = box.calls(f"{stood_in} deploy")
        assert said.returncode == 0, said
        assert {each.name: each.read_text() for each in (tmp_path / "running").iterdir()} == dict.fromkeys(ran, "new\n")
    assert said.stdout == ""

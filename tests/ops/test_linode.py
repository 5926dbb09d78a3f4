"""ops/linode: what systemd, PostgreSQL and the proxies make of the files for a box, and whether their numbers agree."""

import hashlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import psycopg
import pytest
import sqlalchemy

from snapapp.api.http.middleware import BODY_MAX
from snapapp.errors import SettingsError
from snapapp.postgres.binaries import program
from snapapp.postgres.database import connections_needed
from snapapp.postgres.migrate import migrate
from snapapp.postgres.schema import is_current
from snapapp.settings.env_file import DEFAULT_ENV_FILE, EnvFile
from snapapp.settings.loading import load
from snapapp.settings.table import TABLE, Environment, LogFormat, Settings
from snapapp.sources.guard import is_public
from tests import ROOT
from tests.conftest import EMBEDDED, OLDEST, PROGRAMS, system_server
from tests.jobs.working import until

BOX = ROOT / "ops" / "linode"
LONG_LIVED = ["snapapp-api.service", "snapapp-worker@1.service", "snapapp-supervisor.service"]
SERVICES = [*LONG_LIVED, "snapapp-migrate.service", "snapapp-backup.service", "snapapp-drill.service"]
TIMERS = ["snapapp-backup.timer", "snapapp-drill.timer"]
SANDBOX = BOX / "snapapp-.service.d" / "sandbox.conf"
EXAMPLE = BOX / "snapapp.env.example"
README = (BOX / "README.md").read_text()
TOKEN = "0123456789abcdef" * 3  # nobody's

# MB. A box of 2 GB as its kernel reports it, and what the system takes of it.
BOX_HAS, SYSTEM_TAKES = 1950, 300


def unit(name: str) -> dict[str, list[str]]:
    """The entries of a unit as systemd merges them: the file, then what all services have in common."""
    files = [BOX / name.replace("@1", "@")] + ([SANDBOX] if name.endswith(".service") else [])
    entries: dict[str, list[str]] = {}
    for file in files:
        for key, value in re.findall(r"^(\w+)=(.*)$", file.read_text(), re.MULTILINE):
            entries.setdefault(key, []).append(value)
    return entries


def seconds(name: str, key: str) -> timedelta:
    return timedelta(seconds=int(unit(name)[key][-1]))


def megabytes(text: str) -> int:
    number, size = re.fullmatch(r"(\d+)(MB?|GB?)", text).groups()  # type: ignore[union-attr]  # else it should fail
    return int(number) * (1024 if size[0] == "G" else 1)


def filled() -> str:
    """The example with its gaps filled in."""
    text = EXAMPLE.read_text().replace("_BASE_URL=\n", "_BASE_URL=https://snapapp.example.com\n")
    return re.sub(r"^(SNAPAPP_(?:INTERNAL_TOKEN|SIGNING_SECRET)=)$", rf"\g<1>{TOKEN}", text, flags=re.MULTILINE)


def example(**changes: str) -> Settings:
    environ = {f"SNAPAPP_{name}": value for name, value in changes.items()}
    return load(environ, EnvFile.parse(filled().encode(), "example"))


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def ran(*argv: str | Path, **options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | options
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, timeout=60)


# --- systemd ----------------------------------------------------------------------------------------------------


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A copy of the units whose commands exist, so that systemd has only the units to complain of."""
    code = tmp_path / "current"
    (code / ".venv/bin").mkdir(parents=True)
    (code / ".venv/bin/snapapp").symlink_to("/bin/true")
    folder = tmp_path / "units"
    shutil.copytree(BOX, folder)
    for file in [*folder.glob("snapapp*.service"), *folder.glob("snapapp-.service.d/*")]:
        file.write_text(file.read_text().replace("/opt/snapapp/current", str(code)))
    return folder


def test_systemd_accepts_every_unit(units: Path) -> None:
    paths = [str(units / name) for name in (*SERVICES, *TIMERS, "snapapp.slice")]
    answer = ran(tool("systemd-analyze"), "verify", *paths)
    assert [line for line in answer.stderr.splitlines() if "snapapp" in line] == []
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_is_exposed_more_than_1_4(units: Path, name: str) -> None:
    path = units / name.replace("@1", "@")
    answer = ran(tool("systemd-analyze"), "security", "--offline=true", "--no-pager", "--threshold=14", str(path))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Overall exposure level" in answer.stdout


@pytest.mark.parametrize("name", LONG_LIVED)
def test_a_stop_lasts_longer_than_the_drain_and_spares_the_children(name: str) -> None:
    """FD7"""
    assert unit(name)["KillMode"] == ["mixed"]
    assert seconds(name, "TimeoutStopSec") > example().shutdown_grace + timedelta(seconds=10)
    assert example().shutdown_grace == Settings().shutdown_grace


@pytest.mark.parametrize("name", LONG_LIVED)
def test_a_service_that_cannot_start_is_left_alone_after_ten_starts_in_five_minutes(name: str) -> None:
    """FD9"""
    starts, within = int(unit(name)["StartLimitBurst"][-1]), seconds(name, "StartLimitIntervalSec")
    assert unit(name)["Restart"] == ["on-failure"]
    assert (starts, within) == (10, timedelta(minutes=5))
    assert starts * seconds(name, "RestartSec") < within, "the limit is never reached"


def test_a_decoder_may_shut_itself_in() -> None:
    """Not every systemd has these calls in @system-service, and 252 has no name for them together."""
    allowed = {call for line in unit("snapapp-api.service")["SystemCallFilter"] for call in line.split()}
    assert {"landlock_create_ruleset", "landlock_restrict_self", "seccomp"} <= allowed


def test_a_worker_sees_whether_the_others_of_its_machine_live() -> None:
    """Under these it takes the jobs of living ones away, or waits a minute for those of dead ones. Tried."""
    for name in LONG_LIVED:
        assert not {"ProtectProc", "ProcSubset"} & unit(name).keys()


def test_what_a_dead_worker_was_running_can_still_be_read_by_the_next_one() -> None:
    """PrivateTmp ends with the process, so temporary files lie in a folder that outlives it."""
    common = unit(LONG_LIVED[0])
    assert common["Environment"] == [f"TMPDIR=/run/{common['RuntimeDirectory'][0]}"]
    assert common["RuntimeDirectoryPreserve"] == ["yes"]


def test_a_restart_never_changes_the_schema() -> None:
    migrations = [name for name in SERVICES if "migrate" in " ".join(unit(name)["ExecStart"])]
    assert migrations == ["snapapp-migrate.service"]
    assert "WantedBy" not in unit("snapapp-migrate.service")
    assert [name for name in SERVICES if {"ExecStartPre", "Requires", "Wants"} & unit(name).keys()] == []


def test_the_code_is_out_of_reach_for_who_runs_it() -> None:
    common = unit(LONG_LIVED[0])
    written = {f"/var/lib/{common['StateDirectory'][0]}", f"/run/{common['RuntimeDirectory'][0]}"}
    assert common["ProtectSystem"] == ["strict"]
    assert not {"ReadWritePaths", "BindPaths"} & common.keys()
    for path in (*common["WorkingDirectory"], *common["ExecStart"]):
        assert path.startswith("/opt/snapapp/current")
        assert not any(path.startswith(folder) for folder in written)


NAMED_NETWORKS = {
    "any": ["0.0.0.0/0", "::/0"],
    "localhost": ["127.0.0.0/8", "::1/128"],
    "link-local": ["169.254.0.0/16", "fe80::/64"],
    "multicast": ["224.0.0.0/4", "ff00::/8"],
}


def networks(name: str, key: str) -> list[IPv4Network | IPv6Network]:
    words = " ".join(unit(name).get(key, [])).split()
    return [ip_network(text) for word in words for text in NAMED_NETWORKS.get(word, [word])]


def reaches(name: str, address: str) -> bool:
    """As systemd decides: what is allowed, then what is denied, then the rest is allowed."""
    allowed, denied = (
        [ip_address(address) in net for net in networks(name, f"IPAddress{key}")] for key in ("Allow", "Deny")
    )
    return any(allowed) or not any(denied)


@pytest.mark.parametrize("name", LONG_LIVED)
def test_a_service_that_fetches_videos_reaches_them_and_no_neighbour(name: str) -> None:
    for address in ("93.184.215.14", "2606:4700::1111", "127.0.0.1", "::1"):
        assert reaches(name, address)
    for address in ("169.254.169.254", "fd00:a9fe:a9fe::1", "10.0.0.1", "172.31.0.1", "192.168.1.1", "100.64.0.1"):
        assert not reaches(name, address)
        assert not is_public(ip_address(address))


def test_a_migration_reaches_the_database_only() -> None:
    assert [reaches("snapapp-migrate.service", address) for address in ("127.0.0.1", "1.1.1.1")] == [True, False]


# --- settings ---------------------------------------------------------------------------------------------------


def test_the_example_starts_in_prod_once_its_token_is_there() -> None:
    settings = example()
    assert settings.warnings == ()
    assert (settings.env, settings.log_format) == (Environment.PROD, LogFormat.JSON)
    assert settings.data_dir == Path(f"/var/lib/{unit(LONG_LIVED[0])['StateDirectory'][0]}")
    assert "SNAPAPP_PORT" in settings.given, "a port that nobody named may become the next one"


def test_the_example_does_not_start_without_its_token() -> None:
    with pytest.raises(SettingsError) as caught:
        load({}, EnvFile.parse(EXAMPLE.read_bytes(), "example"))
    assert [mistake.split()[0] for mistake in caught.value.mistakes] == [
        "SNAPAPP_INTERNAL_TOKEN",
        "SNAPAPP_SIGNING_SECRET",
    ]


def test_systemd_reads_the_example_as_we_do(tmp_path: Path) -> None:
    """The generator has the parser of EnvironmentFile, and prints what it read as a shell would."""
    generator = tool("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")
    (tmp_path / "environment.d").mkdir()
    (tmp_path / "environment.d" / "snapapp.conf").write_text(filled())
    printed = shlex.split(ran(generator, XDG_CONFIG_HOME=str(tmp_path)).stdout)
    theirs = dict(item.split("=", 1) for item in printed if item.startswith("SNAPAPP_"))
    ours = EnvFile.parse(filled().encode(), "example").values
    assert ours
    assert {name: each.text for name, each in ours.items()} == theirs


def test_the_services_read_the_file_that_commands_read() -> None:
    for name in SERVICES:
        assert unit(name)["EnvironmentFile"] == [str(DEFAULT_ENV_FILE)]


def test_a_box_from_the_example_wants_tokens_and_gives_whole_links(tmp_path: Path) -> None:
    assert example().require_api_token is True
    text = (BOX / "install.sh").read_text()
    filling = re.findall(r"^    (fill \w+ .*)$", text, re.MULTILINE)
    shutil.copy(EXAMPLE, tmp_path / "env")
    for _ in range(2):
        done = installer(f"SETTINGS={tmp_path}/env; domain=farm.example; {'; '.join(filling)}")
        assert done.returncode == 0, done.stderr
    changed = (tmp_path / "env").read_text()
    assert "\nSNAPAPP_PUBLIC_BASE_URL=https://farm.example\n" in changed
    assert re.search(r"^SNAPAPP_[A-Z_]+=$", changed, re.MULTILINE) is None, "a gap that nobody fills"
    first = text.partition("first_start() {")[2].partition("\n}")[0]
    assert first.index("rotate-token default") < first.index("enable"), "it does not start on the known token"


def test_every_setting_that_ops_names_exists() -> None:
    known = {entry.name for entry in TABLE.values()}
    for file in (path for path in BOX.rglob("*") if path.is_file()):
        assert set(re.findall(r"\bSNAPAPP_[A-Z_]+", file.read_text())) <= known, file


def test_the_readme_names_every_file() -> None:
    files = {path.relative_to(BOX).as_posix() for path in BOX.rglob("*") if path.is_file()} - {"README.md"}
    assert {name for name in files if name not in README and f"{name.rpartition('/')[0]}/" not in README} == set()


# --- numbers ----------------------------------------------------------------------------------------------------


def postgres_conf() -> dict[str, str]:
    lines = (BOX / "postgresql.conf.d" / "snapapp.conf").read_text().splitlines()
    entries = [line.partition("#")[0].partition("=") for line in lines]
    return {name.strip(): value.strip().strip("'") for name, is_set, value in entries if is_set}


@pytest.mark.parametrize("server", [EMBEDDED, *PROGRAMS])
def test_postgres_accepts_its_file(tmp_path: Path, server: str) -> None:
    (tmp_path / "postgresql.conf").write_text("include_dir = 'conf.d'\n")
    shutil.copytree(BOX / "postgresql.conf.d", tmp_path / "conf.d")
    postgres = PROGRAMS[server] / "postgres" if server in PROGRAMS else program("postgres")
    answer = ran(postgres, "-C", "max_connections", "-D", tmp_path)  # -C first, else root may not ask
    assert (answer.stdout, answer.returncode) == (f"{postgres_conf()['max_connections']}\n", 0), answer.stderr


def postgres_takes() -> int:
    """At worst: its shared memory, a sort in each connection, its default of three vacuums, and an index being made."""
    conf = postgres_conf()
    size = {name: megabytes(value) for name, value in conf.items() if re.fullmatch(r"\d+[MG]B", value)}
    sorts = int(conf["max_connections"]) * size["work_mem"]
    return size["shared_buffers"] + sorts + 3 * size["autovacuum_work_mem"] + size["maintenance_work_mem"]


def test_all_of_it_fits_a_box_of_2_gb() -> None:
    slice_takes = megabytes(unit("snapapp.slice")["MemoryMax"][0])
    assert postgres_takes() <= 450
    assert slice_takes + 450 + SYSTEM_TAKES <= BOX_HAS
    for name in SERVICES:
        assert megabytes(unit(name)["MemoryMax"][0]) < slice_takes
    for name in (*LONG_LIVED, "snapapp.slice"):
        assert megabytes(unit(name)["MemoryHigh"][0]) < megabytes(unit(name)["MemoryMax"][0])


def test_postgres_has_connections_for_one_process_and_for_an_api_with_two_workers() -> None:
    allowed = int(postgres_conf()["max_connections"]) - 3  # which stay for the superuser
    together, split = example(), example(WORKER_ENABLED="false")
    worker = together.jobs("postgresql://").connections
    assert connections_needed(together) <= allowed
    assert connections_needed(split) + 2 * worker <= allowed


# --- the installer ----------------------------------------------------------------------------------------------


def installer(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line, with the installer's functions."""
    return ran("bash", "-c", f". {BOX}/install.sh; {line}", **environment)


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
        pytest.skip("there is no PostgreSQL below /usr/lib/postgresql")
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


@pytest.mark.parametrize("torn", [0.0, 0.2, 0.9, 0.99])
def test_a_rollback_with_a_torn_copy_changes_nothing(box: Box, torn: float) -> None:
    upgraded(box)
    os.truncate(box.copy, int(box.copy.stat().st_size * torn))
    said = box.calls(TAKE_BACK)
    assert "nothing else was changed" in said.stderr
    assert box.ask(KEYS) == [("before",), ("after",)]
    assert (box.folder / "opt/snapapp/current").resolve().name == "20260202-new"


def test_a_copy_that_fails_halfway_leaves_the_one_before(box: Box) -> None:
    assert box.calls("keep_copy").returncode == 0
    before = box.copy.read_bytes()
    box.stand_in("pg_dump", 'echo torn >"$4"; exit 1')
    assert box.calls("keep_copy").returncode != 0
    kept = {each.name: each.read_bytes() for each in box.folder.glob("var/lib/postgresql/before-upgrade/*.dump")}
    assert kept == {"20260101-old.dump": before}


def test_an_upgrade_without_a_copy_starts_again_what_it_had_stopped(box: Box) -> None:
    box.stand_in("pg_dump", "exit 1")
    said = box.calls("is_running() { :; }; running_units() { echo snapapp-worker@1.service; }; migrate_with_a_copy")
    assert (said.returncode, "cannot be copied" in said.stderr) == (1, True), said
    assert box.started.read_text().splitlines() == ["stop snapapp-worker@1.service", "start snapapp-worker@1.service"]
    assert (box.folder / "opt/snapapp/current").resolve().name == "20260101-old"


# --- proxies ----------------------------------------------------------------------------------------------------


class Application(ThreadingHTTPServer):
    """Stands where snapapp would, and notes what the proxy lets through."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.requests: list[tuple[str, bool]] = []  # path, and whether it came with a token
        self.bodies: list[int] = []  # the sizes of those that came whole
        self.may_end = threading.Event()  # what the event stream waits for after its first event

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"


LARGE = 32 * 1024 * 1024  # bytes: more than all buffers on the way


class Answering(BaseHTTPRequestHandler):
    server: Application

    def do_GET(self) -> None:
        self.server.requests.append((self.path, bool(self.headers["X-Internal-Token"])))
        if self.path.endswith("/breaks"):
            return  # without an answer
        self.send_response(200)
        if self.path == "/film":
            self.send_header("Content-Length", str(LARGE))
            self.end_headers()
            self.wfile.write(b"." * LARGE)
        elif self.path == "/v2/events":
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"data: first\n\n")
            self.server.may_end.wait(30)
        else:
            self.send_header("Content-Length", "0")
            self.end_headers()

    def do_POST(self) -> None:
        announced = int(self.headers["Content-Length"])
        if len(self.rfile.read(announced)) < announced:  # the proxy has hung up
            return
        self.server.bodies.append(announced)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, *_facts: object) -> None:
        pass


@pytest.fixture
def application() -> Iterator[Application]:
    with Application() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.may_end.set()
        server.shutdown()
        thread.join()


@pytest.fixture(params=["caddy", "nginx"])
def outside(request: pytest.FixtureRequest, application: Application, tmp_path: Path) -> Iterator[httpx.Client]:
    """Somebody on the other side of the proxy, which runs from its example."""
    port = free_port()
    make = {"caddy": caddy, "nginx": nginx}[request.param]
    with running(make(tmp_path, port, application.place), tmp_path):
        until(lambda: accepts(port))
        scheme = "http" if request.param == "caddy" else "https"
        with httpx.Client(base_url=f"{scheme}://127.0.0.1:{port}", verify=False, timeout=10) as client:
            yield client


def caddy(folder: Path, port: int, upstream: str, *, waits: bool = False) -> list[str]:
    text = (BOX / "Caddyfile").read_text().replace("{\n", "{\n\tadmin off\n", 1)
    if not waits:
        text = re.sub(r"lb_try_duration \d+s", "lb_try_duration 0s", text)
    text = text.replace("snapapp.example.com {", f"http://127.0.0.1:{port} {{").replace("127.0.0.1:8000", upstream)
    (folder / "Caddyfile").write_text(text)
    return [tool("caddy"), "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


def nginx(folder: Path, port: int, upstream: str) -> list[str]:
    found = tool("nginx")
    certificate(folder)
    lines = (BOX / "nginx.conf").read_text().replace("127.0.0.1:8000", upstream).splitlines()
    site = "\n".join(line for line in lines if "[::]" not in line)  # a machine may have no IPv6
    site = site.replace("listen 80;", f"listen 127.0.0.1:{free_port()};").replace("listen 443", f"listen {port}")
    site = site.replace("/etc/letsencrypt/live/snapapp.example.com", str(folder))
    site = site.replace("/var/log/nginx/error.log", "stderr").replace("/var/log/nginx", str(folder))
    user = "user root;" if os.geteuid() == 0 else ""  # its children must reach the test's folder
    kept = "".join(f"{what}_temp_path {folder};" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main = (
        f"{user} daemon off; pid {folder}/pid; error_log stderr warn; events {{}} "
        f"http {{ access_log {folder}/access.log; {kept}\n{site}}}"
    )
    (folder / "main.conf").write_text(main)
    return [found, "-c", str(folder / "main.conf")]


def certificate(folder: Path) -> None:
    key, out = folder / "privkey.pem", folder / "fullchain.pem"
    wanted = ["-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=snapapp.example.com", "-days", "2"]
    answer = ran(tool("openssl"), "req", *wanted, "-keyout", key, "-out", out)
    assert answer.returncode == 0, answer.stderr


@contextmanager
def running(argv: list[str], folder: Path) -> Iterator[None]:
    homes = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(argv, stdout=said, stderr=said, env=os.environ | homes)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


INSIDE = ["/internal", "/internal/jobs/1", "//internal/jobs/1", "/%69nternal/jobs/1", "/x/../internal/jobs/1"]
INSIDE += ["/actuator/metrics", "/actuator/metrics/snap.jobs.claimed", "/metrics", "/metrics?name=x"]


def test_a_proxy_keeps_the_inside_in(outside: httpx.Client, application: Application) -> None:
    for path in INSIDE:
        assert (path, status_of(outside, path)) == (path, 404)
    assert application.requests == []


def status_of(client: httpx.Client, path: str) -> int:
    """The path goes out as it stands: a client would tidy it up."""
    url = client.base_url.copy_with(raw_path=path.encode())
    return client.send(httpx.Request("GET", url, headers={"X-Internal-Token": TOKEN})).status_code


def test_a_proxy_lets_the_rest_through_without_the_token(outside: httpx.Client, application: Application) -> None:
    for path in ("/actuator/health", "/v2/snaps/search?q=internal"):
        assert status_of(outside, path) == 200
    assert application.requests == [("/actuator/health", False), ("/v2/snaps/search?q=internal", False)]


def test_a_proxy_hands_on_an_event_at_once(outside: httpx.Client) -> None:
    with outside.stream("GET", "/v2/events") as answer:
        assert next(answer.iter_text()) == "data: first\n\n"  # the stream ends no sooner than this test


def test_a_proxy_takes_the_bodies_that_the_application_takes(outside: httpx.Client, application: Application) -> None:
    assert outside.post("/v2/snaps", content=b"x" * BODY_MAX).status_code == 200
    assert application.bodies == [BODY_MAX]


def test_a_proxy_stops_bodies_without_end(outside: httpx.Client, application: Application) -> None:
    assert outside.post("/v2/snaps", content=b"x" * 3 * BODY_MAX).is_error
    assert application.bodies == []


def test_a_browser_is_told_to_come_by_tls_only(outside: httpx.Client) -> None:
    for path in ("/", "/internal/jobs"):
        assert outside.get(path).headers.get_list("Strict-Transport-Security") == ["max-age=31536000"]


def test_a_proxy_keeps_no_copy_of_what_passes(outside: httpx.Client, tmp_path: Path) -> None:
    """nginx would write up to 1 GB of each answer, and every body, to a disk whose floor only the application knows."""
    with outside.stream("GET", "/film") as answer:
        assert sum(map(len, answer.iter_raw(4096))) == LARGE
    assert outside.post("/v2/snaps", content=b"x" * BODY_MAX).status_code == 200
    assert "temporary file" not in (tmp_path / "said").read_text()


@pytest.mark.parametrize("path", ["/public/snaps/{}", "/public/snaps/{}/media/breaks", "/media/{}/breaks"])
def test_what_opens_a_link_is_in_no_log(outside: httpx.Client, tmp_path: Path, path: str) -> None:
    answer = outside.get(path.format(TOKEN), headers={"X-Assinatura-Token": TOKEN[::-1]})
    assert answer.status_code == (502 if path.endswith("breaks") else 200)
    assert outside.get("/actuator/health").status_code == 200  # whose line comes after
    logged = "".join(log.read_text() for log in (tmp_path / "said", *tmp_path.glob("*.log")))
    assert TOKEN not in logged
    assert TOKEN[::-1] not in logged
    if outside.base_url.scheme == "https":
        assert path.format("***") in logged

"""ops/linode: what systemd and PostgreSQL make of the files for a box, and whether the numbers fit."""

import ctypes
import os
import re
import shlex
import shutil
import subprocess
import sys
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

import pytest

from snapapp.errors import SettingsError
from snapapp.postgres.binaries import program
from snapapp.postgres.database import connections_needed
from snapapp.settings.env_file import DEFAULT_ENV_FILE, EnvFile
from snapapp.settings.loading import load
from snapapp.settings.table import TABLE, Environment, LogFormat, Settings
from snapapp.sources.guard import is_public
from tests.conftest import EMBEDDED, PROGRAMS
from tests.ops.linode import (
    BOX,
    BOX_HAS,
    EXAMPLE,
    SYSTEM_TAKES,
    example,
    filled,
    installer,
    megabytes,
    postgres_conf,
    ran,
    tool,
)

LONG_LIVED = ["snapapp-api.service", "snapapp-worker@1.service", "snapapp-supervisor.service"]

SERVICES = [*LONG_LIVED, "snapapp-migrate.service", "snapapp-backup.service", "snapapp-drill.service"]

TIMERS = ["snapapp-backup.timer", "snapapp-drill.timer"]

SANDBOX = BOX / "snapapp-.service.d" / "sandbox.conf"

README = (BOX / "README.md").read_text()


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
    assert common["Environment"] == [f"TMPDIR=/run/{common['RuntimeDirectory'][0]}", "MALLOC_ARENA_MAX=2"]
    assert common["RuntimeDirectoryPreserve"] == ["yes"]


KEPT_BY_THREADS = """
import ctypes, threading
libc, together = ctypes.CDLL(None), threading.Barrier(12)
def allocate():
    libc.malloc(1000)
    together.wait()  # of threads that live one after the other, one would inherit the arena of another
threads = [threading.Thread(target=allocate) for _ in range(12)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc.malloc_stats()  # to stderr: "Arena 0:", "Arena 1:", ...
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="the C library has no arenas")
def test_what_one_thread_frees_is_there_for_the_others() -> None:
    """Each arena keeps what was freed in it. Their number is the services' and not that of cores and threads."""
    environment = os.environ | dict(each.split("=", 1) for each in unit(LONG_LIVED[0])["Environment"])
    command = [sys.executable, "-c", KEPT_BY_THREADS]
    said = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=True).stderr
    assert said.count("Arena ") == 2


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
    assert first.index("first_token") < first.index("enable"), "it does not start on the known token"


def test_every_setting_that_ops_names_exists() -> None:
    known = {entry.name for entry in TABLE.values()}
    for file in (path for path in BOX.rglob("*") if path.is_file()):
        assert set(re.findall(r"\bSNAPAPP_[A-Z_]+", file.read_text())) <= known, file


def test_the_readme_names_every_file() -> None:
    files = {path.relative_to(BOX).as_posix() for path in BOX.rglob("*") if path.is_file()} - {"README.md"}
    assert {name for name in files if name not in README and f"{name.rpartition('/')[0]}/" not in README} == set()


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

"""Two hosts on one machine: network and host name of each in namespaces of its own, the database behind a link that
can be cut. It takes root, and `ip` and `unshare`."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from snapapp import postgres
from snapapp.jobs.rows.database import connect
from snapapp.postgres.migrate import migrate
from tests.factory import Db
from tests.jobs.fleet.supervised import Supervisor
from tests.labs.chaos.server import guarded_folder

_DATABASE = """\
max_connections = 250
listen_addresses = '{addresses}'
hba_file = '{hba}'
"""
_HBA = "local all all trust\nhost all all 10.0.0.0/8 trust\n"


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    namespace: str
    link: str  # our end of it
    address: str  # of the database, as it sees it

    def supervise(self, folder: Path, plan: str) -> Supervisor:
        enter = ("ip", "netns", "exec", self.namespace, "unshare", "--uts")
        rename = ("sh", "-c", f'hostname {self.name}; exec "$@"', "sh")
        named = type("Elsewhere", (Supervisor,), {"within": (*enter, *rename)})
        started: Supervisor = named(folder, f"postgresql://postgres@{self.address}:5432/snapapp", plan)
        return started

    def cut(self) -> None:
        _ip("link", "set", self.link, "down")

    def mend(self) -> None:
        _ip("link", "set", self.link, "up")


@contextmanager
def two_hosts() -> Iterator[tuple[Path, Db, list[Host]]]:
    """A folder, a connection of our own, and the hosts."""
    _skip_where_it_cannot_be()
    mark = os.getpid() % 10_000  # others may be at the same on this machine
    with ExitStack() as stack:
        folder, _ = stack.enter_context(guarded_folder())
        hosts = [stack.enter_context(_host(mark, number)) for number in (1, 2)]
        home = folder / "database"
        home.mkdir()
        folder.chmod(0o755)  # the server may run as somebody else
        hba = folder / "hba.conf"
        hba.write_text(_HBA)
        addresses = ",".join(host.address for host in hosts)
        (home / "postgres.local.conf").write_text(_DATABASE.format(addresses=addresses, hba=hba))
        server = stack.enter_context(postgres.start(home, create=True))
        migrate(server.url)
        db = stack.enter_context(connect(server.url, name="lab"))
        yield folder, db, hosts


@contextmanager
def _host(mark: int, number: int) -> Iterator[Host]:
    namespace, ours, theirs = f"snapapp-{mark}-{number}", f"sa{mark}{number}a", f"sa{mark}{number}b"
    net = f"10.{100 + mark // 100}.{mark % 100}."
    address, its_address = f"{net}{4 * number + 1}", f"{net}{4 * number + 2}"
    _ip("netns", "add", namespace)
    try:
        _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", namespace)
        _ip("addr", "add", f"{address}/30", "dev", ours)
        _ip("link", "set", ours, "up")
        for words in (["addr", "add", f"{its_address}/30", "dev", theirs], ["link", "set", theirs, "up"]):
            _ip("-n", namespace, *words)
        _ip("-n", namespace, "link", "set", "lo", "up")
        yield Host(f"box-{number}", namespace, ours, address)
    finally:
        _ip("netns", "delete", namespace)  # and with it the link


def _skip_where_it_cannot_be() -> None:
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("unshare")):
        pytest.skip("namespaces need root, ip and unshare")
    name = f"snapapp-try-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no network namespaces")
    _ip("netns", "delete", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)

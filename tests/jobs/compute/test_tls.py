"""A cluster behind TLS, as docs/compute.md sets it up: each member has a certificate, and nobody else is let in."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'snapapp[compute]'")

import dask

from tests.factory import Db, row
from tests.jobs.compute.clusters import Cluster
from tests.jobs.executors.test_executors import put
from tests.jobs.working import until, until_status, working
from tests.labs.executors import kinds

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")

_COMM = "DASK_DISTRIBUTED__COMM__"
_MEMBERS = ("scheduler", "worker", "client")
_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"


def certified(folder: Path) -> dict[str, str]:
    """An authority, and a certificate of each member; as their environment."""
    _openssl(folder, f"req -x509 {_KEY} -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca")
    environ = {f"{_COMM}REQUIRE_ENCRYPTION": "true", f"{_COMM}TLS__CA_FILE": str(folder / "ca.pem")}
    for member in _MEMBERS:
        _openssl(folder, f"req {_KEY} -nodes -keyout {member}.key -out {member}.csr -subj /CN={member}")
        _openssl(
            folder, f"x509 -req -in {member}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {member}.pem -days 2"
        )
        for what, suffix in (("CERT", "pem"), ("KEY", "key")):
            environ[f"{_COMM}TLS__{member.upper()}__{what}"] = str(folder / f"{member}.{suffix}")
    return environ


def _openssl(folder: Path, words: str) -> None:
    subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    for name, value in certified(tmp_path).items():
        monkeypatch.setenv(name, value)
    try:
        with Cluster(tmp_path, scheme="dask+tls") as cluster:
            cluster.start_scheduler()
            until(lambda: answers(cluster))
            yield cluster
    finally:
        monkeypatch.undo()
        dask.config.refresh()


def answers(cluster: Cluster) -> bool:
    try:
        socket.create_connection((cluster.host, cluster.port)).close()
    except OSError:
        return False
    return True


@pytest.mark.at_length  # test_remote runs jobs, and nobody is let in without one, in every run
def test_with_a_certificate_jobs_run(url: str, db: Db, cluster: Cluster) -> None:
    dask.config.refresh()
    cluster.start_node("first")
    with working(url, kinds.registry, compute=cluster.typed):
        until_status(db, put(db, "process.good"), "COMPLETED")


def test_without_one_nobody_is_let_in(url: str, db: Db, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for what in ("CERT", "KEY"):
        monkeypatch.delenv(f"{_COMM}TLS__CLIENT__{what}")
    dask.config.refresh()
    with working(url, kinds.registry, compute=cluster.typed) as (_, heard):
        job_id = put(db, "process.good")
        until(lambda: "no scheduler answers at dask+tls://" in str(heard.all("worker.error")))
        assert row(db, job_id).status == "PENDING"

"""The image of ops/container, built and run: the migration, a worker and the API, as its user, on a read-only root,
with nothing writable but the two folders that the manifest names.

As root, with buildah, debootstrap and a way to Debian's packages and ours; no registry and no container runtime: the
base is a Debian 13 that debootstrap makes, and its processes run in a chroot, in a mount namespace of their own and
without any capability. What was downloaded is kept in --kept. Exit code 0: all of it was so."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from snapapp import postgres
from tests import ROOT
from tests.jobs.working import until
from tests.labs.install import wheels_for
from tests.running import free_port

BUILDAH = ["buildah", "--storage-driver", "vfs"]
BASE = "localhost/snapapp-lab-base"
IMAGE = "localhost/snapapp-lab"
WITHIN = 300.0  # seconds: the machine may be busy


def base(kept: Path) -> Path:
    """Made once; with Python only for its version, which says what wheels it needs."""
    root = kept / "trixie-slim"
    if not (root / "usr/bin/python3").is_symlink():
        bootstrap = ["debootstrap", "--variant=minbase", "--include=python3,ca-certificates", "trixie", str(root)]
        subprocess.run(bootstrap, check=True)
    return root


def built(root: Path) -> None:
    scratch = buildah("from", "scratch")
    buildah("add", "-q", scratch, str(root), "/")
    buildah("commit", "-q", "--rm", scratch, BASE)
    options = [
        "--isolation",
        "chroot",
        "--format",
        "docker",
        "--pull-never",
        "--volume",
        f"{wheels_for(root)}:/wheels:ro",
    ]
    for argument in (f"BASE={BASE}", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels"):
        options += ["--build-arg", argument]
    buildah("bud", *options, "-f", "ops/container/Containerfile", "-t", IMAGE, ".")


def buildah(*words: str) -> str:
    done = subprocess.run([*BUILDAH, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def unpacked() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Its files, and what it says of itself."""
    config = json.loads(buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]
    container = buildah("from", "--pull-never", IMAGE)
    try:
        yield Path(buildah("mount", container)), config
    finally:
        buildah("rm", container)


class Pod:
    """Runs what the image would, with settings of ours, and the socket of a PostgreSQL in its /tmp."""

    def __init__(self, root: Path, config: dict[str, Any], socket: Path) -> None:
        self._root, self._config, self._socket = root, config, socket
        self.port = free_port()
        self._environment = dict(entry.split("=", 1) for entry in config["Env"]) | {
            "SNAPAPP_DATABASE_URL": "postgresql://postgres@/snapapp?host=/tmp/postgresql",
            "SNAPAPP_SIGNING_SECRET": "0123456789abcdef" * 2,
            "SNAPAPP_INTERNAL_TOKEN": "fedcba9876543210" * 2,
            "SNAPAPP_PUBLIC_BASE_URL": "https://snapapp.example.com",
            "SNAPAPP_REQUIRE_API_TOKEN": "true",
            "SNAPAPP_WORKER_ENABLED": "false",
            "SNAPAPP_PORT": str(self.port),
        }

    def start(self, *argv: str) -> subprocess.Popen[str]:
        uid, _, gid = self._config["User"].partition(":")
        drop = [
            "setpriv",
            f"--reuid={uid}",
            f"--regid={gid}",
            "--clear-groups",
            "--bounding-set=-all",
            "--no-new-privs",
        ]
        enter = f"""
            mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" &&
            mount -t tmpfs -o mode=1777 tmpfs "$0/tmp" && mount -t tmpfs -o mode=1777 tmpfs "$0/var/lib/snapapp" &&
            mkdir "$0/tmp/postgresql" && mount --bind "{self._socket}" "$0/tmp/postgresql" &&
            mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec /usr/sbin/chroot "$0" "$@" """
        words = ["unshare", "--mount", "sh", "-c", enter, str(self._root), *drop, *argv]
        return subprocess.Popen(
            words, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def snapapp(self, *words: str) -> subprocess.Popen[str]:
        return self.start(*self._config["Entrypoint"], *words)

    def done(self, *argv: str) -> tuple[int, str]:
        process = self.start(*argv)
        said, _ = process.communicate(timeout=WITHIN)
        return process.returncode, said

    def entered(self, *words: str) -> tuple[int, str]:
        return self.done(*self._config["Entrypoint"], *words)

    def is_healthy(self) -> bool:
        """By the image's own HEALTHCHECK."""
        return self.done(*self._config["Healthcheck"]["Test"][1:])[0] == 0

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/actuator/health/readiness").status_code == 200
        except httpx.HTTPError:
            return False


def shown(pod: Pod) -> None:
    refused, said = pod.done("touch", "/opt/snapapp/x")
    assert (refused, "Read-only file system" in said) == (1, True), said
    assert pod.done("id", "-u") == (0, "10001\n")
    early, said = pod.entered("worker")
    assert early != 0, said
    print("Before the migration a worker ends:", said.strip().splitlines()[-1])
    migrated, said = pod.entered("migrate")
    assert migrated == 0, said
    refused, said = pod.entered("serve")
    assert (refused != 0, "rotate-token" in said) == (True, True), said
    worker = pod.snapapp("worker")
    rotated, said = pod.entered("tenants", "rotate-token", "default")
    assert rotated == 0, said
    api = pod.snapapp("serve")
    until(pod.is_ready, within=WITHIN)
    assert pod.is_healthy()
    added, said = pod.entered("jobs", "enqueue", "demo.crunch", '{"seconds": 0.2}')
    assert added == 0, said
    until(lambda: "COMPLETED" in pod.entered("jobs", "list", "--status", "COMPLETED")[1], within=WITHIN)
    for process in (api, worker):
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=WITHIN)
        assert process.returncode == 0, said
    assert not pod.is_healthy()
    print("Migration, worker and API ran as 10001 on a read-only root; a job was done in a child; SIGTERM ended both.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, default=Path("/var/tmp/snapapp-image-lab"), help="where downloads stay")
    arguments = parser.parse_args()
    arguments.kept.mkdir(parents=True, exist_ok=True)
    built(base(arguments.kept))
    print(buildah("images", IMAGE))
    with unpacked() as (root, config), server() as socket:
        shown(Pod(root, config, socket))
    return 0


@contextmanager
def server() -> Iterator[Path]:
    """A folder with the socket of an empty PostgreSQL, which everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="snapapp-image-") as name:
        folder = Path(name)
        with postgres.start(folder / "data", create=True) as running:
            given = parse_qs(urlsplit(running.url).query)
            place = folder / "socket"
            place.mkdir()
            os.link(Path(given["host"][0]) / ".s.PGSQL.5432", place / ".s.PGSQL.5432")
            place.chmod(0o755)
            (place / ".s.PGSQL.5432").chmod(0o777)
            yield place


if __name__ == "__main__":
    sys.exit(main())

"""A real Dask cluster for tests and labs: a scheduler and nodes as processes, in namespaces where such are given."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from distributed import Client

from snapapp.jobs.settings import cluster_url
from tests import ROOT
from tests.jobs.working import until
from tests.running import free_port

NODE = ("-m", "snapapp", "compute", "node")
_UP_WITHIN = 60.0


class Cluster:
    """`with Cluster(folder) as cluster: …` ends all that it has started. `within`: what each command begins with."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", *, scheme: str = "dask") -> None:
        self._scheme = scheme
        self.host, self.port = host, free_port()
        self._folder = folder
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def typed(self) -> str:
        return f"{self._scheme}://{self.host}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in filter(None, [self.scheduler, *self.nodes.values()]):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def start_scheduler(self, within: Sequence[str] = ()) -> None:
        place = ("--host", str(cluster_url(self.typed)).rpartition(":")[0], "--port", str(self.port), "--no-dashboard")
        self.scheduler = self._begun("scheduler", within, ("-m", "distributed.cli.dask_scheduler", *place))

    def start_node(
        self,
        name: str,
        *,
        cores: int = 1,
        memory_mb: int = 3000,
        within: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        sizes = ("--cores", str(cores), "--memory-mb", str(memory_mb), "--name", name)
        self.nodes[name] = self._begun(name, within, (*NODE, self.typed, *sizes), environ)

    def start_stranger(self) -> None:
        """A node that somebody started for work of his own."""
        plain = ("--no-nanny", "--no-dashboard", "--nthreads", "4", "--name", "stranger")
        self.nodes["stranger"] = self._begun(
            "stranger", (), ("-m", "distributed.cli.dask_worker", f"tcp://{self.host}:{self.port}", *plain)
        )

    def until_nodes(self, count: int) -> None:
        with Client(f"tcp://{self.host}:{self.port}", timeout=_UP_WITHIN, set_as_default=False) as client:
            until(lambda: len(client.scheduler_info()["workers"]) == count, within=_UP_WITHIN)

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _begun(
        self, name: str, within: Sequence[str], arguments: Sequence[str], environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*within, sys.executable, *arguments],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=os.environ | {"SNAPAPP_ENV_FILE": os.devnull} | dict(environ or {}),
            )

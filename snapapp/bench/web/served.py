"""Starts `snapapp serve` as a process of its own, on a database of the bench."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from snapapp.bench.server import until


@contextmanager
def served(url: str, **settings: str) -> Iterator[int]:
    """Runs `snapapp serve` on this database as people run it; yields its port."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "snapapp", "serve"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={name: value for name, value in os.environ.items() if not name.startswith("SNAPAPP_")}
            | {
                "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), *sys.path])),
                "SNAPAPP_DATABASE_URL": url,
                "SNAPAPP_DATA_DIR": folder,
                "SNAPAPP_PORT": "0",
                "SNAPAPP_LOG_FORMAT": "console",
            }
            | settings,
            start_new_session=True,
        )
        try:
            yield _port(process, log)
        finally:
            process.terminate()
            process.wait(timeout=60)


def _port(process: "subprocess.Popen[bytes]", log: Any) -> int:
    ports: list[int] = []

    def is_up() -> bool:
        log.seek(0)
        lines = log.read().decode(errors="replace")
        if process.poll() is not None:
            raise RuntimeError(f"`snapapp serve` ended:\n{lines[-2000:]}")
        ports.extend(int(port) for port in re.findall(r"Serving http://localhost:(\d+)/", lines))
        return bool(ports) and _is_healthy(ports[0])

    until(is_up, "the API's start", within=60, look_every=0.1)
    return ports[0]


def _is_healthy(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/actuator/health", timeout=5) as answer:
            return bool(json.load(answer)["status"] == "UP")
    except OSError:
        return False

"""A PostgreSQL of the lab's own, durable as in production, that can be killed and brought back."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from snapapp import postgres
from snapapp.errors import PostgresError
from snapapp.jobs.rows.database import Row, connect

_BACK_WITHIN = 60.0


class LabServer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "database"
        self._folder.mkdir()
        # many workers, each with its connections, on a server that is made for one
        (self._folder / "postgres.local.conf").write_text("max_connections = 250\n")
        self._server = postgres.start(self._folder, create=True)
        self.url = self._server.url

    def connect(self, name: str = "lab") -> psycopg.Connection[Row]:
        return connect(self.url, name=name)

    def kill(self) -> None:
        """As a power switch does it to the server's own processes; what was fsynced stays."""
        self._end(signal.SIGKILL)

    def shut_down(self) -> None:
        """Fast: open transactions are rolled back, everybody is disconnected."""
        self._end(signal.SIGINT)

    def bring_back(self) -> float:
        """Tries until it stands (orphans of a killed server are in the way for a while); returns the seconds."""
        began = time.monotonic()
        while True:
            try:
                new = postgres.start(self._folder, create=False)
                break
            except (PostgresError, OSError):
                if time.monotonic() - began > _BACK_WITHIN:
                    raise
                time.sleep(0.2)
        self._server.stop()  # gives back the old share only: the new one keeps the server
        self._server = new
        return time.monotonic() - began

    def stop(self) -> None:
        self._server.stop()

    def _end(self, how: signal.Signals) -> None:
        pid = int((self._folder / "postgres" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, how)
        deadline = time.monotonic() + 30
        while _lives(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


# Waking is enough: workers end by themselves when the lab is gone, and it hurts nobody who got an old pid since.
_GUARD = 'pids=$(cat); [ -z "$pids" ] || kill -CONT $pids 2>/dev/null; rm -rf "$1"'


class Guard:
    """Another process, which cleans up when this one ends, however that happens."""

    def __init__(self, folder: Path) -> None:
        script = ["/bin/sh", "-c", _GUARD, "sh", str(folder)]
        self._process = subprocess.Popen(script, stdin=subprocess.PIPE, start_new_session=True, text=True)

    def watch(self, pid: int) -> None:
        """It may be under SIGSTOP in the end, and then see nothing."""
        assert self._process.stdin
        self._process.stdin.write(f"{pid}\n")
        self._process.stdin.flush()

    def clean_up(self) -> None:
        self._process.communicate()


@contextmanager
def guarded_folder() -> Iterator[tuple[Path, Guard]]:
    """A server whose folder is gone ends by itself, within a minute."""
    made = Path(tempfile.mkdtemp(prefix="snapapp-chaos-"))
    guard = Guard(made)
    try:
        yield made, guard
    finally:
        guard.clean_up()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False

"""Processes that use an embedded server, and what tests ask of it."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

import snapapp
from snapapp.errors import PostgresError
from snapapp.jobs import migrations
from snapapp.jobs.schema import QUEUE
from snapapp.postgres import postmaster
from snapapp.postgres.schema import PRODUCT
from tests.jobs.working import until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="about what root does")

SOURCE = str(Path(snapapp.__file__).parents[1])

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])])}

BRIEFLY = timedelta(milliseconds=300)

ADOPTER = """
import sys
from pathlib import Path
from snapapp.postgres import start
print("here", flush=True)
sys.stdin.readline()
server = start(Path(sys.argv[1]), create=True)
print(server.url, flush=True)
sys.stdin.readline()
server.stop()
"""


class Adopter:
    """A process of its own that starts or adopts the server, and leaves when it is told to."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ADOPTER, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        assert self.hear() == "here"

    def tell(self) -> "Adopter":
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def start(self) -> str:
        return self.tell().hear()

    def leave(self) -> None:
        self.tell()
        assert self.process.wait(timeout=20) == 0
        self.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=20)

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def put_down(data_dir: Path) -> None:
    with suppress(PostgresError):
        found = postmaster.find(data_dir / "postgres")
        if found is not None:
            os.kill(found.pid, signal.SIGQUIT)
            until(lambda: postmaster.find(data_dir / "postgres") is None)


def pid_of(data_dir: Path) -> int:
    found = postmaster.find(data_dir / "postgres")
    assert found is not None
    return found.pid


def is_stopped(data_dir: Path) -> bool:
    return postmaster.find(data_dir / "postgres") is None


def ask(url: str, question: str) -> object:
    with psycopg.connect(url) as db:
        row = db.execute(question.encode()).fetchone()
    return row and row[0]


def take_down(url: str) -> None:
    """Drops the whole schema with all its rows."""
    with migrations.transaction(url) as db:
        for history in (PRODUCT, QUEUE):
            migrations.downgrade(db, history)

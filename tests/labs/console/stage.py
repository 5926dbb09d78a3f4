"""What these labs share: a connection, a worker of its own, and the browser."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.running import Running
from tests.web.conftest import BROWSERS

Db = psycopg.Connection[tuple[Any, ...]]


def connected(url: str) -> Db:
    return psycopg.connect(url, autocommit=True, application_name="lab")


def asked(db: Db, statement: str, *values: object) -> Any:
    row = db.execute(statement.encode(), values or None).fetchone()
    assert row
    return row[0]


def program() -> str | None:
    """The browser; None: there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def worker_process(folder: Path, url: str, **settings: str) -> Iterator[Running]:
    """`snapapp worker` with the kinds of these labs."""
    own = {
        "SNAPAPP_DATABASE_URL": url,
        "SNAPAPP_DATA_DIR": str(folder),
        "SNAPAPP_PROCESSORS": "tests.labs.console.kinds",
    }
    worker = Running(folder, "worker", **own | settings)
    try:
        yield worker
    finally:
        if worker.process.poll() is None:
            os.kill(worker.process.pid, signal.SIGTERM)
            worker.end()

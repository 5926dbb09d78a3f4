"""What a lab runs on: a folder and a PostgreSQL of its own, migrated; both are gone when it ends."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from snapapp import postgres
from snapapp.postgres.migrate import migrate


@dataclass(frozen=True, slots=True)
class LabServer:
    folder: Path
    url: str
    db: psycopg.Connection[Any]  # in autocommit


@contextmanager
def lab_server(lab: str) -> Iterator[LabServer]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"snapapp-{lab}-")))
        url = stack.enter_context(postgres.start(folder / "postgres", create=True)).url
        migrate(url)
        yield LabServer(folder, url, stack.enter_context(psycopg.connect(url, autocommit=True)))

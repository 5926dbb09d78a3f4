"""Writes what a person does from a terminal into the audit, in the transaction that does it."""

import getpass
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from snapapp.jobs.cli.typed import Db
from snapapp.jobs.rows.database import together
from snapapp.jobs.rows.people import audit
from snapapp.jobs.rows.people.audit import Actor
from snapapp.jobs.rows.people.bulk import Witness

DOOR = "terminal"


def person() -> str | None:
    """The system's account of the person who typed the command; None: it is not known."""
    with suppress(KeyError, OSError):
        return os.environ.get("SUDO_USER") or getpass.getuser()
    return None


def actor() -> Actor:
    return Actor(person() or "", DOOR)


def note(db: Any, action: str, subject: str, *, jobs: int = 0, detail: Mapping[str, Any] | None = None) -> None:
    """Writes a row into the audit, in the caller's transaction."""
    audit.write(db, actor(), action, subject, jobs=jobs, detail=detail)


@contextmanager
def noted(db: Db, action: str, subject: str, *, detail: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Opens a transaction and adds the row of the audit at its end, so that both or neither are committed."""
    with together(db):
        yield
        note(db, action, subject, detail=detail)


def witness_of_each(action: str, detail: Mapping[str, Any] | None = None) -> Witness:
    """Writes one row for each job. It is for jobs that were named: the page of each then shows who did it."""

    def witness(db: Any, jobs: Collection[int]) -> None:
        for job_id in jobs:
            note(db, action, f"job {job_id}", jobs=1, detail=detail)

    return witness


def witness_of_all(action: str, detail: Mapping[str, Any]) -> Witness:
    return audit.writer_of_run(actor(), action, detail, uuid4())

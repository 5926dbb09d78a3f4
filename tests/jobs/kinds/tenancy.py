"""A small application with tenants: its context, which goes wrong as a payload wishes, and kinds for each executor."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from sqlalchemy import Connection, text

from snapapp.jobs import Failure, Job, Permanent
from snapapp.jobs.registry import Registry

current: ContextVar[str] = ContextVar("current", default="nobody")
registry = Registry()


@contextmanager
def context(job: Job, db: Connection | None) -> Iterator[str]:
    """`breaks` in the payload names what goes wrong, and where: `code` or `sql`."""
    breaks = job.payload.get("breaks") if job.payload.get("in", "code") == ("sql" if db else "code") else None
    if breaks == "enter":
        current.set(job.tenant)
        raise ValueError("no such tenant")
    elif breaks == "lie":
        current.set(job.tenant)
        yield "another"
    elif breaks == "leak":
        current.set(job.tenant)
        yield job.tenant
    elif breaks == "swallow":
        with suppress(Exception):
            yield job.tenant
    elif breaks == "leave":
        yield job.tenant
        raise ValueError("cannot leave")
    elif db is None:
        before = current.set(job.tenant)
        try:
            yield current.get()
        finally:
            current.reset(before)
    else:
        db.execute(text("SET LOCAL ROLE pg_monitor"))
        db.execute(text("SELECT set_config('app.tenant', :tenant, true)"), {"tenant": job.tenant})
        yield whom(db)
        db.execute(text("RESET ROLE"))


def whom(db: Connection) -> str:
    return str(db.execute(text("SELECT current_setting('app.tenant', true)")).scalar())


def note(db: Connection, job: Job, _result: Any) -> None:
    db.execute(text("SELECT set_config('role', 'none', true)"))  # pg_monitor may not write
    db.execute(text("INSERT INTO noted VALUES (:job, :tenant)"), {"job": job.id, "tenant": whom(db)})


def note_failure(db: Connection, job: Job, failure: Failure) -> None:
    note(db, job, failure)


@registry.processor("who.thread")
def in_a_thread(job: Job) -> str:
    if job.payload.get("raises"):
        raise Permanent("as it was told")
    return current.get()


@registry.processor("who.async")
async def on_the_loop(job: Job) -> list[str]:
    first = current.get()
    await asyncio.sleep(0.01)
    return [first, current.get()]


@registry.processor("who.process", executor="process")
def in_a_child(job: Job) -> str:
    return current.get()


@registry.processor("who.command", executor="command")
def by_a_program(job: Job) -> list[str]:
    script = "import json, sys; print(json.dumps({'ok': True, 'result': sys.argv[1][1:]}))"
    return [sys.executable, "-c", script, f"={current.get()}"]


@registry.processor("who.sql")
def in_the_database(job: Job) -> list[str]:
    with job.connection() as db:
        return [whom(db), str(db.execute(text("SELECT current_user")).scalar()), current.get()]


@registry.processor("hooked", commit=note, failed=note_failure)
def hooked(job: Job) -> None:
    if job.payload.get("raises"):
        raise Permanent("as it was told")

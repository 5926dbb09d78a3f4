"""Kinds that return where in their trace they run, one for each executor, and one that fails once."""

from typing import Any

from sqlalchemy import Connection

from snapapp.jobs import Job, processor, tracing

_PROGRAM = """
import json, os
print(json.dumps({"ok": True, "result": {"traceparent": os.environ.get("TRACEPARENT")}}))
"""


@processor("mail.send")
def send(job: Job) -> dict[str, str | None]:
    return {"traceparent": job.traceparent}


def note(db: Connection, job: Job, result: Any) -> None: ...


@processor("mail.wait", commit=note)
async def wait(job: Job) -> dict[str, str | None]:
    return {"traceparent": tracing.current.get()}


@processor("mail.render", executor="process")
def render(job: Job) -> dict[str, str | None]:
    return {"traceparent": tracing.current.get()}


@processor("mail.print", executor="command", command=("python3", "-c", _PROGRAM))
def print_it(job: Job) -> None: ...


@processor("mail.bounce", max_attempts=2)
def bounce(job: Job) -> None:
    if job.attempt == 1:
        raise ValueError("nobody lives there")

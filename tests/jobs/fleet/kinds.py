"""The jobs of the tests and of the lab: with a commit hook whose rows can be counted."""

import asyncio
import ctypes
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy

from snapapp.jobs import Job, processor


def put_effect(db: sqlalchemy.Connection, job: Job, _result: Any) -> None:
    """The one thing that must happen once for each job."""
    db.execute(sqlalchemy.text("INSERT INTO effect VALUES (:job)"), {"job": job.id})


@processor("fleet.count", commit=put_effect)
def count(job: Job) -> None:
    time.sleep(job.payload.get("seconds", 0.0))


@processor("fleet.nothing")
def nothing(job: Job) -> None: ...


@processor("fleet.spin")
def spin(job: Job) -> None:
    """5 ms of a core."""
    ends_at = time.thread_time() + 0.005
    while time.thread_time() < ends_at:
        pass


@processor("fleet.seize", commit=put_effect)
def seize(job: Job) -> None:
    """Lets no other thread of its process run meanwhile, the main one neither."""
    ctypes.PyDLL(None).sleep(job.payload["seconds"])


@processor("fleet.hold", commit=put_effect)
def hold(job: Job) -> dict[str, int]:
    """Runs until its file is there, and does not look at whether somebody wants it to end."""
    while not Path(job.payload["file"]).exists():
        time.sleep(0.02)
    return {"pid": os.getpid()}


@processor("fleet.leave")
def leave(job: Job) -> None:
    os._exit(3)


@processor("fleet.beside", timeout=timedelta(milliseconds=100))
async def beside(job: Job) -> None:
    """Its thread never ends, whatever becomes of the coroutine that waits for it."""
    await asyncio.to_thread(threading.Event().wait)


@processor("fleet.child", executor="process")
def child(job: Job) -> None:
    time.sleep(job.payload.get("seconds", 60.0))

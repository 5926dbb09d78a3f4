"""The jobs of the lab: short and long, on threads, coroutines and children, with a hook and without, good and bad."""

import asyncio
import os
import random
import signal
import time
from typing import Any

from sqlalchemy import Connection
from tenacity.wait import wait_random

from snapapp.jobs.model import Failure, Job
from snapapp.jobs.registry import Registry
from tests.labs.chaos.recorder import Recorder

registry = Registry()

MIX = (  # of what a client enqueues: kind, share
    ("chaos.quick", 40),
    ("chaos.slow", 20),
    ("chaos.plain", 20),
    ("chaos.flaky", 10),
    ("chaos.async", 6),
    ("chaos.child", 4),
)
HOOKED = frozenset({"chaos.quick", "chaos.slow", "chaos.flaky", "chaos.async", "chaos.child", "chaos.count"})

_soon = wait_random(0.1, 0.5)
_recorders: list[Recorder] = []  # this process's own, put there before its worker starts


def record_to(recorder: Recorder) -> None:
    _recorders.append(recorder)


def note_effect(db: Connection, job: Job, result: Any) -> None:
    """The one thing that must happen once for each job."""
    db.exec_driver_sql(
        "INSERT INTO chaos_effect VALUES (%(job)s, %(seq)s, current_setting('chaos.worker', true), %(kind)s)",
        {"job": job.id, "seq": job.lease_seq, "kind": job.kind},
    )


def note_burial(db: Connection, job: Job, failure: Failure) -> None:
    db.exec_driver_sql(
        "INSERT INTO chaos_burial VALUES (%(job)s, %(seq)s, current_setting('chaos.worker', true))",
        {"job": job.id, "seq": job.lease_seq},
    )


def effect_or_error(db: Connection, job: Job, result: Any) -> None:
    """A hook that sometimes fails when it has written already: nothing of it may stay."""
    note_effect(db, job, result)
    if _die(job, "hook").random() < 0.1:
        raise RuntimeError("the hook failed")


@registry.processor("chaos.quick", commit=note_effect)
def quick(job: Job) -> dict[str, int]:
    return _work(job, 0.02, 0.1)


@registry.processor("chaos.slow", commit=note_effect, failed=note_burial)
def slow(job: Job) -> dict[str, int]:
    return _work(job, 0.3, 0.9)


@registry.processor("chaos.plain")
def plain(job: Job) -> dict[str, int]:
    return _work(job, 0.02, 0.3)


@registry.processor("chaos.flaky", wait=_soon, commit=effect_or_error, failed=note_burial)
def flaky(job: Job) -> dict[str, int]:
    done = _work(job, 0.02, 0.2)
    if _die(job, "attempt").random() < 0.4:
        raise RuntimeError(f"attempt {job.attempt} of job {job.id} fails")
    return done


@registry.processor("chaos.async", commit=note_effect)
async def wait(job: Job) -> dict[str, int]:
    note_start(job)
    await asyncio.sleep(_die(job, "length").uniform(0.05, 0.5))
    return {"job": job.id}


@registry.processor("chaos.child", executor="process", commit=note_effect)
def child(job: Job) -> dict[str, int]:
    """Its start is noted by the worker: a child is told nothing about where to write."""
    time.sleep(_die(job, "length").uniform(0.05, 0.4))
    return {"job": job.id}


@registry.processor("chaos.poison", failed=note_burial)
def poison(job: Job) -> None:
    """Takes its worker with it, every time."""
    note_start(job)
    os.kill(os.getpid(), signal.SIGKILL)


@registry.processor("chaos.exit")
def leave(job: Job) -> None:
    note_start(job)
    os._exit(3)


@registry.processor("chaos.count", commit=note_effect)
def count(job: Job) -> None:
    """As short as a job can be, unless the payload says otherwise."""
    time.sleep(job.payload.get("seconds", 0.0))


def _work(job: Job, least: float, most: float) -> dict[str, int]:
    note_start(job)
    time.sleep(_die(job, "length").uniform(least, most))
    return {"job": job.id}


def note_start(job: Job) -> None:
    for recorder in _recorders:
        recorder.write("start", job=job.id, seq=job.lease_seq, attempt=job.attempt, kind=job.kind)


def _die(job: Job, what: str) -> random.Random:
    """The same for each run of an attempt, whoever runs it."""
    return random.Random(f"{what} {job.id} {job.attempt}")

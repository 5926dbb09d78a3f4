"""Kinds for the lab: one that only counts how often it landed, one that keeps a core busy, one that does nothing."""

import time
from typing import Any

import sqlalchemy

from snapapp.jobs import Job
from snapapp.jobs.registry import Registry
from tests.labs.executors import kinds

BURNS = 0.5  # seconds of a core

registry = Registry()
for each in kinds.registry:
    registry.add(each)


def _store(db: sqlalchemy.Connection, job: Job, _result: Any) -> None:
    db.execute(sqlalchemy.text("INSERT INTO effect VALUES (:job)"), {"job": job.id})


@registry.processor("lab.counted", executor="process", max_attempts=20, commit=_store)
def count(job: Job) -> None:
    time.sleep(0.2)


@registry.processor("lab.burn", executor="process")
def burn(job: Job) -> None:
    until = time.thread_time() + BURNS
    while time.thread_time() < until:
        pass


@registry.processor("lab.nothing", executor="process")
def do_nothing(job: Job) -> None: ...

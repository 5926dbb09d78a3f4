"""The product itself: one worker process with a processor that does nothing."""

import asyncio
import os
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg
from psycopg import pq

from snapapp.bench.plan import KIND
from snapapp.bench.roles import neighbours, stage
from snapapp.jobs import Job, enqueue
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import Row
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker.worker import Worker

PICKUP = "bench.pickup"
NAP_IN_THREAD, NAP_ON_LOOP = "bench.nap.thread", "bench.nap.loop"
_NAP = 0.001


class Overheard(Runtime):
    """A runtime whose connections write down all that they say to the server: libpq does it, nothing is left out."""

    def __init__(self, settings: JobsSettings, *, registry: Registry, protocol: Path) -> None:
        super().__init__(settings, registry=registry)
        self._protocol = protocol

    def connect(self, purpose: str) -> psycopg.Connection[Row]:
        connection = super().connect(purpose)
        connection.pgconn.trace(os.open(self._protocol, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        connection.pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        return connection


def main() -> None:
    told = stage.told()
    registry = Registry()
    picked: list[tuple[int, float]] = []

    def noop(_: Job) -> None:
        return

    def pick_up(job: Job) -> None:
        at = monotonic()
        picked.append((job.payload["number"], at))

    registry.processor(KIND)(noop)
    registry.processor(PICKUP)(pick_up)
    registry.processor(NAP_IN_THREAD)(_nap_in_thread)
    registry.processor(NAP_ON_LOOP, executor="async")(_nap_on_loop)
    neighbours.declare(registry)
    warm, is_warm = f"bench.warm.{uuid.uuid4().hex}", threading.Event()
    registry.processor(warm)(lambda _: is_warm.set())
    runtime = _runtime(told, registry)
    worker = runtime.worker()
    worker.start()
    _warm_up(runtime, worker, warm, is_warm)
    spent = stage.Spent()
    stage.say(memory=stage.memory())
    stage.told()
    stage.say(cpu=spent.cpu(), memory=stage.memory(), picked=picked)
    stage.stay()


def _nap_in_thread(_: Job) -> None:
    sleep(_NAP)


async def _nap_on_loop(_: Job) -> None:
    await asyncio.sleep(_NAP)


def _runtime(told: dict[str, Any], registry: Registry) -> Runtime:
    settings = JobsSettings(database_url=told["url"])
    if "batch" in told:
        settings = replace(settings, batch_size=told["batch"])
    if "slots" in told:
        settings = replace(settings, concurrency=told["slots"], async_concurrency=told["slots"])
    if "protocol" in told:
        return Overheard(settings, registry=registry, protocol=Path(told["protocol"]))
    return Runtime(settings, registry=registry)


def _warm_up(runtime: Runtime, worker: Worker, kind: str, is_warm: threading.Event) -> None:
    """One job all the way through: then every connection is open and LISTEN is proven alive."""
    with runtime.connect("bench") as db:
        enqueue(db, kind, queue="bench.warm")
    if not is_warm.wait(30):
        raise TimeoutError("the worker did not run its first job within 30 s")
    while not worker.is_idle:
        sleep(0.01)


if __name__ == "__main__":
    main()

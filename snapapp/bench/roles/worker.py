"""The role of the product: a real worker process, with processors that do nothing or wait for a millisecond."""

import asyncio
import gc
import os
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from time import monotonic, process_time, sleep
from typing import Any

import psycopg
from psycopg import pq

from snapapp.bench.plan import KIND
from snapapp.bench.roles import neighbours, pipes
from snapapp.jobs import Job, enqueue
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import Row
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker.worker import Worker

PICKUP = "bench.pickup"
NAP_IN_THREAD, NAP_ON_LOOP = "bench.nap.thread", "bench.nap.loop"
_NAP = 0.001


class TracedRuntime(Runtime):
    """A runtime whose connections are traced: libpq writes every message to and from the server into a file."""

    def __init__(self, settings: JobsSettings, *, registry: Registry, protocol: Path) -> None:
        super().__init__(settings, registry=registry)
        self._protocol = protocol

    def connect(self, purpose: str) -> psycopg.Connection[Row]:
        connection = super().connect(purpose)
        connection.pgconn.trace(os.open(self._protocol, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        connection.pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        return connection


def main() -> None:
    gc.freeze()  # as every command of snapapp does after its imports
    options = pipes.read()
    registry = Registry()
    picked: list[tuple[int, float]] = []

    def pick_up(job: Job) -> None:
        at = monotonic()
        picked.append((job.payload["number"], at))

    registry.processor(KIND)(lambda _: None)
    registry.processor(PICKUP)(pick_up)
    registry.processor(NAP_IN_THREAD)(lambda _: sleep(_NAP))
    registry.processor(NAP_ON_LOOP, executor="async")(_nap_on_loop)
    neighbours.declare(registry)
    warm, is_warm = f"bench.warm.{uuid.uuid4().hex}", threading.Event()
    registry.processor(warm)(lambda _: is_warm.set())
    runtime = _runtime(options, registry)
    worker = runtime.worker()
    worker.start()
    _warm_up(runtime, worker, warm, is_warm)
    began = process_time()
    pipes.say(ready=True)
    pipes.read()
    pipes.say(cpu=process_time() - began, picked=picked)
    pipes.stay()


async def _nap_on_loop(_: Job) -> None:
    await asyncio.sleep(_NAP)


def _runtime(options: dict[str, Any], registry: Registry) -> Runtime:
    settings = JobsSettings(database_url=options["url"])
    if "batch" in options:
        settings = replace(settings, batch_size=options["batch"])
    if "slots" in options:
        settings = replace(settings, concurrency=options["slots"], async_concurrency=options["slots"])
    if "protocol" in options:
        return TracedRuntime(settings, registry=registry, protocol=Path(options["protocol"]))
    return Runtime(settings, registry=registry)


def _warm_up(runtime: Runtime, worker: Worker, kind: str, is_warm: threading.Event) -> None:
    """Runs one job from start to end, so that every connection is open and LISTEN is proven alive."""
    with runtime.connect("bench") as db:
        enqueue(db, kind, queue="bench.warm")
    if not is_warm.wait(30):
        raise TimeoutError("the worker did not run its first job within 30 s")
    while not worker.is_idle:
        sleep(0.01)


if __name__ == "__main__":
    main()

"""Four small kinds of jobs to try the queue with: one in a thread, one on the event loop, one in a child process, one
that fails. And the kind that prepares the demo; its work is in another module, because every worker imports this
one."""

import asyncio
import time
from datetime import timedelta
from typing import Any

from snapapp.demo import PREPARE
from snapapp.jobs import Job, processor
from snapapp.jobs.registry import later


@processor("demo.hello", queue="demo")
def hello(job: Job) -> dict[str, Any]:
    """{"name": "Ana"}"""
    name = job.payload.get("name", "world")
    job.log(f"greeting {name}")
    job.update_progress(100, "greeted")
    return {"said": f"hello, {name}"}


@processor("demo.sleep", queue="demo")
async def sleep(job: Job) -> None:
    """{"seconds": 2}"""
    seconds = float(job.payload.get("seconds", 2))
    for tenth in range(10):
        job.update_progress(10 * tenth, "sleeping")
        await asyncio.sleep(seconds / 10)


@processor("demo.crunch", queue="demo", executor="process")
def crunch(job: Job) -> dict[str, int]:
    """{"seconds": 2}: keeps a core busy, in a child process so that nothing else waits for it."""
    seconds = float(job.payload.get("seconds", 2))
    began, rounds = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        sum(number * number for number in range(500_000))
        rounds += 1
        job.update_progress(round(100 * passed / seconds), "crunching")
    return {"rounds": rounds}


@processor("demo.fail", queue="demo")
def fail(job: Job) -> None:
    """{"until": 2}: fails until that attempt; without it always, and so ends in the dead letters."""
    job.log("about to fail", level="WARNING")
    if job.attempt < job.payload.get("until", job.max_attempts + 1):
        raise RuntimeError(f"attempt {job.attempt} failed, as it was told to")


@processor(
    PREPARE,
    queue="demo",
    executor="process",
    timeout=timedelta(minutes=2),
    commit=later("snapapp.demo.first_minute:publish"),
)
def prepare(job: Job) -> dict[str, Any]:
    """Paints the demo's video, unless it is there."""
    from snapapp.demo import first_minute

    return first_minute.prepare(job)

"""Kinds of jobs that disturb others. The bench makes the database refuse or block the end of some of them."""

from time import sleep
from typing import Any

from sqlalchemy import Connection

from snapapp.jobs import Job
from snapapp.jobs.registry import Registry

HANGS, HOOK, TALKS = "bench.hangs", "bench.hook", "bench.talks"
ENDS, ENDS_AT_ONCE = "bench.ends", "bench.ends_at_once"
ENDS_AFTER = 1.0  # seconds

_FOR_EVER = 600.0
_LINE_EVERY = 0.02


def declare(registry: Registry) -> None:
    registry.processor(HANGS)(lambda _: sleep(_FOR_EVER))
    registry.processor(HOOK, commit=_hook)(lambda _: None)
    registry.processor(TALKS)(_talk)
    registry.processor(ENDS)(_end)
    registry.processor(ENDS_AT_ONCE)(lambda _: "a result")


def _hook(_: Connection, job: Job, _result: Any) -> None:
    job.log("the hook has begun")
    sleep(_FOR_EVER)


def _talk(job: Job) -> None:
    while True:
        job.log("a line that the database refuses")
        sleep(_LINE_EVERY)


def _end(_: Job) -> str:
    """Ends after a moment in which the bench locks the job's row."""
    sleep(ENDS_AFTER)
    return "a result"

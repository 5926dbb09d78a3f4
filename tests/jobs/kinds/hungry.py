"""Kinds that need more memory than they may have, or say that something else was wrong."""

import sys
import time
from datetime import timedelta

from snapapp.jobs import Job, Permanent
from snapapp.jobs.registry import Registry

MB = 1024 * 1024
LIMIT_MB = 120
EAT = """
import json, sys, time
kept = bytes([1]) * json.load(sys.stdin)["payload"]["mb"] * 1024 * 1024
time.sleep(0.3)
print('{"ok": true}')
"""

registry = Registry()


@registry.processor("hungry.child", executor="process", memory_mb=LIMIT_MB)
def eat(job: Job) -> int:
    kept = bytes([1]) * (job.payload["mb"] * MB)
    time.sleep(job.payload.get("rest", 0.3))
    if "verdict" in job.payload:
        raise Permanent(job.payload["verdict"])
    return len(kept)


@registry.processor("hungry.refused", executor="process", memory_mb=LIMIT_MB, timeout=timedelta(seconds=20))
def be_refused(job: Job) -> None:
    """As a decoder that is told that there is no more, and makes a verdict of it."""
    try:
        bytearray(1 << 50)
    except MemoryError as error:
        raise Permanent("the video is damaged") from error


@registry.processor("hungry.small", executor="process", memory_mb=LIMIT_MB)
def refuse(job: Job) -> None:
    raise Permanent("the video is damaged")


@registry.processor("hungry.beside")
def wait(job: Job) -> None:
    time.sleep(0.02)


@registry.processor("hungry.program", executor="command", command=[sys.executable, "-c", EAT], memory_mb=LIMIT_MB)
def _program(job: Job) -> None:
    """A command."""

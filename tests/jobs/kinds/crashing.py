"""Processors for child processes: a child can only import what stands at the top of a module."""

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from snapapp.jobs import Job, Permanent, Snooze, process_hooks
from snapapp.jobs.errors import JobCancelled
from snapapp.jobs.registry import Registry

registry = Registry()


@registry.processor("child.echo", executor="process")
def echo(job: Job) -> dict[str, Any]:
    job.update_progress(50, "half")
    job.log("from the child")
    return {"pid": os.getpid(), "payload": job.payload, "attempt": job.attempt}


@registry.processor("child.borrow", executor="process")
def borrow(job: Job) -> None:
    with job.connection():
        pass


@registry.processor("child.exit", executor="process")
def leave(job: Job) -> None:
    sys.stderr.write("famous last words\n")
    sys.stderr.flush()
    os._exit(7)


@registry.processor("child.segfault", executor="process")
def segfault(job: Job) -> None:
    ctypes.string_at(0)


@registry.processor("child.spin", executor="process")
def spin(job: Job) -> None:
    job.log("spinning")
    while True:
        pass


@registry.processor("child.grandchild", executor="process")
def grandchild(job: Job) -> None:
    process = subprocess.Popen(["sleep", "3600"])
    job.log(f"grandchild {process.pid}")
    time.sleep(3600)


@registry.processor("child.raise", executor="process")
def broken(job: Job) -> None:
    raise ValueError(f"attempt {job.attempt}")


@registry.processor("child.permanent", executor="process")
def permanent(job: Job) -> None:
    raise Permanent("unreadable container")


@registry.processor("child.cancelled", executor="process")
def cancelled(job: Job) -> None:
    raise JobCancelled("nobody waits for it")


@registry.processor("child.tasks", executor="process")
def tasks(job: Job) -> None:
    async def look() -> None:
        raise Permanent("unreadable container")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(look())

    asyncio.run(both())


@registry.processor("child.times", executor="process")
def times(job: Job) -> dict[str, Any]:
    assert job.deadline is not None
    assert job.due_at is not None
    return {"left": job.deadline - time.monotonic(), "due_at": job.due_at.isoformat()}


@registry.processor("child.odd", executor="process")
def odd(job: Job) -> object:
    return object()


@registry.processor("child.giant", executor="process")
def giant(job: Job) -> str:
    return "x" * 50_000_000


@registry.processor("child.print", executor="process")
def shout(job: Job) -> str:
    for _ in range(20_000):
        print("all work and no play makes a long line of text", flush=False)
    return "done"


@registry.processor("child.lingers", executor="process")
def let_go_and_stay(job: Job) -> None:
    os.closerange(1, 100)
    time.sleep(600)


@registry.processor("child.orphan", executor="process")
def leave_an_orphan(job: Job) -> list[int]:
    script = "sleep 600 > /dev/null 2>&1 & echo $!"
    said = subprocess.run(["/bin/sh", "-c", script], stdout=subprocess.PIPE, check=True).stdout
    return [os.getpid(), int(said)]


@registry.processor("child.snooze", executor="process")
def sleep_for_ever(job: Job) -> None:
    raise Snooze(timedelta.max)


@registry.processor("child.pipes", executor="process")
def what_a_program_inherits(job: Job) -> int:
    listing = ["ls", "/proc/self/fd"]
    return len(subprocess.run(listing, close_fds=False, stdout=subprocess.PIPE, check=True).stdout.split())


@registry.processor("child.sockets", executor="process")
def sockets(job: Job) -> list[str]:
    return sorted(kept(os.getpid()))


def kept(process: int) -> set[str]:
    """Its sockets, by the kernel's names for them."""
    links = []
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # it looks at itself
            links.append(str(file.readlink()))
    return {link for link in links if link.startswith("socket:")}


@registry.processor("child.server", executor="process")
def start_server(job: Job) -> int:
    """As the decoders' fork server: it serves later jobs, too."""
    server = subprocess.Popen(["sleep", "600"])
    process_hooks.keep(server.pid)
    return server.pid

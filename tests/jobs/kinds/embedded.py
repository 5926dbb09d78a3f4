"""An application that runs two workers of its own, as a process: `embedded.main(URL)`. Whatever happens
in it and in its children is a line of the file SAID; it ends with its stdin."""

import os
import sys
from pathlib import Path
from typing import Any

from snapapp.jobs import Job, Worker, on_start, on_stop, processor


def say(what: str) -> None:
    with Path(os.environ["SAID"]).open("a", encoding="ascii") as said:
        said.write(f"{os.getpid()} {what}\n")


on_start(lambda: say("start"))
on_stop(lambda: say("stop"))


@processor("embedded.thread")
def in_thread(job: Job) -> int:
    say("job")
    return os.getpid()


@processor("embedded.child", executor="process")
def in_child(job: Job) -> int:
    say("job")
    return os.getpid()


def main(url: str) -> None:
    shared: dict[str, Any] = {"child_environment": {"SAID": os.environ["SAID"]}, "children": 1}
    with (
        Worker(url, queues=("quick",), concurrency=1, worker_name="quick", **shared),
        Worker(url, queues=("slow",), concurrency=3, worker_name="slow", **shared),
    ):
        sys.stdin.read()

"""Kinds that take memory and time, in children and programs, and kinds that hang in each way there is."""

import hashlib
import os
import re
import sys
import time
from datetime import timedelta

from snapapp.jobs import Job
from snapapp.jobs.registry import Registry

MB = 1024 * 1024
LIMIT_MB = 150
LATE = timedelta(seconds=2)
SPEND = """
import json, sys, time
wanted = json.load(sys.stdin)["payload"]
kept = b"x" * (wanted.get("mb", 0) * 1024 * 1024)
while time.process_time() < wanted.get("cpu", 0):
    pass
time.sleep(wanted.get("rest", 0))
print('{"ok": true}')
"""

registry = Registry()


@registry.processor("spend.child", executor="process")
def spend(job: Job) -> int:
    began, wanted = time.process_time(), job.payload
    kept = b"x" * (wanted.get("mb", 0) * MB)
    while time.process_time() - began < wanted.get("cpu", 0):
        pass
    time.sleep(wanted.get("rest", 0))
    return len(kept) and os.getpid()


@registry.processor("spend.much", executor="process", memory_mb=LIMIT_MB)
def hoard(job: Job) -> None:
    kept = []
    while True:
        kept.append(b"x" * (10 * MB))
        time.sleep(0.05)


@registry.processor("spend.command", executor="command", command=[sys.executable, "-c", SPEND])
def program(job: Job) -> None: ...


PARENT = ["/bin/sh", "-c", '"$0" -c "$1" && :', sys.executable, SPEND]


@registry.processor("spend.shell", executor="command", command=PARENT)
def shell(job: Job) -> None: ...


@registry.processor("spend.brief", executor="command", command=["/bin/echo", '{"ok": true}'])
def brief(job: Job) -> None: ...


# --- hanging ----------------------------------------------------------------------------------------------------


@registry.processor("hang.python", executor="process", timeout=LATE)
def hang_in_python(job: Job) -> None:
    while True:
        pass


@registry.processor("hang.regex", executor="process", timeout=LATE)
def hang_in_a_regex(job: Job) -> None:
    """In C, and nothing else in the process runs meanwhile."""
    re.match("(a+)+$", "a" * 60 + "b")


@registry.processor("hang.hash", executor="process", timeout=LATE)
def hang_in_a_hash(job: Job) -> None:
    """In C, and other threads run meanwhile."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)


@registry.processor("hang.sleep", executor="process", timeout=LATE)
def hang_asleep(job: Job) -> None:
    job.log(str(os.getpid()))
    time.sleep(600)


@registry.processor("hang.words", executor="process", timeout=LATE)
def hang_after_many_words(job: Job) -> None:
    for number in range(1200):
        job.log(f"line {number}")
    time.sleep(600)


@registry.processor(
    "hang.command", executor="command", timeout=LATE, command=["/bin/sh", "-c", "echo step 7 >&2; sleep 600"]
)
def hang_in_a_program(job: Job) -> None: ...


@registry.processor("hang.mute", executor="command", timeout=LATE, command=["sleep", "600"])
def hang_in_silence(job: Job) -> None: ...

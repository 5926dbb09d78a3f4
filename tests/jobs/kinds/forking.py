"""Processors that fork, for threads, coroutines and child processes, and hooks that do."""

import os
import signal
import sys

from sqlalchemy import Connection, text

from snapapp.jobs import Failure, Job, Permanent
from snapapp.jobs.registry import Registry
from tests.jobs.working import PATIENCE, until

registry = Registry()


def fork(job: Job) -> int:
    """Returns the exit code of the process that it forks."""
    pid = os.fork()
    if pid == 0:
        match job.payload["end"]:
            case "exit":
                sys.exit(7)
            case "raise":
                raise Permanent("it is only the fork that fails")
        return 0
    try:
        until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), within=PATIENCE / 4)
    finally:
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def fork_on_the_loop(job: Job) -> int:
    return fork(job)


def fork_in_commit(db: Connection, job: Job, _result: object) -> None:
    hook, code = os.getpid(), fork(job)
    if os.getpid() == hook:
        db.execute(text("INSERT INTO effect VALUES (:code)"), {"code": code})


def fork_in_failed(db: Connection, job: Job, _failure: Failure) -> None:
    fork_in_commit(db, job, None)


registry.processor("fork.thread")(fork)
registry.processor("fork.async")(fork_on_the_loop)
registry.processor("fork.commit", commit=fork_in_commit)(lambda job: None)
registry.processor("fork.failed", failed=fork_in_failed)(lambda job: 1 / 0)
registry.processor("fork.process", executor="process")(fork)

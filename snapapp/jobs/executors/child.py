"""The other side of a `process` slot: a warm child that runs one job at a time and knows no database.

Started as `python -m snapapp.jobs.executors.child REQUESTS ANSWERS PARENT STACKS MODULE...`: two pipes, the parent's
pid, a pipe for what it is doing when it is asked in vain, and what to import before the first job comes.
"""

import ctypes
import faulthandler
import importlib
import os
import signal
import sys
from dataclasses import asdict
from threading import Lock
from typing import Any, NoReturn
from uuid import UUID

from snapapp.jobs import payloads, process_hooks, tracing
from snapapp.jobs.context import Within, imported
from snapapp.jobs.errors import InvalidJob, NoConnection, Permanent, Snooze
from snapapp.jobs.executors import messages
from snapapp.jobs.model import Failure, Job, describe, to_json

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Pipe:
    """The channel of a job in a child: its words travel to the parent, which writes them down."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._lock = Lock()  # a processor may speak from several threads; frames must not mix

    def say(self, message: dict[str, Any], job: Job | None = None) -> None:
        """Says whom it is about: a thread that a job left behind must not speak for the next one."""
        about = {"lease": list(job.lease)} if job else {}
        with self._lock:
            messages.write(self._answers, message | about)

    def progress(self, job: Job, value: str) -> None:
        self.say({"progress": value}, job)

    def log(self, job: Job, level: str, message: str) -> None:
        self.say({"log": [level, message]}, job)

    def check(self, job: Job) -> None:
        """Nothing to check: whoever wants this attempt to end kills the child."""

    def connection(self, job: Job) -> NoReturn:
        raise NoConnection(
            f"{job.kind} job {job.id} asks for a connection, and a child process has no database: compute here, write "
            "in the commit hook, or let the kind run on a thread"
        )

    def context(self, job: Job, step: str) -> None:
        self.say({"context": step}, job)


def main(arguments: list[str]) -> None:
    requests, answers, parent, stacks = (int(argument) for argument in arguments[:4])
    _die_with(parent)
    _keep_to_itself(requests, answers, stacks)
    faulthandler.enable()  # the last words of a crash: where in Python it happened
    process_hooks.stacks = stacks
    faulthandler.register(messages.STACKS, file=stacks)  # answers in C, whatever the interpreter is busy with
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then decides about us
    for module in arguments[4:]:
        importlib.import_module(module)
    process_hooks.start()
    pipe = Pipe(answers)
    pipe.say({"ready": os.getpid(), "has_an_end": process_hooks.has_an_end()})
    while request := messages.read(requests):
        job = _job(request["job"], pipe)
        tracing.current.set(job.traceparent)
        pipe.say({"begun": True}, job)
        pipe.say(_answer(request, job, pipe) | {"kept": process_hooks.kept()}, job)
    process_hooks.stop(lambda name, error: print(f"{name}: {describe(error)}", file=sys.stderr))  # noqa: T201


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we could ask to die with it
        os._exit(1)


def _keep_to_itself(*pipes: int) -> None:
    """Nothing that a job starts gets our pipes, and what it leaves behind becomes our child: so the worker sees it."""
    for pipe in pipes:
        os.set_inheritable(pipe, False)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _answer(request: dict[str, Any], job: Job, pipe: Pipe) -> dict[str, Any]:
    try:
        function, context = imported(request["path"]), request["context"]
        payloads.fit(job, function)
        result = Within(imported(context), pipe.context).run(job, function) if context else function(job)
        return {"done": None if result is None else to_json(result, what="result")}
    except Snooze as error:
        return {"snooze": error.delay.total_seconds()}
    except BaseException as error:  # noqa: BLE001 - a bad job fails; the child goes on to the next one
        failure = Failure.of(error)
        permanent = isinstance(error, Permanent | InvalidJob)
        return {"failed": {**asdict(failure), "permanent": permanent}}


def _job(fields: dict[str, Any], pipe: Pipe) -> Job:
    fields["payload_json"] = fields["payload_json"].encode()
    fields["parents_json"] = fields["parents_json"].encode()
    fields["snap_id"] = UUID(fields["snap_id"]) if fields["snap_id"] else None
    return Job(**fields, channel=pipe)


if __name__ == "__main__":
    main(sys.argv[1:])

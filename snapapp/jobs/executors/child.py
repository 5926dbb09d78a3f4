"""The child process of a `process` slot: it imports the code once, runs one job at a time, and has no database.

Started as `python -m snapapp.jobs.executors.child REQUESTS ANSWERS PARENT STACKS MODULE...`: the pipes for requests and
answers, the parent's pid, a pipe for stack dumps, and the modules to import before the first job.
"""

import faulthandler
import gc
import importlib
import os
import signal
import sys
from dataclasses import asdict
from pkgutil import resolve_name
from threading import Lock
from typing import Any, NoReturn

from snapapp.jobs import payloads, process_hooks, tracing
from snapapp.jobs.context import Within
from snapapp.jobs.errors import InvalidJob, JobCancelled, NoConnection, Permanent, Snooze
from snapapp.jobs.executors import messages
from snapapp.jobs.model import Failure, Job, deciding, describe, to_json
from snapapp.jobs.os import exits, parentage
from snapapp.jobs.os.forks import end_if_forked


class Pipe:
    """The channel of a job in a child: sends progress and log lines to the parent, which passes them to the worker."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._lock = Lock()  # a processor may log from several threads; messages must not mix

    def say(self, message: dict[str, Any], job: Job | None = None) -> None:
        """Sends a message with the job's lease, so that the parent ignores threads left by an earlier job."""
        about = {"lease": list(job.lease)} if job else {}
        with self._lock:
            messages.write(self._answers, message | about)

    def progress(self, job: Job, value: str) -> None:
        self.say({"progress": value}, job)

    def log(self, job: Job, level: str, message: str) -> None:
        self.say({"log": [level, message]}, job)

    def check(self, job: Job) -> None:
        """Does nothing: the parent stops an attempt by killing the child."""

    def connection(self, job: Job) -> NoReturn:
        raise NoConnection(
            f"{job.kind} job {job.id} asks for a connection, and a child process has no database: compute here, write "
            "in the commit hook, or let the kind run on a thread"
        )

    def context(self, job: Job, step: str) -> None:
        self.say({"context": step}, job)


def main(arguments: list[str]) -> None:
    requests, answers, parent, stacks = (int(argument) for argument in arguments[:4])
    parentage.die_with(parent)
    _isolate(requests, answers, stacks)
    faulthandler.enable()  # at a crash, prints where in Python it happened
    process_hooks.stacks = stacks
    faulthandler.register(messages.STACKS, file=stacks)  # dumps the stacks from C, even while the interpreter is busy
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then stops its children
    for module in arguments[4:]:
        importlib.import_module(module)
    gc.freeze()  # the modules stay: to look through them for garbage would be in vain, and takes a job long
    process_hooks.start(_complain)
    pipe = Pipe(answers)
    pipe.say({"ready": os.getpid(), "has_an_end": process_hooks.has_an_end()})
    for request in messages.each(requests):
        job = messages.job_of(request["job"], pipe)
        tracing.current.set(job.traceparent)
        pipe.say({"begun": True}, job)
        pipe.say(_answer(request, job, pipe) | {"kept": process_hooks.kept()}, job)
    process_hooks.stop(_complain)
    exits.leave(0)


def _complain(hook: str, error: BaseException) -> None:
    print(f"{hook}: {describe(error)}", file=sys.stderr)  # noqa: T201


def _isolate(*pipes: int) -> None:
    """Keeps our pipes from programs that a job starts. As subreaper we inherit the processes that such a program leaves
    behind, so that the worker finds them among our descendants."""
    for pipe in pipes:
        os.set_inheritable(pipe, False)
    parentage.adopt()


def _answer(request: dict[str, Any], job: Job, pipe: Pipe) -> dict[str, Any]:
    process = os.getpid()
    try:
        function, context = resolve_name(request["path"]), request["context"]
        payloads.fit(job, function)
        result = Within(resolve_name(context), pipe.context).run(job, function) if context else function(job)
        end_if_forked(process)
        return {"done": None if result is None else to_json(result, what="result")}
    except BaseException as raised:  # noqa: BLE001 - the job fails, and the child takes the next one
        end_if_forked(process, raised)
        error = deciding(raised)
        if isinstance(error, Snooze):
            return {"snooze": error.delay.total_seconds()}
        failure, end = asdict(Failure.of(error)), {"permanent": isinstance(error, Permanent | InvalidJob)}
        return {"failed": failure | end | {"cancelled": isinstance(error, JobCancelled)}}


if __name__ == "__main__":
    main(sys.argv[1:])

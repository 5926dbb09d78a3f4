"""Jobs in warm child processes: for code that may hang, crash or hold the GIL. A kill ends it, whatever it does."""

import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from tenacity.wait import wait_base

from snapapp.jobs import attempt
from snapapp.jobs.errors import ChildDied, JobsError, JobTimeout
from snapapp.jobs.executors import Work, frames
from snapapp.jobs.executors.threads import ThreadRoom
from snapapp.jobs.model import Buried, Failure, Job, Outcome, Snoozed, Succeeded
from snapapp.jobs.registry import Processor

_STARTS_IN = 30.0  # seconds a child may take to import its modules
_STDERR_LINES = 20
_KEPT = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})


class Child:
    """One process, one job at a time. Used by its slot's thread only; `kill` may come from any."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules
        self._process: subprocess.Popen[bytes] | None = None
        self._requests = self._answers = -1
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)

    def warm_up(self) -> None:
        """Starts the process and waits until it has imported what it needs."""
        if self._process and self._process.poll() is None:
            return
        self.close()
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        argv = [sys.executable, "-m", "snapapp.jobs.executors.child", str(requests), str(answers), str(os.getpid())]
        self._stderr.clear()
        self._process = subprocess.Popen(
            [*argv, *self._modules],
            pass_fds=(requests, answers),
            stdin=subprocess.DEVNULL,
            env=_environment(),
            stdout=subprocess.PIPE,  # a job that prints must not write into our log as if it were us
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that a kill takes its own children too
        )
        os.close(requests)
        os.close(answers)
        if not self._wait_for("ready", monotonic() + _STARTS_IN):
            raise self._death()

    def run(self, job: Job, processor: Processor, wait: wait_base) -> Outcome:
        """One attempt. Whatever happens to the child happens to this attempt only."""
        if job.exhausted:
            return attempt.run(job, processor, wait)
        try:
            self.warm_up()
            frames.write(self._requests, {"path": processor.path, "job": _fields(job)})
            answer = self._wait_for("done", job.deadline or monotonic(), job)
            if answer is None:
                raise self._death()
        except (JobsError, OSError, frames.Oversized, ValueError) as error:
            self.kill()
            self.close()
            return attempt.judge(job, job.stop or error, processor.wait or wait)
        return _outcome(job, answer, processor.wait or wait)

    def kill(self) -> None:
        """The whole process group, at once."""
        process = self._process
        if process and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        if self._process:
            self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()
        for pipe in (self._requests, self._answers):
            if pipe >= 0:
                os.close(pipe)
        self._process, self._requests, self._answers = None, -1, -1

    def _wait_for(self, what: str, deadline: float, job: Job | None = None) -> dict[str, Any] | None:
        """Passes on what the child says until it has ended its job; None when it is gone."""
        assert self._process
        assert self._process.stdout
        printed = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            selector.register(printed, selectors.EVENT_READ)
            while True:
                remaining = deadline - monotonic()
                if remaining <= 0:
                    if job is None:
                        raise ChildDied(f"the child did not get ready in {_STARTS_IN:g} s")
                    raise JobTimeout(f"{job.kind} job {job.id} was killed at its time limit")
                ready = {key.fd for key, _ in selector.select(remaining)}
                if printed in ready and not self._keep(printed):
                    selector.unregister(printed)
                if self._answers in ready:
                    message = frames.read(self._answers)
                    if message is None or message.keys() & {what, "failed", "snooze"}:
                        return message
                    _pass_on(message, job)

    def _keep(self, printed: int) -> bool:
        """The last lines that the child printed: they often say why it died."""
        data = os.read(printed, 65536)
        self._stderr.extend(data.decode(errors="replace").splitlines())
        return bool(data)

    def _death(self) -> ChildDied:
        assert self._process
        code = self._process.wait()
        with suppress(OSError):
            if self._process.stdout:
                os.set_blocking(self._process.stdout.fileno(), False)
                self._keep(self._process.stdout.fileno())
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        last_words = "".join(f"\n{line[:300]}" for line in self._stderr)
        return ChildDied(f"the child process {how}{last_words}")


class ChildRoom(ThreadRoom):
    """A thread for each child: it hands the job over and waits, so a slot is all that a child costs here."""

    prefetches = False

    def __init__(self, children: list[Child], works: list[Work]) -> None:
        super().__init__(len(children), works, name="child")
        self._children = children
        self._running: list[Job | None] = [None] * len(children)  # each slot writes its own

    def _slot(self, number: int) -> None:
        with suppress(Exception):  # a child that cannot start says so to its first job
            self._children[number].warm_up()
        super()._slot(number)

    def running(self, slot: int, job: Job | None) -> None:
        self._running[slot] = job

    def interrupt(self, job: Job, reason: JobsError) -> None:
        job.stop = reason
        for child, running in zip(self._children, self._running, strict=True):
            if running is job:
                child.kill()

    def stop(self) -> None:
        for child in self._children:
            child.kill()
        super().stop()
        for child in self._children:
            child.close()


def _environment() -> dict[str, str]:
    """What a program needs to run, and none of our secrets: a child may be fed with hostile input."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
    return kept | {"PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}


def _fields(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "queue": job.queue,
        "tenant": job.tenant,
        "priority": job.priority,
        "payload_json": (job.payload_json or b"{}").decode(),
        "snap_id": str(job.snap_id) if job.snap_id else None,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "lease_seq": job.lease_seq,
        "timeout_ms": job.timeout_ms,
        "request_id": job.request_id,
        "suspect": job.suspect,
    }


def _pass_on(message: dict[str, Any], job: Job | None) -> None:
    if job is None or job.channel is None:
        return
    if "progress" in message:
        job.channel.progress(job, message["progress"])
    elif "log" in message:
        level, text = message["log"]
        job.channel.log(job, level, text)


def _outcome(job: Job, answer: dict[str, Any], wait: wait_base) -> Outcome:
    if "done" in answer:
        return Succeeded(answer["done"])
    if "snooze" in answer:
        return Snoozed(timedelta(seconds=max(0.0, answer["snooze"])))
    failure = Failure(answer["failed"]["error"], answer["failed"]["trace"])
    return Buried(failure) if answer["failed"]["permanent"] else attempt.failed(job, failure, wait)

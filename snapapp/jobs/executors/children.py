"""Jobs in child processes that have imported the code already: for code that may hang, crash or hold the GIL. A kill
always ends it."""

import json
import os
import selectors
import sys
from contextlib import ExitStack
from functools import partial
from subprocess import PIPE, STDOUT
from time import monotonic
from typing import Any, NamedTuple

from tenacity.wait import wait_base

from snapapp.jobs.context import STEPS, Tell, Within
from snapapp.jobs.errors import ChildDied, JobTimeout
from snapapp.jobs.executors import attempt, late_report, messages
from snapapp.jobs.executors.process_group import MB, Group, Watch, close_pipes, exceeded, foreign_signal
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.executors.runners import GroupRunner, starting
from snapapp.jobs.model import JSON_CAP, Buried, Failure, Job, Outcome, Stopped, Succeeded
from snapapp.jobs.os import environment, forks
from snapapp.jobs.registry import Processor
from snapapp.jobs.settings import JobsSettings

_STARTS_IN = 30.0  # seconds a child may take to import its modules
_ENDS_IN = 5.0  # seconds a child may take to end after it closed its pipes; on a loaded machine it took one
_DUMPS_IN = 0.5  # seconds a child may take to dump its stacks
_DESCENDANT_DUMPS_IN = 0.1  # seconds that a process started by the child may take for that
_QUIET = 0.03  # seconds of silence after which a dump is taken for complete
_LAST_WORDS = 8192  # bytes kept of what a child printed last, which often tells why it died
_LAST_LINES = 20
_STACKS_CAP = 65536  # bytes


class Order(NamedTuple):
    """Which function a child calls for a job, and with how much memory."""

    path: str  # of the processor's function
    context: str | None  # of the application's context hook around the call
    limit_mb: int  # 0: none


class Child(GroupRunner):
    """One process, one job at a time. Only its slot's thread uses it; any thread may call `interrupt` and `shut`."""

    def __init__(self, modules: tuple[str, ...], settings: JobsSettings, guard: Guard, within: Within) -> None:
        super().__init__(guard, settings)
        self._modules = modules
        self._within = within
        self._pipes: _Pipes | None = None
        self._jobs = 0  # jobs that this process has run
        self._has_an_end = False  # has the child hooks to run before it ends?

    def prepare(self) -> None:
        """Between two jobs: replaces a child that is gone or worn out, so that the next job finds a started one."""
        try:
            if self._group and self._is_worn_out(self._group):
                self.close()
            self.warm_up()
        except Exception:  # noqa: BLE001 - the next job tries to start a child again, and fails with the reason
            self.close()

    def warm_up(self, job: Job | None = None) -> "_Pipes":
        """Starts the process, if there is none, and waits until it has imported its modules."""
        if self._pipes and self._group and not self._group.has_ended:
            return self._pipes
        self.close()
        self._start()
        assert self._pipes
        assert self._group
        late = ChildDied(f"the child did not get ready in {_STARTS_IN:g} s")
        watch = Watch(self._group, job, monotonic() + _STARTS_IN, late)
        ready = self._pipes.listen(watch, {"ready"})
        if ready is None:
            raise self._death()
        self._has_an_end = ready.get("has_an_end") is True
        return self._pipes

    def close(self) -> None:
        """Ends the process; an idle child first runs its own hooks."""
        if self._pipes and self._group and self.ends_in and self._job is None:
            self._pipes.hang_up()
            self._group.linger(_ENDS_IN)
        self._end()

    @property
    def ends_in(self) -> float:
        return _ENDS_IN if self._has_an_end else 0.0

    def _end(self) -> int:
        """Kills the process and everything it has started. Returns its exit code."""
        code = self._end_group()
        if self._pipes:
            self._pipes.close()
        self._pipes, self._jobs, self._has_an_end = None, 0, False
        return code or 0

    def _start(self) -> None:
        with starting(), ExitStack() as ours, ExitStack() as theirs:
            requests, answers, stacks = (_pipe(ours, theirs, out=out) for out in (True, False, False))
            their_ends = (requests[1], answers[1], stacks[1])
            nothing = os.open(os.devnull, os.O_RDONLY)  # Python 3.11.2 leaks its own DEVNULL when Popen fails
            theirs.callback(os.close, nothing)
            argv = [sys.executable, "-m", "snapapp.jobs.executors.child", str(requests[1]), str(answers[1])]
            group = self._launch(
                [*argv, str(os.getpid()), str(stacks[1]), *self._modules],
                pass_fds=their_ends,
                stdin=nothing,
                # no secrets; but a hijacked child can still read the files of its user: docs/executors.md
                env=environment.plain() | dict(self._settings.child_environment),
                stdout=PIPE,  # what a job prints must not appear in the worker's log
                stderr=STDOUT,
            )
            ours.callback(close_pipes, group.process)
            group.go_first()
            self._pipes = _Pipes(group, self._within.tell, requests=requests[0], answers=answers[0], stacks=stacks[0])
            ours.pop_all()  # from here on the pipes close our ends

    def _attempt(self, job: Job, processor: Processor, wait: wait_base, limit_mb: int) -> Outcome:
        answer = self._answer(job, Order(processor.path, self._within.path, limit_mb))
        return outcome_of(job, answer, wait, limit_mb)

    def _answer(self, job: Job, order: Order) -> dict[str, Any]:
        """Runs the job in the child and returns its final message. If the child had died before it began the job, a
        new child gets the job, once."""
        for is_last in (False, True):
            pipes = self.warm_up(job)
            assert self._group
            self._group.allow_data(order.limit_mb)
            self._jobs += 1
            timeout = JobTimeout(f"{job.kind} was killed at its time limit")
            dump = partial(self._write_late_report, pipes, job)
            watch = Watch(self._group, job, job.deadline or monotonic(), timeout, order.limit_mb, on_soft_deadline=dump)
            self._group.begin()
            pipes.ask({"path": order.path, "context": order.context, "job": messages.fields(job)})
            try:
                answer = pipes.listen(watch, {"done", "failed", "snooze"}, job)
                if answer is not None:
                    self._group.kept = frozenset(int(pid) for pid in answer.get("kept", ()))
            finally:
                watch.account()  # after `kept` is known: what kept processes used counts here, not for the next attempt
            if answer is not None:
                return answer
            if is_last or pipes.has_begun or job.stop:
                raise self._death()
            self.close()
        raise AssertionError("unreachable")

    def _write_late_report(self, pipes: "_Pipes", job: Job) -> None:
        within = max(0.0, min(_DUMPS_IN, (job.deadline or 0.0) - monotonic()))
        dump = pipes.stacks(within)
        silent = f"the child does not say where it is within {within:.1f} s"
        late_report.put_down(job, "the child's stack", late_report.of_dump(dump) if dump else silent)

    def _is_worn_out(self, group: Group) -> bool:
        # processes that a job has started and not ended, except those that the code declared as kept
        has_left_something = bool({*group.family()} - {group.pid} - group.kept)
        is_big = group.memory() > self._settings.child_max_rss_mb * MB
        return has_left_something or is_big or self._jobs >= self._settings.child_max_jobs

    def _death(self) -> ChildDied:
        assert self._pipes
        assert self._group
        self._group.linger(_ENDS_IN)
        words, has_ended = self._pipes.last_words(), self._group.has_ended
        code = self._end()
        if not has_ended:
            how = f"let go of its pipes, did not end within {_ENDS_IN:g} s and was killed"
        else:
            how = f"was killed by {foreign_signal(code)}" if code < 0 else f"exited with code {code}"
        return ChildDied(f"the child process {how}{words}")


class _Pipes:
    """The pipes to one child: for requests, answers, stack dumps, what it prints, and the pidfd that tells its end."""

    def __init__(self, group: Group, tell: Tell, *, requests: int, answers: int, stacks: int) -> None:
        assert group.process.stdout
        self._group = group
        self._tell = tell
        self._requests, self._answers, self._printed = requests, answers, group.process.stdout.fileno()
        self._stacks = stacks
        self._inbox = messages.Inbox(answers)
        self._unsent = memoryview(b"")
        self._last_printed = b""
        self.has_begun = False
        self._selector = selectors.DefaultSelector()
        for pipe in (self._requests, self._answers, self._printed, self._stacks):
            os.set_blocking(pipe, False)
        for fd in (self._answers, self._printed, group.pidfd):
            if fd >= 0:
                self._selector.register(fd, selectors.EVENT_READ)

    def ask(self, request: dict[str, Any]) -> None:
        self._read_printed()  # what it printed since its last job is not about this one
        self._last_printed, self.has_begun = b"", False
        self._unsent = memoryview(messages.pack(request))
        self._send()
        if self._unsent:
            self._selector.register(self._requests, selectors.EVENT_WRITE)

    def listen(self, watch: Watch, ends: set[str], job: Job | None = None) -> dict[str, Any] | None:
        """Passes on the child's messages until one has a key in `ends`, and returns that; None: the child is gone."""
        while True:
            watch.check()
            ready = {key.fd for key, _ in self._selector.select(watch.pause())}
            if self._requests in ready:
                self._send()
                if not self._unsent:
                    self._selector.unregister(self._requests)
            if self._printed in ready and not self._read_printed():
                self._selector.unregister(self._printed)
            for message in self._inbox.take() if self._answers in ready else ():
                if job and message.get("lease") != list(job.lease):
                    continue  # a thread that an earlier job left running
                if message.keys() & ends:
                    return message
                if "begun" in message:
                    self.has_begun = True
                elif job:
                    hear(message, job, self._tell)
            if self._inbox.is_closed or (self._group.pidfd in ready and self._answers not in ready):
                return None

    def stacks(self, within: float) -> str:
        """The stacks of the child's threads, dumped by faulthandler, even while a thread in C holds the GIL. Then those
        of descendants that know the signal. One process is asked after the other, so that dumps do not mix."""
        self._read_stacks()  # drops a dump that came too late for an earlier job
        deadline = monotonic() + within
        dumps: list[bytes] = []
        for pid in self._group.family():
            self._group.nudge(messages.STACKS, pid)
            dumps.append(self._dump(deadline if not dumps else min(deadline, monotonic() + _DESCENDANT_DUMPS_IN)))
        return b"\n\n".join(filter(None, dumps)).decode(errors="replace")

    def _dump(self, deadline: float) -> bytes:
        dump = b""
        with selectors.PollSelector() as selector:
            selector.register(self._stacks, selectors.EVENT_READ)
            while (left := deadline - monotonic()) > 0 and len(dump) < _STACKS_CAP:
                if not selector.select(min(left, _QUIET) if dump else left) or not (part := self._read_stacks()):
                    break
                dump += part
        return dump

    def _read_stacks(self) -> bytes:
        try:
            return os.read(self._stacks, _STACKS_CAP)
        except BlockingIOError:
            return b""

    def last_words(self) -> str:
        for _ in range(4):  # reads what is still in the pipe
            self._read_printed()
        lines = self._last_printed.decode(errors="replace").splitlines()[-_LAST_LINES:]
        return "".join(f"\n{line[:300]}" for line in lines)

    def hang_up(self) -> None:
        """Closes the request pipe, which tells a waiting child that no job will come."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._requests, inheritable=False)  # the descriptor stays open for `close`
        os.close(nothing)

    def close(self) -> None:
        self._selector.close()
        forks.close_end(self._requests)
        for pipe in (self._answers, self._stacks):
            os.close(pipe)
        assert self._group.process.stdout
        self._group.process.stdout.close()

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._requests, self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unsent = memoryview(b"")  # the child is dead: `listen` will notice

    def _read_printed(self) -> bool:
        """Reads what the child printed, so that no pipe gets full, and keeps the end. False: the pipe was closed."""
        try:
            data = os.read(self._printed, 262_144)
        except BlockingIOError:
            return True
        self._last_printed = (self._last_printed + data)[-_LAST_WORDS:]
        return bool(data)


def hear(message: dict[str, Any], job: Job, tell: Tell) -> None:
    """Passes on a child's message about a running job. It is checked like any outside input, because a child that
    decodes hostile files may have been taken over."""
    if "progress" in message:
        job.update_progress(dict(json.loads(message["progress"])))
    elif "log" in message:
        level, text = message["log"]
        job.log(text, level=level)
    elif message.get("context") in STEPS:
        tell(job, message["context"])


def _pipe(ours: ExitStack, theirs: ExitStack, *, out: bool) -> tuple[int, int]:
    """A pipe as (our end, the child's end), each closed by its stack. `out`: we write and the child reads."""
    reading, writing = os.pipe()
    near, far = (writing, reading) if out else (reading, writing)
    if out:
        forks.keep_end(near)
    ours.callback(forks.close_end if out else os.close, near)
    theirs.callback(os.close, far)
    return near, far


def outcome_of(job: Job, answer: dict[str, Any], wait: wait_base, limit_mb: int) -> Outcome:
    """The outcome of a child's final message, which is checked like any outside input."""
    if "done" in answer:
        return Succeeded(_checked_result(answer["done"]))
    if "snooze" in answer:
        return attempt.snoozed(answer["snooze"])
    report = answer["failed"]
    failure = Failure.from_text(report["error"], report["trace"], lacked_memory=bool(report["lacked_memory"]))
    if failure.error.partition(":")[0] == "MemoryError" and limit_mb:
        error = f"MemoryExceeded: {exceeded(job, 'was refused more memory', limit_mb)}"
        failure = Failure.from_text(error, failure.trace, lacked_memory=True)
    if report.get("cancelled"):
        return Stopped(failure)
    return Buried(failure) if report["permanent"] else attempt.failed(job, failure, wait)


def _checked_result(result: object) -> str | None:
    if result is None:
        return None
    if not isinstance(result, str) or len(result) > JSON_CAP:
        raise ValueError("the child's result is not what a child sends")
    return result

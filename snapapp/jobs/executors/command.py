"""Jobs as programs in any language, one process for each attempt. The program reads the job as JSON from its standard
input and writes one JSON object to its standard output: `{"ok": true, "result": …}` or `{"ok": false, "error_class": …,
"message": …, "traceback": …}`. Its standard error becomes the job's log. It is started without a shell, without our
secrets in its environment, in a folder of its own.
"""

import json
import os
import selectors
import shutil
import subprocess
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import PIPE
from tempfile import gettempdir, mkdtemp
from time import monotonic
from typing import Any
from zlib import crc32

from tenacity.wait import wait_base

from snapapp.jobs.context import Within
from snapapp.jobs.errors import JobTimeout
from snapapp.jobs.executors import attempt, late_report
from snapapp.jobs.executors.errors import (
    CommandAnswerInvalid,
    CommandFailed,
    CommandKilled,
    CommandMissing,
    CommandNotAllowed,
)
from snapapp.jobs.executors.process_group import Group, Watch, close_pipes, foreign_signal
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.executors.runners import GroupRunner, starting
from snapapp.jobs.model import JSON_CAP, TEXT_CAP, Failure, Job, Outcome, Succeeded, to_json
from snapapp.jobs.os import environment, processes
from snapapp.jobs.registry import Processor
from snapapp.jobs.settings import JobsSettings

_OUTPUT_CAP = JSON_CAP + 4096  # the result and the envelope around it
_LAST_LINES = 20
_FIRST_LOOK = 0.005  # seconds until memory is first measured; of shorter programs only a peak above ours is known
_REMOVED_IN = 60.0  # seconds that removing a folder may take
_SHOWN = 200  # characters of an invalid answer that are quoted in the error
_KEPT = frozenset({"PATH", "LANG", "TZ"})  # variables that a program gets from us
_ANY_PATH = "/usr/local/bin:/usr/bin:/bin"


class Command(GroupRunner):
    """One slot for programs."""

    def __init__(self, settings: JobsSettings, guard: Guard, within: Within) -> None:
        super().__init__(guard, settings)
        self._within = within
        self._environment = {"PATH": _ANY_PATH} | environment.kept(_KEPT)
        self._folder: str | None = None  # for the running job, or ready for the next one
        self._identity_when_made: tuple[int, ...] = ()  # of the folder when it was new

    def prepare(self) -> None:
        """Removes the folder unless it is unchanged and empty. An empty one is kept for the next job, because making a
        new one takes 0.2 to 0.7 ms, half as long as a short program. It gives nothing away: a process that the last
        job left behind could read the next job's folder anyway."""
        if self._folder and not self._is_unchanged(self._folder):
            self._remove_folder()

    def close(self) -> None:
        super().close()
        self._remove_folder()

    def _is_unchanged(self, folder: str) -> bool:
        """Is it still the same folder, with the same permissions, not replaced by a link, and empty?"""
        try:
            # os.listdir is the fastest way, and every job waits for it
            return _identity(folder) == self._identity_when_made and not os.listdir(folder)  # noqa: PTH208
        except OSError:
            return False  # the program has removed or locked it

    def _remove_folder(self) -> None:
        """Forgets the folder first: a program may have made it unremovable, and the slot must go on."""
        folder, self._folder = self._folder, None
        if folder:
            _remove(folder)

    def _attempt(self, job: Job, processor: Processor, wait: wait_base, limit_mb: int) -> Outcome:
        argv = self._argv(job, processor)
        group = self._start(argv, job)
        try:
            group.allow_data(limit_mb)
            talk = _Pipes(group, job)
            late = JobTimeout(f"{job.kind} was killed at its time limit")
            report = partial(_write_late_report, talk, job)
            watch = Watch(
                group, job, job.deadline or monotonic(), late, limit_mb, first_look=_FIRST_LOOK, on_soft_deadline=report
            )
            try:
                talk.listen(watch)
            finally:
                if watch.peak:  # 0: it ended before the first look, and used_until_its_end tells all
                    watch.account()
        finally:
            code = self._end_group() or 0
            group.used_until_its_end(job)
            close_pipes(group.process)
        return _outcome(job, argv[0], code, talk, wait)

    def _argv(self, job: Job, processor: Processor) -> list[str]:
        """The command with the program's full path. A program that stands in the code is allowed while no allow list is
        set; a computed one, which may come from a payload, is allowed only if it is on the list."""
        argv = list(processor.command or self._within.run(job, processor.function))
        if not (argv and argv[0]) or not all(isinstance(part, str) and "\0" not in part for part in argv):
            raise CommandNotAllowed(f"{job.kind} job {job.id}: a command is a list of texts that begins with a program")
        program, allowed = argv[0], self._settings.command_allow
        path = self._find(program)
        is_listed = program in allowed or (path is not None and path in map(self._find, allowed))
        if not is_listed and (allowed or not processor.command):
            raise CommandNotAllowed(f"the program {program!r} is not on SNAPAPP_COMMAND_ALLOW")
        if path is None:
            raise CommandMissing(f"there is no program {program!r}")
        return [path, *argv[1:]]

    def _find(self, program: str) -> str | None:
        """Looks a name up in PATH. A path must be absolute: a relative one would depend on the folder."""
        if os.sep in program and not os.path.isabs(program):  # noqa: PTH117 - a text that may be no path at all
            return None
        return shutil.which(program, path=self._environment["PATH"])

    def _start(self, argv: list[str], job: Job) -> Group:
        folder = self._folder or self._new_folder()
        try:
            with starting():
                return self._start_in(folder, argv, job)
        except (FileNotFoundError, PermissionError) as error:
            if error.filename != folder:
                raise CommandMissing(f"the program {argv[0]!r} cannot be started: {error.strerror}") from error
        return self._start_in(self._new_folder(), argv, job)  # a cleaner of /tmp has deleted the kept folder

    def _start_in(self, folder: str, argv: list[str], job: Job) -> Group:
        variables = {"HOME": folder, "TMPDIR": folder}
        if job.traceparent:
            variables["TRACEPARENT"] = job.traceparent  # where OpenTelemetry's own programs look for it
        return self._launch(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=folder, env=self._environment | variables)

    def _new_folder(self) -> str:
        folder = self._folder = mkdtemp(prefix=f"{_folders()}{os.getpid()}-{processes.started(os.getpid())}-")
        self._identity_when_made = _identity(folder)
        return folder


def sweep() -> None:
    """Removes the folders that killed workers on this machine have left."""
    for folder in Path(gettempdir()).glob(f"{_folders()}*"):
        with suppress(ValueError, OSError):
            pid, started = map(int, folder.name.split("-")[3:5])
            if folder.lstat().st_uid == os.geteuid() and processes.is_gone(pid, started):
                _remove(str(folder))


def _folders() -> str:
    return f"snapapp-command-{crc32(processes.machine().encode()):08x}-"


def _identity(folder: str) -> tuple[int, ...]:
    status = os.lstat(folder)
    return status.st_dev, status.st_ino, status.st_mode, status.st_uid


def _remove(folder: str) -> None:
    """Removes a folder of any depth: shutil fails beyond a thousand levels, rm does not."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL, timeout=_REMOVED_IN, check=False)


class _Pipes:
    """The pipes to one program: what is sent to it and what it has written."""

    def __init__(self, group: Group, job: Job) -> None:
        process = group.process
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._group = group
        self._job = job
        self._input, self._output, self._error = process.stdin, process.stdout.fileno(), process.stderr.fileno()
        self._unsent = memoryview(command_input(job))
        self._answer = bytearray()
        self._answer_bytes = 0  # bytes it wrote to standard output; _answer keeps at most the cap
        self._line = b""  # the unfinished line of standard error
        self.lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._selector = selectors.PollSelector()  # the cheapest for a few pipes and a short life
        for pipe in (self._input.fileno(), self._output, self._error):
            os.set_blocking(pipe, False)
        self._open = {self._output, self._error}

    @property
    def answer(self) -> bytes:
        return bytes(self._answer)

    @property
    def is_truncated(self) -> bool:
        return self._answer_bytes > len(self._answer)

    def listen(self, watch: Watch) -> None:
        """Returns when the program has ended and everything that it wrote was read."""
        self._send()
        with self._selector as selector:
            for fd in (*self._open, self._group.pidfd):
                if fd >= 0:
                    selector.register(fd, selectors.EVENT_READ)
            if self._unsent:
                selector.register(self._input, selectors.EVENT_WRITE)
            while self._open or not self._group.has_ended:  # a program that closed its output may still run
                watch.check()
                ready = {key.fd for key, _ in selector.select(watch.pause())}
                if self._unsent and self._input.fileno() in ready:
                    self._send()
                    if not self._unsent:
                        selector.unregister(self._input)
                for pipe in self._open & ready:
                    if not self._read(pipe):
                        self._open.remove(pipe)
                        selector.unregister(pipe)
                if self._open and not self._open & ready and self._group.has_ended:
                    # Either a process that it left behind holds its pipes, or it has just ended: read the rest once.
                    for pipe in self._open:
                        self._read(pipe)
                    break
        self._end_line()

    def _send(self) -> None:
        """Writes more of the input. A program may close its input without reading all of it."""
        try:
            self._unsent = self._unsent[os.write(self._input.fileno(), self._unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._input.close()

    def _read(self, pipe: int) -> bool:
        try:
            data = os.read(pipe, 262_144)
        except BlockingIOError:
            return True
        if pipe == self._output:
            self._answer_bytes += len(data)
            self._answer += data[: _OUTPUT_CAP - len(self._answer)]
        else:
            *whole, self._line = (self._line + data).split(b"\n")
            for line in whole:
                self._log(line)
            if len(self._line) > TEXT_CAP:
                self._end_line()
        return bool(data)

    def _end_line(self) -> None:
        line, self._line = self._line, b""
        if line:
            self._log(line)

    def _log(self, line: bytes) -> None:
        text = line[: 4 * TEXT_CAP].decode(errors="replace").rstrip()
        if text:
            self._job.log(text)  # Job.log drops what exceeds its limit of lines
            self.lines.append(text[:300])


def _write_late_report(talk: _Pipes, job: Job) -> None:
    lines = "".join(f"\n{line}" for line in talk.lines)
    late_report.put_down(job, "the end of its standard error", lines.strip() or "it has written nothing")


def command_input(job: Job) -> bytes:
    """What the program reads from its standard input."""
    about = {
        "id": job.id,
        "kind": job.kind,
        "queue": job.queue,
        "tenant": job.tenant,
        "attempt": job.attempt,
        "maxAttempts": job.max_attempts,
        "leaseSeq": job.lease_seq,
        "requestId": job.request_id,
        "snapId": str(job.snap_id) if job.snap_id else None,
    }
    parents = b', "parents": %s' % job.parents_json if job.parents else b""
    return b'{"job": %s, "payload": %s%s}\n' % (json.dumps(about).encode(), job.payload_json or b"{}", parents)


def _outcome(job: Job, program: str, code: int, talk: _Pipes, wait: wait_base) -> Outcome:
    """Success needs exit code 0 and `ok`. Otherwise the error is, in this order: the signal that killed the program, a
    missing or invalid answer, the error in the answer, the exit code."""
    last_lines = "".join(f"\n{line}" for line in talk.lines)
    if code < 0:
        raise CommandKilled(f"{program} was killed by {foreign_signal(code)}{last_lines}")
    try:
        envelope = _envelope(program, talk)
    except CommandAnswerInvalid as error:
        if code == 0:
            raise CommandAnswerInvalid(f"{error}{last_lines}") from None
        raise CommandFailed(f"{program} exited with code {code}{last_lines}") from error
    if not envelope["ok"]:
        error_class, message = str(envelope.get("error_class") or "Error"), str(envelope.get("message") or "")
        failure = Failure.from_text(f"{error_class}: {message}", str(envelope.get("traceback") or ""))
        return attempt.failed(job, failure, wait)
    if code:
        raise CommandFailed(f"{program} exited with code {code}, although it said ok{last_lines}")
    result = envelope.get("result")
    return Succeeded(None if result is None else to_json(result, what="result"))


def _envelope(program: str, talk: _Pipes) -> dict[str, Any]:
    problem = f"{program} did not answer with the envelope"
    if talk.is_truncated:
        raise CommandAnswerInvalid(
            f"{problem}: it wrote more than {_OUTPUT_CAP} bytes: {_quoted(talk.answer)}… (truncated)"
        )
    if not talk.answer.strip():
        raise CommandAnswerInvalid(f"{problem}: it wrote nothing to its standard output")
    try:
        envelope = json.loads(talk.answer)
    except (ValueError, RecursionError) as error:
        raise CommandAnswerInvalid(f"{problem}: {error}: {_quoted(talk.answer)}") from error
    if not isinstance(envelope, dict) or not isinstance(envelope.get("ok"), bool):
        raise CommandAnswerInvalid(f'{problem}: no "ok" that is true or false: {_quoted(talk.answer)}')
    return envelope


def _quoted(answer: bytes) -> str:
    return repr(answer[:_SHOWN].decode(errors="replace"))

"""The processes of the bench. Each gets ready, waits for a line to begin, and reports. So start-up is not measured, and
the processes do not share a GIL."""

import json
import os
import select
import subprocess
import sys
import tempfile
from typing import Any, Self

_ANSWERS_WITHIN = 1200.0


class BenchProcessFailed(RuntimeError):
    """A process of the bench ended, or stopped answering, before it had reported."""


class BenchProcess:
    """A process that runs one of `bench.roles`, or a peer's module by its full name. The bench sends it lines of JSON
    on stdin, and reads its answers from stdout."""

    def __init__(self, role: str, **options: Any) -> None:
        self._role = role
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-m", role if "." in role else f"snapapp.bench.roles.{role}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C reaches only the bench, which ends this process before the databases
        )
        self.send(**options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe:
                pipe.close()

    def send(self, **facts: Any) -> None:
        """Sends a line; an empty one tells the process to go on."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(facts).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("is gone") from None

    def receive(self, within: float = _ANSWERS_WITHIN) -> dict[str, Any]:
        """The next line that the process writes."""
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], within)
        if not ready:
            raise self._failure(f"said nothing for {within:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._failure("ended without a report")
        facts: dict[str, Any] = json.loads(line)
        return facts

    def _failure(self, how: str) -> BenchProcessFailed:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        last_words = self._errors.read().decode(errors="replace").strip()[-2000:]
        return BenchProcessFailed(f"the process {self._role} {how}" + (f":\n{last_words}" if last_words else ""))

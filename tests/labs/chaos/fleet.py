"""The worker processes: started, killed, stopped for a while, and started again as systemd would."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerContext, ForkServerProcess

from tests.labs.chaos import worker
from tests.labs.chaos.worker import Spec

Note = Callable[..., None]


class Fleet:
    """Used by one thread. A clean server process forks the workers, so that a new one costs no imports."""

    def __init__(self, specs: list[Spec], note: Note, on_spawn: Callable[[int], None]) -> None:
        self._specs = specs
        self._note = note
        self._on_spawn = on_spawn
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.labs.chaos.worker"])
        self._processes: list[ForkServerProcess] = []
        self.stopped: set[int] = set()  # pids under SIGSTOP
        self.started = 0

    def start(self) -> None:
        self._processes = [self._spawn(spec) for spec in self._specs]

    def respawn(self) -> int:
        """Brings back who is dead; returns how many."""
        dead = [place for place, process in enumerate(self._processes) if not process.is_alive()]
        for place in dead:
            gone = self._processes[place]
            self._note("exit", of=gone.pid, code=gone.exitcode)
            gone.close()
            self._processes[place] = self._spawn(self._specs[place])
        return len(dead)

    def pids(self) -> list[int]:
        """Of those that run, and are not under SIGSTOP."""
        return [process.pid for process in self._processes if process.pid not in self.stopped and process.is_alive()]  # type: ignore[misc]

    def kill(self, pid: int) -> None:
        self._note("kill", of=pid)
        self._signal(pid, signal.SIGKILL)
        self.stopped.discard(pid)

    def pause(self, pid: int) -> None:
        self._note("pause", of=pid)
        self.stopped.add(pid)
        self._signal(pid, signal.SIGSTOP)

    def resume(self, pid: int) -> None:
        self._note("resume", of=pid)
        self._signal(pid, signal.SIGCONT)
        self.stopped.discard(pid)

    def deploy(self, pid: int) -> None:
        """As a deploy ends a worker: it hands back what it cannot finish."""
        self._note("deploy", of=pid)
        self._signal(pid, signal.SIGTERM)

    def stop(self, grace: float = 10.0) -> None:
        """SIGTERM for all, and SIGKILL for those that do not listen."""
        for pid in list(self.stopped):
            self.resume(pid)
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + grace
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                self._note("does not stop", of=process.pid)
                process.kill()
                process.join()
            process.close()
        self._processes = []

    def end(self) -> None:
        """At once, whatever state they are in."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        self._processes = []

    def _spawn(self, spec: Spec) -> ForkServerProcess:
        process: ForkServerProcess = self._context.Process(target=worker.run, args=(spec,))
        process.start()
        self._on_spawn(process.pid or 0)
        self.started += 1
        self._note("spawn", of=process.pid, elsewhere=spec.elsewhere)
        return process

    def _signal(self, pid: int, what: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, what)

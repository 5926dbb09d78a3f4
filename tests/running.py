"""The product as a process of its own: the command, the server under it, and what they leave behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests import ROOT
from tests.jobs.working import until
from tests.warm import Forked

WITHIN = 60.0
STARTED_WITHIN = 90.0  # two seconds where nothing else runs


class Running:
    """The command in a process of its own."""

    module: tuple[str, ...] = ("snapapp",)
    within: tuple[str, ...] = ()  # what runs it: a command that takes another one
    inherits: tuple[int, ...] = ()  # descriptors
    is_warm = True  # begun by fork, where nothing runs it and it inherits nothing

    def __init__(self, folder: Path, *arguments: str, **settings: str) -> None:
        self.mark = uuid.uuid4().hex  # all its descendants carry it
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SNAPAPP_")}
        self._said = folder / f"said-{self.mark}"
        environment = clean | settings | {"DESCENDS_FROM": self.mark}
        command = [*self.module, *arguments]
        self.process: subprocess.Popen[bytes] | Forked
        with self._said.open("wb") as said:
            if self.is_warm and not self.within and not self.inherits:
                self.process = Forked(command, folder=ROOT, environment=environment, said=said.fileno())
                return
            self.process = subprocess.Popen(
                [*self.within, sys.executable, "-m", *command],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                pass_fds=self.inherits,
            )

    def said(self) -> str:
        return self._said.read_text()

    def hear(self, words: str) -> None:
        until(lambda: words in self.said() or self._ended(words), within=WITHIN)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(timeout=WITHIN)

    def family(self) -> list[int]:
        """This process and every one that descends from it and lives, detached ones included."""
        marked = f"DESCENDS_FROM={self.mark}".encode()
        found = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _holds(entry, marked)}
        if self.process.poll() is None:  # a fork has the mark, but not where others look for it
            found.add(self.process.pid)
        return sorted(found)

    def _ended(self, words: str) -> bool:
        assert self.process.poll() is None, f"ended without {words!r}: {self.said()}"
        return False


class Cold(Running):
    """By a Python of its own, as people begin it."""

    is_warm = False


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


class Served(Running):
    """`snapapp serve`, whose URL is found in what it says."""

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(folder, *self.command, **{"SNAPAPP_PORT": "0", "SNAPAPP_DATA_DIR": str(folder)} | settings)

    command: tuple[str, ...] = ("serve",)
    announced = r"Serving http://localhost:(\d+)/"

    @property
    def port(self) -> int:
        until(lambda: re.search(self.announced, self.said()) or self._ended("its URL"), within=STARTED_WITHIN)
        found = re.search(self.announced, self.said())
        assert found
        return int(found[1])

    def until_up(self) -> Self:
        port = self.port
        until(lambda: _answers(port) or self._ended("an answer"), within=STARTED_WITHIN)
        return self

    @contextmanager
    def up(self) -> Iterator[Self]:
        """It is told to leave in the end."""
        try:
            yield self.until_up()
        finally:
            self.signal(signal.SIGTERM)
            self.end()

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WITHIN)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"} | headers)
            answer = connection.getresponse()
            said = answer.read()
            is_json = "json" in (answer.getheader("content-type") or "")
            return Answer(answer.status, json.loads(said) if is_json else said, dict(answer.getheaders()))
        finally:
            connection.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_open(port: int) -> bool:
    """Does somebody listen there?"""
    with socket.socket() as knock:
        knock.settimeout(1)
        return knock.connect_ex(("127.0.0.1", port)) == 0


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/actuator/liveness")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _holds(process: Path, marked: bytes) -> bool:
    try:
        return marked in (process / "environ").read_bytes()
    except OSError:
        return False

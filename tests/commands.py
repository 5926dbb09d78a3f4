"""Commands as people type them: in this process (`call`), or in one of their own (`run`, and `quick`)."""

import io
import json
import logging
import os
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from snapapp import __main__
from snapapp.__main__ import main
from snapapp.cli.arguments import parser_for
from snapapp.jobs.rows.roster import Member
from tests.factory import Db, row
from tests.jobs.working import until
from tests.running import Cold, Running

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
WITHIN = 30.0


class Answer(NamedTuple):
    code: int | str | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert (self.code, self.err) == (0, ""), self
        return json.loads(self.out)


Call = Callable[..., Answer]


def made_parser(typed: Sequence[str]) -> ArgumentParser:
    """It depends on the first word only, and takes longer to make than many a command takes to run."""
    return _parser_of(*typed[:1])


@cache
def _parser_of(*first: str) -> ArgumentParser:
    return parser_for([*first])


@pytest.fixture
def bare_call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Call]:
    """The command in this process, in an empty folder, with nothing set."""
    for name in [name for name in os.environ if name.startswith("SNAPAPP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(__main__, "parser_for", made_parser)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def call(*arguments: object) -> Answer:
        capsys.readouterr()
        try:
            code: int | str | None = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        return Answer(code, *capsys.readouterr())

    yield call
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def call(bare_call: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The same on the test's own database."""
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", url)
    return bare_call


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    yield from _begun(tmp_path, Cold)


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Begun by fork, without its imports."""
    yield from _begun(tmp_path, Running)


def _begun(folder: Path, kind: type[Running]) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*arguments: str, **settings: str) -> Running:
        started.append(kind(folder, *arguments, **settings))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait()


def until_status(db: Db, job_id: int, status: str) -> None:
    until(lambda: row(db, job_id).status == status)


def enqueued(answer: Answer) -> int:
    assert answer.code == 0, answer
    return int(answer.out.split()[1])


MEMBER = Member(
    id="a" * 32,
    name="box-1",
    host="box",
    machine="boot",
    pid=1,
    pid_started=1,
    queues=["demo"],
    kinds=["demo.hello"],
    slots=4,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

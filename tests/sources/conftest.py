from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest

from snapapp.sources import Limits, RemoteFile, open_remote
from tests.sources.server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as running:
        yield running


class Open(Protocol):
    def __call__(self, path: str, **limits: object) -> RemoteFile: ...


@pytest.fixture
def limits(server: Server, tmp_path: Path) -> Limits:
    """Quick ones, without a shared cache."""
    return Limits(
        allowed_hosts=frozenset({f"127.0.0.1:{server.port}"}),
        timeout=timedelta(seconds=10),
        stall=timedelta(seconds=5),
        folder=tmp_path / "sources",
    )


@pytest.fixture
def opened(server: Server, limits: Limits) -> Iterator[Open]:
    """Opens a path of the server; what a test leaves open is closed."""
    files: list[RemoteFile] = []

    def open_path(path: str, **changes: object) -> RemoteFile:
        files.append(open_remote(server.url(path), replace(limits, **changes)))  # type: ignore[arg-type]
        return files[-1]

    yield open_path
    for file in files:
        file.close()

"""DNS is not ours, so it may be played: names that answer as a test wants them to."""

import socket
from typing import Any

import pytest


class Resolver:
    """Each lookup takes the next answer; the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.lookups = 0
        self._answers = answers
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, _host: str, port: int, **_: object) -> list[Any]:
        answer = self._answers[min(self.lookups, len(self._answers) - 1)]
        self.lookups += 1
        return [(0, socket.SOCK_STREAM, 6, "", (address, port)) for address in answer]

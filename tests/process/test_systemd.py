"""What systemd is told, by a process that was started as it would start it."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapapp.process.systemd import Notices
from tests.running import WITHIN, Served


class Systemd:
    """Hears what services say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.bind(str(path))
        self._line.settimeout(WITHIN)

    def hears(self) -> str:
        return self._line.recv(100).decode()

    def close(self) -> None:
        self._line.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    systemd = Systemd(tmp_path / "notify")
    yield systemd
    systemd.close()


def test_systemd_is_told_of_the_start_that_the_loop_turns_and_of_the_end(
    systemd: Systemd, url: str, tmp_path: Path
) -> None:
    asked = {"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "300000"}
    process = Served(tmp_path, SNAPAPP_DATABASE_URL=url, SNAPAPP_WORKER_ENABLED="false", **asked)
    try:
        assert [systemd.hears() for _ in range(4)] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]
        assert process.ask("/actuator/liveness").status == 200
        process.signal(signal.SIGTERM)
        while (said := systemd.hears()) == "WATCHDOG=1":
            pass
        assert said == "STOPPING=1"
    finally:
        process.process.kill()
        process.end()


def test_elsewhere_nothing_is_told_and_a_systemd_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    for environ in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}, {"NOTIFY_SOCKET": "@gone"}):
        with Notices(environ) as notices:
            notices.ready()
            notices.stopping()

"""What systemd is told, by a process that was started as it would start it."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapapp.process.systemd import Notices
from tests.running import WITHIN
from tests.systemd import Systemd


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    systemd = Systemd(tmp_path / "notify")
    yield systemd
    systemd.close()


def test_systemd_is_told_of_the_start_that_the_loop_turns_and_of_the_end(
    systemd: Systemd, url: str, tmp_path: Path
) -> None:
    process = systemd.start(tmp_path, SNAPAPP_DATABASE_URL=url, SNAPAPP_WORKER_ENABLED="false", WATCHDOG_USEC="300000")
    try:
        assert systemd.hears() == "FDSTORE=1\nFDNAME=http"
        assert [systemd.hears() for _ in range(4)] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]
        assert process.ask("/actuator/liveness").status == 200
        process.signal(signal.SIGTERM)
        systemd.hears_of("STOPPING=1")
    finally:
        process.process.kill()
        process.end()


def test_who_comes_between_the_end_and_the_next_start_waits_and_is_answered(
    systemd: Systemd, url: str, tmp_path: Path
) -> None:
    settings = {"SNAPAPP_DATABASE_URL": url, "SNAPAPP_WORKER_ENABLED": "false"}
    first = systemd.start(tmp_path, **settings)
    systemd.hears_of("READY=1")
    port = first.port
    first.signal(signal.SIGTERM)
    first.end()
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN) as early:  # nobody is there
        early.sendall(b"GET /actuator/liveness HTTP/1.0\r\n\r\n")
        second = systemd.start(tmp_path, **settings, SNAPAPP_PORT=str(port))
        try:
            assert early.recv(100).startswith(b"HTTP/1.1 200 ")
            assert second.port == port
        finally:
            second.process.kill()
            second.end()
    third = systemd.start(tmp_path, **settings)  # it is to listen on any other port now
    try:
        systemd.hears_of("FDSTOREREMOVE=1\nFDNAME=http")
        assert third.port != port
    finally:
        third.process.kill()
        third.end()


def test_elsewhere_nothing_is_told_and_a_systemd_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    for environ in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}, {"NOTIFY_SOCKET": "@gone"}):
        with Notices(environ) as notices:
            notices.ready()
            notices.stopping()

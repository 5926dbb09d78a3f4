"""What systemd is told, by a process that was started as it would start it."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapapp.app import create_app
from snapapp.process.health import Health
from snapapp.process.systemd import Notices
from snapapp.settings import loading
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
        with Notices(lambda: None, environ) as notices:
            notices.ready()
            notices.stopping()


def test_the_watchdog_is_let_start_a_process_anew_that_cannot_help_itself(
    systemd: Systemd, caplog: pytest.LogCaptureFixture
) -> None:
    """systemd asks nobody for liveness: `serve` did no job more until a person started it anew."""
    whys = [None, None, "2 threads hang", "2 threads hang", None]

    async def beat() -> None:
        is_over = asyncio.Event()

        def worth_a_restart() -> str | None:
            if not whys:
                is_over.set()
                return "no more"
            return whys.pop(0)

        environ = {"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "3000"}
        with Notices(worth_a_restart, environ) as notices:
            notices.ready()
            await asyncio.wait_for(is_over.wait(), WITHIN)
            notices.stopping()

    asyncio.run(beat())
    assert [systemd.hears() for _ in range(5)] == ["READY=1", *["WATCHDOG=1"] * 3, "STOPPING=1"]
    [said] = [record.message for record in caplog.records if "starts this process anew" in record.message]
    assert said == "systemd's watchdog starts this process anew within 0.003 s: 2 threads hang."


def test_serve_says_nothing_more_to_the_watchdog_when_liveness_is_down(
    systemd: Systemd, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Health, "is_worth_a_restart", lambda _: "the worker's claiming thread has ended")
    monkeypatch.setenv("NOTIFY_SOCKET", str(systemd.path))
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    settings = loading.load(
        {"SNAPAPP_DATABASE_URL": url, "SNAPAPP_WORKER_ENABLED": "false"} | {"SNAPAPP_DATA_DIR": str(tmp_path)}
    )
    app = create_app(settings)

    async def serve() -> None:
        async with app.router.lifespan_context(app):
            pass

    asyncio.run(serve())
    assert [systemd.hears(), systemd.hears()] == ["READY=1", "STOPPING=1"]

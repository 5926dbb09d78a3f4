"""The command serve: the API and the worker in one process, until a signal."""

import asyncio
import errno
import gc
import logging
import select
import shutil
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import FrameType

import uvicorn
from fastapi import FastAPI

from snapapp import logs
from snapapp.api.http.requests.connections import Connection, most_open
from snapapp.app import create_app
from snapapp.errors import SnapError
from snapapp.jobs.os.signals import Signals
from snapapp.process.monolith import Monolith
from snapapp.process.systemd import SocketStore
from snapapp.settings.table import Settings

_log = logging.getLogger(__name__)

_PORTS_TRIED = 20
_UNREAD_FOR_MS = 10_000
_LAST_REQUESTS_WITHIN = 0.5  # seconds
_WAITING_WITHIN = 2.0  # seconds; where new connections come without end, some are refused


def run(_arguments: Namespace, settings: Settings) -> int:
    """Serves until a signal; returns the exit code."""
    logs.begin(settings)
    monolith, store = Monolith(settings), SocketStore()
    with Signals() as signals, store.take(_place(settings)) or bound_socket(settings) as listening:
        store.keep(listening)
        try:
            with signals.interrupting():
                monolith.start()
            if not signals.noted:  # Python may drop the KeyboardInterrupt, if a destructor is running
                app = create_app(settings, monolith, noted=signals.noted)
                gc.freeze()  # a full collection that looks through it would stop all threads for a sixth of a second
                server = Server(app, signals.noted, on_ready=lambda: _greet(settings, monolith, _url(listening)))
                server.run(sockets=[listening])
        except KeyboardInterrupt:
            pass
        finally:
            monolith.stop(signals.noted[0].name if signals.noted else "stopped")
    return 0 if monolith.hurried_by is None else 128 + monolith.hurried_by


class Server(uvicorn.Server):
    """uvicorn's server. Until the application has its own signal handlers, the first signal is noted for the
    application, which knows what else has to stop and then passes the signal on to this server."""

    def __init__(self, app: FastAPI, noted: list[signal.Signals], on_ready: Callable[[], None] = lambda: None) -> None:
        config = uvicorn.Config(
            app,
            http=Connection,
            log_config=None,
            access_log=False,  # writing a log line would cost more than most requests do
            server_header=False,
            limit_concurrency=most_open(),
            timeout_keep_alive=75,  # longer than proxies keep one: a request on a closed connection is lost
        )
        super().__init__(config)
        self._noted = noted
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:  # from here on connections are accepted
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        is_first_handler = signal.getsignal(sig) == self.handle_exit  # the application has no handler yet
        if is_first_handler and not (self.should_exit or self._noted):
            self._noted.append(signal.Signals(sig))
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts no new connections, but serves open ones for half a second more: a proxy that sends a request on a
        connection which was just closed gets no answer, and may not send the request again. Each answer says that it is
        the last on its connection."""
        await _accept_who_waits(sockets or [])
        for server in self.servers:
            server.close()
        if self.server_state.connections:
            await asyncio.sleep(_LAST_REQUESTS_WITHIN)
        for connection in self.server_state.connections:
            _give_up_when_unread(connection.transport.get_extra_info("socket"))
        await super().shutdown(sockets)


async def _accept_who_waits(listening: list[socket.socket]) -> None:
    """Clients whose connections the kernel has made already: the end of the socket would reset them. The event loop
    accepts one in each of its rounds, which is slow where it has much to do."""
    until = monotonic() + _WAITING_WITHIN
    while select.select(listening, [], [], 0)[0] and monotonic() < until:
        await asyncio.sleep(0.01)


def _give_up_when_unread(connection: socket.socket | None) -> None:
    """Limits how long a client that has stopped reading can delay the shutdown. Set only at the shutdown, because a
    paused player looks the same."""
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        with suppress(OSError):  # the connection was closed at this moment
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_FOR_MS)


def bound_socket(settings: Settings) -> socket.socket:
    """The listening socket. It is bound before anything is started, so that a port in use is reported at once. Where
    SNAPAPP_PORT is not set, the next free port is taken."""
    family = _family(settings)
    is_chosen = "SNAPAPP_PORT" in settings.given
    ports = [settings.port] if is_chosen else range(settings.port, settings.port + _PORTS_TRIED)
    for port in ports:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((settings.host, port))
            if port != ports[0]:
                _log.warning("Port %d is taken, so %d.", ports[0], port)
            return listening
        except OSError as error:
            listening.close()
            if error.errno != errno.EADDRINUSE:
                raise SnapError(f"Cannot listen on {settings.host} port {port}: {error.strerror or error}") from error
    tried = f"port {settings.port}" if is_chosen else f"ports {ports[0]} to {ports[-1]}"
    raise SnapError(f"Cannot listen on {settings.host}: {tried} in use. Set SNAPAPP_PORT to a free one, or to 0.")


def _family(settings: Settings) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in settings.host else socket.AF_INET


def _place(settings: Settings) -> tuple[str, int]:
    """The address to listen on, as a socket would report it. A host that cannot be resolved is reported later, when
    `bound_socket` binds."""
    with suppress(OSError):
        resolved = socket.getaddrinfo(settings.host, settings.port, _family(settings), socket.SOCK_STREAM)
        host, port = resolved[0][4][:2]
        return str(host), int(port)
    return settings.host, settings.port


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "localhost", "::": "localhost", "127.0.0.1": "localhost"}.get(host, host)  # noqa: S104
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


def _greet(settings: Settings, monolith: Monolith, url: str) -> None:
    _log.info("Serving %s", url)
    if sys.stdout.isatty():
        place = "at SNAPAPP_DATABASE_URL" if settings.database_url else f"embedded, in {settings.data_dir}"
        works = "on" if settings.worker_enabled else "off"
        if monolith.waits_for:
            works = f"waits: {monolith.waits_for}"
        sys.stdout.write(_BANNER.format(url=url, place=place, works=works, snapapp=_as_typed()))
        sys.stdout.flush()


_BANNER = """
  Open        {url}
  PostgreSQL  {place}
  Worker      {works}

  Try it in another terminal; Ctrl-C here stops everything.

    {snapapp} jobs enqueue demo.hello '{{"name": "Ana"}}'
    {snapapp} jobs list
    {snapapp} psql        then: SELECT * FROM queue_overview \\watch 1

"""


def _as_typed() -> str:
    """The command as the user typed it, so that the suggested commands can be pasted."""
    called = sys.argv[0]
    if called.endswith("__main__.py"):
        return f"{Path(sys.executable).name} -m snapapp"
    return "snapapp" if shutil.which("snapapp") == called else called

"""The commands that keep the house: serve and worker, which run until a signal; migrate; and bench."""

import dataclasses
import errno
import logging
import shutil
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import uvicorn
from fastapi import FastAPI

from snapapp import db, logs, postgres, processing, webfirst
from snapapp import migrate as schema
from snapapp.app import create_app
from snapapp.commands import one_line, set_up_log
from snapapp.errors import SnapError
from snapapp.jobs import bench as measured
from snapapp.jobs import foreground
from snapapp.jobs.runtime import Runtime
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.signals import Signals
from snapapp.monolith import Monolith, require_schema
from snapapp.settings import LogLevel, Settings

_log = logging.getLogger(__name__)

_FURTHER = {"web": webfirst.measure}
_PORTS_TRIED = 20
_RESTART = 75  # sysexits' "try again": whoever keeps services running starts us anew
_UNREAD_FOR_MS = 10_000
_PATIENCE = timedelta(seconds=5)  # of a command that somebody waits for, with a database that does not answer


def run(arguments: Namespace, settings: Settings) -> int:
    """The command that was typed; its exit code."""
    set_up_log(settings, at_least=LogLevel.DEBUG if arguments.command in ("serve", "worker") else LogLevel.WARNING)
    return _COMMANDS[arguments.command](arguments, settings)


def serve(_arguments: Namespace, settings: Settings) -> int:
    """The API and the worker in one process, until a signal."""
    house = Monolith(settings)
    with Signals() as signals, _bound_socket(settings) as listening:
        try:
            with signals.interrupting():
                house.start()
            if not signals.noted:  # Python drops an exception that a signal raises in a destructor
                _greet(settings, house, _url(listening))
                Server(create_app(settings, house, noted=signals.noted), signals.noted).run(sockets=[listening])
        except KeyboardInterrupt:
            pass
        finally:
            house.stop(signals.noted[0].name if signals.noted else "stopped")
    return 0 if house.hurried_by is None else 128 + house.hurried_by


class Server(uvicorn.Server):
    """Until the application listens, the first signal is noted for it: it knows what else has to end, and passes the
    signal on to us."""

    def __init__(self, app: FastAPI, noted: list[signal.Signals]) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,  # a line for every request would cost more than most of them
            server_header=False,
            limit_concurrency=1000,
            timeout_keep_alive=75,  # longer than a reverse proxy keeps its side, or it meets a closed door
        )
        super().__init__(config)
        self._noted = noted

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        is_ours_to_hear = signal.getsignal(sig) == self.handle_exit  # the application has not taken over yet
        if is_ours_to_hear and not (self.should_exit or self._noted):
            self._noted.append(signal.Signals(sig))
        else:
            super().handle_exit(sig, frame)


def _bound_socket(settings: Settings) -> socket.socket:
    """Before anything is started, so that a port that is taken is said at once. A port nobody chose may be the next."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    is_chosen = "SNAPAPP_PORT" in settings.given
    ports = [settings.port] if is_chosen else range(settings.port, settings.port + _PORTS_TRIED)
    for port in ports:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # a client that stopped reading must not outlast a stop
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_FOR_MS)
        try:
            listening.bind((settings.host, port))
            return listening
        except OSError as error:
            listening.close()
            if error.errno != errno.EADDRINUSE:
                raise SnapError(f"Cannot listen on {settings.host} port {port}: {error.strerror or error}") from error
    tried = f"port {settings.port}" if is_chosen else f"ports {ports[0]} to {ports[-1]}"
    raise SnapError(f"Cannot listen on {settings.host}: {tried} in use. Set SNAPAPP_PORT to a free one, or to 0.")


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "localhost", "::": "localhost", "127.0.0.1": "localhost"}.get(host, host)  # noqa: S104
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


def worker(arguments: Namespace, settings: Settings) -> int:
    """A process of its own that works the queue."""
    settings = _overridden(settings, arguments)
    processing.load(settings)
    within = _PATIENCE if arguments.once or arguments.drain else None
    with Signals() as signals, ExitStack() as stack:
        try:
            with signals.interrupting():
                url = stack.enter_context(db.in_use(settings))
                foreground.until_reachable(url, within=within, say=_say_unreachable)
                require_schema(url)
        except KeyboardInterrupt:
            return 0
        runtime = stack.enter_context(_runtime(settings.jobs(url), settings))
        if arguments.once:
            foreground.work_once(foreground.visitor(runtime, once=True), signals)
        elif arguments.drain:
            foreground.drain(foreground.visitor(runtime), runtime, signals)
        else:
            why = foreground.work(runtime.worker(), signals)
            if why:
                _log.error("This worker ends to be started anew: %s.", why)
                return _RESTART
        return _code(signals)


def _overridden(settings: Settings, arguments: Namespace) -> Settings:
    typed = {
        "worker_queues": arguments.queues,
        "worker_concurrency": arguments.concurrency,
        "worker_id": arguments.name,
    }
    return dataclasses.replace(settings, **{name: value for name, value in typed.items() if value is not None})


@contextmanager
def _runtime(jobs: JobsSettings, settings: Settings) -> Iterator[Runtime]:
    runtime = Runtime(jobs, events=logs.events_to_log(settings))
    try:
        yield runtime
    finally:
        runtime.close()


def _say_unreachable(why: str) -> None:
    _log.warning("The database cannot be reached, trying again until it can: %s", one_line(why))


def _code(signals: Signals) -> int:
    """0 for a graceful stop; a second signal cut it short, and the shell's convention tells which."""
    return 0 if len(signals.noted) < 2 else 128 + signals.noted[1]


def _greet(settings: Settings, house: Monolith, url: str) -> None:
    _log.info("Serving %s", url)
    if sys.stdout.isatty():
        place = "at SNAPAPP_DATABASE_URL" if settings.database_url else f"embedded, in {settings.data_dir}"
        works = "on" if settings.worker_enabled else "off"
        if house.waits_for:
            works = f"waits: {house.waits_for}"
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
    """How this command was called, so that what we suggest can be pasted."""
    called = sys.argv[0]
    if called.endswith("__main__.py"):
        return f"{Path(sys.executable).name} -m snapapp"
    return "snapapp" if shutil.which("snapapp") == called else called


def migrate(arguments: Namespace, settings: Settings) -> int:
    with db.in_use(settings) as url:
        if schema.is_current(url):
            _say("The database has the newest schema.")
            return 0
        if arguments.check:
            _say("The database does not have the newest schema: type `snapapp migrate`.")
            return 1
        _say(f"The database is now at revision {schema.migrate(url)}.")
        return 0


def bench(arguments: Namespace, settings: Settings) -> int:
    """On the server that is set, in databases of its own; else on one made for it, which nobody else uses."""
    if settings.database_url:
        return measured.command(arguments, settings.database_url, schema.migrate, _FURTHER)
    with TemporaryDirectory(prefix="snapapp-bench-") as folder, postgres.start(Path(folder), create=True) as server:
        return measured.command(arguments, server.url, schema.migrate, _FURTHER)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


_COMMANDS: dict[str, Callable[[Namespace, Settings], int]] = {
    "serve": serve,
    "worker": worker,
    "migrate": migrate,
    "bench": bench,
}

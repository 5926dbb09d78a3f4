"""The commands that keep the house: serve and worker, which run until a signal; migrate; and bench."""

import dataclasses
import logging
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from snapapp import logs, postgres
from snapapp import migrate as schema
from snapapp.commands import database, load_processors, one_line, set_up_log
from snapapp.errors import MigrationError
from snapapp.jobs import bench as measured
from snapapp.jobs import foreground
from snapapp.jobs.foreground import Signals
from snapapp.jobs.runtime import Runtime
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker import Worker
from snapapp.settings import Environment, LogLevel, Settings

_log = logging.getLogger(__name__)

_PATIENCE = timedelta(seconds=5)  # of a command that somebody waits for, with a database that does not answer


def run(arguments: Namespace, settings: Settings) -> int:
    """The command that was typed; its exit code."""
    set_up_log(settings, at_least=LogLevel.DEBUG if arguments.command in ("serve", "worker") else LogLevel.WARNING)
    return _COMMANDS[arguments.command](arguments, settings)


def serve(_arguments: Namespace, settings: Settings) -> int:
    """The database, brought up to date, and a worker on it, until a signal."""
    load_processors(settings)
    with Signals() as signals, ExitStack() as stack:
        try:
            with signals.interrupting():
                url = stack.enter_context(database(settings, create=True))
                _bring_up_to_date(url, settings)
        except KeyboardInterrupt:
            return 0
        runtime = stack.enter_context(_runtime(settings.jobs(url), settings))
        worker = runtime.worker() if settings.worker_enabled else None
        _greet(settings, runtime, worker)
        if worker:
            foreground.work(worker, signals)
        while not signals.noted:
            signals.wait()
        return _code(signals)


def worker(arguments: Namespace, settings: Settings) -> int:
    """A process of its own that works the queue."""
    settings = _overridden(settings, arguments)
    load_processors(settings)
    within = _PATIENCE if arguments.once or arguments.drain else None
    with Signals() as signals, ExitStack() as stack:
        try:
            with signals.interrupting():
                url = stack.enter_context(database(settings))
                foreground.until_reachable(url, within=within, say=_say_unreachable)
                _require_schema(url)
        except KeyboardInterrupt:
            return 0
        runtime = stack.enter_context(_runtime(settings.jobs(url), settings))
        if arguments.once:
            foreground.work_once(foreground.visitor(runtime, once=True), signals)
        elif arguments.drain:
            foreground.drain(foreground.visitor(runtime), runtime, signals)
        else:
            foreground.work(runtime.worker(), signals)
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


def _bring_up_to_date(url: str, settings: Settings) -> None:
    """In prod a deploy migrates, at a moment of its choosing."""
    if settings.env is Environment.DEV:
        schema.migrate(url)
    else:
        _require_schema(url)


def _require_schema(url: str) -> None:
    if not schema.is_current(url):
        raise MigrationError("The database does not have the schema that this code needs: type `snapapp migrate`.")


def _say_unreachable(why: str) -> None:
    _log.warning("The database cannot be reached, trying again until it can: %s", one_line(why))


def _code(signals: Signals) -> int:
    """0 for a graceful stop; a second signal cut it short, and the shell's convention tells which."""
    return 0 if len(signals.noted) < 2 else 128 + signals.noted[1]


def _greet(settings: Settings, runtime: Runtime, worker: Worker | None) -> None:
    if worker is None:
        _log.info("The worker is off: SNAPAPP_WORKER_ENABLED is false.")
    if sys.stdout.isatty():
        place = "at SNAPAPP_DATABASE_URL" if settings.database_url else f"embedded, in {settings.data_dir}"
        works = f"{worker.id} ({', '.join(runtime.registry.kinds())})" if worker else "off"
        sys.stdout.write(_BANNER.format(place=place, works=works, snapapp=_as_typed()))
        sys.stdout.flush()


_BANNER = """
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
    with database(settings) as url:
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
        return measured.command(arguments, settings.database_url, schema.migrate)
    with TemporaryDirectory(prefix="snapapp-bench-") as folder, postgres.start(Path(folder), create=True) as server:
        return measured.command(arguments, server.url, schema.migrate)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


_COMMANDS: dict[str, Callable[[Namespace, Settings], int]] = {
    "serve": serve,
    "worker": worker,
    "migrate": migrate,
    "bench": bench,
}

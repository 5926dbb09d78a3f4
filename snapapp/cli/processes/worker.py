"""`snapapp worker`: works the queue in a process of its own: until a signal, until nothing is due, or once. It imports
only what jobs of any kind need: not the product, not the web, not SQLAlchemy."""

import dataclasses
import logging
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from snapapp import logs
from snapapp.cli.processes import start
from snapapp.jobs import tracing
from snapapp.jobs.os.signals import Signals
from snapapp.jobs.process import foreground
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.settings import JobsSettings
from snapapp.processing import loading
from snapapp.settings.table import Settings

_log = logging.getLogger(__name__)

_RESTART = 75  # sysexits' "try again": the service manager starts the worker again
_PATIENCE = timedelta(seconds=5)  # how long a command that a person waits for tries to reach the database


def run(arguments: Namespace, settings: Settings) -> int:
    settings = _overridden(settings, arguments)
    logs.begin(settings)
    loading.load(settings)
    loading.trace(settings)
    within = _PATIENCE if arguments.once or arguments.drain else None
    with Signals() as signals, ExitStack() as stack:
        url = start.reached(settings, signals, stack, within=within)
        if url is None:
            return 0
        runtime = stack.enter_context(_runtime(settings.jobs(url), settings))
        if arguments.once:
            foreground.work_once(foreground.FiniteWorker(runtime, once=True), signals)
        elif arguments.drain:
            foreground.drain(foreground.FiniteWorker(runtime), runtime, signals)
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
        "processors": arguments.processors,
        "product": False if arguments.processors else None,
    }
    return dataclasses.replace(settings, **{name: value for name, value in typed.items() if value is not None})


@contextmanager
def _runtime(jobs: JobsSettings, settings: Settings) -> Iterator[Runtime]:
    runtime = Runtime(jobs, events=logs.events_to_log(settings))
    try:
        yield runtime
    finally:
        runtime.close()
        tracing.stop()


def _code(signals: Signals) -> int:
    """The exit code: 0 after a graceful stop; after a second signal 128 plus its number, as shells have it."""
    return 0 if len(signals.noted) < 2 else 128 + signals.noted[1]

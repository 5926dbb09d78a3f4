"""A worker inside an application's process, started and stopped by the application or by its web framework."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

from snapapp.jobs import context as contexts
from snapapp.jobs.events import ALL, Event, Events, Repetition
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker import worker
from snapapp.jobs.worker.capacity.web_priority import WebPriority

_LOGGER = logging.getLogger("snapapp.jobs")


class Worker(worker.Worker):
    """`Worker(url, queues=("mail",), concurrency=2)`: the options are the fields of JobsSettings; a JobsSettings may be
    passed in place of the url. The worker runs the kinds that were declared with `@processor` before it is made. One
    process may have several workers with different options. `with Worker(url): …` starts and stops it."""

    def __init__(
        self,
        database: str | JobsSettings,
        *,
        registry: Registry | None = None,
        events: Events | None = None,
        context: contexts.Hook | None = None,
        web_priority: WebPriority | None = None,
        **options: Any,
    ) -> None:
        if isinstance(database, JobsSettings):
            settings = replace(database, **options)
        else:
            settings = JobsSettings(database_url=database, **options)
        self._runtime = runtime = Runtime(
            settings, registry=registry, events=events or _logged(), context=context, web_priority=web_priority
        )
        super().__init__(runtime.parts())

    def stop(self, grace: timedelta | None = None, reason: str = "stopped") -> None:
        super().stop(grace, reason)
        if not self._is_copy:
            self._runtime.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _logged() -> Events:
    """Events that are lines of the application's own log: else nobody would learn why a worker claims nothing."""
    told, repetition = Events(), Repetition()
    for name, its in ALL.items():
        if not its.is_frequent:
            told.on(name, lambda event: None if repetition.is_one(event) else _log(event))
    return told


def _log(event: Event) -> None:
    facts = " ".join(f"{name}={fact}" for name, fact in event.facts.items() if fact is not None)
    _LOGGER.log(event.level, "%s %s", event.name, facts)


Lifespan = Callable[[Any], AbstractAsyncContextManager[dict[str, Worker]]]


def lifespan(database: str | JobsSettings, **options: Any) -> Lifespan:
    """`FastAPI(lifespan=jobs.lifespan(url))` runs a worker while the application serves. The arguments are those of
    `Worker`; requests find it as `request.state.worker`."""

    @asynccontextmanager
    async def working(_app: Any) -> AsyncIterator[dict[str, Worker]]:
        worker = Worker(database, **options)  # here, so that importing the application makes no worker
        try:
            await asyncio.to_thread(worker.start)  # goes on where this is cancelled: `stop` waits for it
            yield {"worker": worker}
        finally:
            await asyncio.to_thread(worker.stop)  # on a thread: it waits for jobs, and the loop must not

    return working

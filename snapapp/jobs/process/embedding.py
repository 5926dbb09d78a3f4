"""A worker in a process of the application's own: started and stopped by it, or by its web framework."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, Self

from snapapp.jobs import context as contexts
from snapapp.jobs.events import Events
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker import worker
from snapapp.jobs.worker.capacity.web_priority import WebPriority


class Worker(worker.Worker):
    """`Worker(url, queues=("mail",), concurrency=2)`: the options are those of JobsSettings, which may also come whole.
    It runs what was declared with `@processor` before it is made. Several in one process are fine, each with options
    of its own. `with Worker(url): …` starts and stops it."""

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
        settings = database if isinstance(database, JobsSettings) else JobsSettings(database_url=database, **options)
        self._runtime = runtime = Runtime(
            settings, registry=registry, events=events, context=context, web_priority=web_priority
        )
        super().__init__(runtime.parts())

    def stop(self, grace: timedelta | None = None, reason: str = "stopped") -> None:
        super().stop(grace, reason)
        self._runtime.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


Lifespan = Callable[[Any], AbstractAsyncContextManager[dict[str, Worker]]]


def lifespan(database: str | JobsSettings, **given: Any) -> Lifespan:
    """`FastAPI(lifespan=jobs.lifespan(url))`: the application works the queue while it serves. It takes what `Worker`
    takes; requests find the worker as `request.state.worker`."""

    @asynccontextmanager
    async def working(_app: Any) -> AsyncIterator[dict[str, Worker]]:
        ours = Worker(database, **given)  # not before: whoever imports the application need not work the queue
        await asyncio.to_thread(ours.start)
        try:
            yield {"worker": ours}
        finally:
            await asyncio.to_thread(ours.stop)  # which waits for jobs: requests of others must not wait with it

    return working

"""Lets requests wait for jobs. Waiting requests hold no thread: one task asks the database for all of them, while there
are any."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, HTTPException, Request
from starlette.concurrency import run_in_threadpool

from snapapp.api.http.deps import MonolithDep, of_process
from snapapp.api.http.errors import COME_BACK
from snapapp.api.http.requests.access import counted_as
from snapapp.jobs.model import Status
from snapapp.jobs.rows.people import overviews, views
from snapapp.process.monolith import Away, Monolith

_log = logging.getLogger(__name__)

WAITING_MAX = 500  # jobs that all requests together may wait for
OF_ONE_MAX = 100  # jobs that one client may wait for, so that none can take all places
_LOOK_EVERY = 0.05  # seconds
_AGAIN_EVERY = 1.0  # seconds, after a look that failed
_LIVE = (Status.PENDING, Status.RUNNING, Status.RETRY_WAIT)


class Endings:
    """The jobs that requests of this process wait for. Used on the event loop's thread only."""

    def __init__(self, monolith: Monolith) -> None:
        self._monolith = monolith
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self._taken: Counter[str] = Counter()  # client -> how many places it has
        self._task: asyncio.Task[None] | None = None

    def has_places(self, client: str, count: int) -> bool:
        return self._taken[client] + count <= OF_ONE_MAX and self._taken.total() + count <= WAITING_MAX

    @contextmanager
    def places(self, client: str, count: int) -> Iterator[None]:
        self._taken[client] += count
        try:
            yield
        finally:
            self._taken[client] -= count
            self._taken += Counter()  # adding an empty Counter drops clients without places

    async def wait(self, job_id: int, within: timedelta) -> None:
        """Waits until the job has ended, the time is up, or the process is stopping."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(ended)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within.total_seconds()):
                    await ended
        finally:
            self._forget(job_id, ended)

    def _forget(self, job_id: int, ended: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(job_id, set())
        waiting.discard(ended)
        if not waiting:
            self._waiting.pop(job_id, None)

    async def _watch(self) -> None:
        while self._waiting and not self._monolith.is_leaving:
            try:
                over = await run_in_threadpool(self._over, [*self._waiting])
                pause = _LOOK_EVERY
            except Exception as error:  # noqa: BLE001 - a task's outermost edge; waiting requests have a timeout
                if not isinstance(error, Away):
                    _log.exception("A look for jobs that have ended failed.")
                over, pause = set(), _AGAIN_EVERY
            self._tell(over)
            await asyncio.sleep(pause)
        self._tell([*self._waiting])
        self._task = None

    def _tell(self, ids: Iterable[int]) -> None:
        for job_id in ids:
            for ended in self._waiting.pop(job_id, set()):
                if not ended.done():  # a request may have timed out at this moment
                    ended.set_result(None)

    def _over(self, ids: Collection[int]) -> set[int]:
        """The jobs that have ended or were deleted, since the retention may delete a job at once."""
        with self._monolith.web.connect() as connection:
            db = connection.execution_options(isolation_level="AUTOCOMMIT")
            live = {job.id for job in views.lines(db, sorted(ids)) if job.status in _LIVE}
        return set(ids) - live


def is_worked(monolith: Monolith, kind: str) -> bool:
    """Whether some live worker runs this kind, so that waiting makes sense."""
    with monolith.web.connect() as connection:
        return overviews.is_known(connection, kind)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The waiting of one client."""

    endings: Endings
    client: str

    async def wait(self, job_id: int, within: timedelta) -> None:
        """Waits for the job; returns at once if too many requests wait already."""
        if self.endings.has_places(self.client, 1):
            with self.endings.places(self.client, 1):
                await self.endings.wait(job_id, within)

    @contextmanager
    def places(self, count: int) -> Iterator[None]:
        """Reserves places, before the jobs are enqueued. Raises 503 if there are too few."""
        if not self.endings.has_places(self.client, count):
            raise HTTPException(503, "Too many requests wait already, try again", COME_BACK)
        with self.endings.places(self.client, count):
            yield


async def _waiting(request: Request, monolith: MonolithDep) -> Waiting:
    return Waiting(of_process(request, "endings", lambda: Endings(monolith)), counted_as(request.scope))


WaitingDep = Annotated[Waiting, Depends(_waiting)]

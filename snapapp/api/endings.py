"""Answers that wait for a job. However many wait, none of them has a thread: one task looks for all, while there are
any."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from snapapp.jobs import board
from snapapp.jobs.model import Status
from snapapp.monolith import Away, Monolith

_log = logging.getLogger(__name__)

WAITING_MAX = 500
_LOOK_EVERY = 0.05  # seconds
_AGAIN_EVERY = 1.0  # seconds, after a look that failed
_LIVE = (Status.PENDING, Status.RUNNING, Status.RETRY_WAIT)


class Endings:
    """One a process, made by the first who waits. All of it is touched on the event loop's thread only."""

    def __init__(self, house: Monolith) -> None:
        self._house = house
        self._waiting: dict[int, set[asyncio.Future[bool]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait_for_all(self, job_ids: Iterable[int], within: timedelta) -> None:
        await asyncio.gather(*(self.wait(job_id, within) for job_id in job_ids))

    async def wait(self, job_id: int, within: timedelta) -> bool:
        """Whether the job has ended. False: the time is up, the process leaves, or too many wait already."""
        if len(self._waiting) >= WAITING_MAX:
            return False
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(ended)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        try:
            async with asyncio.timeout(within.total_seconds()):
                return await ended
        except TimeoutError:
            return False
        finally:
            self._forget(job_id, ended)

    def _forget(self, job_id: int, ended: asyncio.Future[bool]) -> None:
        waiting = self._waiting.get(job_id, set())
        waiting.discard(ended)
        if not waiting:
            self._waiting.pop(job_id, None)

    async def _watch(self) -> None:
        while self._waiting and not self._house.is_leaving:
            try:
                over = await run_in_threadpool(self._over, [*self._waiting])
                pause = _LOOK_EVERY
            except Exception as error:  # noqa: BLE001 - a task's outermost edge; who waits has a deadline of its own
                if not isinstance(error, Away):
                    _log.exception("A look for jobs that have ended failed.")
                over, pause = set(), _AGAIN_EVERY
            self._tell(over, has_ended=True)
            await asyncio.sleep(pause)
        self._tell([*self._waiting], has_ended=False)
        self._task = None

    def _tell(self, ids: Iterable[int], *, has_ended: bool) -> None:
        for job_id in ids:
            for ended in self._waiting.pop(job_id, set()):
                if not ended.done():  # its time was up at this very moment
                    ended.set_result(has_ended)

    def _over(self, ids: Collection[int]) -> set[int]:
        """Those that have ended, or are gone: they may be kept no longer than that."""
        with self._house.web.connect() as connection:
            db = connection.execution_options(isolation_level="AUTOCOMMIT")
            live = {job.id for job in board.lines(db, sorted(ids)) if job.status in _LIVE}
        return set(ids) - live


def is_worked(house: Monolith, kind: str) -> bool:
    """Whether there is anybody to wait for."""
    with house.web.connect() as connection:
        return board.is_known(connection, kind)


async def _endings(request: Request) -> Endings:
    state = request.app.state
    if not hasattr(state, "endings"):
        state.endings = Endings(state.monolith)
    endings: Endings = state.endings
    return endings


Ends = Annotated[Endings, Depends(_endings)]

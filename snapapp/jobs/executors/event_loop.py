"""Jobs as coroutines on an event loop of their own: many at once, for code that mostly waits."""

import asyncio
import select
import selectors
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from snapapp.jobs.errors import JobsError
from snapapp.jobs.model import Job

_SHORT = 0.05  # seconds: for longer waits a millisecond does not matter
_SELECT_KNOWS = 1024  # select() takes no higher file descriptors

AsyncWork = Callable[[Job, asyncio.Task[None]], Awaitable[None]]  # the task is the one that it runs in


class AsyncExecutor:
    prefetches = True

    def __init__(self, slots: int, work: AsyncWork, on_free: Callable[[], None]) -> None:
        self.slots = slots
        self._work = work
        self._on_free = on_free
        self._buffer: deque[Job] = deque()  # filled by the claimer, emptied on the loop
        self._entered = 0  # written by the claimer
        self._left = 0  # written on the loop
        self._running: dict[Job, asyncio.Task[None]] = {}  # job -> its task; written on the loop
        self._thread = threading.Thread(target=self._run, name="async-executor", daemon=True)

    def start(self) -> None:
        self._loop = _new_loop()
        self._thread.start()

    @property
    def ident(self) -> int:
        """The id of the loop's thread; 0 before it was started."""
        return self._thread.ident or 0

    @property
    def is_caller(self) -> bool:
        return threading.current_thread() is self._thread

    def load(self) -> int:
        return self._entered - self._left

    def at_work(self) -> list[Job]:
        return list(self._running.copy())

    def put(self, jobs: list[Job]) -> None:
        self._entered += len(jobs)
        self._buffer.extend(jobs)
        self._loop.call_soon_threadsafe(self._begin)

    def take_back(self) -> list[Job]:
        jobs: list[Job] = []
        with suppress(IndexError):  # empty now; the loop takes jobs at the same time
            while True:
                jobs.append(self._buffer.popleft())
        self._entered -= len(jobs)
        return jobs

    def interrupt(self, job: Job, reason: JobsError) -> None:
        job.stop = reason
        self._loop.call_soon_threadsafe(self._cancel, job)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5)
        if self.ident and not self._thread.is_alive():  # a loop that a job blocks is still running and cannot be closed
            self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _begin(self) -> None:
        while len(self._running) < self.slots and (job := self._next()):
            self._running[job] = self._loop.create_task(self._run_job(job))

    def _next(self) -> Job | None:
        try:
            return self._buffer.popleft()
        except IndexError:
            return None

    async def _run_job(self, job: Job) -> None:
        try:
            await self._work(job, self._running[job])
        finally:
            del self._running[job]
            self._left += 1
            if self._buffer:
                self._begin()
            else:
                self._on_free()

    def _cancel(self, job: Job) -> None:
        """Cancels a job's task once its attempt has started. Before that, the job sees `stop` and does not start."""
        task = self._running.get(job)
        if task and job.started_at is not None:
            task.cancel()


def _new_loop() -> asyncio.AbstractEventLoop:
    if not hasattr(select, "epoll") or _has_a_policy_of_the_applications():
        return asyncio.new_event_loop()  # kqueue waits as long as it is asked to
    return asyncio.SelectorEventLoop(_FineSelector())


def _has_a_policy_of_the_applications() -> bool:
    """As with `uvloop.install()`. Until Python 3.14 a loop asks the policy how the programs end that its coroutines
    start, and uvloop's answers its own loops only: create_subprocess_exec raised NotImplementedError."""
    return sys.version_info < (3, 14) and type(asyncio.get_event_loop_policy()) is not asyncio.DefaultEventLoopPolicy


if hasattr(select, "epoll"):

    class _FineSelector(selectors.EpollSelector):
        """Waits to the microsecond. epoll counts whole milliseconds and rounds up: a coroutine that slept for one slept
        for up to two, and 32 of them did a fifth less work."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and 0 < timeout < _SHORT and self.fileno() < _SELECT_KNOWS:
                if not select.select([self.fileno()], [], [], timeout)[0]:
                    return []
                timeout = 0
            return super().select(timeout)

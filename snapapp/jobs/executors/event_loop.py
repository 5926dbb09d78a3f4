"""Jobs as coroutines on an event loop of their own: many at once, for code that mostly waits."""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from snapapp.jobs.errors import JobsError
from snapapp.jobs.model import Job

AsyncWork = Callable[[Job], Awaitable[None]]


class AsyncExecutor:
    prefetches = True

    def __init__(self, slots: int, work: AsyncWork, on_free: Callable[[], None]) -> None:
        self.slots = slots
        self._work = work
        self._on_free = on_free
        self._buffer: deque[Job] = deque()  # filled by the claimer, emptied on the loop
        self._entered = 0  # written by the claimer
        self._left = 0  # written on the loop
        self._tasks: set[asyncio.Task[None]] = set()  # kept, for the loop has only weak references; written there
        self._running: dict[Job, asyncio.Task[None]] = {}  # running job -> its task; written on the loop
        self._thread = threading.Thread(target=self._run, name="async-executor", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    @property
    def ident(self) -> int:
        """The id of the loop's thread; 0 before it was started."""
        return self._thread.ident or 0

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
        while len(self._tasks) < self.slots and (job := self._next()):
            task = self._loop.create_task(self._run_job(job))
            self._tasks.add(task)
            task.add_done_callback(self._end)

    def _next(self) -> Job | None:
        try:
            return self._buffer.popleft()
        except IndexError:
            return None

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._left += 1
        if self._buffer:
            self._begin()
        else:
            self._on_free()

    async def _run_job(self, job: Job) -> None:
        task = asyncio.current_task()
        assert task
        # here, not in _begin: a task that is cancelled before its first step never reaches its `finally`
        self._running[job] = task
        try:
            await self._work(job)
        finally:
            del self._running[job]

    def _cancel(self, job: Job) -> None:
        """Cancels a job's task once its attempt has started. Before that, the job sees `stop` and does not start."""
        task = self._running.get(job)
        if task and job.started_at is not None:
            task.cancel()

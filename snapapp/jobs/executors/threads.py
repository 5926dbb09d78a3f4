"""Jobs on threads: the executor with the least overhead, for code that is short or waits. Slots share one queue and no
lock."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from snapapp.jobs.errors import JobsError
from snapapp.jobs.executors import Work
from snapapp.jobs.model import Job
from snapapp.jobs.os.threads import let_it_begin


class ThreadExecutor:
    prefetches = True

    def __init__(self, slots: int, works: list[Work], on_free: Callable[[], None], name: str = "slot") -> None:
        self.slots = slots
        self._name = name
        self._works = works  # one for each slot
        self._on_free = on_free
        self._at_work: list[Job | None] = [None] * slots  # each slot writes its own
        self._buffer: SimpleQueue[Job | None] = SimpleQueue()
        self._entered = 0  # written by the claimer
        self._left = [0] * slots  # each slot writes its own
        self._threads = [self._thread(number) for number in range(slots)]  # changed by `replace` only

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def load(self) -> int:
        return self._entered - sum(self._left)

    @property
    def is_caller(self) -> bool:
        return threading.current_thread() in self._threads

    def at_work(self) -> list[Job]:
        return [job for job in self._at_work if job]

    def put(self, jobs: list[Job]) -> None:
        slots_suffice = self.load() + len(jobs) <= self.slots
        self._entered += len(jobs)
        put = self._buffer.put
        for job in jobs:
            put(job)
        if slots_suffice:  # otherwise this thread should rather go on: the drain lost a sixth of its speed
            let_it_begin()

    def take_back(self) -> list[Job]:
        jobs: list[Job] = []
        try:
            while job := self._buffer.get_nowait():
                jobs.append(job)
        except Empty:
            pass
        self._entered -= len(jobs)
        return jobs

    def interrupt(self, job: Job, reason: JobsError) -> None:
        """Does nothing: no thread can be stopped from outside. The job sees `stop` at its next raise_if_cancelled."""

    def replace(self, number: int, settle: Callable[[], None]) -> None:
        """Gives the slot of a thread that hangs to a new thread, which first settles the job that hangs."""
        successor = self._thread(number, settle)
        self._threads[number] = successor
        successor.start()

    def ident(self, number: int) -> int:
        """The id of the thread that a slot has now; 0 before it was started."""
        return self._threads[number].ident or 0

    def stop(self, patience: float = 1) -> None:
        for _ in self._threads:
            self._buffer.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=patience)

    def _thread(self, number: int, first: Callable[[], None] | None = None) -> threading.Thread:
        return threading.Thread(target=self._slot, args=(number, first), name=f"{self._name}-{number}", daemon=True)

    def _slot(self, number: int, first: Callable[[], None] | None = None) -> None:
        work, left, at_work = self._works[number], self._left, self._at_work
        if first:
            first()
            left[number] += 1
        while job := self._next():
            at_work[number] = job
            if not work(job):
                return  # `replace` has given the slot to another thread
            at_work[number] = None
            left[number] += 1

    def _next(self) -> Job | None:
        if self._buffer.empty():
            self._on_free()
        return self._buffer.get()

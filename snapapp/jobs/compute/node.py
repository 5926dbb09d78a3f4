"""What a node of the cluster does for us: a task holds a thread of it, and in that thread one of our children runs what
the worker says. The child, its limits and its end are those of a worker's own machine (`executors/children.py`).

Loaded into each node (`dask worker --preload`), which calls `attach`.
"""

import asyncio
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NoReturn
from uuid import UUID

from distributed import Status, Worker
from distributed.comm import CommClosedError
from tenacity import wait_none

from snapapp.jobs.context import Within
from snapapp.jobs.errors import JobInterrupted, JobsError, NoConnection
from snapapp.jobs.executors.children import Child, Order, outcome_of
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.model import Failure, Job
from snapapp.jobs.settings import JobsSettings

OPERATION = "snapapp_attempt"
LAST_WORDS = frozenset({"answer", "failure", "leaving", "refused"})
CHATTER = frozenset({"log", "progress"})  # of which some may get lost
MOST_WAITING = 1000  # messages for a reader who does not keep up
GOOD_BYE = {"bye": True}
_TAKEN_IN = 10.0  # seconds in which the worker comes for the place that it asked for
_LEAVES_IN = 1.0  # seconds in which those who wait here are told that the node ends

Message = dict[str, Any]


class NotAttached(JobsError):
    """A node of the cluster was started without what runs our jobs."""


class Held:
    """A thread of this node that one worker has asked for. Its words and those of the worker each have a queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.orders: SimpleQueue[Message | None] = SimpleQueue()  # for the thread; None: nobody is there
        self.words: asyncio.Queue[Message] = asyncio.Queue()  # for the worker
        self.is_taken = False  # written on the loop, as is the next
        self.is_over = False
        self.job: Job | None = None  # these two are written by the thread
        self.child: Child | None = None

    def say(self, message: Message) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the node is ending
            self._loop.call_soon_threadsafe(self._put, message)

    def _put(self, message: Message) -> None:
        if self.words.qsize() < MOST_WAITING or not message.keys() & CHATTER:
            self.words.put_nowait(message)

    def end(self) -> None:
        """Whatever runs, or is about to."""
        self.is_over = True
        self.orders.put(None)
        job, child = self.job, self.child
        if job and child:
            self.stop(job)
            child.interrupt(job)

    def stop(self, job: Job) -> None:
        job.stop = JobInterrupted(f"the worker of job {job.id} wants it to end")


class Relay:
    """The channel of a job on a node: its words travel on to the worker."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def progress(self, _job: Job, value: str) -> None:
        self._held.say({"progress": value})

    def log(self, _job: Job, level: str, message: str) -> None:
        self._held.say({"log": [level, message]})

    def check(self, job: Job) -> None:
        """Nothing to check: whoever wants this attempt to end kills the child."""

    def connection(self, job: Job) -> NoReturn:
        raise NoConnection(f"{job.kind} job {job.id} runs in a child process, which has no database")


class ChildHere(Child):
    """Of one of the node's threads."""

    def answer(self, job: Job, order: Order) -> Message:
        """What the child said in the end, or why it did not."""
        with self._holding(job):
            try:
                if job.stop:  # before there was a child to kill
                    raise job.stop
                said: Message = {"answer": self._answer(job, order)}
                outcome_of(job, said["answer"], wait_none(), order.limit_mb)  # or it is not what a child sends
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this attempt's end
                self.close()
                said = {"failure": asdict(Failure.of(job.stop or error))}
        return said | {"cpu": job.cpu, "peak": job.peak}


class Node:
    """Of this process."""

    def __init__(self, worker: Worker, settings: JobsSettings) -> None:
        self._worker = worker
        self._settings = settings
        self._guard = Guard()
        self._own = threading.local()  # each thread its child, which dies with the thread that has started it
        self._held: dict[str, Held] = {}  # by ticket; single operations
        worker.handlers[OPERATION] = self.serve

    # --- on threads of tasks ----------------------------------------------------------------------------------

    def hold(self, ticket: str, topic: str, modules: tuple[str, ...]) -> None:
        held = Held(self._worker.loop.asyncio_loop)
        child = self._child(modules, held)
        child.prepare()  # before the attempt begins: its time limit is for the job
        with self._announced(ticket, topic, held):
            said: Message = {"leaving": True}  # unless there is more to say: who waits for us must hear something
            try:
                order = self._order(held)
                if order is not None:
                    said = self._run(held, child, order)
            finally:
                held.say(said)
            if "leaving" not in said:
                child.prepare()
                self._order(held)  # the worker has heard it, or has gone

    @contextmanager
    def _announced(self, ticket: str, topic: str, held: Held) -> Iterator[None]:
        self._held[ticket] = held
        try:
            self._worker.log_event(topic, {"ticket": ticket, "at": self._worker.address})
            yield
        finally:
            del self._held[ticket]

    def _order(self, held: Held) -> Message | None:
        try:
            return held.orders.get(timeout=_TAKEN_IN)
        except Empty:
            return None

    def _run(self, held: Held, child: ChildHere, order: Message) -> Message:
        told = _known(order["job"], Job.__dataclass_fields__)
        job = Job(
            **told
            | {
                "payload_json": told["payload_json"].encode(),
                "parents_json": told["parents_json"].encode(),
                "snap_id": UUID(told["snap_id"]) if told["snap_id"] else None,
            },
            channel=Relay(held),
        )
        job.started_at = monotonic()
        job.deadline = job.started_at + order["within"]
        held.child, held.job = child, job
        if held.is_over:  # before there was a job to stop
            held.stop(job)
        try:
            return child.answer(job, Order(**_known(order["order"], Order._fields)))
        finally:
            held.job = None

    def _child(self, modules: tuple[str, ...], held: Held) -> ChildHere:
        known: ChildHere | None = getattr(self._own, "child", None)
        if known is None or self._own.modules != modules:
            if known:
                known.close()
            within = Within(tell=lambda _job, step: self._own.held.say({"context": step}))
            self._own.child = known = ChildHere(modules, self._settings, self._guard, within)
            self._own.modules = modules
        self._own.held = held
        return known

    # --- on the loop ------------------------------------------------------------------------------------------

    async def serve(self, comm: Any, ticket: str = "") -> Status:
        """One connection of a worker's, for one ticket."""
        held = self._held.get(ticket)
        if held is None or held.is_taken:
            await comm.write({"refused": "its place is gone"})
            await comm.read()
            return Status.dont_reply
        held.is_taken = True
        held.words.put_nowait({"here": True})
        speaking = asyncio.create_task(_speak(held, comm))
        try:
            while (message := await comm.read()) != GOOD_BYE:
                if "stop" in message:
                    held.end()
                else:
                    held.orders.put(message)
        except (OSError, CommClosedError):
            comm.abort()
        finally:
            speaking.cancel()
            held.end()
        return Status.dont_reply

    async def leave(self) -> None:
        """The node is told to end, or has lost its scheduler: no fault of the jobs that it runs."""
        there = [*self._held.values()]
        for held in there:
            held.words.put_nowait({"leaving": True})
        until = monotonic() + _LEAVES_IN
        while monotonic() < until and any(held.is_taken and not held.words.empty() for held in there):
            await asyncio.sleep(0.01)
        for held in there:
            held.end()


def _known(told: Message, names: Collection[str]) -> Message:
    """A worker of a newer release may say more than we understand."""
    return {name: value for name, value in told.items() if name in names}


async def _speak(held: Held, comm: Any) -> None:
    with suppress(OSError, CommClosedError):  # reading tells it, too
        while True:
            await comm.write(await held.words.get())


_nodes: list[Node] = []  # of this process, at most one


def attach(worker: Worker, settings: JobsSettings) -> None:
    """Called by what the node was told to load."""
    _nodes[:] = [Node(worker, settings)]


async def detach() -> None:
    for each in _nodes:
        await each.leave()


def hold(ticket: str, topic: str, modules: tuple[str, ...]) -> None:
    """The task that Dask runs here."""
    if not _nodes:
        raise NotAttached("this node was not started by `snapapp compute node`, nor with its --preload")
    _nodes[0].hold(ticket, topic, modules)

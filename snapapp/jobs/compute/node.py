"""What runs on a node of the cluster: a Dask task (`hold`) occupies a thread of the node, and on that thread a child
process runs the job that the worker sends. The child and its limits are the same as on a worker's own machine
(`executors/children.py`).

Each node loads this module (`dask worker --preload`) and calls `attach`.
"""

import asyncio
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NoReturn

from distributed import Status, Worker
from distributed.comm import CommClosedError
from tenacity import wait_none

from snapapp.jobs.context import Within
from snapapp.jobs.errors import JobInterrupted, JobsError, NoConnection
from snapapp.jobs.executors import messages
from snapapp.jobs.executors.children import Child, Order, outcome_of
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.model import Failure, Job
from snapapp.jobs.settings import JobsSettings

OPERATION = "snapapp_attempt"
LAST_WORDS = frozenset({"answer", "failure", "leaving", "refused"})
CHATTER = frozenset({"log", "progress"})  # messages that may be dropped
MOST_WAITING = 1000  # messages queued for a slow reader before chatter is dropped
GOOD_BYE = {"bye": True}
_TAKEN_IN = 10.0  # seconds that a place waits for its worker to connect, or to send the next message
_LEAVES_IN = 1.0  # seconds for telling connected workers that the node ends

Message = dict[str, Any]


class NotAttached(JobsError):
    """A node of the cluster was started without this module."""


class Held:
    """A thread of this node that a worker has asked for, with a queue of messages in each direction."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.orders: SimpleQueue[Message | None] = SimpleQueue()  # from the worker; None: the worker is gone
        self.words: asyncio.Queue[Message] = asyncio.Queue()  # for the worker
        self.is_taken = False  # has the worker connected? written on the loop, as is is_over
        self.is_over = False
        self.job: Job | None = None  # written by the thread, as is child
        self.child: Child | None = None

    def say(self, message: Message) -> None:
        """Queues a message for the worker, from any thread."""
        with suppress(RuntimeError):  # the node is ending
            self._loop.call_soon_threadsafe(self._put, message)

    def _put(self, message: Message) -> None:
        if self.words.qsize() < MOST_WAITING or not message.keys() & CHATTER:
            self.words.put_nowait(message)

    def end(self) -> None:
        """Stops the job that runs, or that is about to run, on this thread."""
        self.is_over = True
        self.orders.put(None)
        job, child = self.job, self.child
        if job and child:
            self.stop(job)
            child.interrupt(job)

    def stop(self, job: Job) -> None:
        job.stop = JobInterrupted(f"the worker of job {job.id} wants it to end")


class Relay:
    """The channel of a job on a node: sends progress and log lines to the worker."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def progress(self, _job: Job, value: str) -> None:
        self._held.say({"progress": value})

    def log(self, _job: Job, level: str, message: str) -> None:
        self._held.say({"log": [level, message]})

    def check(self, job: Job) -> None:
        """Does nothing: an attempt is stopped by killing the child."""

    def connection(self, job: Job) -> NoReturn:
        raise NoConnection(f"{job.kind} job {job.id} runs in a child process, which has no database")


class ChildHere(Child):
    """The child process of one thread of the node."""

    def answer(self, job: Job, order: Order) -> Message:
        """Runs the job in the child. Returns its final message or the failure, with what the attempt used."""
        with self._holding(job):
            try:
                if job.stop:  # set before `job` and `child` could be seen, so nothing was killed
                    raise job.stop
                end: Message = {"answer": self._answer(job, order)}
                outcome_of(job, end["answer"], wait_none(), order.limit_mb)  # raises if the message is malformed
            except Exception as error:  # noqa: BLE001 - every error ends this attempt only
                self.close()
                end = {"failure": asdict(Failure.of(job.stop or error))}
        return end | {"cpu": job.cpu, "peak": job.peak}


class Node:
    """What this process, as a node, holds for workers."""

    def __init__(self, worker: Worker, settings: JobsSettings) -> None:
        self._worker = worker
        self._settings = settings
        self._guard = Guard()
        self._own = threading.local()  # each thread has its own child, which is killed when the thread ends
        self._held: dict[str, Held] = {}  # by ticket; shared by single dict operations
        worker.handlers[OPERATION] = self.serve

    # --- on threads of tasks ----------------------------------------------------------------------------------

    def hold(self, ticket: str, topic: str, modules: tuple[str, ...]) -> None:
        """Publishes the ticket, waits for the worker's order, runs it, and sends the end."""
        held = Held(self._worker.loop.asyncio_loop)
        child = self._child(modules, held)
        child.prepare()  # before the attempt starts, so that its time limit does not run yet
        with self._announced(ticket, topic, held):
            end: Message = {"leaving": True}  # sent if no attempt has run, because the worker waits for some end
            try:
                order = self._order(held)
                if order is not None:
                    end = self._run(held, child, order)
            finally:
                held.say(end)
            if "leaving" not in end:
                child.prepare()
                self._order(held)  # waits until the worker has received the end, or is gone

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
        job = messages.job_of(_known_fields(order["job"], Job.__dataclass_fields__), Relay(held))
        job.started_at = monotonic()
        job.deadline = job.started_at + order["within"]
        held.child, held.job = child, job
        if held.is_over:  # `end` was called before it could see the job
            held.stop(job)
        try:
            return child.answer(job, Order(**_known_fields(order["order"], Order._fields)))
        finally:
            held.job = None

    def _child(self, modules: tuple[str, ...], held: Held) -> ChildHere:
        child: ChildHere | None = getattr(self._own, "child", None)
        if child is None or self._own.modules != modules:
            if child:
                child.close()
            within = Within(tell=lambda _job, step: self._own.held.say({"context": step}))
            self._own.child = child = ChildHere(modules, self._settings, self._guard, within)
            self._own.modules = modules
        self._own.held = held
        return child

    # --- on the loop ------------------------------------------------------------------------------------------

    async def serve(self, comm: Any, ticket: str = "") -> Status:
        """Serves one connection of a worker, for one ticket, until the worker says good-bye or is lost."""
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
        """Called when the node ends or has lost its scheduler. Workers told of it do not charge their jobs."""
        all_held = [*self._held.values()]
        for held in all_held:
            held.words.put_nowait({"leaving": True})
        until = monotonic() + _LEAVES_IN
        while monotonic() < until and any(held.is_taken and not held.words.empty() for held in all_held):
            await asyncio.sleep(0.01)
        for held in all_held:
            held.end()


def _known_fields(fields: Message, names: Collection[str]) -> Message:
    """Drops the fields that this release does not know: the worker may be newer."""
    return {name: value for name, value in fields.items() if name in names}


async def _speak(held: Held, comm: Any) -> None:
    with suppress(OSError, CommClosedError):  # `serve` notices the loss when it reads
        while True:
            await comm.write(await held.words.get())


_nodes: list[Node] = []  # of this process, at most one


def attach(worker: Worker, settings: JobsSettings) -> None:
    """Called by the preload script of the node."""
    _nodes[:] = [Node(worker, settings)]


async def detach() -> None:
    for each in _nodes:
        await each.leave()


def hold(ticket: str, topic: str, modules: tuple[str, ...]) -> None:
    """The Dask task that holds a place on this node."""
    if not _nodes:
        raise NotAttached("this node was not started by `snapapp compute node`, nor with its --preload")
    _nodes[0].hold(ticket, topic, modules)

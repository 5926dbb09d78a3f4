"""The worker's connection to a scheduler, and the places on nodes that it asks for.

A place is a task of Dask's that does nothing but hold a node's thread, memory and cores for one attempt, and tells its
ticket. What is said about the attempt itself goes straight to that node, on a connection of its own: the scheduler
carries no payload, and may stop answering while attempts run.
"""

import asyncio
import logging
import platform
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NamedTuple
from uuid import uuid4

from distributed import Client, Future
from distributed.comm import CommClosedError

from snapapp.jobs.compute import node
from snapapp.jobs.errors import JobsError, NoPlace
from snapapp.jobs.settings import cluster_url

_LOOKS_EVERY = 1.0  # seconds
_ANSWERS_IN = 5.0  # seconds that a scheduler may take
_CLOSES_IN = 0.5  # seconds that the end of a worker waits for it
_NAMES = ("distributed", "distributed.client", "distributed.gc", "tornado", "tornado.application")
_DASKS_OWN = 5  # seconds after which Dask gives up what it closes

Message = dict[str, Any]


class Size(NamedTuple):
    """Of a node, or of what a job wants of one."""

    memory_mb: int
    cores: int

    def holds(self, other: "Size") -> bool:
        return self.memory_mb >= other.memory_mb and self.cores >= other.cores


class Place:
    """One thread of a node, as the slot sees it that waits for it and speaks to it. What is heard there, the loop's
    thread puts into the inbox."""

    def __init__(self, client: Client) -> None:
        self.ticket = uuid4().hex
        self.node = ""  # its address; written by the loop, as is the next
        self._comm: Any = None
        self._is_let_go = False  # written by the slot
        self._client = client
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self.future: Future | None = None  # written once, by the slot

    def hear(self, message: Message) -> None:
        """From any thread."""
        if self._inbox.qsize() < node.MOST_WAITING or not message.keys() & node.CHATTER:
            self._inbox.put(message)

    def next(self, within: float) -> Message | None:
        """None: nothing came in this time."""
        with suppress(Empty):
            return self._inbox.get(timeout=max(0.0, within))
        return None

    def say(self, message: Message) -> None:
        if self._comm is not None:
            asyncio.run_coroutine_threadsafe(self._say(message), self._client.loop.asyncio_loop)

    async def _say(self, message: Message) -> None:
        with suppress(OSError):  # it is lost: listening will tell
            await self._comm.write(message)

    async def talk(self, address: str) -> None:
        """Brings what the node says, up to its last word. A connection that has heard that serves the next place."""
        self.node = address
        try:
            comm = await self._client.rpc.connect(address)
        except (OSError, RuntimeError) as error:  # the latter: we are closing
            self.hear({"lost": str(error)})
            return
        self._comm = comm
        try:
            if self._is_let_go:  # while we connected, when there was nothing to abort
                return
            await comm.write({"op": node.OPERATION, "ticket": self.ticket})
            while True:
                message = await comm.read()
                if message.keys() & node.LAST_WORDS:
                    break
                self.hear(message)
            self._comm = None  # from here on it is not ours to abort
            self.hear(message)
            if "leaving" in message:
                comm.abort()
            else:
                await comm.write(node.GOOD_BYE)
        except (OSError, CommClosedError) as error:
            comm.abort()
            self.hear({"lost": str(error)})
        finally:
            self._comm = None
            self._client.rpc.reuse(address, comm)

    def let_go(self) -> None:
        """The task may end; what a node still does for it, it stops."""
        self._is_let_go = True
        if self._comm is not None:
            self._client.loop.add_callback(self._abort, self._comm)
        if self.future is not None:
            self.future.release()

    def _abort(self, comm: Any) -> None:
        if self._comm is comm:  # else it serves somebody else by now
            comm.abort()


class Cluster:
    """start() and stop(). A thread looks once a second whether the scheduler is there and how many cores it has."""

    def __init__(self, address: str, complain: Callable[[str, BaseException], None]) -> None:
        self.address = address
        self.on_change: Callable[[int], None] = lambda _cores: None  # set before the start, by whoever has slots
        self._complain = complain
        self._topic = f"snapapp-{platform.node()}"  # not of each start: the scheduler forgets none
        self._places: dict[str, Place] = {}  # by ticket; single operations
        self._client: Client | None = None  # written by our thread, as are the next three
        self.sizes: frozenset[Size] = frozenset()  # of all nodes so far: one that is away may come back
        self._is_there = False
        self._has_complained = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="cluster", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSES_IN)  # one that waits for a silent scheduler closes by itself

    def place(self, modules: tuple[str, ...], memory_mb: int, cores: int) -> Place:
        """Asks for one; its first message says what became of it."""
        client = self._client
        if client is None or not self._is_there:
            raise NoPlace(f"the cluster at {self.address} is away")
        client.subscribe_topic(self._topic, self._hear)  # each time: a scheduler that was started anew knows nothing
        place = Place(client)
        self._places[place.ticket] = place
        try:
            place.future = client.submit(
                node.hold,
                place.ticket,
                self._topic,
                modules,
                key=f"snapapp-{place.ticket}",
                pure=False,
                retries=0,
                resources={"MB": memory_mb, "cores": cores},
            )
        except Exception:
            del self._places[place.ticket]
            raise
        place.future.add_done_callback(lambda future: self._over(place, future))
        return place

    def let_go(self, place: Place) -> None:
        self._places.pop(place.ticket, None)
        place.let_go()

    def _over(self, place: Place, future: Future) -> None:
        """Of a place that was reached its own connection tells more."""
        if not place.node and future.status != "finished":
            error = future.exception(timeout=_ANSWERS_IN) if future.status == "error" else None
            place.hear({"refused": str(error) if error else f"the scheduler has dropped it ({future.status})"})

    def _hear(self, event: tuple[float, Message]) -> None:
        """On the loop. Dask runs a task whose node it has lost once more: the second one is left alone."""
        place = self._places.get(event[1]["ticket"])
        if place and not place.node:
            asyncio.ensure_future(place.talk(event[1]["at"]))  # noqa: RUF006 - its messages are what is waited for

    # --- being there ------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._closed.is_set():
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge; Dask raises what it likes
                self._is_away(error)
            self._closed.wait(_LOOKS_EVERY)
        self._close()

    def look(self) -> None:
        client = self._client or self._connected()
        if client.status != "running":
            if client.status == "closed":  # else it tries to come back, and what runs on nodes goes on meanwhile
                self._close()
            raise JobsError(f"the scheduler at {self.address} is lost")
        told = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWERS_IN)
        self._is_there, self._has_complained = True, False
        self.sizes |= {
            Size(int(its["MB"]), int(its["cores"]))
            for its in (each["resources"] for each in told["workers"].values())
            if {"MB", "cores"} <= its.keys()
        }
        self.on_change(sum(each["nthreads"] for each in told["workers"].values()))

    def _connected(self) -> Client:
        self._client = client = connected(self.address)
        return client

    def _is_away(self, error: Exception) -> None:
        self._is_there = False
        self.on_change(0)
        if not self._has_complained:
            self._has_complained = True
            self._complain("reach the cluster", error)

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close(timeout=_DASKS_OWN)


def connected(address: str, within: float = _ANSWERS_IN) -> Client:
    """Or NoPlace, with what is wrong."""
    began = monotonic()
    _log_as_we_do()
    try:
        return Client(cluster_url(address), timeout=within, set_as_default=False)
    except Exception as error:
        took = monotonic() - began
        raise NoPlace(f"no scheduler answers at {address} ({took:.1f} s): {error}") from error


def _log_as_we_do() -> None:
    """Importing Dask gives these handlers of their own."""
    for name in _NAMES:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.ERROR)

"""The worker's connection to a scheduler, and the places on nodes that it asks for.

A place is a Dask task that occupies a thread, memory and cores of a node for one attempt and publishes its ticket. The
attempt itself is sent straight to that node, on another connection: so the scheduler carries no payloads, and may stop
answering while attempts run.
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

_LOOKS_EVERY = 1.0  # seconds between two looks at the scheduler
_ANSWERS_IN = 5.0  # seconds that a scheduler may take to answer
_CLOSES_IN = 0.5  # seconds that a stopping worker waits for the cluster's thread
_LOGGERS = ("distributed", "distributed.client", "distributed.gc", "tornado", "tornado.application")
_DASK_CLOSES_IN = 5  # seconds that Dask may take to close a client

Message = dict[str, Any]


class Size(NamedTuple):
    """Memory and cores that a node has, or that a job needs."""

    memory_mb: int
    cores: int

    def holds(self, other: "Size") -> bool:
        return self.memory_mb >= other.memory_mb and self.cores >= other.cores


class Place:
    """A thread of a node, for one attempt. The slot waits for messages and sends some; the loop's thread puts what the
    node sends into the inbox."""

    def __init__(self, client: Client) -> None:
        self.ticket = uuid4().hex
        self.node = ""  # address of the node; written by the loop, as is _comm
        self._comm: Any = None
        self._is_released = False  # written by the slot
        self._client = client
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self.future: Future | None = None  # written once, by the slot

    def hear(self, message: Message) -> None:
        """Puts a message into the inbox, from any thread. A slow reader misses progress and log lines."""
        if self._inbox.qsize() < node.MOST_WAITING or not message.keys() & node.CHATTER:
            self._inbox.put(message)

    def next(self, within: float) -> Message | None:
        """Waits for the next message; None: nothing came in this time."""
        with suppress(Empty):
            return self._inbox.get(timeout=max(0.0, within))
        return None

    def say(self, message: Message) -> None:
        if self._comm is not None:
            asyncio.run_coroutine_threadsafe(self._say(message), self._client.loop.asyncio_loop)

    async def _say(self, message: Message) -> None:
        with suppress(OSError):  # the connection is lost: `talk` notices when it reads
            await self._comm.write(message)

    async def talk(self, address: str) -> None:
        """Connects to the node and receives its messages up to the final one. Then the connection is kept for other
        places."""
        self.node = address
        try:
            comm = await self._client.rpc.connect(address)
        except (OSError, RuntimeError) as error:  # RuntimeError: our client is closing
            self.hear({"lost": str(error)})
            return
        self._comm = comm
        try:
            if self._is_released:  # let_go was called before there was a connection to abort
                return
            await comm.write({"op": node.OPERATION, "ticket": self.ticket})
            while True:
                message = await comm.read()
                if message.keys() & node.LAST_WORDS:
                    break
                self.hear(message)
            self._comm = None  # from here on `let_go` must not abort it: another place may use it
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
        """Ends the Dask task; a node that still runs the attempt stops it."""
        self._is_released = True
        if self._comm is not None:
            self._client.loop.add_callback(self._abort, self._comm)
        if self.future is not None:
            self.future.release()

    def _abort(self, comm: Any) -> None:
        if self._comm is comm:  # otherwise the connection serves another place already
            comm.abort()


class Cluster:
    """start() and stop(). A thread asks the scheduler once a second whether it lives and how many cores it has."""

    def __init__(self, address: str, complain: Callable[[str, BaseException], None]) -> None:
        self.address = address
        # called with the number of cores; set by the executor before the start
        self.on_change: Callable[[int], None] = lambda _cores: None
        self._complain = complain
        self._topic = f"snapapp-{platform.node()}"  # kept over restarts, because a scheduler forgets no topic
        self._places: dict[str, Place] = {}  # by ticket; shared by single dict operations
        self._client: Client | None = None  # written by the cluster's thread, as are the next three
        self.sizes: frozenset[Size] = frozenset()  # of all nodes seen so far: a node that is away may come back
        self._is_there = False
        self._has_complained = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="cluster", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSES_IN)  # a thread that waits for a silent scheduler ends later

    def place(self, modules: tuple[str, ...], memory_mb: int, cores: int) -> Place:
        """Asks the scheduler for a place. The place's first message tells whether a node has it."""
        client = self._client
        if client is None or not self._is_there:
            raise NoPlace(f"the cluster at {self.address} is away")
        client.subscribe_topic(self._topic, self._hear)  # each time, because a restarted scheduler has forgotten it
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
        place.future.add_done_callback(lambda future: self._on_task_end(place, future))
        return place

    def let_go(self, place: Place) -> None:
        self._places.pop(place.ticket, None)
        place.let_go()

    def _on_task_end(self, place: Place, future: Future) -> None:
        """Tells a place that its task failed before a node had it. Once a node has it, its connection tells more."""
        if not place.node and future.status != "finished":
            error = future.exception(timeout=_ANSWERS_IN) if future.status == "error" else None
            place.hear({"refused": str(error) if error else f"the scheduler has dropped it ({future.status})"})

    def _hear(self, event: tuple[float, Message]) -> None:
        """Called on the loop when a task publishes its ticket. When Dask has lost a node it runs the task again: that
        second ticket is ignored, because the slot knows of the loss."""
        place = self._places.get(event[1]["ticket"])
        if place and not place.node:
            asyncio.ensure_future(place.talk(event[1]["at"]))  # noqa: RUF006 - the slot waits for its messages

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
        client = self._client or self._connect()
        if client.status != "running":
            if client.status == "closed":  # otherwise Dask reconnects by itself, and attempts on nodes go on
                self._close()
            raise JobsError(f"the scheduler at {self.address} is lost")
        identity = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWERS_IN)
        self._is_there, self._has_complained = True, False
        self.sizes |= {
            Size(int(its["MB"]), int(its["cores"]))
            for its in (each["resources"] for each in identity["workers"].values())
            if {"MB", "cores"} <= its.keys()
        }
        self.on_change(sum(each["nthreads"] for each in identity["workers"].values()))

    def _connect(self) -> Client:
        self._client = client = connect_client(self.address)
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
                client.close(timeout=_DASK_CLOSES_IN)


def connect_client(address: str, within: float = _ANSWERS_IN) -> Client:
    """Connects to a scheduler; raises NoPlace with the reason."""
    began = monotonic()
    _reset_loggers()
    try:
        return Client(cluster_url(address), timeout=within, set_as_default=False)
    except Exception as error:
        took = monotonic() - began
        raise NoPlace(f"no scheduler answers at {address} ({took:.1f} s): {error}") from error


def _reset_loggers() -> None:
    """Importing Dask gives these loggers handlers of their own; ours shall handle them, from ERROR on."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.ERROR)

"""`snapapp compute node`: a node of a cluster, which runs child processes for workers. It ends at a signal, or when its
scheduler is gone; the service manager then starts it again."""

import asyncio
import os
import signal
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from snapapp import logs
from snapapp.errors import SnapError
from snapapp.jobs.os import memory
from snapapp.jobs.settings import cluster_url
from snapapp.settings.table import Settings

if TYPE_CHECKING:
    from distributed import Worker

_FOR_THE_REST_MB = 512  # of a machine's memory that jobs do not get
_PRELOAD = "snapapp.process.compute_node"


def run(arguments: Namespace, settings: Settings) -> int:
    typed = arguments.scheduler or settings.compute
    if typed is None:
        raise SnapError("Where is the scheduler? Type `snapapp compute node dask://host:8786`, or set SNAPAPP_COMPUTE.")
    cores = arguments.cores or len(os.sched_getaffinity(0))
    memory_mb = arguments.memory_mb or max(1, (memory.total_mb() or 2048) - _FOR_THE_REST_MB)
    asyncio.run(_serve(str(cluster_url(typed)), cores, memory_mb, arguments.name, settings))
    return 0


async def _serve(url: str, cores: int, memory_mb: int, name: str | None, settings: Settings) -> None:
    from distributed import Status, Worker

    logs.set_up(settings)
    node = Worker(
        url,
        nthreads=cores,
        resources={"MB": memory_mb, "cores": cores},
        memory_limit=0,  # no limit: the node holds no data, and each child process has its own limit
        name=name,
        preload=_PRELOAD,
        dashboard=False,
    )
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    ends = [asyncio.ensure_future(_run(node)), asyncio.ensure_future(signalled.wait())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if ends[0].done():
        _check(ends[0])
    elif node.status == Status.running:
        await node.close(reason="told to end")
    else:  # the node has found no scheduler, and would go on looking for ever
        ends[0].cancel()


def _check(run: "asyncio.Future[Any]") -> None:
    try:
        run.result()
    except RuntimeError as error:
        raise SnapError(f"The node cannot start: {error.__cause__ or error}") from error


async def _run(node: "Worker") -> None:
    await node
    await node.finished()

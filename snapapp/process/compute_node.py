"""The module that every node of a cluster loads, even a node started by hand (`--preload
snapapp.process.compute_node`). The node reads the settings of its own machine, for the children that it starts."""

from distributed import Worker

from snapapp.jobs.compute import node
from snapapp.settings.loading import from_environment

_NO_DATABASE = "postgresql:///"  # never connected to: a node has no database


def dask_setup(worker: Worker) -> None:
    node.attach(worker, from_environment().jobs(_NO_DATABASE))


async def dask_teardown(_worker: Worker) -> None:
    await node.detach()

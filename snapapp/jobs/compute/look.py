"""The state of a cluster as its scheduler tells it, for the doctor."""

from typing import NamedTuple

from snapapp.jobs.compute.cluster import connect_client

_ANSWERS_IN = 1.0  # seconds: the doctor waits no longer than 2 for any check


class Seen(NamedTuple):
    """The nodes that can run our jobs, and their cores and memory together."""

    nodes: int
    cores: int
    memory_mb: int
    others: int  # nodes that cannot run our jobs


def look(address: str) -> Seen:
    """Asks the scheduler; raises NoPlace when it does not answer."""
    with connect_client(address, within=_ANSWERS_IN) as client:
        identity = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWERS_IN)
    resources = [each["resources"] for each in identity["workers"].values()]
    usable = [each for each in resources if {"MB", "cores"} <= each.keys()]
    cores, memory_mb = (int(sum(each[name] for each in usable)) for name in ("cores", "MB"))
    return Seen(len(usable), cores, memory_mb, len(resources) - len(usable))

"""What a scheduler says of its cluster, for whoever asks how it is."""

from typing import NamedTuple

from snapapp.jobs.compute.cluster import connected

_ANSWERS_IN = 1.0  # seconds: the doctor waits no longer than 2 for any check


class Seen(NamedTuple):
    """Nodes that run our children, and what they have for them."""

    nodes: int
    cores: int
    memory_mb: int
    others: int  # nodes that do not


def look(address: str) -> Seen:
    """Or NoPlace, where nobody answers."""
    with connected(address, within=_ANSWERS_IN) as client:
        told = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWERS_IN)
    resources = [each["resources"] for each in told["workers"].values()]
    ours = [each for each in resources if {"MB", "cores"} <= each.keys()]
    cores, memory_mb = (int(sum(each[name] for each in ours)) for name in ("cores", "MB"))
    return Seen(len(ours), cores, memory_mb, len(resources) - len(ours))

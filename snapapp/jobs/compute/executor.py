"""The executor of kinds that run on the cluster: as many slots as are wanted and the cluster has cores for."""

from collections.abc import Callable, Sequence

from snapapp.jobs.compute.cluster import Cluster
from snapapp.jobs.compute.remote import Remote
from snapapp.jobs.context import Within
from snapapp.jobs.executors import Work
from snapapp.jobs.executors.runners import Runner, RunnerExecutor
from snapapp.jobs.settings import JobsSettings


def opened(
    settings: JobsSettings,
    modules: tuple[str, ...],
    within: Within,
    *,
    works: Callable[[Sequence[Runner]], list[Work]],
    on_free: Callable[[], None],
    complain: Callable[[str, BaseException], None],
) -> "ClusterExecutor":
    """With a connection of its own to the scheduler that the settings name."""
    assert settings.compute
    cluster = Cluster(settings.compute, complain)
    runners = [Remote(cluster, modules, settings, within) for _ in range(settings.children)]
    return ClusterExecutor(cluster, runners, works(runners), on_free, complain)


class ClusterExecutor(RunnerExecutor):
    """While the cluster is away it has no slots, so nothing is claimed for it and its jobs wait in the queue."""

    def __init__(
        self,
        cluster: Cluster,
        runners: Sequence[Runner],
        works: list[Work],
        on_free: Callable[[], None],
        complain: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(runners, works, on_free, "cluster", complain)
        self._cluster = cluster
        cluster.on_change = self.fit
        self.slots = 0  # written by the cluster's thread

    def start(self) -> None:
        self._cluster.start()
        super().start()

    def stop(self, patience: float = 1) -> None:
        super().stop(patience)
        self._cluster.stop()

    def fit(self, cores: int) -> None:
        slots = min(cores, len(self._runners))
        has_more, self.slots = slots > self.slots, slots
        if has_more:
            self._on_free()

"""The executor of kinds that run on the cluster. It has as many slots as the settings say, at most one for each core of
the cluster."""

from collections.abc import Callable, Sequence

from snapapp.jobs.compute.cluster import Cluster
from snapapp.jobs.compute.remote import Remote
from snapapp.jobs.context import Within
from snapapp.jobs.executors import Work
from snapapp.jobs.executors.runners import Runner, RunnerExecutor
from snapapp.jobs.settings import JobsSettings


class ClusterExecutor(RunnerExecutor):
    """It has its own connection to the scheduler at `address`. While the cluster is away it has no slots, so its jobs
    are not claimed and wait in the queue."""

    def __init__(
        self,
        address: str,
        modules: tuple[str, ...],
        settings: JobsSettings,
        within: Within,
        *,
        works: Callable[[Sequence[Runner]], list[Work]],
        on_free: Callable[[], None],
        complain: Callable[[str, BaseException], None],
    ) -> None:
        self._cluster = Cluster(address, complain)
        runners = [Remote(self._cluster, modules, settings, within) for _ in range(settings.children)]
        super().__init__(runners, works(runners), on_free, "cluster", complain)
        self._cluster.on_change = self.fit
        self.slots = 0  # written by the cluster's thread

    def start(self) -> None:
        self._cluster.start()
        super().start()

    def stop(self, patience: float = 1) -> None:
        super().stop(patience)
        self._cluster.stop()

    def fit(self, cores: int) -> None:
        """Called once a second with the number of cores that the cluster has now."""
        slots = min(cores, len(self._runners))
        has_more, self.slots = slots > self.slots, slots
        if has_more:
            self._on_free()

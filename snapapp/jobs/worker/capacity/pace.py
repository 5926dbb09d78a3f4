"""How long jobs of each kind take in this worker. It decides how many jobs are claimed ahead of free slots."""

from collections.abc import Iterable

from snapapp.jobs.model import Finished

AHEAD = 0.1  # seconds of work that may be claimed ahead for each slot; a quick kind takes less than this for one job
_WEIGHT = 8  # a batch of 8 jobs counts as much as the old mean: a process's first jobs are slow, so it forgets fast


class Pace:
    """Mean seconds of a job by kind: written by the threads that settle, read by the claimer."""

    def __init__(self) -> None:
        self._mean: dict[str, float] = {}

    def learn(self, finished: Iterable[Finished]) -> None:
        sums: dict[str, tuple[int, float]] = {}
        for job, _, ran_for in finished:
            count, total = sums.get(job.kind, (0, 0.0))
            sums[job.kind] = (count + 1, total + (ran_for or 0.0))
        for kind, (count, total) in sums.items():
            old_mean = self._mean.get(kind)
            batch_mean, weight = total / count, count / (count + _WEIGHT)
            self._mean[kind] = batch_mean if old_mean is None else (1 - weight) * old_mean + weight * batch_mean

    def is_quick(self, kind: str) -> bool:
        return self._mean.get(kind, AHEAD) < AHEAD

    def ahead(self, kind: str, slots: int, at_most: int) -> int:
        """Returns how many jobs of a quick kind so many slots finish within AHEAD; 0 for other kinds."""
        if not self.is_quick(kind):
            return 0
        return min(at_most, int(slots * AHEAD / max(self._mean[kind], 1e-6)))

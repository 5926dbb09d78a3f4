"""How long jobs of each kind take here: what decides how many may wait in memory for a slot."""

from collections.abc import Iterable

from snapapp.jobs.model import Finished

AHEAD = 0.1  # seconds of work a slot may have waiting
_WEIGHT = 8  # so many jobs of a batch weigh as much as all that was known: the first of a process are slow


class Pace:
    """Means by kind: written by whoever settles, read by the claimer."""

    def __init__(self) -> None:
        self._mean: dict[str, float] = {}

    def learn(self, finished: Iterable[Finished]) -> None:
        sums: dict[str, tuple[int, float]] = {}
        for job, _, ran_for in finished:
            count, total = sums.get(job.kind, (0, 0.0))
            sums[job.kind] = (count + 1, total + (ran_for or 0.0))
        for kind, (count, total) in sums.items():
            known = self._mean.get(kind)
            fresh, weight = total / count, count / (count + _WEIGHT)
            self._mean[kind] = fresh if known is None else (1 - weight) * known + weight * fresh

    def is_quick(self, kind: str) -> bool:
        return self._mean.get(kind, AHEAD) < AHEAD

    def ahead(self, kind: str, slots: int, at_most: int) -> int:
        """How many jobs of this kind so many slots finish in the time ahead; none of a kind that takes longer."""
        if not self.is_quick(kind):
            return 0
        return min(at_most, int(slots * AHEAD / max(self._mean[kind], 1e-6)))

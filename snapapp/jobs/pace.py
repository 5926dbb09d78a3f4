"""How long jobs of each kind take here: what decides how many may wait in memory for a slot."""

from collections.abc import Iterable
from time import monotonic

from snapapp.jobs.model import Finished, Job

_AHEAD = 0.1  # seconds of work a slot may have waiting
_MEMORY = 0.7  # of the mean so far, in each batch
_SINGLES_LAST = 1.0  # seconds: where one job with a single attempt is, there are probably more


class Pace:
    """Means by kind and of the recent mix: written by the settler, read by the claimer."""

    def __init__(self) -> None:
        self._mean: dict[str, float] = {}
        self._recent: float | None = None  # of whatever ran lately, all kinds together
        self._not_before: dict[str, float] = {}  # kinds of which a job with a single attempt was seen; by the claimer

    def learn(self, finished: Iterable[Finished]) -> None:
        sums: dict[str, tuple[int, float]] = {}
        for job, _, ran_for in finished:
            count, total = sums.get(job.kind, (0, 0.0))
            sums[job.kind] = (count + 1, total + (ran_for or 0.0))
        for kind, (count, total) in sums.items():
            self._mean[kind] = _blend(self._mean.get(kind), total / count)
            self._recent = _blend(self._recent, total / count)

    def may_wait(self, kind: str) -> bool:
        """Are jobs of this kind so short that some may wait for a slot?"""
        return self._mean.get(kind, _AHEAD) < _AHEAD and self._not_before.get(kind, 0.0) < monotonic()

    def ahead(self, slots: int, at_most: int) -> int:
        """How many jobs like the recent ones the slots finish in the time ahead."""
        if self._recent is None:
            return 0
        return min(at_most, int(slots * _AHEAD / max(self._recent, 1e-6)))

    def too_many(self, jobs: list[Job], free: int, slots: int) -> list[Job]:
        """Of a claimed batch, those that must not wait: single attempts, long kinds, more than the time ahead."""
        budget = 2 * slots * _AHEAD
        excess = []
        for job in jobs[free:]:
            budget -= self._mean.get(job.kind, _AHEAD)
            if job.max_attempts == 1:
                self._not_before[job.kind] = monotonic() + _SINGLES_LAST
            if budget < 0 or job.max_attempts == 1 or self._mean.get(job.kind, _AHEAD) >= _AHEAD:
                excess.append(job)
        if excess:  # the mix has changed: expect more of what just came
            self._recent = sum(self._mean.get(job.kind, _AHEAD) for job in jobs) / len(jobs)
        return excess


def _blend(known: float | None, fresh: float) -> float:
    return fresh if known is None else _MEMORY * known + (1 - _MEMORY) * fresh

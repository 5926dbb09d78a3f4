"""Memory admission: a kind of job that runs in processes of its own is not claimed while what its attempts were seen to
need is not free. One job may always run, or a kind that has outgrown the box would wait for ever."""

from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic
from typing import NamedTuple

from snapapp.jobs.model import Job
from snapapp.jobs.os import memory
from snapapp.jobs.worker.leases.held import HeldJobs

_AGAIN = 1.2  # times its need: what was held back comes in again only with so much free, or it would come and go
_FRESH = 0.1  # seconds for which a look at the memory is good
_MB = 1024 * 1024


class Verdict(NamedTuple):
    """May jobs of a kind come in?"""

    at_most: int  # 0: none
    why: str  # in words


def judge(
    needs: Mapping[str, float], free_mb: float, promised_mb: float, held: Collection[str], *, is_empty: bool
) -> dict[str, Verdict]:
    """For each kind how many jobs fit. `promised_mb`: what those that run may still take."""
    verdicts = {}
    for kind, need in needs.items():
        room = free_mb - promised_mb
        fits = int(room // need) if room >= need * (_AGAIN if kind in held else 1) else 0
        why = f"95 of 100 attempts stay within {need:.0f} MB, {max(free_mb, 0):.0f} MB are free"
        if promised_mb >= 1:
            why += f", of which running jobs may take {promised_mb:.0f} MB"
        verdicts[kind] = Verdict(max(fits, 1) if is_empty else fits, why)
    return verdicts


class Admission:
    """`look` and `took` are for the claimer's thread; `learn` replaces what it reads; others may read what is held."""

    def __init__(
        self,
        kinds: Iterable[str],
        held_jobs: HeldJobs,
        *,
        reserve_mb: int = 0,
        free_mb: Callable[[], int | None] = memory.free_mb,
    ) -> None:
        self.kinds = frozenset(kinds)  # those that run in processes of their own
        self._held_jobs = held_jobs
        self._reserve_mb = reserve_mb
        self._free_mb = free_mb
        self._seen: tuple[float, int | None] = (float("-inf"), None)  # when and how much; by whoever looks
        self._needs: dict[str, float] = {}
        self._jobs: list[Job] = []  # of these kinds, claimed and not settled; by the claimer
        self._verdicts: dict[str, Verdict] = {}  # likewise
        self._has_opened = False  # a kind that was held back, since somebody asked; likewise
        self.held: dict[str, str] = {}  # kind -> why; likewise

    def learn(self, needs: Mapping[str, float]) -> None:
        """MB that most attempts of a kind stay within."""
        self._needs = {kind: max(need, 1.0) for kind, need in needs.items() if kind in self.kinds}

    def free_mb(self) -> int | None:
        """What jobs may still take, the reserve left out."""
        at, free = self._seen
        if monotonic() - at > _FRESH:
            free = self._free_mb()
            self._seen = (monotonic(), free)
        return None if free is None else free - self._reserve_mb

    def took(self, jobs: Iterable[Job]) -> None:
        """These were claimed; what they will take is not taken yet."""
        ours = [job for job in jobs if job.kind in self.kinds] if self.kinds else []
        if ours:
            self._jobs = [*self._still_held(), *ours]
            self._weigh()

    def look(self) -> bool:
        """Weighs anew. True: a kind that was held back may come in again."""
        self._weigh()
        has_opened, self._has_opened = self._has_opened, False
        return has_opened

    def _weigh(self) -> None:
        needs = self._needs
        if not (needs or self._verdicts) or (free := self.free_mb()) is None:
            return
        self._jobs = self._still_held()
        # whoever ran short of memory was promised twice its limit
        promised = sum(
            max(0.0, (job.memory_mb or needs.get(job.kind, 0.0)) - (job.peak or 0) / _MB) for job in self._jobs
        )
        self._verdicts = judge(needs, free, promised, self.held, is_empty=not self._jobs)
        held = {kind: verdict.why for kind, verdict in self._verdicts.items() if not verdict.at_most}
        self._has_opened = self._has_opened or bool(self.held.keys() - held.keys())
        self.held = held

    def _still_held(self) -> list[Job]:
        return [job for job in self._jobs if self._held_jobs.get(job.id) is job]

    def let_in(self, kinds: list[str]) -> list[str]:
        """Those of these kinds that are not held back."""
        held = self.held
        return [kind for kind in kinds if kind not in held] if held else kinds

    def at_most(self, kinds: Iterable[str], limit: int) -> int:
        """As many as `limit`, or fewer where more of one of these kinds would not fit."""
        verdicts = self._verdicts
        if not verdicts:
            return limit
        return min([limit, *(verdicts[kind].at_most for kind in kinds if kind in verdicts)])

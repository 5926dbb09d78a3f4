"""Memory admission: kinds that run in child processes are claimed only while the memory that their attempts usually
need is free. One such job may always run: a kind that needs more than the machine has would otherwise wait for ever."""

from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic
from typing import NamedTuple

from snapapp.jobs.model import Job
from snapapp.jobs.os import memory
from snapapp.jobs.worker.leases.held import HeldJobs

_AGAIN_AT = 1.2  # times its need must be free before a kind held back is let in again, so that it does not flap
_FRESH = 0.1  # seconds for which a reading of the free memory is used again
_MB = 1024 * 1024


class Verdict(NamedTuple):
    """How many jobs of a kind may be claimed."""

    at_most: int  # 0: none
    why: str  # a sentence for people


def judge(
    needs: Mapping[str, float], free_mb: float, promised_mb: float, held: Collection[str], *, is_empty: bool
) -> dict[str, Verdict]:
    """Returns for each kind how many more jobs fit. `promised_mb`: memory that running jobs may still take. `is_empty`:
    none of them runs."""
    verdicts = {}
    for kind, need in needs.items():
        room = free_mb - promised_mb
        fits = int(room // need) if room >= need * (_AGAIN_AT if kind in held else 1) else 0
        why = f"95 of 100 attempts stay within {need:.0f} MB, {max(free_mb, 0):.0f} MB are free"
        if promised_mb >= 1:
            why += f", of which running jobs may take {promised_mb:.0f} MB"
        verdicts[kind] = Verdict(max(fits, 1) if is_empty else fits, why)
    return verdicts


class Admission:
    """The claimer's thread calls `look` and `took`. Another thread calls `learn`, which replaces a dict as a whole. Any
    thread may read `held`."""

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
        self._seen: tuple[float, int | None] = (float("-inf"), None)  # when it was read, and what was free; any thread
        self._needs: dict[str, float] = {}
        self._jobs: list[Job] = []  # jobs of these kinds, claimed and not settled; the claimer's thread
        self._verdicts: dict[str, Verdict] = {}  # likewise
        self.held: dict[str, str] = {}  # kind that is held back -> why; likewise

    def learn(self, needs: Mapping[str, float]) -> None:
        """`needs`: kind -> MB that 95 of 100 attempts stay within."""
        self._needs = {kind: max(need, 1.0) for kind, need in needs.items() if kind in self.kinds}

    def free_mb(self) -> int | None:
        """Free memory without the reserve, in MB; None: unknown on this machine."""
        at, free = self._seen
        if monotonic() - at > _FRESH:
            free = self._free_mb()
            self._seen = (monotonic(), free)
        return None if free is None else free - self._reserve_mb

    def took(self, jobs: Iterable[Job]) -> None:
        """Counts claimed jobs: the memory that they will take still looks free."""
        claimed = [job for job in jobs if job.kind in self.kinds] if self.kinds else []
        if claimed:
            self._jobs = [*self._still_held(), *claimed]
            self.look()

    def look(self) -> None:
        """Computes anew which kinds are held back."""
        needs = self._needs
        if not (needs or self._verdicts) or (free := self.free_mb()) is None:
            return
        self._jobs = self._still_held()
        # job.memory_mb: after an attempt that ran short of memory the job got twice its limit, and may use all of it
        promised = sum(
            max(0.0, (job.memory_mb or needs.get(job.kind, 0.0)) - (job.peak or 0) / _MB) for job in self._jobs
        )
        self._verdicts = judge(needs, free, promised, self.held, is_empty=not self._jobs)
        self.held = {kind: verdict.why for kind, verdict in self._verdicts.items() if not verdict.at_most}

    def _still_held(self) -> list[Job]:
        return [job for job in self._jobs if self._held_jobs.get(job.id) is job]

    def let_in(self, kinds: list[str]) -> list[str]:
        """The given kinds without those held back."""
        held = self.held
        return [kind for kind in kinds if kind not in held] if held else kinds

    def at_most(self, kind: str, limit: int) -> int:
        """`limit`, or less where the memory for jobs of this kind does not suffice."""
        verdict = self._verdicts.get(kind)
        return min(limit, verdict.at_most) if verdict else limit

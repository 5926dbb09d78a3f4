"""How many processes each pool should have: pure, so that a simulation over recorded loads can judge it.

A process more helps only where jobs can be claimed and would be cleared sooner. It goes up one step at a time, as soon
as the cooldown allows, and down only after a while of calm: starting is cheap, flapping is not.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf
from operator import itemgetter
from typing import Any

from snapapp.jobs.fleet.plan import Balance, Pool, Strategy

_STALLED_AFTER = 10.0  # seconds in which due jobs waited beside idle processes
_CALM_LOOKS = 3  # cooldowns of calm before it goes down
_ALMOST = 0.9  # of a cooldown: looks come once in one, some a moment early
_HEADROOM = 1.25  # of what is needed by what comes, so that chance does not fill the queue
_A_PROCESS_MB = 60.0  # where nothing was measured yet
_UP, _DOWN = 0.5, 0.1  # of the newest look, in what is remembered: one that came too early sees too little
_SLOW = 1.0  # seconds: of jobs that take longer, too few end within a look


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What waits for a pool and how it moves. Only what could be claimed now counts."""

    due: int
    oldest_due: float = 0.0  # seconds that the oldest of them has waited
    running: int = 0
    arrivals: float = 0.0  # jobs a second
    finished: float = 0.0  # jobs a second
    runtime: float | None = None  # seconds, the mean of those that finished lately; None: none did


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """A pool as it stands."""

    pool: Pool
    load: Load
    present: int
    rate: float | None = None  # jobs a second that one process did when it last had its hands full; None: not seen yet
    since_change: float = inf  # seconds since its size was changed
    calm_for: float = inf  # seconds since `is_calm` was last untrue
    stalled_for: float = 0.0  # seconds since `is_stalled` was last untrue
    rss_mb: float | None = None  # of its processes, the 95th percentile

    def as_json(self) -> dict[str, Any]:
        """What was decided from, for the record."""
        measured = {name: value for name, value in asdict(self).items() if name != "pool"}
        measured |= {"pressure": self.pressure, "time_to_clear": self.time_to_clear, "needed": self.needed()}
        return {name: None if value == inf else value for name, value in measured.items()}

    @property
    def rate_now(self) -> float | None:
        """What one process does while more waits; None where that cannot be seen now. Of slow jobs hardly one ends
        while anybody looks, but how many run and how long they take says it as well."""
        load = self.load
        if not self.present or load.due < self.present:
            return None
        if load.runtime is not None and load.runtime > _SLOW:
            return load.running / load.runtime / self.present or None
        return load.finished / self.present or None

    @property
    def pressure(self) -> float:
        """Due jobs for each process."""
        return self.load.due / max(1, self.present)

    @property
    def time_to_clear(self) -> float:
        """Seconds that what is due takes at the present size; without a known rate, as long as it has waited."""
        if not self.load.due:
            return 0.0
        return self.load.due / (self.rate * max(1, self.present)) if self.rate else self.load.oldest_due

    def needed(self, headroom: float = 1.0) -> float:
        """Processes that keep up with what comes and clear what is due in time."""
        if not self.rate:
            return inf if self.load.due else 0.0
        wanted = headroom * self.load.arrivals + self.load.due / self.pool.clear_within.total_seconds()
        return ceil(wanted / self.rate - 1e-9)

    @property
    def is_calm(self) -> bool:
        """Fewer would do."""
        return self.pressure < self.pool.scale_down_threshold and self.needed(_HEADROOM) < self.present

    @property
    def is_stalled(self) -> bool:
        """Jobs wait and none runs: somebody holds them back, and more processes would be held back as well."""
        return bool(self.load.due and self.present and not self.load.running and not self.load.finished)


@dataclass(slots=True)
class Memory:
    """What a look at a pool does not show, but the looks before did."""

    kinds: list[str] | None = None  # that its workers know
    rate: float | None = None  # jobs a second, of a process with its hands full
    changed_at: float = float("-inf")
    not_calm_at: float | None = None
    not_stalled_at: float | None = None

    def note(self, crew: Crew, now: float) -> Crew:
        """The crew, with what is remembered of it."""
        if (rate := crew.rate_now) is not None:
            before = rate if self.rate is None else self.rate
            self.rate = before + (_UP if rate > before else _DOWN) * (rate - before)
        crew = replace(crew, rate=self.rate, since_change=now - self.changed_at)
        if self.not_calm_at is None or not crew.is_calm:
            self.not_calm_at = now
        if self.not_stalled_at is None or not crew.is_stalled:
            self.not_stalled_at = now
        return replace(crew, calm_for=now - self.not_calm_at, stalled_for=now - self.not_stalled_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """What all pools of a host share. None: there is no limit, or it is not known."""

    max_processes: int | None = None
    free_mb: float | None = None
    reserve_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    wanted: int
    reason: str


def decide(crews: Sequence[Crew], box: Box = Box()) -> list[Decision]:
    """For each crew, in the same order."""
    return _within_memory(crews, _within_lid(crews, [_alone(crew) for crew in crews], box), box)


# --- one pool by itself -----------------------------------------------------------------------------------------


def _alone(crew: Crew) -> Decision:
    pool = crew.pool
    if pool.balance is Balance.OFF:
        return Decision(pool.max_processes, "balance is off")
    if crew.present < pool.min_processes:
        return Decision(pool.min_processes, "min_processes")
    if crew.present > pool.max_processes:
        return Decision(pool.max_processes, "max_processes")
    if crew.since_change < _ALMOST * pool.cooldown.total_seconds():
        return Decision(crew.present, "it was changed just now")
    return _simple(crew) if pool.balance is Balance.SIMPLE else _auto(crew)


def _simple(crew: Crew) -> Decision:
    pool, size = crew.pool, crew.load.due
    wanted = min(pool.max_processes, max(pool.min_processes, ceil(size / pool.threshold)))
    return Decision(wanted, f"{size} due, one process for each {pool.threshold}")


def _auto(crew: Crew) -> Decision:
    pool = crew.pool
    if crew.stalled_for >= _STALLED_AFTER:
        fewer = _down(crew, pool.min_processes)
        return Decision(fewer, f"{crew.load.due} are due and none runs: more processes would not help")
    if _wants_more(crew):
        more = min(pool.max_processes, crew.present + min(pool.max_shift, _missing(crew)))
        return Decision(more, _why_more(crew) if more > crew.present else f"{_why_more(crew)}, but it has its most")
    if crew.is_calm and crew.calm_for >= _CALM_LOOKS * pool.cooldown.total_seconds():
        fewer = _down(crew, max(pool.min_processes, int(crew.needed(_HEADROOM))))
        return Decision(fewer, "fewer keep up" if fewer < crew.present else "it has its fewest")
    return Decision(crew.present, "it keeps up")


def _wants_more(crew: Crew) -> bool:
    if not crew.load.due:
        return False
    if crew.present == 0:
        return True
    waits_long = crew.time_to_clear > crew.pool.clear_within.total_seconds()
    is_busy = crew.load.running > 0 or crew.load.finished > 0  # a worker that has just come may not have looked yet
    return is_busy and crew.needed() > crew.present and (crew.pressure > crew.pool.scale_up_threshold or waits_long)


def _missing(crew: Crew) -> int:
    needed = crew.needed()
    return crew.pool.max_shift if needed == inf else max(1, int(needed) - crew.present)


def _why_more(crew: Crew) -> str:
    if crew.rate is None:
        return f"{crew.load.due} are due, {crew.pressure:.1f} a process, the oldest for {crew.load.oldest_due:.0f} s"
    return f"{crew.load.due} are due and would take {crew.time_to_clear:.0f} s"


def _down(crew: Crew, least: int) -> int:
    return max(least, crew.present - crew.pool.max_shift) if crew.present > least else crew.present


# --- several pools on one box -----------------------------------------------------------------------------------


def _within_lid(crews: Sequence[Crew], wishes: list[Decision], box: Box) -> list[Decision]:
    """Where all wishes together are too many, each pool gets a share by the time that it would take to clear."""
    if box.max_processes is None or sum(wish.wanted for wish in wishes) <= box.max_processes:
        return wishes
    shares = share([_weight(crew) for crew in crews], [crew.pool for crew in crews], box.max_processes)
    return [_towards(crew, wish, fair) for crew, wish, fair in zip(crews, wishes, shares, strict=True)]


def _weight(crew: Crew) -> float:
    return float(crew.load.due) if crew.pool.strategy is Strategy.SIZE else crew.time_to_clear * crew.present


def _towards(crew: Crew, wish: Decision, fair: int) -> Decision:
    if wish.wanted <= fair:
        return wish
    if crew.present > fair and crew.since_change >= _ALMOST * crew.pool.cooldown.total_seconds():
        return Decision(
            max(fair, crew.present - crew.pool.max_shift), f"others have more to clear: its share is {fair}"
        )
    return Decision(min(wish.wanted, max(fair, crew.present)), f"{wish.reason}; its share of the box is {fair}")


def share(weights: Sequence[float], pools: Sequence[Pool], total: int) -> list[int]:
    """So many processes among pools, each within its bounds, as near to the weights as whole numbers allow."""
    shares = [pool.min_processes for pool in pools]
    for _ in range(total - sum(shares)):
        hungry = [
            (weights[place] / (shares[place] + 1), place)
            for place, pool in enumerate(pools)
            if shares[place] < pool.max_processes
        ]
        if not hungry:
            break
        shares[max(hungry, key=itemgetter(0))[1]] += 1
    return shares


def _within_memory(crews: Sequence[Crew], wishes: list[Decision], box: Box) -> list[Decision]:
    """Whoever takes longest to clear is served first, as far as the box's free memory goes."""
    if box.free_mb is None:
        return wishes
    room = box.free_mb - box.reserve_mb
    granted = list(wishes)
    for place in sorted(range(len(crews)), key=lambda place: -crews[place].time_to_clear):
        crew, wish = crews[place], wishes[place]
        more = wish.wanted - max(crew.present, crew.pool.min_processes)
        if more <= 0 or crew.pool.balance is Balance.OFF:
            continue
        size = crew.rss_mb or _A_PROCESS_MB
        fits = min(more, max(0, int(room // size)))
        room -= fits * size
        if fits < more:
            why = f"only {box.free_mb:.0f} MB are free, of which {box.reserve_mb:.0f} stay, and one takes {size:.0f}"
            granted[place] = Decision(wish.wanted - more + fits, f"{wish.reason}; {why}")
    return granted

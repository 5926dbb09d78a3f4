"""Decides how many processes each pool should have: pure functions, so that a simulation over recorded loads can judge
them.

A pool grows only if its due jobs can be claimed and one more process would clear them sooner. It grows one step at a
time, as soon as the cooldown allows, and shrinks only after a time of calm: starting a process is cheap, but going up
and down all the time is not.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf
from operator import itemgetter
from typing import Any

from snapapp.jobs.fleet.plan import Balance, Pool, Strategy

_STALLED_AFTER = 10.0  # seconds of due jobs beside idle processes until a pool counts as stalled
_CALM_LOOKS = 3  # cooldowns of calm before a pool shrinks
_ALMOST = 0.9  # share of a cooldown that must have passed: looks come once in a cooldown, some a moment early
_HEADROOM = 1.25  # processes for this many times the arrivals, so that random bursts do not fill the queue
_A_PROCESS_MB = 60.0  # size of a process as long as none was measured
_UP, _DOWN = (
    0.5,
    0.1,
)  # weight of a higher and of a lower new rate: a look that comes early sees too little
_SLOW = 1.0  # seconds; of jobs that run longer, too few end between two looks to measure a rate by


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The jobs of a pool: how many are due and run, and how fast they come and go. Only jobs that could be claimed now
    count as due."""

    due: int
    oldest_due: float = 0.0  # seconds for which the oldest due job has been due
    running: int = 0
    arrivals: float = 0.0  # jobs a second
    finished: float = 0.0  # jobs a second
    runtime: float | None = None  # mean seconds of the jobs that finished lately; None: there were none


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A pool at one look: its load, its size, and what is remembered from earlier looks."""

    pool: Pool
    load: Load
    present: int
    rate: float | None = None  # jobs a second of one fully busy process, as last measured; None: not measured yet
    since_change: float = inf  # seconds since its size was changed
    calm_for: float = inf  # seconds since `is_calm` was last untrue
    stalled_for: float = 0.0  # seconds since `is_stalled` was last untrue
    rss_mb: float | None = None  # of its processes, the 95th percentile

    def as_json(self) -> dict[str, Any]:
        """The numbers behind a decision, for the table job_scaling."""
        measured = {name: value for name, value in asdict(self).items() if name != "pool"}
        measured |= {"pressure": self.pressure, "time_to_clear": self.time_to_clear, "needed": self.needed()}
        return {name: None if value == inf else value for name, value in measured.items()}

    @property
    def rate_now(self) -> float | None:
        """Jobs a second of one process, measured now; None if no job waits, because then processes are not fully busy.
        For slow jobs it is computed from how many run and how long they take, because too few end between two looks."""
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
        """Seconds that the due jobs will take at the present size; without a known rate, as long as the oldest has
        waited."""
        if not self.load.due:
            return 0.0
        return self.load.due / (self.rate * max(1, self.present)) if self.rate else self.load.oldest_due

    def needed(self, headroom: float = 1.0) -> float:
        """How many processes keep up with the arrivals and clear the due jobs within `clear_within`."""
        if not self.rate:
            return inf if self.load.due else 0.0
        wanted = headroom * self.load.arrivals + self.load.due / self.pool.clear_within.total_seconds()
        return ceil(wanted / self.rate - 1e-9)

    @property
    def is_calm(self) -> bool:
        """Whether fewer processes would be enough."""
        return self.pressure < self.pool.scale_down_threshold and self.needed(_HEADROOM) < self.present

    @property
    def is_stalled(self) -> bool:
        """Whether jobs are due and none runs: something holds them back, and would hold back more processes too."""
        return bool(self.load.due and self.present and not self.load.running and not self.load.finished)


@dataclass(slots=True)
class Memory:
    """What is remembered of a pool from earlier looks."""

    kinds: list[str] | None = None  # that its workers know
    rate: float | None = None  # jobs a second of a fully busy process
    changed_at: float = float("-inf")
    not_calm_at: float | None = None
    not_stalled_at: float | None = None

    def note(self, state: PoolState, now: float) -> PoolState:
        """Remembers this look, and returns the state with what is remembered of it."""
        if (rate := state.rate_now) is not None:
            before = rate if self.rate is None else self.rate
            self.rate = before + (_UP if rate > before else _DOWN) * (rate - before)
        state = replace(state, rate=self.rate, since_change=now - self.changed_at)
        if self.not_calm_at is None or not state.is_calm:
            self.not_calm_at = now
        if self.not_stalled_at is None or not state.is_stalled:
            self.not_stalled_at = now
        return replace(state, calm_for=now - self.not_calm_at, stalled_for=now - self.not_stalled_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """The limits that all pools of a host share. None: there is no limit, or it is not known."""

    max_processes: int | None = None
    free_mb: float | None = None
    reserve_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    wanted: int
    reason: str


def decide(states: Sequence[PoolState], box: Box = Box()) -> list[Decision]:
    """The decision for each state, in the same order."""
    return _within_memory(states, _within_max_processes(states, [_alone(state) for state in states], box), box)


# --- one pool by itself -----------------------------------------------------------------------------------------


def _alone(state: PoolState) -> Decision:
    pool = state.pool
    if pool.balance is Balance.OFF:
        return Decision(pool.max_processes, "balance is off")
    if state.present < pool.min_processes:
        return Decision(pool.min_processes, "min_processes")
    if state.present > pool.max_processes:
        return Decision(pool.max_processes, "max_processes")
    if state.since_change < _ALMOST * pool.cooldown.total_seconds():
        return Decision(state.present, "it was changed just now")
    return _simple(state) if pool.balance is Balance.SIMPLE else _auto(state)


def _simple(state: PoolState) -> Decision:
    pool, size = state.pool, state.load.due
    wanted = min(pool.max_processes, max(pool.min_processes, ceil(size / pool.threshold)))
    return Decision(wanted, f"{size} due, one process for each {pool.threshold}")


def _auto(state: PoolState) -> Decision:
    pool = state.pool
    if state.stalled_for >= _STALLED_AFTER:
        fewer = _down(state, pool.min_processes)
        return Decision(fewer, f"{state.load.due} are due and none runs: more processes would not help")
    if _wants_more(state):
        more = min(pool.max_processes, state.present + min(pool.max_shift, _missing(state)))
        return Decision(more, _why_more(state) if more > state.present else f"{_why_more(state)}, but it has its most")
    if state.is_calm and state.calm_for >= _CALM_LOOKS * pool.cooldown.total_seconds():
        fewer = _down(state, max(pool.min_processes, int(state.needed(_HEADROOM))))
        return Decision(fewer, "fewer keep up" if fewer < state.present else "it has its fewest")
    return Decision(state.present, "it keeps up")


def _wants_more(state: PoolState) -> bool:
    if not state.load.due:
        return False
    if state.present == 0:
        return True
    waits_long = state.time_to_clear > state.pool.clear_within.total_seconds()
    is_busy = state.load.running > 0 or state.load.finished > 0  # a new worker may not have claimed yet: wait for it
    return is_busy and state.needed() > state.present and (state.pressure > state.pool.scale_up_threshold or waits_long)


def _missing(state: PoolState) -> int:
    needed = state.needed()
    return state.pool.max_shift if needed == inf else max(1, int(needed) - state.present)


def _why_more(state: PoolState) -> str:
    if state.rate is None:
        return f"{state.load.due} are due, {state.pressure:.1f} a process, the oldest for {state.load.oldest_due:.0f} s"
    return f"{state.load.due} are due and would take {state.time_to_clear:.0f} s"


def _down(state: PoolState, least: int) -> int:
    return max(least, state.present - state.pool.max_shift) if state.present > least else state.present


# --- several pools on one box -----------------------------------------------------------------------------------


def _within_max_processes(states: Sequence[PoolState], wishes: list[Decision], box: Box) -> list[Decision]:
    """If the pools together want too many processes, each gets a share in proportion to its weight."""
    if box.max_processes is None or sum(wish.wanted for wish in wishes) <= box.max_processes:
        return wishes
    shares = share([_weight(state) for state in states], [state.pool for state in states], box.max_processes)
    return [_towards(state, wish, fair) for state, wish, fair in zip(states, wishes, shares, strict=True)]


def _weight(state: PoolState) -> float:
    return float(state.load.due) if state.pool.strategy is Strategy.SIZE else state.time_to_clear * state.present


def _towards(state: PoolState, wish: Decision, fair: int) -> Decision:
    if wish.wanted <= fair:
        return wish
    if state.present > fair and state.since_change >= _ALMOST * state.pool.cooldown.total_seconds():
        return Decision(
            max(fair, state.present - state.pool.max_shift), f"others have more to clear: its share is {fair}"
        )
    return Decision(min(wish.wanted, max(fair, state.present)), f"{wish.reason}; its share of the box is {fair}")


def share(weights: Sequence[float], pools: Sequence[Pool], total: int) -> list[int]:
    """Divides `total` processes among the pools, each within its bounds, as near to the weights as whole numbers
    allow."""
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


def _within_memory(states: Sequence[PoolState], wishes: list[Decision], box: Box) -> list[Decision]:
    """Grants new processes as far as the box's free memory goes; the pool that takes longest to clear comes first."""
    if box.free_mb is None:
        return wishes
    room = box.free_mb - box.reserve_mb
    granted = list(wishes)
    for place in sorted(range(len(states)), key=lambda place: -states[place].time_to_clear):
        state, wish = states[place], wishes[place]
        more = wish.wanted - max(state.present, state.pool.min_processes)
        if more <= 0 or state.pool.balance is Balance.OFF:
            continue
        size = state.rss_mb or _A_PROCESS_MB
        fits = min(more, max(0, int(room // size)))
        room -= fits * size
        if fits < more:
            why = f"only {box.free_mb:.0f} MB are free, of which {box.reserve_mb:.0f} stay, and one takes {size:.0f}"
            granted[place] = Decision(wish.wanted - more + fits, f"{wish.reason}; {why}")
    return granted

"""Holds the autoscaler against recorded loads, in simulated time, and draws what it did.

`python -m tests.labs simulate` writes docs/fleet/*.svg and prints the numbers beside those of the best fixed size.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from snapapp.jobs.fleet.plan import Balance, Pool
from snapapp.jobs.simulation.load import Load, Work
from snapapp.jobs.simulation.world import Boxes, World
from tests import ROOT

DOCS = ROOT / "docs" / "fleet"
STEP = 0.1  # seconds

MOST = 8
AUTO = Pool(name="it", min_processes=1, max_processes=MOST, balance=Balance.AUTO)


@dataclass(frozen=True, slots=True)
class Shape:
    """A load: every job with its moment and its length."""

    name: str
    says: str
    jobs: tuple[Work, ...]
    lasts: float


def shapes() -> list[Shape]:
    return [
        Shape("steady", "20 jobs a second of 150 ms: three processes' work, for ever", _poisson(20, 0.15, 0, 300), 300),
        Shape("spike", "2,400 jobs of 100 ms at once, after a minute of nearly nothing", _spike(), 300),
        Shape("sawtooth", "from 2 to 50 jobs a second within a minute, and again", _sawtooth(), 360),
        Shape("dead-queue", "500 jobs that are due and that nobody may run", _dead(), 180),
        Shape("slow-kind", "a job of 30 s every 6 s: five processes' work, of which hardly one ends", _slow(), 600),
    ]


def _poisson(rate: float, runtime: float, begins: float, ends: float, seed: int = 7) -> tuple[Work, ...]:
    dice, at, jobs = random.Random(f"{seed} {rate} {begins}"), begins, []
    while (at := at + dice.expovariate(rate)) < ends:
        jobs.append(Work(at, runtime * dice.uniform(0.5, 1.5)))
    return tuple(jobs)


def _spike() -> tuple[Work, ...]:
    background = _poisson(1, 0.1, 0, 300)
    return tuple(sorted((*background, *(Work(60.0, 0.1) for _ in range(2400))), key=lambda job: job.at))


def _sawtooth() -> tuple[Work, ...]:
    steps = [(2 + 8 * (second % 60) / 10, second) for second in range(0, 360, 5)]
    return tuple(job for rate, second in steps for job in _poisson(rate, 0.12, second, second + 5))


def _dead() -> tuple[Work, ...]:
    return tuple(Work(20.0, 0.1, is_held=True) for _ in range(500))


def _slow() -> tuple[Work, ...]:
    dice = random.Random(7)
    return tuple(Work(6.0 * count, 30 * dice.uniform(0.9, 1.1)) for count in range(100))


# --- the world --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """What happened, at every step."""

    shape: Shape
    due: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)  # alive: starting, working or leaving
    changes: list[tuple[float, int, int]] = field(default_factory=list)  # when, from, to
    waits: list[float] = field(default_factory=list)  # of every job that began

    @property
    def bill(self) -> float:
        """Seconds that processes were alive, all together."""
        return sum(self.processes) * STEP

    @property
    def turns(self) -> int:
        """How often it went the other way."""
        ways = [to > since for _, since, to in self.changes]
        return sum(one != other for one, other in pairwise(ways))

    def drained_after(self, begins: float) -> float:
        """Seconds from then until next to nothing waited."""
        first = int(begins / STEP) + 2
        return next((step - first for step in range(first, len(self.due)) if self.due[step] <= 2), 10**9) * STEP

    def wait_at(self, share: float) -> float:
        ordered = sorted(self.waits)
        return ordered[int(share * (len(ordered) - 1))] if ordered else 0.0


def balanced(shape: Shape, pool: Pool = AUTO) -> Run:
    """With the autoscaler."""
    run = Run(shape)

    world = World(Load(works=shape.jobs, lasts=shape.lasts), Boxes(pools=(pool,)))
    for step in range(1, int(shape.lasts / STEP) + 1):
        world.run(until=step * STEP)
        run.due.append(world.waiting.size + len(world.waiting.held))
        run.processes.append(len(world.processes))
    run.changes = [change for scaler in world.scalers for change in scaler.changes]
    run.waits = [at - work.at for work, at in world.began]
    return run


def fixed(shape: Shape, processes: int) -> Run:
    return balanced(shape, Pool(name="it", max_processes=processes))


# --- drawn ------------------------------------------------------------------------------------------------------

_WIDE, _HIGH, _LEFT, _GAP = 760, 130, 52, 34
_FONT = 'font-family="sans-serif" font-size="12"'


def drawing(run: Run, best: Run) -> str:
    """Two panels under one clock: what waits, and how many processes there are."""
    height = 2 * (_HIGH + _GAP) + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {height}" {_FONT}>',
        f'<rect width="{_WIDE}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="18" font-size="14" font-weight="bold">{run.shape.name}: {run.shape.says}</text>',
        *_panel(run.due, best.due, 34, "due jobs", run.shape.lasts),
        *_panel(run.processes, best.processes, 34 + _HIGH + _GAP, "processes", run.shape.lasts),
        f'<text x="{_LEFT}" y="{height - 6}" fill="#1f5fbf">auto, 1 to {MOST}: {run.bill:.0f} process seconds</text>',
        f'<text x="{_WIDE - 10}" y="{height - 6}" fill="#999999" text-anchor="end">'
        f"fixed at {best.processes[-1]}: {best.bill:.0f} process seconds</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _panel(ours: Sequence[int], best: Sequence[int], top: int, title: str, lasts: float) -> Iterator[str]:
    most = max(1, *ours, *best)
    right = _WIDE - 10
    yield f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{most}</text>'
    yield f'<text x="{_LEFT - 6}" y="{top + _HIGH}" text-anchor="end">0</text>'
    yield f'<text x="{_LEFT + 6}" y="{top + 12}" fill="#555555">{title}</text>'
    yield f'<path d="M{_LEFT} {top}V{top + _HIGH}H{right}" fill="none" stroke="#bbbbbb"/>'
    for share in (0.25, 0.5, 0.75, 1.0):
        x = _LEFT + share * (right - _LEFT)
        yield f'<text x="{x:.0f}" y="{top + _HIGH + 14}" text-anchor="end" fill="#777777">{share * lasts:.0f} s</text>'
    yield f'<path d="{_line(best, most, top)}" fill="none" stroke="#999999" stroke-dasharray="4 3"/>'
    yield f'<path d="{_line(ours, most, top)}" fill="none" stroke="#1f5fbf" stroke-width="1.5"/>'


def _line(values: Sequence[int], most: int, top: int) -> str:
    """Stairs, with a step only where something changes."""
    width = (_WIDE - 10 - _LEFT) / len(values)
    heights = [top + _HIGH - _HIGH * value / most for value in values]
    steps = [
        f"H{_LEFT + place * width:.1f}V{heights[place]:.1f}"
        for place in range(1, len(values))
        if values[place] != values[place - 1]
    ]
    return "".join([f"M{_LEFT} {heights[0]:.1f}", *steps, f"H{_WIDE - 10}"])


# --- the numbers ------------------------------------------------------------------------------------------------


def best_fixed(shape: Shape) -> Run:
    """The smallest fixed size that is nearly as quick as the largest."""
    runs = [fixed(shape, processes) for processes in range(1, MOST + 1)]
    quickest = min(run.wait_at(0.99) for run in runs)
    return next(run for run in runs if run.wait_at(0.99) <= 1.1 * quickest + 0.5)


def pictures() -> dict[str, str]:
    return {f"{shape.name}.svg": drawing(balanced(shape), best_fixed(shape)) for shape in shapes()}


def main() -> int:
    DOCS.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (DOCS / name).write_text(text, encoding="utf-8")
    print(f"{'load':12}{'size':>10}{'changes':>9}{'turns':>7}{'p50 wait':>10}{'p99 wait':>10}{'bill':>8}")
    for shape in shapes():
        for size, run in (("auto", balanced(shape)), ("best", best_fixed(shape)), (f"{MOST}", fixed(shape, MOST))):
            named = size if size == "auto" else f"fixed {run.processes[-1]}"
            waits = f"{run.wait_at(0.5):9.1f}s{run.wait_at(0.99):9.1f}s"
            print(f"{shape.name:12}{named:>10}{len(run.changes):9}{run.turns:7}{waits}{run.bill:8.0f}")
    return 0

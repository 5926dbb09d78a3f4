"""Runs a simulation and sums it up in numbers: waits, durations, use of slots and cores, cost."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf

from snapapp.jobs.simulation.load import Load
from snapapp.jobs.simulation.world import Boxes, World

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds from when jobs were due to when they began."""

    jobs: int
    p50: float
    p95: float
    p99: float
    longest: float

    @classmethod
    def of(cls, waits: Sequence[float]) -> "Waits":
        ordered = sorted(waits)
        at = [ordered[int(share * (len(ordered) - 1))] if ordered else 0.0 for share in (0.5, 0.95, 0.99, 1)]
        return cls(len(ordered), *at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    waits: Waits
    by_kind: dict[str, Waits]
    never_began: int  # jobs that no process may run, because of a limit of 0 or a queue that no pool works on
    lasted: float  # seconds until every job was done
    most_waiting: int
    most_waiting_at: float
    processes: float  # on average
    slots_busy: float | None  # a share; None: there were none
    cores_busy: float | None  # None: they are not limited
    box_hours: float

    def cost(self, price: float) -> float:
        """The cost of the boxes at this price an hour."""
        return price * self.box_hours

    def keeps(self, goal: timedelta) -> bool:
        """Whether 99 of 100 jobs begin within the goal, and every job begins at all."""
        return not self.never_began and self.waits.p99 <= goal.total_seconds()


def forecast(load: Load, boxes: Boxes) -> Forecast:
    world = World(load, boxes)
    world.run()
    lasted = max(world.now, load.lasts)
    waited = [(work.kind, at - work.at) for work, at in world.began]
    by_kind: dict[str, list[float]] = defaultdict(list)
    for kind, wait in waited:
        by_kind[kind].append(wait)
    cores = boxes.cores * boxes.count
    return Forecast(
        waits=Waits.of([wait for _, wait in waited]),
        by_kind={kind: Waits.of(waits) for kind, waits in sorted(by_kind.items())},
        never_began=len(load.works) - len(waited),
        lasted=lasted,
        most_waiting=world.peak[0],
        most_waiting_at=world.peak[1],
        processes=world.process_seconds / world.now if world.now else float(len(world.processes)),
        slots_busy=world.slot_seconds / world.slot_capacity if world.slot_capacity else None,
        cores_busy=None if cores == inf else sum(box.busy_for for box in world.boxes) / (cores * lasted),
        box_hours=boxes.count * lasted / _HOUR,
    )

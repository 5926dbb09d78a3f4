"""The due jobs of a simulation, and which of them is next."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from math import inf

from snapapp.jobs.fleet.plan import Pool
from snapapp.jobs.simulation.load import Work


def works(pool: Pool, queue: str) -> bool:
    return not pool.queues or queue in pool.queues


_First = tuple[int, float, int]


@dataclass(eq=False, slots=True)
class WaitingLine:
    """Jobs of one queue under the same limits: only the first of them can be next."""

    queue: str
    keys: tuple[str, ...]  # the limits' keys of its jobs
    works: list[tuple[int, float, int, Work]] = field(default_factory=list)  # a heap

    @property
    def first(self) -> _First | None:
        return self.works[0][:3] if self.works else None


_Front = tuple[
    _First, WaitingLine
]  # a line with its first job at the time of the push; the line may have moved on since


class Waiting:
    """The due jobs in the order of a claim: by priority, then by age, without those that a limit holds back."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._lines: dict[tuple[str, tuple[str, ...]], WaitingLine] = {}
        self._fronts: dict[str, list[_Front]] = defaultdict(list)  # a heap for each queue
        # Lines that a full limit holds back: by the key of the limit, a heap for each queue.
        self._held_up: dict[str, dict[str, list[_Front]]] = defaultdict(lambda: defaultdict(list))
        self._running: Counter[str] = Counter()
        self._rules: dict[tuple[str, str, str], tuple[str, ...]] = {}
        self._most: dict[str, float] = {}  # how many jobs may run, by key
        self._order = count()
        self.held: list[Work] = []  # due jobs that nobody claims
        self.size = 0

    def add(self, work: Work) -> None:
        if work.is_held:
            self.held.append(work)
            return
        self.size += 1
        place = (work.queue, self._keys(work))
        line = self._lines.get(place) or self._lines.setdefault(place, WaitingLine(*place))
        heapq.heappush(line.works, (-work.priority, work.at, next(self._order), work))
        if line.works[0][-1] is work:
            self._show(line)

    def take(self, pool: Pool) -> Work | None:
        """Takes the next job that the pool may run, and counts it as running under its limits."""
        fronts = [front for queue in self._fronts if works(pool, queue) and (front := self._front(queue))]
        if not fronts:
            return None
        line = min(fronts)[1]
        work = heapq.heappop(line.works)[-1]
        if line.works:
            self._show(line)
        else:
            del self._lines[line.queue, line.keys]
        self._running.update(line.keys)
        self._call_next(line.keys)
        self.size -= 1
        return work

    def give_back(self, work: Work) -> None:
        keys = self._keys(work)
        self._running.subtract(keys)
        self._call_next(keys)

    def due(self, pool: Pool) -> tuple[int, float]:
        """How many jobs a pool could begin now, and since when the oldest of them has been due."""
        held = [work for work in self.held if works(pool, work.queue)]
        rooms = [
            (min(len(line.works), self._room(line.keys)), line.works[0][1])
            for line in self._lines.values()
            if works(pool, line.queue)
        ]
        since = [at for room, at in rooms if room] + [work.at for work in held[:1]]
        return int(sum(room for room, _ in rooms)) + len(held), min(since, default=inf)

    def _show(self, line: WaitingLine) -> None:
        if line.first is not None:
            heapq.heappush(self._fronts[line.queue], (line.first, line))

    def _front(self, queue: str) -> _Front | None:
        """The first line of the queue whose limits have room; lines before it without room are held up."""
        fronts = self._fronts[queue]
        while fronts:
            first, line = fronts[0]
            if line.first == first:
                full = next((key for key in line.keys if not self._free(key)), None)
                if full is None:
                    return fronts[0]
                heapq.heappush(self._held_up[full][queue], (first, line))
            heapq.heappop(fronts)
            self._call_next(line.keys)
        return None

    def _call_next(self, keys: tuple[str, ...]) -> None:
        """Brings back the first line of each queue that was held up by a limit that has room again. One line at a time,
        because looking at a thousand lines for every job that ends would take too long."""
        for key in keys:
            if key in self._held_up and self._free(key):
                for held_up in self._held_up[key].values():
                    self._call_first(held_up)

    def _call_first(self, held_up: list[_Front]) -> None:
        while held_up:
            first, line = heapq.heappop(held_up)
            if line.first == first:
                self._show(line)
                return

    def _room(self, keys: tuple[str, ...]) -> float:
        return min((self._free(key) for key in keys), default=inf)

    def _free(self, key: str) -> float:
        return max(0, self._limit(key) - self._running[key])

    def _keys(self, work: Work) -> tuple[str, ...]:
        """The keys of a job that a limit names; jobs with the same keys wait in one line."""
        place = (work.queue, work.kind, work.key)
        if place not in self._rules:
            keys = (f"queue:{work.queue}", f"kind:{work.kind}", *([f"key:{work.key}"] if work.key else []))
            self._rules[place] = tuple(key for key in keys if self._limit(key) < inf)
        return self._rules[place]

    def _limit(self, key: str) -> float:
        """How many jobs of this key may run: by the most specific pattern alone."""
        if key not in self._most:
            fitting = [name for name in self._limits if name.endswith("*") and key.startswith(name[:-1])]
            named = key if key in self._limits else max(fitting, key=len, default=None)
            self._most[key] = inf if named is None else self._limits[named]
        return self._most[key]

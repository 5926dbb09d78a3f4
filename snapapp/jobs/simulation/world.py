"""Boxes, their processes and the jobs that wait for them, in simulated time, which moves from one event to the next."""

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count, takewhile
from math import ceil, inf

from snapapp.jobs.fleet.plan import Balance, Pool
from snapapp.jobs.fleet.scaling import Decision, Memory, PoolState, decide
from snapapp.jobs.fleet.scaling import Load as PoolLoad
from snapapp.jobs.simulation.load import Load, Work
from snapapp.jobs.simulation.waiting import Waiting, works

_BOOTS_IN = 1.0  # seconds from the start of a process to its first claim
_COMES, _GOES, _REMEMBERED = 10.0, 3.0, 300.0  # seconds: the autoscaler's windows for arrivals, ends and durations
_NOTHING_LEFT = 1e-9  # seconds of work: less than this counts as done


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """The simulated machines: `count` boxes that are all alike."""

    pools: tuple[Pool, ...]  # of each box
    count: int = 1
    slots: int = 1  # of a process whose pool sets no concurrency
    cores: float = inf  # of each box; its jobs share them


@dataclass(eq=False, slots=True)
class Process:
    pool: Pool
    box: "Box"
    slots: int
    ready_at: float
    busy: int = 0
    leaves: bool = False

    def is_free(self, now: float) -> bool:
        return not self.leaves and self.busy < self.slots and self.ready_at <= now


@dataclass(eq=False, slots=True)
class Run:
    work: Work
    process: Process
    left: float  # seconds of work left, if it had its cores for itself
    pace: float = 1.0


@dataclass(eq=False, slots=True)
class Box:
    """A machine whose running jobs share its cores: if they need more than there are, all become slower alike."""

    cores: float
    runs: list[Run] = field(default_factory=list)
    asked: float = 0.0  # cores that its jobs need
    at: float = 0.0
    version: int = 0  # raised when a job begins or ends; an END event of an older version is ignored
    busy_for: float = 0.0  # seconds, of all its cores

    def advance(self, now: float) -> None:
        elapsed = now - self.at
        for run in self.runs:
            run.left -= elapsed * run.pace
        self.busy_for += elapsed * min(self.asked, self.cores)
        self.at = now

    def begin(self, run: Run) -> None:
        self.runs.append(run)
        self._share()

    def ended(self) -> list[Run]:
        over = [run for run in self.runs if run.left <= _NOTHING_LEFT]
        if over:
            self.runs = [run for run in self.runs if run.left > _NOTHING_LEFT]
            self._share()
        return over

    def next_end(self) -> float:
        return self.at + min((max(0.0, run.left) / run.pace for run in self.runs), default=inf)

    def _share(self) -> None:
        self.version += 1
        self.asked = sum(run.work.cpu for run in self.runs)
        slower = max(1.0, self.asked / self.cores)
        for run in self.runs:
            computes = min(1.0, run.work.cpu)  # the share of its time that it computes; for the rest it waits
            run.pace = 1 / (1 - computes + computes * slower)


class Ended:
    """The jobs that ended within the time that the autoscaler remembers."""

    def __init__(self) -> None:
        self._all: deque[tuple[float, Work]] = deque()
        self._many: Counter[str] = Counter()  # by queue
        self._ran: dict[str, float] = defaultdict(float)  # seconds

    def add(self, work: Work, now: float) -> None:
        self._all.append((now, work))
        self._many[work.queue] += 1
        self._ran[work.queue] += work.runs

    def of(self, pool: Pool, now: float) -> tuple[float | None, int]:
        """How long the jobs of the pool's queues ran on average, and how many ended lately."""
        while self._all and self._all[0][0] <= now - _REMEMBERED:
            _, gone = self._all.popleft()
            self._many[gone.queue] -= 1
            self._ran[gone.queue] -= gone.runs
        queues = [queue for queue, many in self._many.items() if many and works(pool, queue)]
        many = sum(self._many[queue] for queue in queues)
        lately = takewhile(lambda end: end[0] > now - _GOES, reversed(self._all))
        runtime = max(0.0, sum(self._ran[queue] for queue in queues)) / many if many else None
        return runtime, sum(works(pool, work.queue) for _, work in lately)


class _Event(Enum):
    END = auto()  # a job on a box ends
    READY = auto()  # a started process may claim
    LOOK = auto()  # the autoscaler looks at a pool


@dataclass(slots=True)
class Scaler:
    """The autoscaler of one pool on one box: what it has seen, and the changes that it made."""

    pool: Pool
    box: Box
    memory: Memory = field(default_factory=Memory)
    changes: list[tuple[float, int, int]] = field(default_factory=list)  # when, from, to

    def decide(self, now: float, load: PoolLoad, present: int) -> Decision:
        state = self.memory.note(PoolState(pool=self.pool, load=load, present=present), now)
        [decision] = decide([state])
        return decision

    def changed(self, now: float, present: int, wanted: int) -> None:
        self.memory.changed_at = now
        self.changes.append((now, present, wanted))


class World:
    """A simulation of a load on boxes. `began` has every job that began, with the time of its beginning."""

    def __init__(self, load: Load, boxes: Boxes) -> None:
        self.now = 0.0
        self.began: list[tuple[Work, float]] = []
        self.peak = (0, 0.0)  # the most jobs that waited at once, and when
        self.process_seconds = 0.0
        self.slot_seconds = 0.0  # seconds that slots were busy
        self.slot_capacity = 0.0  # seconds that slots existed, busy or not
        self.running = 0
        self._slots = 0
        self._load, self._comes = load, 0
        self._ended = Ended()
        self._settings = boxes
        self._arrivals = [work.at for work in load.works]
        self.waiting = Waiting(load.limits)
        self.boxes = [Box(boxes.cores) for _ in range(boxes.count)]
        self.processes: list[Process] = []
        self._free: dict[str, list[tuple[int, int, Process]]] = {pool.name: [] for pool in boxes.pools}
        self._order = count()
        self._events: list[tuple[float, int, _Event, object]] = []
        self.scalers = [
            Scaler(pool, box) for box in self.boxes for pool in boxes.pools if pool.balance is not Balance.OFF
        ]
        for box in self.boxes:
            for pool in boxes.pools:
                self._start(pool, box, pool.starts_with, 0.0)
        for scaler in self.scalers:
            self._foresee(0.0, _Event.LOOK, scaler)

    def run(self, until: float = inf) -> None:
        """Runs until all jobs have come and are done, or up to the time `until`."""
        while (at := self._next()) <= until and at < inf and not (until == inf and self._is_over):
            self._pass(at)
            while self._comes < len(self._arrivals) and self._arrivals[self._comes] <= at:
                self.waiting.add(self._load.works[self._comes])
                self._comes += 1
            while self._events and self._events[0][0] <= at:
                _, _, event, what = heapq.heappop(self._events)
                self._handle(event, what)
            self._dispatch()
            if self.waiting.size > self.peak[0]:
                self.peak = (self.waiting.size, self.now)

    def present(self, pool: Pool, box: Box) -> int:
        return len([*self._staying(pool, box)])

    @property
    def _is_over(self) -> bool:
        return self._comes == len(self._arrivals) and not self.running and not self._can_begin

    @property
    def _can_begin(self) -> bool:
        """Whether a waiting job may still begin: on a process that starts, or on one that the autoscaler may add."""
        scaled = bool(self.scalers) or any(one.ready_at > self.now for one in self.processes)
        return self.waiting.size > 0 and scaled and not self._is_stuck

    @property
    def _is_stuck(self) -> bool:
        """Whether the waiting jobs can never begin although every process is free: because of limits of 0, or of queues
        that no pool works on."""
        is_free = not self.running and all(one.ready_at <= self.now for one in self.processes)
        return is_free and all(self.present(one.pool, one.box) for one in self.scalers)

    def _next(self) -> float:
        coming = self._arrivals[self._comes] if self._comes < len(self._arrivals) else inf
        return min(coming, self._events[0][0] if self._events else inf)

    def _pass(self, at: float) -> None:
        elapsed = at - self.now
        self.process_seconds += elapsed * len(self.processes)
        self.slot_seconds += elapsed * self.running
        self.slot_capacity += elapsed * self._slots
        self.now = at

    def _foresee(self, at: float, event: _Event, what: object) -> None:
        if at < inf:
            heapq.heappush(self._events, (at, next(self._order), event, what))

    def _handle(self, event: _Event, what: object) -> None:
        match event, what:
            case _Event.END, (Box() as box, version):
                if version == box.version:
                    box.advance(self.now)
                    self._end(box)
            case _Event.READY, Process() as process:
                self._offer(process)
            case _Event.LOOK, Scaler() as scaler:
                self._look(scaler)

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        touched: set[Box] = set()
        for pool in self._settings.pools:
            while self.waiting.size and (process := self._free_one(pool)) is not None:
                work = self.waiting.take(pool)
                if work is None:
                    self._offer(process)
                    break
                if process.box not in touched:
                    process.box.advance(self.now)
                    touched.add(process.box)
                process.busy += 1
                self.running += 1
                process.box.begin(Run(work, process, work.runs))
                self.began.append((work, self.now))
                self._offer(process)
        for box in touched:
            self._foresee(box.next_end(), _Event.END, (box, box.version))

    def _end(self, box: Box) -> None:
        for run in box.ended():
            process = run.process
            process.busy -= 1
            self.running -= 1
            self.waiting.give_back(run.work)
            if self.scalers:
                self._ended.add(run.work, self.now)
            if process.leaves and not process.busy:
                self._remove(process)
            else:
                self._offer(process)
        self._foresee(box.next_end(), _Event.END, (box, box.version))

    def _offer(self, process: Process) -> None:
        """Lets the process claim. The least busy process comes first, as in the real queue."""
        if process.is_free(self.now):
            heapq.heappush(self._free[process.pool.name], (process.busy, next(self._order), process))

    def _free_one(self, pool: Pool) -> Process | None:
        free = self._free[pool.name]
        while free:
            busy, _, process = heapq.heappop(free)
            if process.busy == busy and process.is_free(self.now):
                return process
        return None

    # --- processes ----------------------------------------------------------------------------------------------

    def _start(self, pool: Pool, box: Box, many: int, after: float) -> None:
        for _ in range(many):
            process = Process(pool, box, pool.concurrency or self._settings.slots, self.now + after)
            self.processes.append(process)
            self._slots += process.slots
            self._foresee(process.ready_at, _Event.READY, process)

    def _look(self, scaler: Scaler) -> None:
        pool, box = scaler.pool, scaler.box
        present = self.present(pool, box)
        wanted = scaler.decide(self.now, self._load_of(pool, box), present).wanted
        if wanted != present:
            scaler.changed(self.now, present, wanted)
            self._start(pool, box, max(0, wanted - present), _BOOTS_IN)
            for process in [*self._staying(pool, box)][: max(0, present - wanted)]:
                process.leaves = True
                if not process.busy:
                    self._remove(process)
        self._foresee(self.now + pool.cooldown.total_seconds(), _Event.LOOK, scaler)

    def _remove(self, process: Process) -> None:
        self.processes.remove(process)
        self._slots -= process.slots

    def _staying(self, pool: Pool, box: Box) -> Iterator[Process]:
        return (one for one in self.processes if one.pool is pool and one.box is box and not one.leaves)

    def _load_of(self, pool: Pool, box: Box) -> PoolLoad:
        """The load that the autoscaler of this box sees. With several boxes each is taken to get an equal share."""
        runtime, lately = self._ended.of(pool, self.now)
        first = bisect_left(self._arrivals, self.now - _COMES)
        arrived = sum(works(pool, work.queue) for work in self._load.works[first : self._comes])
        due, oldest = self.waiting.due(pool)
        share = 1 / len(self.boxes)
        return PoolLoad(
            due=ceil(due * share),
            oldest_due=max(0.0, self.now - oldest),
            running=sum(run.process.pool is pool for run in box.runs),
            arrivals=arrived / _COMES * share,
            finished=lately / _GOES * share,
            runtime=runtime,
        )

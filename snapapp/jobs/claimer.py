"""Decides what to claim and when: as much as the rooms can take, at once while batches come back full."""

import threading
from collections.abc import Callable, Mapping
from time import monotonic

import psycopg

from snapapp.jobs import queue
from snapapp.jobs.database import Line, Row
from snapapp.jobs.executors import Room
from snapapp.jobs.holdings import Holdings
from snapapp.jobs.model import Job
from snapapp.jobs.pace import Pace
from snapapp.jobs.queue import Bookmark, Claimant
from snapapp.jobs.roster import Counts

_BOOKMARK_LIVES = 1.0  # seconds at most without looking at every lane
_WALK_SHARE = 10  # while a bookmark serves, a walk over all lanes may take a tenth of the time


class Claimer:
    """`tick` may be called once, by a test, without any thread. In a worker one thread calls it, again and again."""

    def __init__(
        self,
        line: Line,
        claimant: Claimant,
        rooms: Mapping[str, Room],
        kinds: Mapping[str, str],
        holdings: Holdings,
        pace: Pace,
        counts: Counts,
        *,
        batch_size: int,
        interruptions_allowed: int,
        on_claimed: Callable[[list[Job]], None],
    ) -> None:
        self._line = line
        self._claimant = claimant
        self._rooms = rooms
        self._kinds = kinds  # kind -> name of its room
        self._holdings = holdings
        self._pace = pace
        self._counts = counts
        self._batch_size = batch_size
        self._interruptions_allowed = interruptions_allowed
        self._on_claimed = on_claimed
        self._bookmark: Bookmark | None = None
        self._answer_was_lost = False
        self._quick_are_out = False
        self._walk_again_at = 0.0
        self._suspect: Job | None = None  # claimed; waits until nothing runs beside it, then runs alone
        self._suspect_is_parked = False
        self.paused = threading.Event()  # set: claim nothing
        self.suspects_wait = False  # set by the beat and the recovery, cleared here
        self.more_waits = False  # the last batch came back full: there is more as soon as there is room

    def tick(self, *, woken: bool = False) -> float | None:
        """Claims while there is room and work. Returns the seconds until something is due, None if unknown."""
        if self._answer_was_lost:
            self._give_back_unheard()
        self._quick_are_out = False
        while not self.paused.is_set():
            if self._serve_suspects():
                return None
            kinds, limit, free = self._asks_for()
            if not limit:
                return None
            if len(self._claim(kinds, limit, free)) >= limit:
                self.more_waits = True
            elif len(kinds) == len(self._kinds):
                self.more_waits = False
                break
            else:
                self._quick_are_out = free == 0  # of these kinds nothing waits; others may, for a free slot
                break
        if self.paused.is_set() or not woken:
            return None
        with self._line.connection() as db:
            return queue.next_due(db, list(self._kinds), self._claimant.queues)

    @property
    def wants_to_know(self) -> bool:
        """Is the next settle worth a tick, whatever the rooms say? A suspect waits for the last of them."""
        return self._suspect is not None

    def unpark(self) -> list[Job]:
        """The suspect that has not begun, if there is one, for a worker that stops."""
        parked = [self._suspect] if self._suspect and self._suspect_is_parked else []
        self._suspect, self._suspect_is_parked = None, False
        return parked

    def close(self) -> None:
        self._line.close()

    def has_room(self) -> bool:
        """Would a claim for more find room? Asked after each settle, so it must be cheap."""
        return self._asks_for()[1] > 0

    def _asks_for(self) -> tuple[list[str], int, int]:
        """Which kinds, how many, and how many of those will find a free slot (the others wait in memory)."""
        free = {name: room.slots - room.load() for name, room in self._rooms.items()}
        with_slots = [kind for kind, name in self._kinds.items() if free[name] > 0]
        quick = [] if self._quick_are_out else [kind for kind in self._kinds if self._waits_well(kind)]
        if quick and (not with_slots or set(with_slots) <= set(quick)):
            room, free_slots = self._quick_room(quick, free)
            if room:
                return quick, min(room, self._batch_size), free_slots
        if with_slots:
            limit = min(free[self._kinds[kind]] for kind in with_slots)
            return with_slots, min(limit, self._batch_size), limit
        return [], 0, 0

    def _waits_well(self, kind: str) -> bool:
        return self._rooms[self._kinds[kind]].prefetches and self._pace.may_wait(kind)

    def _quick_room(self, quick: list[str], free: Mapping[str, int]) -> tuple[int, int]:
        name = self._kinds[quick[0]]  # only one room lets jobs wait
        room = self._rooms[name]
        ahead = self._pace.ahead(room.slots, 2 * self._batch_size)
        space = ahead + free[name]
        if free[name] <= 0 and space < max(1, min(ahead, self._batch_size) // 2):
            return 0, 0  # not worth a statement yet
        return max(space, 0), max(free[name], 0)

    def _give_back_unheard(self) -> None:
        held = [job.id for job in self._holdings.all()]
        with self._line.connection() as db:
            queue.release_unheard(db, self._claimant.worker, held)
        self._answer_was_lost = False

    def _claim(self, kinds: list[str], limit: int, free: int) -> list[Job]:
        sent_at = monotonic()
        self._answer_was_lost = True
        with self._line.connection() as db:
            if limit <= free:
                jobs = self._next_batch(db, kinds, limit)
                kept = jobs
            else:
                with db.transaction():  # what must not wait here is handed back before anybody can see it claimed
                    jobs = self._next_batch(db, kinds, limit)
                    kept = self._hand_back_excess(db, jobs, free)
        self._take_in(kept, sent_at)
        self._answer_was_lost = False
        return jobs

    def _next_batch(self, db: psycopg.Connection[Row], kinds: list[str], limit: int) -> list[Job]:
        began = monotonic()
        after, self._bookmark = self._bookmark, None
        if after and after.kind in kinds and began < self._walk_again_at:
            jobs, end = queue.claim_on(db, self._claimant, after, limit)
            if len(jobs) >= limit:
                self._bookmark = end
                return jobs
            if jobs:
                return jobs + self._walk(db, kinds, limit - len(jobs), began)
        return self._walk(db, kinds, limit, began)

    def _walk(self, db: psycopg.Connection[Row], kinds: list[str], limit: int, began: float) -> list[Job]:
        jobs, end = queue.claim(db, self._claimant, kinds, limit)
        took = monotonic() - began
        self._bookmark = end if len(jobs) >= limit else None
        self._walk_again_at = monotonic() + min(_BOOKMARK_LIVES, _WALK_SHARE * took)
        return jobs

    def _hand_back_excess(self, db: psycopg.Connection[Row], jobs: list[Job], free: int) -> list[Job]:
        if not jobs:
            return jobs
        room = self._rooms[self._kinds[jobs[0].kind]]
        excess = {job.id: job for job in self._pace.too_many(jobs, free, room.slots)}
        if not excess:
            return jobs
        queue.hand_back(
            db,
            [(job.lease, False) for job in excess.values()],
            interruptions_allowed=self._interruptions_allowed,
        )
        self._bookmark = None
        return [job for job in jobs if job.id not in excess]

    def _take_in(self, jobs: list[Job], sent_at: float) -> None:
        if not jobs:
            return
        self._hold(jobs, sent_at)
        first = self._kinds[jobs[0].kind]
        if all(self._kinds[job.kind] == first for job in jobs):
            self._rooms[first].put(jobs)
        else:
            for name, room in self._rooms.items():
                room.put([job for job in jobs if self._kinds[job.kind] == name])

    def _hold(self, jobs: list[Job], sent_at: float) -> None:
        self._holdings.add(jobs, sent_at)
        self._counts.claimed += len(jobs)
        self._on_claimed(jobs)

    def _serve_suspects(self) -> bool:
        """A job that was running when a worker died runs with nothing beside it. True: claim nothing else now."""
        suspect = self._suspect
        if suspect and self._holdings.get(suspect.id) is not suspect:
            suspect = self._suspect = None  # settled
        while suspect is None and self.suspects_wait:
            suspect = self._take_a_suspect()
        if suspect and self._suspect_is_parked and len(self._holdings) == 1:
            self._suspect_is_parked = False
            self._rooms[self._kinds[suspect.kind]].put([suspect])
        return suspect is not None

    def _take_a_suspect(self) -> Job | None:
        """One that gets a child process for itself runs at once; for any other the worker empties itself first."""
        sent_at = monotonic()
        children = self._rooms.get("process")
        has_child = children is not None and children.load() < children.slots
        kinds = [kind for kind, room in self._kinds.items() if room != "process" or has_child]
        self._answer_was_lost = True
        with self._line.connection() as db:
            job = queue.claim_suspect(db, self._claimant, kinds)
        self._answer_was_lost = False
        if job is None:
            self.suspects_wait = False
        elif self._kinds[job.kind] == "process" or job.exhausted:
            self._take_in([job], sent_at)
        else:
            self._hold([job], sent_at)
            self._suspect, self._suspect_is_parked = job, True
        return self._suspect

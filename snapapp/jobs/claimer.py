"""Decides what to claim and when: as much as the rooms can take, at once while batches come back full."""

import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple

import psycopg

from snapapp.jobs import queue
from snapapp.jobs.admission import Admission
from snapapp.jobs.courtesy import Courtesy
from snapapp.jobs.database import Line, Row
from snapapp.jobs.errors import JobsError, LeaseLost
from snapapp.jobs.executors import Room
from snapapp.jobs.holdings import Holdings
from snapapp.jobs.model import Job
from snapapp.jobs.pace import Pace
from snapapp.jobs.queue import Bookmark, Claimant, Head
from snapapp.jobs.roster import Counts

_BOOKMARK_LIVES = 1.0  # seconds at most without looking at every lane
_HEADS_KEPT = 1000
_WALK_SHARE = 10  # while a bookmark serves, a walk over all lanes may take a tenth of the time


class _Ask(NamedTuple):
    """What to claim: so many of these kinds, of which `free` find a free slot and the others wait in memory."""

    kinds: list[str]
    limit: int
    free: int
    is_partial: bool = False  # others of the room's kinds could come in as well


class _Trail:
    """Where the claims for one room got to."""

    def __init__(self) -> None:
        self.bookmark: Bookmark | None = None
        self.walk_again_at = 0.0


class Claimer:
    """`tick` may be called once, by a test, without any thread. In a worker one thread calls it, again and again.

    News (a wake, a due time, the poll) is answered by one statement for all kinds that have a free slot. Where that
    comes back full there is a backlog, and then each room is filled by itself, as much as it can take: together, the
    two slots of one room would be all that any of them got.

    Where there are rules, which are limits and fair queues, another claim takes turns between the lanes. The one
    without rules then finds nothing, which is how the claimer learns of them.
    """

    def __init__(
        self,
        line: Line,
        claimant: Claimant,
        rooms: Mapping[str, Room],
        kinds: Mapping[str, str],
        holdings: Holdings,
        pace: Pace,
        counts: Counts,
        courtesy: Courtesy,
        admission: Admission,
        *,
        batch_size: int,
        interruptions_allowed: int,
        on_claimed: Callable[[list[Job]], None],
        interrupt: Callable[[Job, JobsError], None],
    ) -> None:
        self._line = line
        self._claimant = claimant
        self._rooms = rooms
        self._kinds = kinds  # kind -> name of its room
        self._kinds_of = {name: [kind for kind in kinds if kinds[kind] == name] for name in rooms}
        self._holdings = holdings
        self._pace = pace
        self._counts = counts
        self._courtesy = courtesy
        self._admission = admission
        self._batch_size = batch_size
        self._interruptions_allowed = interruptions_allowed
        self._on_claimed = on_claimed
        self._interrupt = interrupt
        self._trails = {name: _Trail() for name in rooms}
        self._everywhere = _Trail()
        self._answer_was_lost = False
        self._backlog: set[str] = set()  # rooms for which more may be waiting than was claimed
        self._quick_are_out: set[str] = set()  # rooms whose quick kinds have nothing waiting, as of this tick
        self._owes_a_look = False
        self._by_rules = False
        self._served: dict[Head, str] = {}  # of each head the lane whose turn was last
        self._woken = False
        self._waits: list[float] = []  # of this tick: when to look again for what rules held back
        self._held_back: float | None = None  # the shortest of the last tick; read by whoever asks wants_to_know
        self._suspect: Job | None = None  # claimed; waits until nothing runs beside it, then runs alone
        self._suspect_is_parked = False
        self.paused = threading.Event()  # set: claim nothing
        self.rules_are_told = False  # that there is a limit or a fair queue; set by the beat, cleared here
        self.suspects_wait = False  # set by the beat, the recovery and here, cleared here

    def tick(self, *, woken: bool = False, has_news: bool = True) -> float | None:
        """Claims while there is room and work. Returns the seconds until something is due, None if unknown."""
        if self._answer_was_lost:
            self._give_back_unheard()
        self._quick_are_out.clear()
        opened = self._admission.look()
        self._owes_a_look = self._owes_a_look or has_news or opened or self._held_back is not None
        self._woken = woken
        while not self.paused.is_set():
            if self._serve_suspects():
                return None
            if self._may_look():
                self._look_everywhere()
            if not (self._fill_rooms() or self._may_look()):
                break
        self._held_back, self._waits = min(self._waits, default=None), []
        if self.paused.is_set() or not (woken or self._owes_a_look or self._held_back is not None):
            return None
        if self._owes_a_look:
            return max(0.0, self._everywhere.walk_again_at - monotonic())
        if self._held_back is not None:
            return self._held_back
        if len(self._backlog) == len(self._rooms):
            return None  # the next settle asks again, long before anything else is due
        with self._line.connection() as db:
            return queue.next_due(db, list(self._kinds), self._claimant.queues)

    @property
    def wants_to_know(self) -> bool:
        """Is the next settle worth a tick, whatever the rooms say? A suspect waits for the last of them, and what a
        limit or the want of memory held back for any."""
        return self._suspect is not None or self._held_back is not None or bool(self._admission.held)

    def unpark(self) -> list[Job]:
        """The suspect that has not begun, if there is one, for a worker that stops."""
        parked = [self._suspect] if self._suspect and self._suspect_is_parked else []
        self._suspect, self._suspect_is_parked = None, False
        return parked

    def close(self) -> None:
        self._line.close()

    def has_room(self) -> bool:
        """Would a claim for more find room? Asked after each settle, so it must be cheap."""
        return any(self._ask_of(name) for name in tuple(self._backlog))

    # --- what to ask for --------------------------------------------------------------------------------------

    def _may_look(self) -> bool:
        """With a backlog, a look waits its turn like every walk."""
        return self._owes_a_look and not (self._backlog and monotonic() < self._everywhere.walk_again_at)

    def _look_everywhere(self) -> None:
        """One statement for all kinds with a free slot."""
        self._owes_a_look = False
        free = {name: room.slots - room.load() for name, room in self._rooms.items()}
        roomy = [name for name in free if free[name] > 0]
        self._backlog |= free.keys() - roomy  # nobody looked for them
        kinds = self._admission.let_in([kind for name in roomy for kind in self._kinds_of[name]])
        if kinds:
            limit = self._admission.at_most(kinds, min(self._batch_size, *(free[name] for name in roomy)))
            ask = _Ask(kinds, limit, limit)
            if len(self._claim(ask, self._everywhere)) >= limit:
                self._backlog |= set(roomy)
            else:
                self._backlog -= set(roomy)

    def _fill_rooms(self) -> bool:
        """One claim for each room that has space and perhaps a backlog. False: none came back full."""
        is_worth_more = False
        for name in self._rooms:
            ask = self._ask_of(name) if name in self._backlog else None
            if ask is None or self.paused.is_set():
                continue
            if len(self._claim(ask, self._trails[name])) >= ask.limit:
                is_worth_more = True
            elif not ask.is_partial:
                self._backlog.discard(name)
            else:
                self._quick_are_out.add(name)  # of these kinds nothing waits; others may, for a free slot
        return is_worth_more

    def _ask_of(self, name: str) -> _Ask | None:
        room, kinds = self._rooms[name], self._admission.let_in(self._kinds_of[name])
        free = room.slots - room.load()
        quick: list[str] = []
        if room.prefetches and name not in self._quick_are_out:
            quick = [kind for kind in kinds if self._pace.may_wait(kind)]
        if quick and (free <= 0 or len(quick) == len(kinds)):
            space = self._space_for_quick(room, free)
            if space:
                return _Ask(quick, min(space, self._batch_size), max(free, 0), is_partial=len(quick) < len(kinds))
        if free <= 0 or not kinds:
            return None
        return _Ask(kinds, self._admission.at_most(kinds, min(free, self._batch_size)), free)

    def _space_for_quick(self, room: Room, free: int) -> int:
        ahead = self._pace.ahead(room.slots, 2 * self._batch_size)
        space = ahead + free
        if free <= 0 and space < max(1, min(ahead, self._batch_size) // 2):
            return 0  # not worth a statement yet
        return max(space, 0)

    # --- the claim itself -------------------------------------------------------------------------------------

    def _give_back_unheard(self) -> None:
        held = [job.id for job in self._holdings.all()]
        with self._line.connection() as db:
            queue.release_unheard(db, self._claimant.worker, held)
        self._answer_was_lost = False

    def _claim(self, ask: _Ask, trail: _Trail) -> list[Job]:
        self._courtesy.give_way()
        sent_at = monotonic()
        self._answer_was_lost = True
        with self._line.connection() as db:
            if ask.limit <= ask.free:
                jobs = self._next_batch(db, ask, trail)
                kept = jobs
            else:
                with db.transaction():  # what must not wait here is handed back before anybody can see it claimed
                    jobs = self._next_batch(db, ask, trail)
                    kept = self._hand_back_excess(db, jobs, ask, trail)
        self._take_in(kept, sent_at)
        self._answer_was_lost = False
        return jobs

    def _next_batch(self, db: psycopg.Connection[Row], ask: _Ask, trail: _Trail) -> list[Job]:
        began = monotonic()
        after, trail.bookmark = trail.bookmark, None
        if after and after.kind in ask.kinds and began < trail.walk_again_at:
            jobs, end = queue.claim_on(db, self._claimant, after, ask.limit)
            if len(jobs) >= ask.limit:
                trail.bookmark = end
                return jobs
            if jobs:
                return jobs + self._walk(db, ask, ask.limit - len(jobs), began, trail)
        return self._walk(db, ask, ask.limit, began, trail)

    def _walk(self, db: psycopg.Connection[Row], ask: _Ask, limit: int, began: float, trail: _Trail) -> list[Job]:
        jobs, end = ([], None) if self._by_rules else queue.claim(db, self._claimant, ask.kinds, limit)
        if self._by_rules or (not jobs and self._finds_rules(db)):
            jobs = self._take_turns(db, ask, limit)
        took = monotonic() - began
        trail.bookmark = end if len(jobs) >= limit else None
        trail.walk_again_at = monotonic() + min(_BOOKMARK_LIVES, _WALK_SHARE * took)
        return jobs

    def _finds_rules(self, db: psycopg.Connection[Row]) -> bool:
        """Asked where nothing was claimed; seldom without a wake, because idle must stay nearly free."""
        if not (self._woken or self.rules_are_told):
            return False
        self.rules_are_told = queue.has_rules(db)
        return self.rules_are_told

    def _take_turns(self, db: psycopg.Connection[Row], ask: _Ask, limit: int) -> list[Job]:
        turn = queue.claim_by_rules(db, self._claimant, ask.kinds, limit, ask.free, self._served)
        self._by_rules = turn.rules
        if len(self._served) > _HEADS_KEPT:  # of priorities that nobody uses any more
            self._served.clear()
        self._served |= turn.served
        self.suspects_wait = self.suspects_wait or turn.suspects_wait
        if turn.again_in is not None:
            self._waits.append(turn.again_in)
        return turn.jobs

    def _hand_back_excess(self, db: psycopg.Connection[Row], jobs: list[Job], ask: _Ask, trail: _Trail) -> list[Job]:
        if not jobs:
            return jobs
        room = self._rooms[self._kinds[jobs[0].kind]]
        excess = {job.id: job for job in self._pace.too_many(jobs, ask.free, room.slots)}
        if not excess:
            return jobs
        queue.hand_back(
            db,
            [(job.lease, False) for job in excess.values()],
            interruptions_allowed=self._interruptions_allowed,
        )
        trail.bookmark = None
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
        for lost in self._holdings.add(jobs, sent_at):
            self._interrupt(lost, LeaseLost(f"job {lost.id} was claimed again by this worker"))
        self._counts.claimed += len(jobs)
        self._on_claimed(jobs)
        self._admission.took(jobs)

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
        """One that gets a child process for itself runs at once; for any other, and for one that needs much memory, the
        worker empties itself first."""
        sent_at = monotonic()
        children = self._rooms.get("process")
        has_child = children is not None and children.load() < children.slots
        kinds = self._admission.let_in([kind for kind, room in self._kinds.items() if room != "process" or has_child])
        self._answer_was_lost = True
        with self._line.connection() as db:
            job = self._claim_suspect(db, kinds)
        self._answer_was_lost = False
        if job is None:
            self.suspects_wait = False
        elif job.exhausted or (self._kinds[job.kind] == "process" and job.memory_mb is None):
            self._take_in([job], sent_at)
        else:
            self._hold([job], sent_at)
            self._suspect, self._suspect_is_parked = job, True
        return self._suspect

    def _claim_suspect(self, db: psycopg.Connection[Row], kinds: list[str]) -> Job | None:
        job = None if self._by_rules else queue.claim_suspect(db, self._claimant, kinds)
        if self._by_rules or (job is None and queue.has_rules(db)):
            return queue.claim_suspect_by_rules(db, self._claimant, kinds)
        return job

"""How a worker claims jobs: as many as it has free slots, and a few more of kinds that run for milliseconds."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from time import monotonic
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg import Connection

from snapapp.jobs.errors import JobsError, LeaseLost
from snapapp.jobs.executors import Executor
from snapapp.jobs.model import Job
from snapapp.jobs.rows import claim, leases, limits
from snapapp.jobs.rows.claim import FIRST, HEADS_AT_ONCE, LAST, Claimed, ClaimingWorker, Head, Look, Wanted
from snapapp.jobs.rows.database import is_away, waited_in_vain
from snapapp.jobs.worker.capacity.admission import Admission
from snapapp.jobs.worker.capacity.pace import AHEAD
from snapapp.jobs.worker.claiming.bookmarks import Bookmarks
from snapapp.jobs.worker.parts import WorkerParts

_TURNS = 256  # at most: queues and kinds under limits or fairness of which the last lane is remembered
_WAITS_AT_MOST = 1.0  # seconds that a claimed job waits in memory while no slot comes free; then it goes back
_REFUSED_FOR = 60.0  # seconds for which a job that PostgreSQL refuses to let us claim is left alone
_LEFT_OUT_FOR = 1.0  # seconds for which claims leave out a locked job, in whose place another one could have run …
_OTHERS_IN = 0.02  # … and until the next claim, which takes that other one
_FEW_QUEUES = 4  # with many heads, a claim looks at just the queues that woke it, if there are no more than this


class Executors(Protocol):
    """What the claimer needs to know of the executors."""

    @property
    def by_name(self) -> Mapping[str, Executor]: ...

    @property
    def executor_of(self) -> Mapping[str, str]:
        """Kind -> name of its executor."""
        ...

    def interrupt(self, job: Job, reason: JobsError) -> None: ...

    def hand_back(self, name: str) -> None:
        """Gives jobs that wait in an executor for a slot back to the queue."""
        ...


class _Space(NamedTuple):
    """How many jobs of a kind we can take, and how many of them find a free slot at once."""

    kind: str
    at_most: int
    at_once: int


class Claimer:
    """A test may call `tick` without a thread. In a worker only the duty "claim" calls it: claims never overlap."""

    def __init__(
        self, parts: WorkerParts, executors: Executors, admission: Admission, *, on_claimed: Callable[[list[Job]], None]
    ) -> None:
        self._parts = parts
        self._database = parts.database("claim")
        self._claiming_worker = ClaimingWorker(parts.id, parts.settings.lease_for, parts.settings.queues)
        self._executors = executors
        self._by_name = executors.by_name
        self._executor_of = kinds = executors.executor_of
        self._kinds_of = {name: [kind for kind in kinds if kinds[kind] == name] for name in self._by_name}
        self._apart = [kind for kind, name in kinds.items() if name in ("process", "command")]
        self._held_jobs = parts.held_jobs
        self._admission = admission
        self._batch_size = parts.settings.batch_size
        self._on_claimed = on_claimed
        # names of executors for which more jobs may wait in the queue; has_room reads it on other threads
        self._backlog: set[str] = set()
        self.bookmarks = Bookmarks()
        self._begin = FIRST  # the head after which the next look starts; FIRST when the last look saw all heads
        self._turns: dict[tuple[str, str], str] = {}  # (queue, kind) under limits or fairness -> lane served last
        self._suspect: Job | None = None  # the suspect that this worker runs now
        self._again_in: float | None = None  # what the last tick returned
        # a claim was sent and its answer never came: jobs may be claimed that we do not know
        self._answer_was_lost = False
        self._refused: set[int] = set()  # jobs whose claim PostgreSQL refuses …
        self._refused_until = 0.0  # … and when they are tried again
        # jobs in the way of others, whose rows were locked -> when they are tried again
        self._locked: dict[int, float] = {}
        self.is_paused = False  # True: claim nothing; set when the worker stops
        # limits or fair queues exist; set by the beat, by the listener when they change, and here once it has looked
        self.has_rules = False
        self.rules_change = False  # waiting jobs need new labels; set by the same, cleared here
        self.suspects_wait = False  # a suspect waits for a worker to run it alone; set by the beat, cleared here

    def tick(self, woken: Collection[str] = ()) -> float | None:
        """Claims while there are free slots and work. Returns the seconds until more may be due, None if unknown.
        `woken`: the queues that jobs were enqueued into, when nothing else has changed since the last tick."""
        if self._answer_was_lost:
            self._give_back_unanswered()
        self._admission.look()
        waits: list[float | None] = [self._relabel(), self._hand_back_long_waiters()]
        sees_many_heads = self._begin != FIRST
        if woken and sees_many_heads and len(woken) <= _FEW_QUEUES:
            for queue in woken:
                waits += self._fill(claim.bounds_of(queue))
        else:
            waits += self._fill(None)
            if not self.is_paused and self.suspects_wait:
                self._take_suspect()
        self._again_in = min((wait for wait in waits if wait is not None), default=None)
        return self._again_in

    def has_room(self) -> bool:
        """Would a claim now find a free slot? Called after each settle, so it must be cheap."""
        return (self.suspects_wait and not len(self._held_jobs)) or any(
            space.at_most for name in tuple(self._backlog) for space in self._spaces(name, self._kinds_of[name])
        )

    @property
    def is_behind(self) -> bool:
        """Did the last tick leave jobs in the queue that the slots could not take?"""
        return bool(self._backlog)

    @property
    def holds_back(self) -> bool:
        """Limits or a lack of memory hold jobs back: then each settle may free what they wait for."""
        return bool(self._admission.held) or (self.has_rules and self._again_in is not None)

    def close(self) -> None:
        self._database.close()

    # --- what to ask for --------------------------------------------------------------------------------------

    def _wanted(self) -> list[Wanted]:
        wanted = []
        for number, (name, kinds) in enumerate(self._kinds_of.items()):
            for kind, at_most, at_once in self._spaces(name, self._admission.let_in(kinds)):
                if at_most:
                    wanted.append(Wanted(kind, number, self._admission.at_most(kind, at_most), at_once))
                else:
                    self._backlog.add(name)  # this claim does not ask for the kind, so jobs of it may be left
        return wanted

    def _spaces(self, name: str, kinds: Collection[str]) -> Iterator[_Space]:
        """The space that an executor has for each of these kinds of its own."""
        executor, pace = self._by_name[name], self._parts.pace
        free = executor.slots - executor.load()
        free_soon = self._slots_free_soon(executor) if executor.prefetches else 0
        for kind in kinds:
            ahead = pace.ahead(kind, free_soon, 2 * self._batch_size)
            space = min(free + ahead, self._batch_size)
            if space <= 0 or (free <= 0 and space < min(ahead, self._batch_size) // 2):
                space = 0  # all slots are busy and half of the jobs read ahead are still here: not worth a statement
            yield _Space(kind, space, max(0, min(free, space)))

    def _slots_free_soon(self, executor: Executor, within: float = AHEAD) -> int:
        """Counts slots that run nothing, or that started a job of a quick kind less than `within` seconds ago."""
        since = monotonic() - within
        return executor.slots - sum(
            not self._parts.pace.is_quick(job.kind) or (job.started_at or since) < since for job in executor.at_work()
        )

    def _hand_back_long_waiters(self) -> float | None:
        """A job of a quick kind may hang all the same. The jobs that wait behind it go back to the queue."""
        waiting = [
            name for name, executor in self._by_name.items() if executor.prefetches and executor.load() > executor.slots
        ]
        for name in waiting:
            if not self._slots_free_soon(self._by_name[name], within=_WAITS_AT_MOST):
                self._executors.hand_back(name)
        return _WAITS_AT_MOST if waiting else None

    # --- the claim itself -------------------------------------------------------------------------------------

    def _fill(self, only: tuple[Head, Head] | None) -> list[float | None]:
        """Claims until every head was looked at, or no slot is left. `only`: looks at the heads between these two."""
        waits: list[float | None] = []
        first, end = only or (FIRST, LAST)
        begin = first if only else self._begin
        while not self.is_paused and (wanted := self._wanted()):
            claimed = self._claim(wanted, self._look(begin, end))
            waits += [claimed.due_in, claimed.again_in, self._note_locked(claimed.locked)]
            is_cut = claimed.is_cut or self._is_full(wanted, claimed.jobs)
            self._note_backlog(wanted, is_cut)
            sees_all = len(claimed.new_heads) < HEADS_AT_ONCE
            begin = first if sees_all else claimed.new_heads[-1]
            if only is None:
                self._begin = begin
            if sees_all and not (is_cut and claimed.jobs):
                break
        return waits

    def _look(self, begin: Head, end: Head) -> Look:
        return Look(
            begin=begin,
            end=end,
            bookmarks=self.bookmarks.for_claim(begin, end),
            has_rules=self.has_rules,
            is_idle=not len(self._held_jobs),
            turns=tuple((queue, kind, lane) for (queue, kind), lane in self._turns.items()),
            besides=self._jobs_to_leave_out(),
        )

    def _claim(self, wanted: list[Wanted], look: Look) -> Claimed:
        self._parts.web_priority.give_way()
        sent_at = monotonic()
        self._answer_was_lost = True
        with self._database.connection() as db:
            try:
                claimed = claim.claim(db, self._claiming_worker, wanted, look)
            except psycopg.Error as error:
                if is_away(error) or waited_in_vain(error):
                    raise
                self._answer_was_lost = False
                self._find_refused_jobs(db, wanted)
                raise
        self._take_in(claimed.jobs, sent_at)
        self._answer_was_lost = False
        took = monotonic() - sent_at
        self._parts.counts.claims += 1
        self._parts.counts.claim_seconds += took
        if not look.takes_suspect:
            self.bookmarks.after_claim(look, {one.kind for one in wanted}, claimed, took)
        self._note_turns(claimed.turns)
        return claimed

    def _note_turns(self, turns: list[tuple[str, str, str]]) -> None:
        """Remembers which lane was served last, of those served lately: names of queues may come and go for ever."""
        for queue, kind, lane in turns:
            self._turns.pop((queue, kind), None)
            self._turns[queue, kind] = lane
        while len(self._turns) > _TURNS:
            del self._turns[next(iter(self._turns))]

    def _find_refused_jobs(self, db: Connection[Any], wanted: list[Wanted]) -> None:
        """Finds the rows that PostgreSQL lets nobody write (a trigger, a CHECK added later), so that claims leave them
        out: one such row fails every claim that includes it."""
        newly_refused = claim.refused(db, self._claiming_worker, [one.kind for one in wanted], self._refused)
        self._refused = self._refused | newly_refused
        self._refused_until = monotonic() + _REFUSED_FOR

    def _note_locked(self, jobs: list[int]) -> float | None:
        """Leaves these jobs out of the next claims, which would choose them again, and nobody in their place. Returns
        the seconds until the next claim should come."""
        now = monotonic()
        self._locked |= dict.fromkeys(jobs, now + _LEFT_OUT_FOR)
        return _OTHERS_IN if jobs else min((until - now for until in self._locked.values()), default=None)

    def _jobs_to_leave_out(self) -> set[int]:
        now = monotonic()
        if now >= self._refused_until:  # the rows may have been mended: try them once more
            self._refused = set()
        self._locked = {job_id: until for job_id, until in self._locked.items() if now < until}
        return self._refused | self._locked.keys()

    def _is_full(self, wanted: list[Wanted], jobs: list[Job]) -> bool:
        claimed_by_executor = Counter([self._executor_of[job.kind] for job in jobs])
        return any(claimed_by_executor[self._executor_of[one.kind]] >= one.at_most for one in wanted)

    def _note_backlog(self, wanted: list[Wanted], is_cut: bool) -> None:
        names = {self._executor_of[one.kind] for one in wanted}
        if is_cut:
            self._backlog |= names
        else:
            looked_at = {one.kind for one in wanted}
            self._backlog -= {name for name in names if looked_at.issuperset(self._kinds_of[name])}

    def _take_in(self, jobs: list[Job], sent_at: float) -> None:
        if not jobs:
            return
        for displaced in self._held_jobs.add(jobs, sent_at):
            self._executors.interrupt(displaced, LeaseLost(f"job {displaced.id} was claimed again by this worker"))
        self._parts.counts.claimed += len(jobs)
        self._on_claimed(jobs)
        self._admission.took(jobs)
        for name, executor in self._by_name.items():
            if its := [job for job in jobs if self._executor_of[job.kind] == name]:
                executor.put(its)

    def _take_suspect(self) -> None:
        """Claims one suspect: a job that should run alone, because workers died with it or it ran short of memory. It
        comes after the ordinary jobs, so that it never keeps them from a slot."""
        if self._suspect and self._held_jobs.get(self._suspect.id) is self._suspect:
            return
        self._suspect = None
        self.suspects_wait = False  # the next beat sets it again while a suspect waits
        wanted = self._wanted()
        if wanted:
            besides = self._jobs_to_leave_out()
            look = Look(takes_suspect=True, is_idle=not len(self._held_jobs), apart=self._apart, besides=besides)
            try:
                jobs = self._claim(wanted, look).jobs
            except Exception:
                self.suspects_wait = True
                raise
            self._suspect = jobs[0] if jobs else None

    def _relabel(self) -> float | None:
        """After limits have changed, each tick gives one page of the waiting jobs their new labels. Where PostgreSQL
        refuses to write one of them, claims go on, and the beat makes the next try."""
        if not self.rules_change:
            return None
        self.rules_change = False  # before the look, so that a change meanwhile is kept
        try:
            with self._database.connection() as db:
                if limits.relabel(db):
                    self.rules_change = True
                else:  # else a worker would look for limits in vain until its next beat, as after each start
                    self.has_rules = limits.exist(db)
        except psycopg.Error as error:
            if is_away(error):
                self.rules_change = True
                raise
            self._parts.complain("label jobs anew", error)
        return 0.0 if self.rules_change else None

    def _give_back_unanswered(self) -> None:
        """Gives back the jobs that a claim took whose answer never reached us: no worker would run them."""
        known_ids = [job.id for job in self._held_jobs.all()]
        with self._database.connection() as db:
            leases.release_unheard(db, self._claiming_worker.id, known_ids)
        self._answer_was_lost = False

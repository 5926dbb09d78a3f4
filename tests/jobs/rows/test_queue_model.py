"""The queue against a model of it: any order of anything that workers, zombies and people do, on both servers.

`make test ARGS="tests/jobs/rows/test_queue_model.py --hypothesis-profile=long"` goes on for an hour.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from snapapp.jobs.errors import DuplicateKey, IllegalTransition
from snapapp.jobs.model import Buried, Failure, Finished, Job, Lease, Outcome, Retried, Snoozed, Stopped, Succeeded
from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows import leases as leases_rows
from snapapp.jobs.rows import lifecycle, notes, retention
from snapapp.jobs.rows import settle as settle_rows
from tests.factory import Db, ago, enqueue, enqueue_many, hand_back, move

HOUR = timedelta(hours=1)
NOW = timedelta(0)
OOPS = Failure("oops")
ALLOWED = 2  # interruptions that give the attempt back

KINDS = ("a", "b")
QUEUES = ("default", "media")
WORKERS = ("ana", "bia", "caio")
LANES = ("", "x", "y")

WAITING = ("PENDING", "RETRY_WAIT")


@dataclass
class Model:
    """A job as the rules say it should be."""

    kind: str
    queue: str
    priority: int
    lane: str
    max_attempts: int
    key: str | None
    scope: str | None
    due: bool
    status: str = "PENDING"
    attempts: int = 0
    seq: int = 0
    interruptions: int = 0
    losses: int = 0
    worker: str | None = None
    started: bool = False
    expired: bool = False
    wished: bool = False
    old: bool = False
    parents: dict[int, bool] = field(default_factory=dict)  # by id: must it complete?
    held: bool = False  # it has waited for them ever since

    @property
    def suspect(self) -> bool:
        return self.losses >= 2

    @property
    def waits(self) -> bool:
        return self.status in WAITING

    @property
    def is_over(self) -> bool:
        return self.status not in (*WAITING, "RUNNING")

    @property
    def facts(self) -> tuple[object, ...]:
        counted = (self.attempts, self.seq, self.interruptions)
        return (self.status, *counted, self.losses, self.worker, self.started, self.expired, self.is_over, self.held)

    def holds(self, key: str | None, scope: str | None) -> bool:
        if (self.key, self.scope) != (key, scope) or key is None:
            return False
        return {
            "waiting": self.status == "PENDING" and self.seq == 0,
            "live": not self.is_over,
            "ever": True,
        }[scope or "live"]

    def claimed(self, worker: str, lease_seq: int) -> None:
        self.status, self.worker = "RUNNING", worker
        assert lease_seq > self.seq
        self.seq, self.attempts = lease_seq, self.attempts + 1
        self.started = False

    def becomes(self, status: str, *, losses: int = 0, due: bool | None = None, started: bool | None = None) -> None:
        """Every change of status but a claim: the wish to cancel is granted, except by a completion."""
        self.status = "CANCELLED" if self.wished and status != "COMPLETED" else status
        self.losses = 0 if self.is_over else losses
        self.worker, self.expired, self.old = None, False, False
        self.seq += 1
        self.due = self.due if due is None else due
        self.started = self.started if started is None else started

    def fails(self, *, due: bool) -> None:
        self.becomes("RETRY_WAIT", due=due, started=True)

    def is_buried(self, status: str, *, started: bool = True) -> None:
        self.attempts = min(self.attempts, self.max_attempts)
        self.becomes(status, started=started or self.started)

    def snoozes(self, *, due: bool) -> None:
        self.attempts -= 1
        self.becomes("PENDING", due=due, started=False)

    def goes_back(self, *, started: bool) -> None:
        is_spent = started and self.interruptions >= ALLOWED
        self.attempts -= 0 if is_spent else 1
        self.interruptions += started
        self.becomes("PENDING", losses=self.losses, started=False)

    def is_lost(self) -> None:
        losses = self.losses + 1
        if not self.suspect and self.attempts >= self.max_attempts and self.max_attempts > 1:
            self.attempts, losses = self.max_attempts - 1, 2  # pardoned, once
        else:
            self.attempts = min(self.attempts, self.max_attempts)
        self.becomes("RETRY_WAIT", losses=losses, due=True)

    def is_lost_while_running(self) -> None:
        """That it ran is known, whether or not its start was written down."""
        started, self.started = self.started, True
        self.is_lost()
        self.started = started

    def is_lost_before_it_began(self) -> None:
        self.attempts -= 1
        self.becomes("PENDING", losses=self.losses, started=False)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self, db: Db) -> None:
        super().__init__()
        self.db = db
        self.jobs: dict[int, Model] = {}
        self.claims: list[Job] = []  # all that ever were
        self.accepted: set[Lease] = set()  # leases under which an end was written
        self.highest: dict[int, int] = {}  # lease_seq as last seen
        self.paused: set[str] = set()
        self.bookmarks: dict[claim_rows.Head, claim_rows.Bookmark] = {}  # of the last claim
        self.over: set[int] = set()  # as last seen
        db.execute("TRUNCATE snap_processing_job, job_parent, job_log, job_queue RESTART IDENTITY")
        db.execute("SELECT setseed(0)")  # kinds of one priority take turns by chance: the same one in every rerun

    # --- who is who -----------------------------------------------------------------------------------------

    def some(self, which: Callable[[Model], bool], number: int) -> tuple[int, Model]:
        """One of the jobs of which this is true."""
        ids = [job_id for job_id, model in self.jobs.items() if which(model)]
        return ids[number % len(ids)], self.jobs[ids[number % len(ids)]]

    def is_live(self, claim: Job) -> bool:
        model = self.jobs.get(claim.id)
        return model is not None and model.seq == claim.lease_seq

    def live(self, worker: str | None = None) -> list[Job]:
        mine = [claim for claim in self.claims if self.is_live(claim)]
        return [claim for claim in mine if worker in (None, self.jobs[claim.id].worker)]

    def stale(self, besides: Iterable[Job] = ()) -> list[Job]:
        """The last lost claim on each job but these."""
        last = {claim.id: claim for claim in self.claims if not self.is_live(claim)}
        return [claim for claim in last.values() if claim.id not in {one.id for one in besides}]

    def somebody(self, number: int) -> str | None:
        """A worker that holds something."""
        return self.jobs[self.held(number).id].worker

    def held(self, number: int) -> Job:
        """A live claim; where there is none, one is made."""
        if not self.live():
            self.claim("ana", KINDS, (), 5)
        if not self.live():
            self.claim_suspect("bia", KINDS)
        return self.live()[number % len(self.live())]

    def can_be_held(self) -> bool:
        is_open = partial(self._is_open, kinds=KINDS, queues=())
        return bool(self.live()) or any(is_open(job) or is_open(job, suspect=True) for job in self.jobs.values())

    def ends(self, claim: Job) -> None:
        assert claim.lease not in self.accepted  # I4
        self.accepted.add(claim.lease)

    def in_claim_order(self, which: Callable[[Model], bool]) -> list[int]:
        """Ids in the order of the claim, in which the database's clock has a say."""
        ordered = "SELECT id FROM snap_processing_job ORDER BY priority DESC, next_retry_at, id"
        found = self.db.execute(ordered).fetchall()
        return [job_id for (job_id,) in found if which(self.jobs[job_id])]

    # --- enqueue --------------------------------------------------------------------------------------------

    @initialize(limits=st.lists(st.integers(1, 3), min_size=1, max_size=5))
    def begin_with_some(self, limits: list[int]) -> None:
        for limit in limits:
            self.enqueue("a", "default", 0, "", limit, True, None, "existing", True, False, [], False)

    @rule(
        kind=st.sampled_from(KINDS),
        queue_name=st.sampled_from(QUEUES),
        priority=st.sampled_from([0, 0, 5]),
        lane=st.sampled_from(LANES),
        max_attempts=st.integers(1, 3),
        due=st.sampled_from([True, True, True, False]),
        scope=st.sampled_from([None, None, "waiting", "live", "ever"]),
        on_conflict=st.sampled_from(["existing", "ignore", "replace"]),
        commit=st.sampled_from([True, True, True, False]),
        in_bulk=st.booleans(),
        parents=st.one_of(st.just([]), st.lists(st.integers(0, 99), max_size=3)),
        anyway=st.sampled_from([False, False, True]),
    )
    def enqueue(
        self,
        kind: str,
        queue_name: str,
        priority: int,
        lane: str,
        max_attempts: int,
        due: bool,
        scope: str | None,
        on_conflict: str,
        commit: bool,
        in_bulk: bool,
        parents: list[int],
        anyway: bool,
    ) -> None:
        key = "k" if scope else None
        new = Model(kind, queue_name, priority, lane, max_attempts, key, scope, due)
        if self.jobs and on_conflict != "replace":
            new.parents = {self.some(lambda job: True, number)[0]: not anyway for number in parents}
        holder = next((i for i, job in self.jobs.items() if job.kind == kind and job.holds(key, scope)), None)
        add = partial(self._enqueue, new, on_conflict, commit=commit, in_bulk=in_bulk)
        if holder is None:
            made = add()
            assert made is not None
            if commit:
                self.add(made, new)
        elif on_conflict == "ignore":
            assert add() is None
        elif on_conflict == "existing":
            assert add() == holder
        elif self.jobs[holder].waits:
            assert add() == holder
            if commit:
                self._replace(self.jobs[holder], new)
        else:
            with pytest.raises(DuplicateKey):
                add()

    def add(self, job_id: int, new: Model) -> None:
        self.jobs[job_id] = new
        new.held = bool(new.parents)
        self.meet(new)

    def _enqueue(self, new: Model, on_conflict: str, *, commit: bool, in_bulk: bool) -> int | None:
        spec: dict[str, Any] = {
            "kind": new.kind,
            "queue": new.queue,
            "priority": new.priority,
            "max_attempts": new.max_attempts,
            "concurrency_key": new.lane or None,
            "unique_key": new.key,
            "unique_scope": new.scope,
            "on_conflict": on_conflict,
            "delay": NOW if new.due else HOUR,
            "after": list(new.parents) or None,
            "on_parent_failure": "cancel" if all(new.parents.values()) else "run",
        }
        with self.db.transaction(force_rollback=not commit):
            if not in_bulk:
                return enqueue(self.db, **spec)
            return enqueue_many(self.db, spec | {"delay": str(spec["delay"])})[0]

    def _replace(self, old: Model, new: Model) -> None:
        old.queue, old.priority, old.lane = new.queue, new.priority, new.lane
        old.max_attempts, old.due = new.max_attempts, new.due
        old.attempts = old.interruptions = old.losses = 0
        old.started = False

    # --- parents --------------------------------------------------------------------------------------------

    def open_parents(self, child: Model) -> int:
        return sum(not self.jobs[one].is_over for one in child.parents if one in self.jobs)

    def is_in_the_way(self, parent: int) -> bool:
        return parent in self.jobs and self.jobs[parent].status in ("FAILED", "CANCELLED")

    def meet(self, child: Model) -> None:
        if not (child.held and child.waits):
            return
        if any(must and self.is_in_the_way(one) for one, must in child.parents.items()):
            child.becomes("CANCELLED")
        elif not self.open_parents(child):
            child.held = False

    def follow(self) -> None:
        """What follows for children from whatever was done last."""
        self.over &= self.jobs.keys()
        while changed := {job_id for job_id, job in self.jobs.items() if job.is_over != (job_id in self.over)}:
            self.over ^= changed
            for child_id, child in sorted(self.jobs.items()):
                if changed & child.parents.keys() - self.over:
                    self.revive(child_id, child)
                if changed & child.parents.keys():
                    self.meet(child)

    def revive(self, child_id: int, child: Model) -> None:
        if not child.held or child.status != "CANCELLED" or child.wished:
            return
        rivals = [one for i, one in self.jobs.items() if i != child_id and one.kind == child.kind]
        has_rival = child.scope == "live" and any(one.holds(child.key, "live") for one in rivals)
        is_lost = any(must and self.is_in_the_way(one) for one, must in child.parents.items())
        if not is_lost and not has_rival:
            child.becomes("PENDING")

    # --- claim ----------------------------------------------------------------------------------------------

    @rule(
        worker=st.sampled_from(WORKERS),
        kinds=st.sampled_from([KINDS, KINDS, ("a",)]),
        queues=st.sampled_from([(), (), (), ("media",)]),
        limit=st.sampled_from([1, 2, 5]),
        has_rules=st.booleans(),
    )
    def claim(
        self,
        worker: str,
        kinds: Collection[str],
        queues: tuple[str, ...],
        limit: int,
        *,
        has_rules: bool = True,
    ) -> None:
        """A claim that looks at limits, of which there are none, takes the same jobs as one that does not."""
        order = self.in_claim_order(partial(self._is_open, kinds=kinds, queues=queues))
        claimed = self._claim(worker, kinds, limit, claim_rows.Look(has_rules=has_rules), queues=queues)
        assert [job.id for job in claimed.jobs] == order[:limit]
        self.bookmarks = claimed.last
        self._take(worker, claimed.jobs)

    def _claim(
        self,
        worker: str,
        kinds: Collection[str],
        limit: int,
        look: claim_rows.Look | None = None,
        queues: tuple[str, ...] = (),
    ) -> claim_rows.Claimed:
        wanted = [claim_rows.Wanted(kind, 0, limit, limit) for kind in kinds]
        return claim_rows.claim(self.db, claim_rows.ClaimingWorker(worker, HOUR, queues), wanted, look)

    @precondition(lambda self: self.bookmarks)
    @rule(worker=st.sampled_from(WORKERS), limit=st.sampled_from([1, 2, 5]))
    def claim_on(self, worker: str, limit: int) -> None:
        """A bookmark hides what lies before it in its head, and nothing else."""
        hidden = set[int]()
        for head, mark in self.bookmarks.items():
            before = (
                "SELECT id FROM snap_processing_job WHERE (queue, kind, priority) = (%s, %s, %s)"
                "   AND (next_retry_at, id) <= (%s, %s)"
            )
            hidden |= {job_id for (job_id,) in self.db.execute(before, [*head, *mark]).fetchall()}
        is_open = partial(self._is_open, kinds=KINDS, queues=())
        order = [job_id for job_id in self.in_claim_order(is_open) if job_id not in hidden]
        claimed = self._claim(worker, KINDS, limit, claim_rows.Look(bookmarks=self.bookmarks))
        assert [job.id for job in claimed.jobs] == order[:limit]
        self.bookmarks |= claimed.last
        self._take(worker, claimed.jobs)

    @precondition(lambda self: any(job.suspect and job.waits for job in self.jobs.values()))
    @rule(worker=st.sampled_from(WORKERS), kinds=st.sampled_from([KINDS, KINDS, ("a",)]))
    def claim_suspect(self, worker: str, kinds: Collection[str]) -> None:
        found = self.db.execute("SELECT id FROM snap_processing_job ORDER BY next_retry_at, id").fetchall()
        is_open = partial(self._is_open, kinds=kinds, queues=(), suspect=True)
        order = [job_id for (job_id,) in found if is_open(self.jobs[job_id])]
        jobs = self._claim(worker, kinds, 5, claim_rows.Look(takes_suspect=True)).jobs
        assert [job.id for job in jobs] == order[:1]
        self._take(worker, jobs)

    def _is_open(self, job: Model, kinds: Collection[str], queues: tuple[str, ...], *, suspect: bool = False) -> bool:
        is_wanted = job.kind in kinds and (not queues or job.queue in queues) and job.queue not in self.paused
        return job.waits and not job.held and job.due and job.suspect == suspect and is_wanted

    def _take(self, worker: str, jobs: Iterable[Job]) -> None:
        for job in sorted(jobs, key=lambda job: job.id):
            model = self.jobs[job.id]
            self.claims.append(job)
            model.claimed(worker, job.lease_seq)
            seen = (job.attempt, job.lease_seq, job.max_attempts)
            assert seen == (model.attempts, model.seq, model.max_attempts)

    # --- while it runs --------------------------------------------------------------------------------------

    @precondition(can_be_held)
    @rule(number=st.integers(0, 99), started=st.booleans())
    def beat(self, number: int, started: bool) -> None:
        """Everything that the worker thinks it holds, zombies included."""
        mine = self.live(self.somebody(number))
        stale = self.stale(besides=mine)
        leases = [claim.lease for claim in mine + stale]
        cancelled, lost = leases_rows.beat(self.db, leases, [1.0 if started else None] * len(leases), HOUR)
        assert cancelled == {claim.id for claim in mine if self.jobs[claim.id].wished}
        assert lost == {claim.id for claim in stale}
        for claim in mine:
            self.jobs[claim.id].expired = False
            self.jobs[claim.id].started |= started

    # --- its end --------------------------------------------------------------------------------------------

    @precondition(can_be_held)
    @rule(numbers=st.lists(st.integers(0, 99), min_size=1, max_size=4))
    def complete(self, numbers: list[int]) -> None:
        """A batch, zombies included."""
        claims = {(one := self.claims[number % len(self.claims)]).id: one for number in numbers[1:] if self.claims}
        claims |= {(one := self.held(numbers[0])).id: one}
        claims = {job_id: claim for job_id, claim in claims.items() if not claim.exhausted}
        landed = settle_rows.complete(self.db, [(claim.lease, None, 0.1) for claim in claims.values()])
        assert landed == {claim.id for claim in claims.values() if self.is_live(claim)}
        for job_id in landed:
            self.ends(claims[job_id])
            self.jobs[job_id].becomes("COMPLETED", started=True)

    @precondition(can_be_held)
    @rule(number=st.integers(0, 99), due=st.sampled_from([True, True, False]))
    def fail(self, number: int, due: bool) -> None:
        """As `attempt.failed` does: again later, or over."""
        claim = self.held(number)
        if claim.attempt < claim.max_attempts:
            self.settle(claim, Retried(OOPS, NOW if due else HOUR), partial(Model.fails, due=due))
        else:
            self.settle(claim, Buried(OOPS), partial(Model.is_buried, status="FAILED"))

    @precondition(can_be_held)
    @rule(number=st.integers(0, 99), stopped=st.booleans())
    def fail_for_good(self, number: int, stopped: bool) -> None:
        outcome, status = (Stopped(OOPS), "CANCELLED") if stopped else (Buried(OOPS), "FAILED")
        self.settle(self.held(number), outcome, partial(Model.is_buried, status=status))

    @precondition(can_be_held)
    @rule(number=st.integers(0, 99), due=st.sampled_from([True, True, False]))
    def snooze(self, number: int, due: bool) -> None:
        self.settle(self.held(number), Snoozed(NOW if due else HOUR), partial(Model.snoozes, due=due))

    def settle(self, claim: Job, outcome: Outcome, change: Callable[[Model], None]) -> None:
        """Whatever a worker had in mind for it, an exhausted job is buried."""
        if claim.exhausted:
            outcome, change = Buried(OOPS, ran=False), partial(Model.is_buried, status="FAILED", started=False)
        self.ends(claim)
        change(self.jobs[claim.id])
        ran_for = None if claim.exhausted else 0.1
        assert settle_rows.settle(self.db, Finished(claim, outcome, ran_for)) == self.jobs[claim.id].status

    @precondition(can_be_held)
    @rule(number=st.integers(0, 99), started=st.booleans())
    def shut_down(self, number: int, started: bool) -> None:
        """Hands back all that it thinks it holds."""
        mine = self.live(self.somebody(number))
        has_begun = [claim for claim in mine if started and not claim.exhausted]
        only_waits = [claim for claim in mine if claim not in has_begun]
        zombies = self.stale(besides=mine)
        landed = hand_back(self.db, *has_begun, *(zombies if started else ()), allowed=ALLOWED)
        landed |= hand_back(self.db, *only_waits, *(() if started else zombies), started=False, allowed=ALLOWED)
        assert landed == {claim.id for claim in mine}
        for claim in mine:
            self.ends(claim)
            self.jobs[claim.id].goes_back(started=claim in has_begun)

    @precondition(lambda self: self.stale())
    @rule(number=st.integers(0, 999))
    def zombie(self, number: int) -> None:
        """Whatever a worker writes under a lease that it lost, nothing changes: the invariants look."""
        zombies = self.stale()
        zombie = zombies[number % len(zombies)]
        writes: list[Callable[[], object]] = [
            lambda: notes.progress(self.db, {zombie.lease: "1"}),
            lambda: notes.log(self.db, [notes.LogLine(zombie.lease, 1, "INFO", "zombie", 0.0)]),
            lambda: settle_rows.settle(self.db, Finished(zombie, Succeeded(None), 0.1)),
            lambda: settle_rows.settle(self.db, Finished(zombie, Retried(OOPS, NOW), 0.1)),
            lambda: settle_rows.settle(self.db, Finished(zombie, Buried(OOPS), 0.1)),
            lambda: settle_rows.settle(self.db, Finished(zombie, Snoozed(NOW), 0.1)),
            lambda: hand_back(self.db, zombie, allowed=0),
        ]
        assert not writes[number % len(writes)]()

    # --- death ----------------------------------------------------------------------------------------------

    @precondition(can_be_held)
    @rule(number=st.integers(0, 99))
    def fall_silent(self, number: int) -> None:
        """Its leases end."""
        for claim in self.live(self.somebody(number)):
            move(self.db, claim.id, lock_expires_at=ago(seconds=1))
            self.jobs[claim.id].expired = True

    @precondition(lambda self: any(job.expired for job in self.jobs.values()))
    @rule(limit=st.sampled_from([1, 100]))
    def recover(self, limit: int) -> None:
        ended = sorted(job_id for job_id, job in self.jobs.items() if job.expired)[:limit]
        assert sorted(leases_rows.recover(self.db, spread=NOW, limit=limit)) == ended
        for job_id in ended:
            self.jobs[job_id].is_lost()

    @precondition(can_be_held)
    @rule(number=st.integers(0, 99), running=st.sampled_from([None, 0, 1, 2]))
    def die_before_a_witness(self, number: int, running: int | None) -> None:
        """It is known which of its jobs it was running, or not."""
        worker = self.somebody(number)
        mine = self.live(worker)
        ran = None if running is None else {claim.id for claim in mine[:running] if not claim.exhausted}
        assert worker
        assert sorted(leases_rows.release(self.db, worker, ran)) == sorted(claim.id for claim in mine)
        for claim in mine:
            model = self.jobs[claim.id]
            if ran is None:
                model.is_lost()
            elif claim.id in ran:
                model.is_lost_while_running()
            else:
                model.is_lost_before_it_began()

    # --- people and time ------------------------------------------------------------------------------------

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 99))
    def cancel(self, number: int) -> None:
        job_id, model = self.some(lambda job: True, number)
        if model.waits:
            model.wished = True
            model.becomes("CANCELLED")
        elif not model.is_over:
            model.wished = True
        if model.status in ("COMPLETED", "FAILED"):
            with pytest.raises(IllegalTransition):
                lifecycle.cancel(self.db, job_id)
        else:
            assert lifecycle.cancel(self.db, job_id) == model.status

    @precondition(lambda self: any(job.is_over for job in self.jobs.values()))
    @rule(number=st.integers(0, 99))
    def retry_by_a_person(self, number: int) -> None:
        self._retry(*self.some(lambda job: job.is_over, number))

    @precondition(lambda self: any(job.held and job.waits for job in self.jobs.values()))
    @rule(number=st.integers(0, 99))
    def a_parent_is_cancelled_and_retried(self, number: int) -> None:
        _, child = self.some(lambda job: job.held and job.waits, number)
        parent = next(one for one in child.parents if one in self.jobs and not self.jobs[one].is_over)
        if not self.jobs[parent].waits:
            return
        lifecycle.cancel(self.db, parent)
        self.jobs[parent].wished = True
        self.jobs[parent].becomes("CANCELLED")
        self.the_rows_are_as_the_model_says()
        self._retry(parent, self.jobs[parent])

    def _retry(self, job_id: int, model: Model) -> None:
        rivals = [one for i, one in self.jobs.items() if i != job_id and one.kind == model.kind]
        if model.status == "COMPLETED":
            with pytest.raises(IllegalTransition):
                lifecycle.retry_by_person(self.db, job_id)
        elif model.scope == "live" and any(one.holds(model.key, "live") for one in rivals):
            with pytest.raises(DuplicateKey):
                lifecycle.retry_by_person(self.db, job_id)
        else:
            lifecycle.retry_by_person(self.db, job_id)
            model.wished = False
            model.becomes("PENDING", due=True, started=False)
            model.attempts = model.interruptions = 0
            if model.held:
                model.parents = {one: must and not self.is_in_the_way(one) for one, must in model.parents.items()}
                self.meet(model)

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 99))
    def replay(self, number: int) -> None:
        job_id, one = self.some(lambda job: True, number)
        copy = Model(one.kind, one.queue, one.priority, one.lane, one.max_attempts, None, None, due=True)
        copy.parents = {parent: False for parent in one.parents if parent in self.jobs}
        self.add(lifecycle.replay(self.db, job_id), copy)

    @precondition(lambda self: any(job.waits and not job.due for job in self.jobs.values()))
    @rule(number=st.integers(0, 99))
    def time_passes(self, number: int) -> None:
        job_id, model = self.some(lambda job: job.waits and not job.due, number)
        move(self.db, job_id, next_retry_at=ago(seconds=1))
        model.due = True

    @precondition(lambda self: any(not job.due for job in self.jobs.values()))
    @rule(number=st.integers(0, 99))
    def run_now(self, number: int) -> None:
        job_id, model = self.some(lambda job: not job.due, number)
        if model.waits and not model.held:
            assert lifecycle.run_now(self.db, job_id) == model.status
            model.due = True
        else:
            with pytest.raises(IllegalTransition):
                lifecycle.run_now(self.db, job_id)

    @rule()
    def pause_or_resume(self) -> None:
        self.db.execute("SELECT resume_queue('media')" if self.paused else "SELECT pause_queue('media')")
        self.paused ^= {"media"}

    @precondition(lambda self: any(job.is_over for job in self.jobs.values()))
    @rule(numbers=st.lists(st.integers(0, 99), max_size=3))
    def prune(self, numbers: list[int]) -> None:
        for number in numbers:
            job_id, model = self.some(lambda job: True, number)
            move(self.db, job_id, created_at=ago(days=3), **({"finished_at": ago(days=2)} if model.is_over else {}))
            model.old = model.is_over
        awaited = {parent for job in self.jobs.values() if not job.is_over for parent in job.parents}
        old = {job_id for job_id, job in self.jobs.items() if job.old and job.scope != "ever"}
        pruned = old - awaited
        # one page: where an age by hand leaves a young job between old ones, the pages end there
        assert retention.prune(self.db, keep=timedelta(days=1))[0] == len(pruned)
        for job_id in pruned:
            del self.jobs[job_id]

    # --- always ---------------------------------------------------------------------------------------------

    @invariant()
    def the_rows_are_as_the_model_says(self) -> None:
        """I3, I5, D16."""
        self.follow()
        rows = self.db.execute(
            "SELECT id, status, attempt_count, lease_seq, interruptions, losses, claimed_by, started_at IS NOT NULL,"
            "       lock_expires_at < now() IS TRUE, finished_at IS NOT NULL, gate = 'after'"
            "  FROM snap_processing_job ORDER BY id"
        ).fetchall()
        assert {row[0]: row[1:] for row in rows} == {job_id: job.facts for job_id, job in self.jobs.items()}
        for job_id, _, _, seq, *_ in rows:
            assert seq >= self.highest.get(job_id, 0)
            self.highest[job_id] = seq

    @invariant()
    def what_a_child_waits_for_is_counted(self) -> None:
        told = (
            "SELECT id, waits_for FROM snap_processing_job WHERE gate = 'after' AND status IN ('PENDING', 'RETRY_WAIT')"
        )
        counted = {job_id: self.open_parents(job) for job_id, job in self.jobs.items() if job.held and job.waits}
        assert dict(self.db.execute(told).fetchall()) == counted
        assert all(counted.values())

    @invariant()
    def attempts_stay_within_their_limit_and_failures_have_a_reason(self) -> None:
        """I7. Only a claim that tells a worker to bury its job goes one beyond."""
        wrong = self.db.execute(
            "SELECT id FROM snap_processing_job"
            " WHERE attempt_count > max_attempts + (status = 'RUNNING')::integer"
            "    OR (status = 'FAILED' AND last_error IS NULL)"
        ).fetchall()
        assert wrong == []

    def teardown(self) -> None:
        """I2, D4: whatever happened, every job can be brought to an end."""
        self.db.execute("DELETE FROM job_queue")
        self.db.execute(
            "UPDATE snap_processing_job SET next_retry_at = now() WHERE status IN ('PENDING', 'RETRY_WAIT')"
        )
        self.db.execute("UPDATE snap_processing_job SET lock_expires_at = '2020-02-02' WHERE status = 'RUNNING'")
        leases_rows.recover(self.db, spread=NOW)
        while jobs := self._claim_all():
            for job in jobs:
                outcome = Buried(OOPS, ran=False) if job.exhausted else Succeeded(None)
                assert settle_rows.settle(self.db, Finished(job, outcome, 0.1))
        left = self.db.execute(
            "SELECT id FROM snap_processing_job WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')"
        ).fetchall()
        assert left == []

    def _claim_all(self) -> list[Job]:
        suspect = claim_rows.Look(takes_suspect=True)
        return self._claim("last", KINDS, 1000).jobs + self._claim("last", KINDS, 1000, suspect).jobs


IS_LONG = settings.get_current_profile_name() == "long"


@pytest.mark.both_servers_at_length
@pytest.mark.timeout(0 if IS_LONG else 300)
def test_the_queue_does_what_its_model_says(db: Db, everything: bool) -> None:
    """Promises 1 to 3; I2 to I5, I7, I8; FA3."""
    chosen = settings() if IS_LONG else settings(max_examples=200 if everything else 25)
    run_state_machine_as_test(partial(QueueMachine, db), settings=chosen)  # type: ignore[arg-type]

"""A worker: claims jobs, runs them in its executors, settles them, and gives back what it cannot finish.

Threads: the claimer, the settler, the writer of notes, the listener, the slots of each executor, and APScheduler's
duties. They share frozen values, the jobs that are held (single dict operations) and queues; what else is shared says
who writes it.
"""

import logging
import os
import threading
from collections.abc import Mapping
from datetime import timedelta
from math import isfinite
from time import monotonic

from snapapp.jobs import events, process_hooks
from snapapp.jobs.errors import JobInterrupted
from snapapp.jobs.model import Finished, Interrupted, Job
from snapapp.jobs.retry import pause_after
from snapapp.jobs.rows import costs
from snapapp.jobs.rows.costs import Spent
from snapapp.jobs.schedules.declared import Routine
from snapapp.jobs.schedules.scheduler import Watch
from snapapp.jobs.worker import introduction
from snapapp.jobs.worker.capacity.admission import Admission
from snapapp.jobs.worker.claimer import Claimer
from snapapp.jobs.worker.duties import Duties
from snapapp.jobs.worker.introduction import Vitals
from snapapp.jobs.worker.leases.heartbeat import Heartbeat
from snapapp.jobs.worker.leases.held import JobChannel
from snapapp.jobs.worker.leases.recovery import Recovery
from snapapp.jobs.worker.notes import NotesWriter
from snapapp.jobs.worker.parts import WorkerParts
from snapapp.jobs.worker.settler import Settler
from snapapp.jobs.worker.slots import Executors
from snapapp.jobs.worker.wakeup import Listener

_POLL_DELAY = timedelta(seconds=1)  # where nobody has set it; while LISTEN is proven alive it rests for longer:
_REST_WHILE_LISTENING = 4.9  # seconds
_STAYS_FOR = 0.05  # seconds in which the claim waits for a slot while there is a backlog
_ACCOUNTS_EVERY = timedelta(seconds=1)
_LONGEST_SLEEP = 3600.0  # seconds: threads cannot wait for the years that a job may
_LAST_MOMENTS = 2.0  # seconds of the grace kept for handing back and leaving


class Worker:
    """start() and stop() once each; tick(), beat(), recover() and prune() any number of times, also by a test."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self.id, self.settings, self.events, self.counts = parts.id, parts.settings, parts.events, parts.counts
        self._registry = parts.registry
        self._held_jobs = parts.held_jobs
        self._woken: set[str] = set()  # queues that a NOTIFY named; emptied by the claim
        self._asked_at = float("-inf")  # when the claim is to run, monotonic; written by whoever asks, and by it
        self._knows_all = False  # all that is new are those queues; written by whoever wakes the claim
        self._is_on_the_roster = False  # written by the claim
        self._failures = 0  # claims in a row that failed; likewise
        self._started = False
        self._stopping = threading.Event()
        self._hurried = threading.Event()  # somebody has no patience left: a stop ends at once
        self._settled = threading.Event()  # a settle was written, or a slot came free
        self._ticked_at = float("-inf")
        self._beaten_at = float("-inf")
        self._paused: frozenset[str] = frozenset()  # queues, at the last beat
        self._duties = Duties(parts.complain)
        # In the order in which they need each other.
        self._channel = JobChannel(parts.notes, parts.held_jobs, parts.connections)
        self._notes_line = parts.line("notes")
        self._notes_writer = NotesWriter(self.id, parts.notes, self._notes_line, self.events, parts.held_jobs.holds)
        self._settler = Settler(parts, on_settled=self._on_settled, on_due_in=self._claim_in)
        self._executors = Executors(parts, self._settler, self._notes_line, self._on_free)
        here = ("command",) if self.settings.compute else ("process", "command")
        apart = [kind for kind, executor in self._executors.executor_of.items() if executor in here]
        self._admission = Admission(apart, parts.held_jobs, reserve_mb=self.settings.memory_free_min_mb)
        self._claimer = Claimer(parts, self._executors, self._admission, on_claimed=self._on_claimed)
        member = introduction.member(parts, self._executors)
        interrupt = self._executors.interrupt
        self._heartbeat = Heartbeat(parts, member, self._admission, interrupt=interrupt, note=self._note)
        self._recovery = Recovery(self.settings, member, parts.line("keep"), self.counts, self.events)
        self._listener = Listener(parts, on_work=self._on_notify, on_cancel=self._heartbeat.check_cancelled)
        self._watch = Watch(self.id, parts.line("schedules"), introduction.declarations(parts), self.events)

    # --- life and death ---------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._started:
            return
        process_hooks.start()
        self._started = True
        self._executors.start()
        self._settler.start()
        self._notes_writer.start()
        self._listener.start()
        settings = self.settings
        self._duties.add("claim", self.claim, settings.poll_delay or _POLL_DELAY, at_once=True)
        self._duties.add("heartbeat", self.beat_if_due, min(settings.beat_every / 4, timedelta(seconds=1)))
        self._duties.add("recover", self.recover, settings.recover_every)
        self._duties.add("prune", self.prune, settings.prune_every)
        self._duties.add("costs", self.keep_accounts, _ACCOUNTS_EVERY)
        for routine in self._registry.routines():
            self._add_routine(routine)
        self._duties.start()
        self.events.emit(events.WORKER_STARTED, worker_id=self.id, kinds=self._registry.kinds(), pid=os.getpid())

    def stop(self, grace: timedelta | None = None, reason: str = "stopped") -> None:
        """Claim no more, drain, hand back, last beat, leave, close. Returns when it is stopped."""
        if not self._started:
            return
        self._started = False
        seconds = (self.settings.shutdown_grace if grace is None else grace).total_seconds()
        seconds = min(seconds, _LAST_MOMENTS) if self._hurried.is_set() else seconds
        deadline = monotonic() + seconds
        self.events.emit(events.WORKER_STOPPING, worker_id=self.id, reason=reason, held=len(self._held_jobs))
        self.stop_claiming()
        self._drain(deadline - min(_LAST_MOMENTS, seconds / 4), patiently=True)
        self._interrupt_all()
        self._drain(min(deadline, monotonic() + _LAST_MOMENTS))
        self._duties.stop()
        self._hand_back_rest()
        self._settler.stop(timeout=_LAST_MOMENTS)
        self._notes_writer.stop(timeout=_LAST_MOMENTS)
        self._listener.stop()
        self._executors.stop()
        self._parts.connections.close()
        leaving = threading.Thread(target=self._leave, args=[reason], name="leave", daemon=True)
        leaving.start()
        leaving.join(_LAST_MOMENTS)  # the database may be away
        process_hooks.stop(self._parts.complain)
        self.events.emit(events.WORKER_CLOSED, worker_id=self.id, reason=reason)

    def stop_claiming(self) -> None:
        """Nothing new is begun; what waits for a slot goes back at once. `stop` begins with it; it may come before."""
        self._heartbeat.status = "DRAINING"
        self._stopping.set()
        self._claimer.is_paused = True
        self._settled.set()
        self._duties.wait_for("claim", timeout=1 if self._hurried.is_set() else 5)  # it may hang on a silent database
        self._watch.stop()
        for name in self._executors.by_name:
            self._executors.hand_back(name)

    def hurry(self) -> None:
        """Ends the patience of a `stop`, also of one that is under way: what still runs is handed back."""
        self._hurried.set()
        self._settled.set()

    @property
    def running(self) -> int:
        """Jobs that have begun and not ended."""
        return sum(job.started_at is not None for job in self._held_jobs.all())

    @property
    def is_idle(self) -> bool:
        return len(self._held_jobs) == 0

    def _drain(self, deadline: float, *, patiently: bool = False) -> None:
        while len(self._held_jobs) and monotonic() < deadline and not (patiently and self._hurried.is_set()):
            self._settled.wait(timeout=min(0.1, max(0.0, deadline - monotonic())))
            self._settled.clear()

    def _interrupt_all(self) -> None:
        for job in self._held_jobs.all():
            if job.stop is None:
                self._executors.interrupt(job, JobInterrupted(f"the worker of job {job.id} is stopping"))

    def _hand_back_rest(self) -> None:
        """Threads that did not stop: their jobs go back all the same, and what they still do will not land."""
        for job in self._held_jobs.all():
            self._settler.put(Finished(job, Interrupted(), None))

    def _leave(self, reason: str) -> None:
        for step in (self.keep_accounts, lambda: self._heartbeat.leave(reason)):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the database may be away; the roster's row then expires
                self._parts.complain("leave", error)
        for line in (self._heartbeat, self._recovery, self._notes_line, self._claimer, self._watch):
            line.close()

    def vitals(self) -> Vitals:
        since_beat = monotonic() - self._beaten_at
        return Vitals(
            held=len(self._held_jobs),
            claims=self._duties.is_running or not self._started,
            beats=since_beat < self.settings.lease_for.total_seconds(),
            settles=self._settler.stands_still_for < self.settings.lease_for.total_seconds(),
            last_beat_ms=None if self._beaten_at < 0 else round(since_beat * 1000),
            listens=self._listener.is_alive,
            note=self._note(),
            stuck=len(self._executors.stuck),
            wants_restart=self.wants_restart,
        )

    @property
    def wants_restart(self) -> str | None:
        """Why only a new process helps; None while this one is well."""
        stuck = len(self._executors.stuck)
        return f"{stuck} threads hang in jobs that ignore their deadline" if self._executors.is_worn_out else None

    # --- what the duties call ---------------------------------------------------------------------------------

    def claim(self) -> None:
        """The APScheduler job that claims; nothing else does. While there is a backlog it stays and fills the slots as
        they come free: a wake for each of them would cost more than the claim."""
        if not self._is_on_the_roster:
            self._introduce_ourselves()
        elif self._may_rest():
            if isfinite(self._asked_at):  # this run has taken the place of the one that was asked for
                self._claim_in(self._asked_at - monotonic())
            return
        again_in = self.tick()
        while self._claimer.is_behind and not self._stopping.is_set():
            if not self._settled.wait(_STAYS_FOR):
                break
            self._settled.clear()
            if self._claimer.has_room():
                again_in = self.tick()
        if again_in is not None:
            self._claim_in(again_in)

    def _may_rest(self) -> bool:
        """Every run of the interval asks the database; but where nobody has set the interval, LISTEN may stretch it."""
        now = monotonic()
        return (
            self.settings.poll_delay is None
            and self._listener.is_alive
            and now < self._asked_at
            and now - self._ticked_at < _REST_WHILE_LISTENING
        )

    def wake(self, *, queue: str | None = None) -> None:
        """Have the claim run now, or once more after what it is doing. With `queue`, that is all the news."""
        if queue is None:
            self._knows_all = False
        else:
            self._woken.add(queue)
        self._asked_at = float("-inf")
        self._duties.bring_forward("claim")

    def tick(self) -> float | None:
        """One claim. What wakes it meanwhile is remembered."""
        woken, self._woken = self._woken, set()
        knows_all, self._knows_all = self._knows_all, True
        self._asked_at, self._ticked_at = float("inf"), monotonic()
        try:
            again_in = self._claimer.tick(woken if knows_all else ())
        except Exception:
            self._failures += 1
            self._claim_in(pause_after(self._failures))
            raise
        self._failures = 0
        return again_in

    def beat_if_due(self) -> None:
        """Called more often than beats are due: jobs whose lease is over are stopped within a second, after a freeze,
        too, and a beat that failed is tried again soon."""
        self._heartbeat.expire()
        if monotonic() - self._beaten_at >= self.settings.beat_every.total_seconds() * 0.95:
            self.beat()

    def beat(self) -> None:
        sent_at = monotonic()
        try:
            pulse = self._heartbeat.beat()
        except Exception:
            self._recovery.away()
            raise
        self._beaten_at = sent_at
        self._tell_pauses(pulse.paused)
        claimer = self._claimer
        claimer.has_rules = pulse.has_rules
        if pulse.rules_change or pulse.suspects_wait:
            claimer.rules_change |= pulse.rules_change
            claimer.suspects_wait |= pulse.suspects_wait
            self.wake()

    def _tell_pauses(self, paused: frozenset[str]) -> None:
        before, self._paused = self._paused, paused
        for queue in sorted(paused - before):
            self.events.emit(events.QUEUE_PAUSED, worker_id=self.id, queue=queue)
        for queue in sorted(before - paused):
            self.events.emit(events.QUEUE_RESUMED, worker_id=self.id, queue=queue)

    def recover(self) -> int:
        recovered = self._recovery.recover()
        if recovered:
            self._claimer.suspects_wait = True
            self._claimer.forget()
            self.wake()
        return recovered

    def prune(self) -> int:
        return self._recovery.prune()

    @property
    def spent(self) -> Mapping[str, Spent]:
        """What attempts waited and ran, by kind."""
        return self._parts.ledger.spent

    def keep_accounts(self) -> None:
        """Writes down what attempts have cost, and learns from it; where there was none, that takes no statement."""
        if self._parts.ledger:
            with self._notes_line.connection() as db:
                if self._parts.ledger.write(db):
                    self._admission.learn(costs.needs(db, self._admission.kinds))
        if self._admission.held:
            self.wake()  # nobody tells us that memory is free again

    # --- threads ----------------------------------------------------------------------------------------------

    def _introduce_ourselves(self) -> None:
        """Beat before the first claim: a worker that dies must be on the roster to be found dead."""
        self.beat()
        self.recover_neighbours()
        self._recall_costs()
        self._watch.start()
        self._is_on_the_roster = True

    def _recall_costs(self) -> None:
        """Before the first claim: whoever was killed for want of memory must not take as much again at once."""
        try:
            if self._admission.kinds:
                with self._notes_line.connection() as db:
                    self._admission.learn(costs.needs(db, self._admission.kinds))
        except Exception as error:  # noqa: BLE001 - then everything is let in, until something is learned
            self._parts.complain("recall what jobs cost", error)

    def recover_neighbours(self) -> int:
        recovered = self._recovery.recover_neighbours()
        if recovered:
            self._claimer.suspects_wait = True
        return recovered

    # --- what the parts tell each other -----------------------------------------------------------------------

    def _on_claimed(self, jobs: list[Job]) -> None:
        desk = self._channel
        for job in jobs:
            job.channel = desk
        if self.events.hears(events.JOBS_CLAIMED):
            self.events.emit(events.JOBS_CLAIMED, worker_id=self.id, jobs=len(jobs))

    def _on_settled(self) -> None:
        self._settled.set()  # the claim that stays for a backlog, and a stop that drains, wait for it
        if self._claimer.holds_back or self._claimer.has_room():
            self.wake()

    def _on_free(self) -> None:
        """A slot finds nothing to do. After a hook, the settle came before its slot was free."""
        if self._claimer.has_room():
            self._settled.set()
            self.wake()

    def _claim_in(self, seconds: float) -> None:
        """Have the claim run when something is due, if it would be later."""
        seconds = min(max(0.0, seconds), _LONGEST_SLEEP)
        self._asked_at = min(self._asked_at, monotonic() + seconds)
        self._duties.bring_forward("claim", seconds)

    def _on_notify(self, queue: str | None) -> None:
        """`queue` is where something was enqueued; empty: limits have changed; None: nobody knows what was said."""
        if not queue:
            self._claimer.has_rules = self._claimer.rules_change = True
            self.wake()
        elif not self.settings.queues or queue in self.settings.queues:
            self.wake(queue=queue)

    def _note(self) -> str | None:
        return introduction.note(self._parts, self._executors, self._admission, listens=self._listener.is_alive)

    def _add_routine(self, routine: Routine) -> None:
        def skipped() -> None:
            self.events.emit(events.ROUTINE_SKIPPED, logging.WARNING, worker_id=self.id, schedule=routine.name)

        self._duties.add(f"schedule {routine.name}", routine.function, routine.every, on_skip=skipped)

"""A worker: claims jobs, runs them in its executors, settles them, and gives back what it cannot finish.

Threads: the slots of each executor, the settler, the notes writer, the listener, the watchdog, the scheduler, and one
for each duty, of which the claim and the heartbeat are two. They share frozen values, queues, and HeldJobs (by single
dict operations). A comment beside each other shared attribute says which thread writes it.
"""

import logging
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from math import isfinite
from time import monotonic

from snapapp.jobs import events, process_hooks
from snapapp.jobs.errors import CannotStart, CannotStop, JobInterrupted
from snapapp.jobs.model import Finished, Interrupted, Job
from snapapp.jobs.retry import pause_after
from snapapp.jobs.rows import costs
from snapapp.jobs.rows.costs import Spent
from snapapp.jobs.schedules.declared import Routine
from snapapp.jobs.schedules.scheduler import Scheduler
from snapapp.jobs.worker import self_description
from snapapp.jobs.worker.capacity.admission import Admission
from snapapp.jobs.worker.claiming.claimer import Claimer
from snapapp.jobs.worker.claiming.next_claim import NextClaim
from snapapp.jobs.worker.duties import Duties
from snapapp.jobs.worker.failover import Failover
from snapapp.jobs.worker.leases.heartbeat import Heartbeat
from snapapp.jobs.worker.leases.held import JobChannel
from snapapp.jobs.worker.leases.recovery import Recovery
from snapapp.jobs.worker.notes import NotesWriter
from snapapp.jobs.worker.parts import WorkerParts
from snapapp.jobs.worker.self_description import Vitals
from snapapp.jobs.worker.settler import Settler
from snapapp.jobs.worker.slots import Executors
from snapapp.jobs.worker.wakeup import Listener

_POLL_DELAY = timedelta(seconds=1)  # between two claims, where no setting says otherwise
_REST_WHILE_LISTENING = 4.9  # seconds between two claims without such a setting, while LISTEN is proven alive
_STAYS_FOR = 0.05  # seconds that a claim with a backlog waits for a slot to come free
_WRITE_COSTS_EVERY = timedelta(seconds=1)
_LOOK_FOR_FAILOVER_EVERY = timedelta(seconds=5)
_WHEN_WANTED = timedelta(days=1)  # of a duty that somebody brings forward
_LONGEST_SLEEP = 3600.0  # seconds: a job may be due in years, longer than a thread can wait
_LAST_MOMENTS = 2.0  # seconds of the grace that are kept for handing jobs back and leaving the roster


class Worker:
    """start() and stop() are called once each; tick(), beat(), recover() and prune() as often as a test likes."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self.id, self.settings, self.events, self.counts = parts.id, parts.settings, parts.events, parts.counts
        self._registry = parts.registry
        self._held_jobs = parts.held_jobs
        self._next_claim = NextClaim()
        self._is_on_the_roster = False  # written by the claim
        self._failures = 0  # claims that failed in a row; written by the claim
        self._life = threading.RLock()  # one start or stop at a time; a signal's handler may stop what it interrupted
        self._is_starting = False
        self._stop_asked: tuple[timedelta | None, str] | None = None  # by a signal's handler, during the start
        self._started = False
        self._is_over = False  # it was started and stopped; its threads cannot start again
        self._made_in = os.getpid()
        self._stopping = threading.Event()
        self._hurried = threading.Event()  # `hurry` was called: a stop waits no longer for running jobs
        self._settled = threading.Event()  # a settle was written, or a slot came free
        self._beaten_at = float("-inf")
        self._rule_changes = 0  # that were notified; written by the listener
        self._paused: frozenset[str] = frozenset()  # queues that were paused at the last beat
        self._duties = Duties(parts.complain)
        # Each part below takes the ones before it.
        self._channel = JobChannel(parts.notes, parts.held_jobs, parts.connections)
        self._notes_database = parts.database("notes")
        self._notes_writer = NotesWriter(self.id, parts.notes, self._notes_database, self.events, parts.held_jobs.holds)
        self._settler = Settler(parts, on_settled=self._on_settled, on_due_in=self._claim_in)
        self._executors = Executors(parts, self._settler, self._notes_database, self._on_free)
        children_here = ("command",) if self.settings.compute else ("process", "command")
        kinds = [kind for kind, executor in self._executors.executor_of.items() if executor in children_here]
        self._starts_children = bool(kinds)
        self._admission = Admission(kinds, parts.held_jobs, reserve_mb=self.settings.memory_free_min_mb)
        self._claimer = Claimer(parts, self._executors, self._admission, on_claimed=self._on_claimed)
        member = self_description.member(parts, self._executors)
        interrupt = self._executors.interrupt
        self._heartbeat = Heartbeat(parts, member, self._admission, interrupt=interrupt, note=self._note)
        self._keep_database = parts.database("keep")
        self._recovery = Recovery(self.settings, member, self._keep_database, self.counts, self.events)
        self._listener = Listener(parts, on_work=self._on_notify, on_cancel=self._heartbeat.check_cancelled)
        self._scheduler = Scheduler(
            self.id, parts.database("schedules"), self_description.declarations(parts), self.events
        )

    # --- life and death ---------------------------------------------------------------------------------------

    def start(self) -> None:
        with self._life:
            if self._started or self._is_starting:
                return
            self._is_starting = True
            try:
                self._start()
            except BaseException:  # perhaps no thread can be started: what was started is stopped again
                self._stop_asked = timedelta(0), "could not start"
                raise
            finally:
                self._is_starting = False
                asked, self._stop_asked = self._stop_asked, None
                if asked:
                    self.stop(*asked)

    def _start(self) -> None:
        self._check_may_start()
        process_hooks.start(self._parts.complain)
        self._started = True
        self._executors.start()
        self._settler.start()
        self._notes_writer.start()
        self._listener.start()
        settings = self.settings
        self._duties.add("claim", self.claim, settings.poll_delay or _POLL_DELAY, at_once=True)
        looks_every = min(settings.beat_every / 4, timedelta(seconds=1))
        self._duties.add("heartbeat", self.beat_if_due, looks_every)
        self._duties.add("expire", self._heartbeat.expire, looks_every)  # apart: a beat may hang on a silent server
        self._duties.add("failover", Failover(self._parts).look, _LOOK_FOR_FAILOVER_EVERY)
        self._duties.add("recover", self.recover, settings.recover_every)
        self._duties.add("prune", self.prune, settings.prune_every)
        self._duties.add("look back", self.look_back, _WHEN_WANTED)
        self._duties.add("costs", self.write_costs, _WRITE_COSTS_EVERY)
        for routine in self._registry.routines():
            self._add_routine(routine)
        self._duties.start()
        self.events.emit(events.WORKER_STARTED, worker_id=self.id, kinds=self._registry.kinds(), pid=os.getpid())

    @property
    def _is_copy(self) -> bool:
        """Is this process another one, forked from the one that made the worker?"""
        return os.getpid() != self._made_in

    def _check_may_start(self) -> None:
        if self._is_over:
            raise CannotStart(f"worker {self.id} was stopped, and starts only once: make a new Worker")
        if self._is_copy:  # processes that share an id look like one: if one is lost, nobody notices
            raise CannotStart(
                f"worker {self.id} was made in process {self._made_in} and would start in process {os.getpid()}: "
                "make the Worker in the process that runs it, after the fork"
            )
        if self._starts_children and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            raise CannotStart(
                f"this process ignores SIGCHLD, so nobody could say how the children of worker {self.id} end: "
                "type signal.signal(signal.SIGCHLD, signal.SIG_DFL) before it starts"
            )

    def stop(self, grace: timedelta | None = None, reason: str = "stopped") -> None:
        """Stops claiming, drains, hands back what still runs, beats a last time, leaves the roster and closes. Returns
        when the worker is stopped, also if another thread stops it. In a signal's handler that interrupts `start` it
        only asks for the stop, with which the start then ends. Does nothing in a process that was forked from the
        worker's: its children and connections are not this process's. Raises CannotStop in a job of this worker."""
        if self._is_copy:
            return
        if any(executor.is_caller for executor in self._executors.by_name.values()):
            raise CannotStop(
                f"a job cannot stop worker {self.id}, which would wait for it: set an event, and stop the worker where "
                "it was started; stop_claiming() may be called here"
            )
        with self._life:
            if self._is_starting:
                self._stop_asked = grace, reason
            elif self._started:
                self._stop(grace, reason)

    def _stop(self, grace: timedelta | None, reason: str) -> None:
        self._started = False
        self._is_over = True
        seconds = (self.settings.shutdown_grace if grace is None else grace).total_seconds()
        seconds = min(seconds, _LAST_MOMENTS) if self._hurried.is_set() else seconds
        deadline = monotonic() + seconds
        self.events.emit(events.WORKER_STOPPING, worker_id=self.id, reason=reason, held=len(self._held_jobs))
        self.stop_claiming()
        self._drain(deadline - min(_LAST_MOMENTS, seconds / 4), patiently=True)
        self._interrupt_all()
        self._executors.end_waits()
        self._drain(min(deadline, monotonic() + _LAST_MOMENTS))
        self._duties.stop()
        process_hooks.leave(self.id)
        self._hand_back_rest()
        self._settler.stop(timeout=_LAST_MOMENTS)
        self._notes_writer.stop(timeout=_LAST_MOMENTS)
        self._listener.stop()
        self._executors.stop()
        self._parts.connections.close()
        leaving = threading.Thread(target=self._leave, args=[reason], name="leave", daemon=True)
        with suppress(RuntimeError):  # no thread can be started: the roster's row then expires
            leaving.start()
            leaving.join(_LAST_MOMENTS)  # the database may be away
        process_hooks.stop(self._parts.complain)
        self.events.emit(events.WORKER_CLOSED, worker_id=self.id, reason=reason)

    def stop_claiming(self) -> None:
        """Claims nothing more, and gives jobs that wait for a slot back at once. `stop` begins with this; it may also
        be called earlier."""
        self._heartbeat.status = "DRAINING"
        self._stopping.set()
        self._claimer.is_paused = True
        self._settled.set()
        # with a timeout, because a claim may hang on a silent database
        self._duties.wait_for("claim", timeout=1 if self._hurried.is_set() else 5)
        self._scheduler.stop()
        for name in self._executors.by_name:
            self._executors.hand_back(name)

    def hurry(self) -> None:
        """Makes a `stop`, also one under way, hand running jobs back instead of waiting for them."""
        self._hurried.set()
        self._settled.set()

    @property
    def running(self) -> int:
        """Number of jobs that have started and not ended."""
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
        """Gives the jobs of threads that did not stop back to the queue; what these threads still produce is dropped. A
        job that has ended, and waits to be written down or for its hook, is not handed back."""
        for job in self._held_jobs.all():
            self._settler.end(Finished(job, Interrupted(), None))

    def _leave(self, reason: str) -> None:
        for step in (self.write_costs, lambda: self._heartbeat.leave(reason)):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the database may be away; the roster's row then expires
                self._parts.complain("leave", error)
        for part in (self._heartbeat, self._recovery, self._notes_database, self._claimer, self._scheduler):
            part.close()

    def vitals(self) -> Vitals:
        silence = self._silence()
        return Vitals(
            held=len(self._held_jobs),
            claims=self._duties.is_running or not self._started,
            beats=silence is not None and silence < self.settings.lease_for,
            settles=self._settler.stands_still_for < self.settings.lease_for.total_seconds(),
            last_beat_ms=None if silence is None else round(silence.total_seconds() * 1000),
            listens=self._listener.is_alive,
            note=self._note(),
            stuck=len(self._executors.stuck),
            wants_restart=self.wants_restart,
        )

    @property
    def wants_restart(self) -> str | None:
        """Why this process should be replaced by a new one; None: it need not be."""
        stuck = len(self._executors.stuck)
        return f"{stuck} threads hang in jobs that ignore their deadline" if self._executors.is_worn_out else None

    # --- what the duties call ---------------------------------------------------------------------------------

    def claim(self) -> None:
        """The duty "claim"; nothing else in a worker claims. While there is a backlog it stays and fills slots as they
        come free, because waking the duty for each slot would cost more than the claim itself."""
        if not self._is_on_the_roster:
            self._join_roster()
        elif self._may_rest():
            if isfinite(self._next_claim.due_in):  # this run replaced one due later: schedule that again
                self._claim_in(self._next_claim.due_in)
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
        """May this run skip its claim? With the default interval it may while LISTEN works: a NOTIFY would wake us."""
        is_polling = self.settings.poll_delay is not None or not self._listener.is_alive
        return not is_polling and self._next_claim.may_wait(_REST_WHILE_LISTENING)

    def wake(self, *, queue: str | None = None) -> None:
        """Makes the claim run now, or again after the run under way. `queue`: only that queue has news."""
        self._next_claim.wake(queue)
        self._duties.bring_forward("claim")

    def tick(self) -> float | None:
        """Claims once. Calls of `wake` during the claim are kept for the next one."""
        try:
            again_in = self._claimer.tick(self._next_claim.begin())
        except Exception:
            self._failures += 1
            self._claim_in(pause_after(self._failures))
            raise
        self._failures = 0
        if self._claimer.bookmarks.wants_look_back:
            self._duties.bring_forward("look back")
        return again_in

    def beat_if_due(self) -> None:
        """Called more often than beats are due, so that a failed beat is tried again soon."""
        if monotonic() - self._beaten_at >= self.settings.beat_every.total_seconds() * 0.95:
            self.beat()

    def beat(self) -> None:
        sent_at, changes = monotonic(), self._rule_changes
        try:
            answer = self._heartbeat.beat()
        except Exception:
            self._recovery.away()
            raise
        silence = self._silence()
        if silence and (answer.silent_for is None or answer.silent_for > silence + self.settings.beat_every):
            # the database's clock was set, and another worker may have removed our row for it: until their next beats
            # all leases look ended
            self._recovery.away()
        self._beaten_at = sent_at
        self._report_pauses(answer.paused)
        claimer = self._claimer
        claimer.has_rules = answer.has_rules
        if changes != self._rule_changes:  # the answer may be older than the news
            claimer.has_rules = True
        if answer.rules_change or answer.suspects_wait:
            claimer.rules_change |= answer.rules_change
            claimer.suspects_wait |= answer.suspects_wait
            self.wake()

    def _silence(self) -> timedelta | None:
        """Since the last confirmed beat, by our own measure; None: there was none."""
        return None if self._beaten_at < 0 else timedelta(seconds=monotonic() - self._beaten_at)

    def _report_pauses(self, paused: frozenset[str]) -> None:
        before, self._paused = self._paused, paused
        for queue in sorted(paused - before):
            self.events.emit(events.QUEUE_PAUSED, worker_id=self.id, queue=queue)
        for queue in sorted(before - paused):
            self.events.emit(events.QUEUE_RESUMED, worker_id=self.id, queue=queue)

    def recover(self) -> int:
        recovered = self._recovery.recover(self._silence())
        if recovered:
            self._claimer.suspects_wait = True
            self._claimer.bookmarks.look_back_soon()
            self.wake()
        return recovered

    def prune(self) -> int:
        return self._recovery.prune()

    def look_back(self) -> None:
        """Looks for jobs that wait before the bookmarks, where that takes too long for a claim."""
        with self._keep_database.connection() as db:
            if self._claimer.bookmarks.look_back(db):
                self.wake()

    @property
    def spent(self) -> Mapping[str, Spent]:
        """Seconds that attempts waited and ran, by kind."""
        return self._parts.costs.spent

    def write_costs(self) -> None:
        """Writes down what attempts have cost and learns memory needs anew. Without attempts it runs no statement."""
        if self._parts.costs:
            with self._notes_database.connection() as db:
                if self._parts.costs.write(db):
                    self._admission.learn(costs.needs(db, self._admission.kinds))
        if self._admission.held:
            self.wake()  # no event tells us when memory is free again, so look each time

    # --- before the first claim -------------------------------------------------------------------------------

    def _join_roster(self) -> None:
        """Beats before the first claim: only a worker on the roster can be noticed as dead."""
        self.beat()
        # Who is silent is judged by `recover`, after one beat: if the database's clock was just set, all look silent.
        if self._recovery.recover_neighbours(judges_silence=False):
            self._claimer.suspects_wait = True
        self._learn_memory_needs()
        self._scheduler.start()
        self._is_on_the_roster = True

    def _learn_memory_needs(self) -> None:
        """Reads before the first claim what jobs need: if our predecessor was killed for lack of memory, we must not
        claim as much at once as it did."""
        try:
            if self._admission.kinds:
                with self._notes_database.connection() as db:
                    self._admission.learn(costs.needs(db, self._admission.kinds))
        except Exception as error:  # noqa: BLE001 - without known needs, admission lets every kind in
            self._parts.complain("recall what jobs cost", error)

    # --- what the parts tell each other -----------------------------------------------------------------------

    def _on_claimed(self, jobs: list[Job]) -> None:
        channel = self._channel
        for job in jobs:
            job.channel = channel
        if self.events.hears(events.JOBS_CLAIMED):
            self.events.emit(events.JOBS_CLAIMED, worker_id=self.id, jobs=len(jobs))

    def _on_settled(self) -> None:
        self._settled.set()  # `claim` with a backlog waits for this, and so does `_drain`
        if self._claimer.holds_back or self._claimer.has_room():
            self.wake()

    def _on_free(self) -> None:
        """Called by a slot that finds no job. With a hook, `_on_settled` came too early: its slot was not free yet."""
        if self._claimer.has_room():
            self._settled.set()
            self.wake()

    def _claim_in(self, seconds: float) -> None:
        """Makes the next claim run within so many seconds."""
        seconds = min(max(0.0, seconds), _LONGEST_SLEEP)
        self._next_claim.within(seconds)
        self._duties.bring_forward("claim", seconds)

    def _on_notify(self, queue: str | None) -> None:
        """`queue`: where a job was enqueued; empty: limits have changed; None: notifications may have been lost."""
        if not queue:
            self._rule_changes += 1  # before has_rules: a beat under way overwrites that, and then looks here
            self._claimer.has_rules = self._claimer.rules_change = True
            self.wake()
        elif not self.settings.queues or queue in self.settings.queues:
            self.wake(queue=queue)

    def _note(self) -> str | None:
        return self_description.note(self._parts, self._executors, self._admission, listens=self._listener.is_alive)

    def _add_routine(self, routine: Routine) -> None:
        def skipped() -> None:
            self.events.emit(events.ROUTINE_SKIPPED, logging.WARNING, worker_id=self.id, schedule=routine.name)

        def call() -> None:
            if self._duties.is_running and process_hooks.may_call(routine.function, self.id):
                routine.function()

        self._duties.add(f"schedule {routine.name}", call, routine.every, on_skip=skipped)

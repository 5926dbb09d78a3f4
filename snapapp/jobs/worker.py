"""A worker: claims jobs, runs them in its rooms, settles them, and gives back what it cannot finish.

Threads: the claimer, the settler, the scribe, the listener, the slots of each room, and APScheduler's duties. They
share frozen values, the holdings (single dict operations) and queues; what else is shared says who writes it.
"""

import logging
import os
import platform
import threading
import uuid
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from sqlalchemy import Engine

from snapapp.jobs import context as contexts
from snapapp.jobs import costs, crumbs, events
from snapapp.jobs.admission import Admission
from snapapp.jobs.attempt import Transaction
from snapapp.jobs.claimer import Claimer
from snapapp.jobs.costs import Ledger
from snapapp.jobs.courtesy import Courtesy
from snapapp.jobs.database import Connect, Line
from snapapp.jobs.errors import JobInterrupted
from snapapp.jobs.events import Events
from snapapp.jobs.holdings import Desk, Holdings
from snapapp.jobs.lender import Lender
from snapapp.jobs.maintenance import Duties, Heart, Keeper
from snapapp.jobs.model import Finished, Interrupted, Job
from snapapp.jobs.notes import Notes
from snapapp.jobs.pace import Pace
from snapapp.jobs.queue import Claimant
from snapapp.jobs.registry import Registry
from snapapp.jobs.retry import pause_after
from snapapp.jobs.rooms import Rooms
from snapapp.jobs.roster import Counts, Member
from snapapp.jobs.schedule import Routine
from snapapp.jobs.schedule_ledger import Declaration
from snapapp.jobs.schedule_watch import Watch
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.settler import Settler
from snapapp.jobs.wakeup import Listener

_FLOOR_WHILE_LISTENING = timedelta(seconds=5)
_CONTEXT_EVENTS = {contexts.ENTERED: events.TENANT_CONTEXT, contexts.VALIDATED: events.TENANT_CONTEXT_VALIDATED}
_ACCOUNTS_EVERY = timedelta(seconds=1)
_LONGEST_SLEEP = 3600.0  # seconds: threads cannot wait for the years that a job may
_LAST_MOMENTS = 2.0  # seconds of the grace kept for handing back and leaving


@dataclass(frozen=True, slots=True)
class Vitals:
    """What can be said of a worker without asking anybody."""

    held: int  # jobs, running or waiting for a slot
    claims: bool  # its claiming thread lives
    beats: bool  # a heartbeat was confirmed within a lease
    last_beat_ms: int | None
    listens: bool
    note: str | None
    stuck: int  # threads that ignore their deadline
    wants_restart: str | None  # why only a new process helps


class Worker:
    """start() and stop() once each; tick(), beat(), recover() and prune() any number of times, also by a test."""

    def __init__(
        self,
        settings: JobsSettings,
        registry: Registry,
        *,
        connect: Connect,
        transaction: Transaction,
        events: Events,
        courtesy: Courtesy,
        lent: Engine,
        context: contexts.Hook | None,
    ) -> None:
        self.id = (
            uuid.uuid4().hex
        )  # fresh at every start: a name that survives a restart keeps the dead one's jobs alive
        self.settings = settings
        self.events = events
        self.counts = Counts()
        self._registry = registry
        self._courtesy = courtesy
        self._connect = connect
        self._holdings = Holdings(settings.lease_for, settings.beat_every)
        self._pace = Pace()
        self._wake = threading.Event()  # the claimer should look up: to tick if `_asked`, else to plan its sleep anew
        self._asked = True  # cleared by the claimer's thread before it ticks, so that no ask is forgotten
        self._has_news = True  # something may be waiting that the claimer does not know of; cleared by its thread
        self._woken = False  # a NOTIFY came; written by the listener, cleared by the claimer's thread
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._hurried = threading.Event()  # somebody has no patience left: a stop ends at once
        self._settled = threading.Event()  # a settle was written; for whoever waits for the holdings to empty
        self._ticked_at = float("-inf")
        self._beaten_at = float("-inf")
        self._due_at: float | None = None
        self._notes = Notes(on_news=self._news.set)
        within = contexts.Within(context, self._tell_context)
        self._lender = Lender(lent, settings.job_connections, within)
        self._desk = Desk(self._notes, self._holdings, self._lender)
        self._ledger = Ledger()
        self._scribe_line = self._line("notes")
        self._settler = Settler(
            self.id,
            self._line("settle"),
            self._notes,
            self._holdings,
            self.counts,
            self._ledger,
            self._pace,
            events,
            courtesy,
            interruptions_allowed=settings.max_interruptions,
            on_settled=self._on_settled,
            on_due_in=self._due_in,
        )
        self._rooms = Rooms(
            self.id,
            settings,
            registry,
            transaction=transaction,
            settler=self._settler,
            holdings=self._holdings,
            notes=self._notes,
            events=events,
            courtesy=courtesy,
            lender=self._lender,
            within=within,
            line=self._scribe_line,
        )
        apart = [kind for kind, room in self._rooms.room_of.items() if room in ("process", "command")]
        self._admission = Admission(apart, self._holdings, reserve_mb=settings.memory_free_min_mb)
        member = self._introduce()
        self._claimer = Claimer(
            self._line("claim"),
            Claimant(self.id, settings.lease_for, settings.queues),
            self._rooms.by_name,
            self._rooms.room_of,
            self._holdings,
            self._pace,
            self.counts,
            courtesy,
            self._admission,
            batch_size=settings.batch_size,
            interruptions_allowed=settings.max_interruptions,
            on_claimed=self._on_claimed,
            interrupt=self._rooms.interrupt,
        )
        self._heart = Heart(
            settings,
            member,
            self._line("beat"),
            self._holdings,
            self.counts,
            interrupt=self._rooms.interrupt,
            note=self._note,
            admission=self._admission,
        )
        self._keeper = Keeper(settings, member, self._line("keep"), self.counts, events)
        self._listener = Listener(
            self.id,
            lambda: connect("listen"),
            on_work=self._on_notify,
            on_cancel=self._heart.check_cancelled,
            deaf_after=2.5 * settings.beat_every.total_seconds(),
            events=events,
        )
        self._watch = Watch(self.id, self._line("schedules"), self._declarations(), events)
        self._duties = Duties(self._complain)
        self._threads = [
            threading.Thread(target=self._claim_loop, name="claimer", daemon=True),
            threading.Thread(target=self._scribe_loop, name="scribe", daemon=True),
        ]
        self._started = False

    # --- life and death ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._started = True
        self._rooms.start()
        self._settler.start()
        self._listener.start()
        for thread in self._threads:
            thread.start()
        settings = self.settings
        self._duties.add("poll", self.poll, settings.poll_delay)
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
        self.events.emit(events.WORKER_STOPPING, worker_id=self.id, reason=reason, held=len(self._holdings))
        self.stop_claiming()
        self._drain(deadline - min(_LAST_MOMENTS, seconds / 4), patiently=True)
        self._interrupt_all()
        self._drain(min(deadline, monotonic() + _LAST_MOMENTS))
        self._duties.stop()
        self._hand_back_rest()
        self._news.set()
        self._settler.stop(timeout=_LAST_MOMENTS)
        self._listener.stop()
        self._rooms.stop()
        self._lender.close()
        leaving = threading.Thread(target=self._leave, args=[reason], name="leave", daemon=True)
        leaving.start()
        leaving.join(_LAST_MOMENTS)  # the database may be away
        self.events.emit(events.WORKER_CLOSED, worker_id=self.id, reason=reason)

    def stop_claiming(self) -> None:
        """Nothing new is begun; what waits for a slot goes back at once. `stop` begins with it; it may come before."""
        self._heart.status = "DRAINING"
        self._stopping.set()
        self._claimer.paused.set()
        self._wake.set()
        self._threads[0].join(timeout=1 if self._hurried.is_set() else 5)  # it may hang on a silent database
        self._watch.stop()
        for job in [*self._rooms.take_back(), *self._claimer.unpark()]:
            self._settler.put(Finished(job, Interrupted(), None))

    def hurry(self) -> None:
        """Ends the patience of a `stop`, also of one that is under way: what still runs is handed back."""
        self._hurried.set()
        self._settled.set()

    @property
    def is_idle(self) -> bool:
        return len(self._holdings) == 0

    def _drain(self, deadline: float, *, patiently: bool = False) -> None:
        while len(self._holdings) and monotonic() < deadline and not (patiently and self._hurried.is_set()):
            self._settled.wait(timeout=min(0.1, max(0.0, deadline - monotonic())))
            self._settled.clear()

    def _interrupt_all(self) -> None:
        for job in self._holdings.all():
            if job.stop is None:
                self._rooms.interrupt(job, JobInterrupted(f"the worker of job {job.id} is stopping"))

    def _hand_back_rest(self) -> None:
        """Threads that did not stop: their jobs go back all the same, and what they still do will not land."""
        for job in self._holdings.all():
            self._settler.put(Finished(job, Interrupted(), None))

    def _leave(self, reason: str) -> None:
        for step in (self.keep_accounts, lambda: self._heart.leave(reason)):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the database may be away; the roster's row then expires
                self._complain("leave", error)
        for line in (self._heart, self._keeper, self._scribe_line, self._claimer, self._watch):
            line.close()

    def vitals(self) -> Vitals:
        since_beat = monotonic() - self._beaten_at
        return Vitals(
            held=len(self._holdings),
            claims=self._threads[0].is_alive() or not self._started,
            beats=since_beat < self.settings.lease_for.total_seconds(),
            last_beat_ms=None if self._beaten_at < 0 else round(since_beat * 1000),
            listens=self._listener.is_alive,
            note=self._note(),
            stuck=len(self._rooms.stuck),
            wants_restart=self.wants_restart,
        )

    @property
    def wants_restart(self) -> str | None:
        """Why only a new process helps; None while this one is well."""
        stuck = len(self._rooms.stuck)
        return f"{stuck} threads hang in jobs that ignore their deadline" if self._rooms.is_worn_out else None

    # --- what the duties call ---------------------------------------------------------------------------------

    def poll(self) -> None:
        """Wakes the claimer where nothing else has: its floor is short while LISTEN is not proven alive."""
        floor = _FLOOR_WHILE_LISTENING if self._listener.is_alive else self.settings.poll_delay
        if monotonic() - self._ticked_at >= max(floor, self.settings.poll_delay).total_seconds() * 0.95:
            self.ask()

    def ask(self, *, has_news: bool = True) -> None:
        """Have the claimer look at the queue, now or as soon as it has done what it is doing. Without news it goes on
        with what it knows to be waiting."""
        if has_news:  # never written otherwise here: two threads may ask at once
            self._has_news = True
        self._asked = True
        self._wake.set()

    def tick(self) -> None:
        """One look at the queue. Runs on the claimer's thread; a wake that arrives meanwhile is remembered."""
        woken, self._woken = self._woken, False
        has_news, self._has_news = self._has_news, False
        self._ticked_at = monotonic()
        due_in = self._claimer.tick(woken=woken, has_news=has_news)
        if due_in is not None:
            self._due_in(due_in)

    def beat_if_due(self) -> None:
        """Called more often than beats are due, so that a beat that failed is tried again soon."""
        self._heart.expire()
        if monotonic() - self._beaten_at >= self.settings.beat_every.total_seconds() * 0.95:
            self.beat()

    def beat(self) -> None:
        sent_at = monotonic()
        try:
            pulse = self._heart.beat()
        except Exception:
            self._keeper.away()
            raise
        self._beaten_at = sent_at
        if pulse.next_due_in is not None:
            self._due_in(pulse.next_due_in)
        if pulse.has_rules and not self._claimer.rules_are_told:
            self._claimer.rules_are_told = True
            self.ask()
        if pulse.suspects_wait:
            self._claimer.suspects_wait = True
            self.ask()

    def recover(self) -> int:
        recovered = self._keeper.recover()
        if recovered:
            self._claimer.suspects_wait = True
            self._on_notify()
        return recovered

    def prune(self) -> int:
        return self._keeper.prune()

    def keep_accounts(self) -> None:
        """Writes down what attempts have cost, and learns from it; where there was none, that takes no statement."""
        if self._ledger:
            with self._scribe_line.connection() as db:
                if self._ledger.write(db):
                    self._admission.learn(costs.needs(db, self._admission.kinds))
        if self._admission.held:
            self.ask(has_news=False)  # nobody tells us that memory is free again

    # --- threads ----------------------------------------------------------------------------------------------

    def _claim_loop(self) -> None:
        failures = 0
        self._introduce_ourselves()
        self._recall_costs()
        self._watch.start()
        while not self._stopping.is_set():
            self._wake.wait(self._until_due())
            self._wake.clear()
            is_due = self._due_at is not None and self._due_at <= monotonic()
            if self._stopping.is_set() or not (self._asked or is_due):
                continue
            self._asked, self._due_at = False, None
            if is_due:
                self._has_news = True
            try:
                self.tick()
                failures = 0
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                failures += 1
                self._complain("claim", error)
                self._stopping.wait(pause_after(failures))
                self.ask()

    def _introduce_ourselves(self) -> None:
        """Beat before the first claim: a worker that dies must be on the roster to be found dead."""
        failures = 0
        while not self._stopping.is_set():
            try:
                self.beat()
                self.recover_neighbours()
                return
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                failures += 1
                self._complain("beat", error)
                self._stopping.wait(pause_after(failures))

    def _recall_costs(self) -> None:
        """Before the first claim: whoever was killed for want of memory must not take as much again at once."""
        try:
            if self._admission.kinds:
                with self._scribe_line.connection() as db:
                    self._admission.learn(costs.needs(db, self._admission.kinds))
        except Exception as error:  # noqa: BLE001 - then everything is let in, until something is learned
            self._complain("recall what jobs cost", error)

    def recover_neighbours(self) -> int:
        recovered = self._keeper.recover_neighbours()
        if recovered:
            self._claimer.suspects_wait = True
        return recovered

    def _until_due(self) -> float | None:
        due_at = self._due_at
        if self._asked:
            return 0.0
        return None if due_at is None else max(0.0, due_at - monotonic())

    def _scribe_loop(self) -> None:
        """Writes progress and log lines of jobs that are still running; those of finished ones ride with the settle."""
        failures = 0
        while not self._stopping.is_set():
            self._news.wait()
            self._news.clear()
            if self._stopping.wait(0.05):  # a little patience turns many notes into one statement
                return
            try:
                with self._scribe_line.connection() as db:
                    self._notes.write(db)
                failures = 0
            except Exception as error:  # noqa: BLE001 - a note that cannot be written never fails its job
                failures += 1
                self._complain("write notes", error)
                self._stopping.wait(pause_after(failures))
                self._news.set()

    # --- what the parts tell each other -----------------------------------------------------------------------

    def _on_claimed(self, jobs: list[Job]) -> None:
        desk = self._desk
        for job in jobs:
            job.channel = desk
        if self.events.hears(events.JOBS_CLAIMED):
            self.events.emit(events.JOBS_CLAIMED, worker_id=self.id, jobs=len(jobs))

    def _on_settled(self) -> None:
        self._settled.set()
        claimer = self._claimer
        if claimer.wants_to_know or claimer.has_room():
            self.ask(has_news=False)

    def _due_in(self, seconds: float) -> None:
        """Have the claimer awake when something is due, if it would sleep longer."""
        at = monotonic() + min(max(0.0, seconds), _LONGEST_SLEEP)
        known = self._due_at
        if known is None or at < known:
            self._due_at = at
            self._wake.set()

    def _on_notify(self) -> None:
        self._woken = True
        self.ask()

    def _tell_context(self, job: Job, step: str) -> None:
        self.counts.add_context(failed=step == contexts.FAILED, entered=step == contexts.VALIDATED)
        name = _CONTEXT_EVENTS.get(step)
        if name and self.events.hears(name):
            self.events.emit(name, worker_id=self.id, job_id=job.id, kind=job.kind, tenant=job.tenant)

    def _complain(self, doing: str, error: BaseException) -> None:
        self.events.complain(self.id, doing, error)

    def _note(self) -> str | None:
        """What a person should know about us, on the roster and under /actuator/health."""
        notes = []
        if not self._listener.is_alive:
            notes.append("polling: LISTEN is not proven alive")
        if share := self._courtesy.share():
            notes.append(f"held back by the web: {share:.0%} of the time")
        if stuck := self._rooms.stuck:
            named = ", ".join(f"{job.kind} {job.id}" for job in stuck[:5])
            notes.append(f"threads that ignore their deadline: {len(stuck)} ({named})")
        if held := self._admission.held:
            notes.append(f"memory is short, held back: {', '.join(sorted(held)[:5])}")
        if self._rooms.is_worn_out:
            notes.append("it wants a restart")
        return "; ".join(notes) or None

    def _add_routine(self, routine: Routine) -> None:
        def skipped() -> None:
            self.events.emit(events.ROUTINE_SKIPPED, logging.WARNING, worker_id=self.id, schedule=routine.name)

        self._duties.add(f"schedule {routine.name}", routine.function, routine.every, on_skip=skipped)

    def _declarations(self) -> list[Declaration]:
        return [
            Declaration(schedule, by.queue, by.max_attempts or self.settings.max_attempts, self.id)
            for schedule in self._registry.schedules()
            for by in [self._registry.get(schedule.name)]
        ]

    def _line(self, purpose: str) -> Line:
        return Line(lambda: self._connect(purpose))

    def _introduce(self) -> Member:
        settings, pid = self.settings, os.getpid()
        host = platform.node() or "localhost"
        return Member(
            id=self.id,
            name=settings.worker_name or f"{host}-{pid}",
            host=host,
            machine=crumbs.machine(),
            pid=pid,
            pid_started=crumbs.started(pid) or 0,
            queues=settings.queues,
            kinds=self._registry.kinds(),
            slots=sum(room.slots for room in self._rooms.by_name.values()),
            traces=str(self._rooms.crumbs.path),
            rooms={
                name: {"slots": room.slots, "kinds": self._rooms.kinds_of(name)}
                for name, room in self._rooms.by_name.items()
            },
            membership=settings.membership,
        )

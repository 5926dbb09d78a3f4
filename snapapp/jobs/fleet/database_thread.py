"""The supervisor's other thread. It does all that needs the database, so that a database that does not answer never
delays the handling of processes."""

import logging
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from math import ceil
from time import monotonic
from typing import Any, NamedTuple

import psycopg

from snapapp.jobs import events
from snapapp.jobs.events import Events
from snapapp.jobs.fleet import commands, store
from snapapp.jobs.fleet.commands import Order, Source
from snapapp.jobs.fleet.plan import Balance, Plan
from snapapp.jobs.fleet.pool import PoolStatus, State
from snapapp.jobs.fleet.scaling import Box, Decision, Memory, PoolState, decide
from snapapp.jobs.fleet.store import EndedWorker, Master
from snapapp.jobs.model import describe
from snapapp.jobs.os import memory, processes
from snapapp.jobs.os.waiting import readable
from snapapp.jobs.retry import pause_after
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.database import Connect, Database, Row

_Db = psycopg.Connection[Row]

_BEAT_EVERY = store.LIVES_FOR.total_seconds() / 3
_LOOK_FOR_ORPHANS_EVERY = 15.0
_KILL_LATE = 4.0  # seconds in which an orphan whose time is up may hand back its jobs
_FOLLOW_ORPHANS_EVERY = 1.0  # while there are any: the jobs of one that has ended wait to be freed


class Answer(NamedTuple):
    order: int
    output: str
    failed: bool


class DatabaseThread:
    """The supervisor's main thread calls `publish`, `record_end` and `answer`, which never wait for the database."""

    def __init__(
        self,
        master: Master,
        plan: Plan,
        *,
        connect: Connect,
        events: Events,
        patience: float,  # seconds that an orphan may take to leave
        on_order: Callable[[Order], None],
        on_host_lost: Callable[[], None],
    ) -> None:
        self._master = master
        self._plan = plan
        self._events = events
        self._patience = patience
        self._on_order = on_order
        self._on_host_lost = on_host_lost
        self._database = Database(lambda: connect("supervisor"))
        self._listening: _Db | None = None
        self._has_heard = True  # whether a command may be waiting; written by this thread only
        self._ended: deque[EndedWorker] = deque()
        self._answers: deque[Answer] = deque()
        self._statuses: Sequence[PoolStatus] = ()  # replaced as a whole by the main thread
        self._written: dict[str, PoolStatus] = {}
        self.status = "ACTIVE"  # written by the main thread
        self._told_status = ""
        self._beat_at = self._orphans_at = self._decide_at = 0.0
        self._has_host = True  # as of the last heartbeat
        self._autoscaler = Autoscaler(master, plan)
        self._orphans: dict[tuple[int, int], float] = {}  # (pid, started) -> when it was first seen
        self._write_end, self._read_end = socket.socketpair()
        self._write_end.setblocking(False)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet database", daemon=True)

    # --- called by the main thread ----------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self, within: float) -> None:
        """Ends the thread, which first writes what is left to write, if the database answers."""
        self._stopping.set()
        self._wake()
        self._thread.join(within)

    def publish(self, statuses: Sequence[PoolStatus]) -> None:
        if statuses != self._statuses:
            self._statuses = statuses
            self._wake()

    def record_end(self, ended: EndedWorker) -> None:
        self._ended.append(ended)
        self._wake()

    def answer(self, order: int, output: str, *, failed: bool = False) -> None:
        self._answers.append(Answer(order, output, failed))
        self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            self._write_end.send(b"!")

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while True:
            is_last = self._stopping.is_set()
            try:
                with self._database.connection() as db:
                    self._listen(db)
                    self.work(db)
                    if is_last:
                        store.leave(db, self._master)
                        break
                    self._wait(db)
                failures = 0
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                failures += 1
                self._complain("write to the database", error)
                if is_last:
                    break
                self._stopping.wait(pause_after(failures))
        self._database.close()

    def _listen(self, db: _Db) -> None:
        if self._listening is not db:
            db.add_notify_handler(self._hear)
            db.execute(f"LISTEN {commands.CHANNEL}")
            self._listening = db
            self._has_heard = True  # a command may have been announced before this LISTEN

    def _hear(self, notice: psycopg.Notify) -> None:
        self._has_heard = self._has_heard or notice.payload == self._master.host

    def _wait(self, db: _Db) -> None:
        if self._has_heard:
            return
        due = min(self._beat_at, self._orphans_at, self._decide_at) - monotonic()
        ready = readable(db.fileno(), self._read_end.fileno(), within=max(0.0, min(due, _BEAT_EVERY)))
        if self._read_end.fileno() in ready:
            self._read_end.recv(4096)
        if db.fileno() in ready:
            db.pgconn.consume_input()
            while notice := db.pgconn.notifies():
                self._has_heard = self._has_heard or notice.extra.decode() == self._master.host

    # --- one pass ---------------------------------------------------------------------------------------------

    def work(self, db: _Db) -> None:
        """One pass over all that is due. Ended workers come first, because their jobs wait to be freed. A step that
        fails does not keep the others from being done, unless the connection is lost."""
        self._do(db, self._record_ended, self._send_answers, self._beat_if_due)
        if self._has_host:  # else the commands and the other workers are those of whoever has it
            self._do(db, self._take_orders, self._write_standings, self._decide_if_due, self._look_for_orphans)

    def _do(self, db: _Db, *steps: Callable[[_Db], None]) -> None:
        for step in steps:
            try:
                step(db)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                raise
            except Exception as error:  # noqa: BLE001 - one step of many
                self._complain(step.__name__.strip("_").replace("_", " "), error)

    def _record_ended(self, db: _Db) -> None:
        while self._ended:
            taken = store.record_end(db, self._master, self._ended[0], self._report_refused)
            ended = self._ended.popleft()
            if taken:
                self._tell(events.WORKER_RECOVERED, recovered=len(taken), job_ids=taken[:20], why=ended.end)

    def _send_answers(self, db: _Db) -> None:
        while self._answers:
            order, output, failed = self._answers[0]
            commands.answer(db, order, self._master.id, output, failed=failed)
            self._answers.popleft()

    def _beat_if_due(self, db: _Db) -> None:
        now = monotonic()
        if now < self._beat_at and self._told_status == self.status:
            return
        self._beat_at, self._told_status = now + _BEAT_EVERY, self.status
        self._written.clear()
        waits = store.beat(db, self._master, status=self._told_status)
        self._has_host = waits is not None or store.hold(db, self._master)  # the row may be gone, and the host free
        if not self._has_host:
            self._on_host_lost()
        self._has_heard = self._has_heard or bool(waits)

    def _take_orders(self, db: _Db) -> None:
        if self._has_heard:
            self._has_heard = False
            for order in commands.take(db, self._master.host, self._master.id):
                self._on_order(order)

    def _decide_if_due(self, db: _Db) -> None:
        now = monotonic()
        if now >= self._decide_at:
            self._decide_at = now + self._autoscaler.look_every
            self._has_heard = self._autoscaler.look(db, self._statuses) or self._has_heard

    def _write_standings(self, db: _Db) -> None:
        statuses = self._statuses
        for status in statuses:
            if self._written.get(status.planned.name) != status:
                store.write_status(db, self._master.host, status)
                self._written[status.planned.name] = status

    # --- orphans ----------------------------------------------------------------------------------------------

    def _look_for_orphans(self, db: _Db) -> None:
        """Looks for workers whose supervisor is gone or was replaced. The former notice it and leave."""
        if monotonic() < self._orphans_at:
            return
        seen = store.of_other_masters(db, self._master)
        self._orphans_at = monotonic() + (_FOLLOW_ORPHANS_EVERY if seen else _LOOK_FOR_ORPHANS_EVERY)
        for orphan in seen:
            if processes.is_gone(*orphan):
                store.record_end(db, self._master, _lost_worker(*orphan), self._report_refused)
            else:
                self._send_away(*orphan)
        self._orphans = {orphan: since for orphan, since in self._orphans.items() if orphan in seen}

    def _send_away(self, pid: int, started: int) -> None:
        """Asks an orphan to finish and leave; one that leaves already does not heed that. One that has not left in time
        hands back what it runs, at the second of the signals that come with each look, or is killed."""
        since = self._orphans.get((pid, started))
        if since is None:
            self._orphans[pid, started] = monotonic()
            _signal_exactly(pid, started, signal.SIGUSR2)
            return
        late = monotonic() - since - self._patience
        if late > _KILL_LATE:
            _signal_exactly(pid, started, signal.SIGKILL)
            self._orphans[pid, started] = monotonic()  # one that does not even end by that is not killed at each look
            self._tell(events.PROCESS_ENDED, pid=pid, why="its supervisor is gone and it did not leave: killed")
        elif late > 0:
            _signal_exactly(pid, started, signal.SIGTERM)

    def _report_refused(self, job_id: int, error: Exception) -> None:
        self._complain(f"free job {job_id}", error)

    def _complain(self, doing: str, error: BaseException) -> None:
        self._tell(events.MASTER_ERROR, doing=doing, error=describe(error))

    def _tell(self, name: str, **facts: Any) -> None:
        self._events.emit(name, logging.WARNING, host=self._master.host, master=self._master.id, **facts)


def _lost_worker(pid: int, started: int) -> EndedWorker:
    return EndedWorker(pid, started, "", (), timedelta(0), roster.LOST, never_ready=False)


def _signal_exactly(pid: int, started: int, how: signal.Signals) -> None:
    """Signals a process that is not a child of this one. The pidfd makes sure that the signal cannot reach another
    process that got the same pid meanwhile."""
    if sys.platform != "linux":
        return
    with suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(pid)
        try:
            if processes.started(pid) == started:
                signal.pidfd_send_signal(handle, how)
        finally:
            os.close(handle)


# --- the autoscaler ---------------------------------------------------------------------------------------------


class Autoscaler:
    """Measures the load of the pools, lets `scaling` decide, and sends the decision as a command, as a person would."""

    def __init__(self, master: Master, plan: Plan) -> None:
        self._master = master
        self._plan = plan
        self._balanced = {pool.name for pool in plan.pools if pool.balance is not Balance.OFF}
        cooldowns = [pool.cooldown.total_seconds() for pool in plan.pools if pool.name in self._balanced]
        self.look_every = min(cooldowns, default=_BEAT_EVERY)
        self._seen: dict[str, Memory] = {}

    def look(self, db: _Db, statuses: Sequence[PoolStatus]) -> bool:
        """Looks at all pools that it may scale. True: it sent a command."""
        ours = [each for each in statuses if self._may_scale(each)]
        if not ours:
            return False
        states = [self._state_of(db, each) for each in ours]
        others = sum(each.wanted for each in statuses if each not in ours)
        most = self._plan.max_processes
        box = Box(
            max_processes=None if most is None else max(0, most - others),
            free_mb=memory.free_mb(),
            reserve_mb=self._plan.reserve_mb,
        )
        decisions = decide(states, box)
        changed = [(state, its) for state, its in zip(states, decisions, strict=True) if its.wanted != state.present]
        for state, decision in changed:
            self._command(db, state, decision, box)
        return bool(changed)

    def _may_scale(self, pool: PoolStatus) -> bool:
        is_free = pool.fixed_at is None and pool.state is State.ACTIVE
        return pool.planned.name in self._balanced and is_free and pool.present >= pool.wanted

    def _state_of(self, db: _Db, status: PoolStatus) -> PoolState:
        name, seen = status.planned.name, self._seen.setdefault(status.planned.name, Memory())
        seen.kinds = store.kinds(db, self._master.host, name) or seen.kinds
        with db.transaction():
            load = store.load(db, status.planned.queues, seen.kinds)
        state = PoolState(pool=status.planned, load=load, present=status.wanted, rss_mb=_p95(status.memory_mb))
        return seen.note(state, monotonic())

    def _command(self, db: _Db, state: PoolState, decision: Decision, box: Box) -> None:
        pool, host = state.pool, self._master.host
        with db.transaction():
            inputs = state.as_json() | {"box": asdict(box)}
            store.record_decision(
                db, host, pool.name, str(pool.balance), state.present, decision.wanted, decision.reason, inputs
            )
            commands.send(
                db,
                commands.Action.SCALE,
                host=host,
                pool=pool.name,
                amount=decision.wanted,
                reason=decision.reason[:500],
                source=Source.AUTOSCALER,
                expires_in=timedelta(seconds=10),
            )
        self._seen[pool.name].changed_at = monotonic()


def _p95(sizes: Sequence[int]) -> float | None:
    known = sorted(size for size in sizes if size)
    return known[ceil(0.95 * len(known)) - 1] if known else None

"""The supervisor: one process for each host and database. Its main thread starts, signals and reaps the worker
processes; its database thread does all that needs the database.

TERM INT HUP   all workers finish within the grace, then it ends; a second signal ends it at once
USR2           restarts the pools one by one, with new code, without a gap
USR1 CONT      pauses all pools; resumes them
"""

import logging
import os
import signal
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic, sleep
from typing import Any

from snapapp.jobs import events
from snapapp.jobs.events import Events
from snapapp.jobs.fleet import store
from snapapp.jobs.fleet.commands import Action, Order, Source
from snapapp.jobs.fleet.database_thread import DatabaseThread
from snapapp.jobs.fleet.errors import InvalidCommand, MasterExists
from snapapp.jobs.fleet.launcher import Launcher, Program, WorkerProcess
from snapapp.jobs.fleet.plan import Balance, Plan
from snapapp.jobs.fleet.plan import Pool as Planned
from snapapp.jobs.fleet.pool import Pool, State
from snapapp.jobs.fleet.store import EndedWorker, Master
from snapapp.jobs.model import describe
from snapapp.jobs.os import processes
from snapapp.jobs.os.signals import ENDING, Signals
from snapapp.jobs.rows.database import Connect, Db
from snapapp.jobs.settings import JobsSettings

_BY_SIGNAL = "SIGUSR1"  # why a pool is paused that no person has paused
_LOOK_EVERY = 0.5  # seconds
_STRAYS_EVERY = 5.0
_LAST_MOMENTS = 5.0  # seconds in which the database thread may write what is left
_LONGEST_STOP = 15.0  # seconds beyond the grace after which a stop ends even if something hangs


class Supervisor:
    """Call `run`, or `start` and then `look` again and again, on the main thread."""

    def __init__(
        self,
        plan: Plan,
        settings: JobsSettings,
        signals: Signals,
        *,
        host: str,
        program: Program,
        connect: Connect,
        events: Events,
    ) -> None:
        pid = os.getpid()
        self.master = Master(uuid.uuid4().hex, host, processes.machine(), pid, processes.started(pid) or 0)
        self.why: str | None = None  # why it ended, unless a person ended it
        self._plan = plan
        self._settings = settings
        self._signals = signals
        self._connect = connect
        self._events = events
        self._launcher = Launcher(program)
        self._grace = settings.shutdown_grace.total_seconds()
        self.pools = {each.name: Pool(each, self._start_worker, events, grace=self._grace) for each in plan.pools}
        self._to_roll: deque[Pool] = deque()
        self._orders: deque[Order] = deque()  # written by the database thread, taken by the main thread
        self._has_lost_host = False  # written by the database thread
        self._stop_by: float | None = None
        self._strays_at = 0.0
        self._database = DatabaseThread(
            self.master,
            plan,
            connect=connect,
            events=events,
            patience=self._grace + 10.0,
            on_order=self._receive,
            on_host_lost=self._lose_host,
        )

    # --- life and death ---------------------------------------------------------------------------------------

    def run(self) -> str | None:
        """Runs until a signal or a command ends it. Returns the reason if neither was the cause."""
        self.start()
        while not self.is_over:
            self._signals.wait(_LOOK_EVERY)
            self.look(self._signals.take())
        self.stop()
        return self.why

    def start(self) -> None:
        """Takes the host and starts the pools, with the states and sizes that a person gave them before, as far as the
        plan still allows them. MasterExists: the host has a supervisor already."""
        with self._connect("supervisor start") as db:
            self._hold(db)
            for saved in store.saved_pools(db, self.master.host):
                if pool := self.pools.get(saved.name):
                    pool.state, pool.state_reason = saved.state, saved.reason
                    its_most = pool.planned.max_processes
                    self._fix(pool, None if saved.fixed_at is None else min(saved.fixed_at, its_most))
            store.forget_pools(db, self.master.host, list(self.pools))
        self._launcher.open()
        self._database.start()
        self.look([])

    def stop(self) -> None:
        self._launcher.close()
        self._database.stop(within=_LAST_MOMENTS)

    @property
    def is_over(self) -> bool:
        if self._stop_by is None:
            return False
        return monotonic() >= self._stop_by or all(pool.is_empty for pool in self.pools.values())

    def _hold(self, db: Db) -> None:
        """Takes the host. A holder on this machine whose process is gone is replaced at once. A holder on another
        machine is given the time of two lives: if it beats, MasterExists."""
        heard: timedelta | None = None
        deadline = monotonic() + 2 * store.LIVES_FOR.total_seconds()
        while not store.hold(db, self.master):
            its = store.holder(db, self.master.host)
            if its is None:
                continue
            is_here = its.machine == self.master.machine
            if is_here and processes.is_gone(its.pid, its.pid_started):
                if store.hold(db, self.master, instead=its.id):
                    return
                continue
            has_beaten = heard is not None and its.last_beat < heard
            if is_here or has_beaten or monotonic() > deadline or self._signals.noted:
                raise MasterExists(its.in_words(self.master.host))
            heard = its.last_beat
            sleep(0.5)

    # --- one pass ---------------------------------------------------------------------------------------------

    def look(self, noted: Sequence[signal.Signals] = ()) -> None:
        """One pass over everything. A step that fails is reported, and the other steps are done nevertheless."""
        for number in noted:
            self._guarded(f"answer {number.name}", partial(self._answer, number))
        self._guarded("reap", self._reap)
        while self._orders:
            self._obey(self._orders.popleft())
        if self._has_lost_host and self._stop_by is None:
            self.why = f"another supervisor has taken the host {self.master.host}"
            self.end()
        self._guarded("restart pools", self._roll)
        for pool in self.pools.values():
            self._guarded(f"look after {pool.planned.name}", pool.look)
        if monotonic() >= self._strays_at:
            self._strays_at = monotonic() + _STRAYS_EVERY
            self._guarded("end strays", self._launcher.end_strays)
        self._database.publish([pool.status for pool in self.pools.values()])
        if self._events.hears(events.MASTER_LOOPED):
            self._tell(events.MASTER_LOOPED)

    def _answer(self, number: signal.Signals) -> None:
        if number in ENDING:
            self.end()
        elif number is signal.SIGUSR2:
            self.restart(list(self.pools.values()))
        elif number is signal.SIGUSR1:
            for pool in self.pools.values():
                if pool.state is State.ACTIVE:
                    pool.pause(_BY_SIGNAL)
        elif number is signal.SIGCONT:  # it also comes after a SIGSTOP: what a person has commanded stays
            for pool in self.pools.values():
                if pool.state_reason == _BY_SIGNAL:
                    pool.resume()

    def _reap(self) -> None:
        for child in self._launcher.reap():
            self._guarded(f"record the end of {child.pid}", partial(self._record_end, child))

    def _record_end(self, child: WorkerProcess) -> None:
        pool = self.pools[child.pool]
        was_unasked = pool.lost(child)
        level = logging.WARNING if child.code else logging.DEBUG
        self._tell(events.PROCESS_ENDED, level, pool=child.pool, pid=child.pid, why=child.end)
        self._database.record_end(
            _ended_worker(child, pool.planned, was_unasked and bool(child.code) and not child.is_ready)
        )
        child.state.close()

    def _roll(self) -> None:
        """Restarts the next pool, once the previous one has only new workers and the fork server has the new code."""
        if not self._to_roll or not self._launcher.is_renewed or any(pool.is_rolling for pool in self.pools.values()):
            return
        self._to_roll.popleft().restart()

    # --- commands ---------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Begins to stop; a second call shortens the grace to a second."""
        self._to_roll.clear()
        self._database.status = "STOPPING"
        wait = 1.0 if self._stop_by is not None else self._grace
        self._stop_by = monotonic() + wait + _LONGEST_STOP
        for pool in self.pools.values():
            pool.stop()

    def restart(self, pools: Sequence[Pool]) -> None:
        if self._stop_by is None:
            self._launcher.renew()
            self._to_roll.extend(pool for pool in pools if pool not in self._to_roll)

    def _receive(self, order: Order) -> None:
        self._orders.append(order)
        self._signals.wake()

    def _lose_host(self) -> None:
        self._has_lost_host = True
        self._signals.wake()

    def _obey(self, order: Order) -> None:
        failed = True
        try:
            output = self.obey(order)
            failed = False
        except InvalidCommand as error:
            output = str(error)
        except Exception as error:  # noqa: BLE001 - the sender of the command should see any error
            output = describe(error)
        level = logging.WARNING if failed else logging.INFO
        self._tell(events.COMMAND_DONE, level, command=order.id, action=order.action, pool=order.pool, output=output)
        self._database.answer(order.id, output, failed=failed)

    def obey(self, order: Order) -> str:
        """Carries out a command, and returns the result in words. InvalidCommand: it cannot be carried out."""
        if order.action not in list(Action):
            raise InvalidCommand(f"there is no action {order.action!r}: there are {', '.join(Action)}")
        if self._stop_by is not None:
            raise InvalidCommand("this supervisor is stopping")
        if order.pool is not None and order.pool not in self.pools:
            raise InvalidCommand(f"there is no pool {order.pool} here; there are {', '.join(self.pools)}")
        pools = [self.pools[order.pool]] if order.pool else list(self.pools.values())
        named = ", ".join(pool.planned.name for pool in pools)
        match Action(order.action):
            case Action.SCALE:
                if not order.pool:
                    raise InvalidCommand("say which pool to scale")
                return self._scale(pools[0], order)
            case Action.RESTART:
                self.restart(pools)
                return f"restarting {named}, one worker after the other"
            case Action.PAUSE:
                for pool in pools:
                    pool.pause(order.reason)
                return f"paused {named}: what runs goes on, nothing is claimed"
            case Action.RESUME:
                for pool in pools:
                    pool.resume()
                return f"resumed {named}"
            case Action.DRAIN:
                for pool in pools:
                    pool.drain(order.reason)
                return f"draining {named}: workers finish what they run and leave"
            case Action.STOP:
                if order.pool:
                    raise InvalidCommand(f"stop ends the whole supervisor; to empty {order.pool} alone, drain it")
                self.end()
                return f"stopping, within {self._grace:g} s"

    def _scale(self, pool: Pool, order: Order) -> str:
        name, planned, before = pool.planned.name, pool.planned, pool.wanted
        if order.source == Source.AUTOSCALER:
            if pool.fixed_at is not None or pool.state is not State.ACTIVE or order.amount is None:
                raise InvalidCommand(f"{name} is not balanced at the moment")
            pool.scale(order.amount)
            return f"{name}: {before} -> {order.amount}"
        if order.amount is not None and not 0 <= order.amount <= planned.max_processes:
            raise InvalidCommand(f"{name} may have 0 to {planned.max_processes} processes, not {order.amount}")
        self._fix(pool, order.amount)
        if order.amount is None:
            return f"{name}: balance {planned.balance} decides again"
        until = "" if planned.balance is Balance.OFF else "; it stays so until it is scaled without a number"
        return f"{name}: {before} -> {order.amount}{until}"

    def _fix(self, pool: Pool, processes: int | None) -> None:
        if processes is not None:
            pool.scale(processes)
        elif pool.fixed_at is not None and pool.planned.balance is Balance.OFF:
            pool.scale(pool.planned.max_processes)
        pool.fixed_at = processes

    # --- parts ------------------------------------------------------------------------------------------------

    def _start_worker(self, planned: Planned, is_paused: bool) -> WorkerProcess:
        request: Mapping[str, Any] = {
            "url": self._settings.database_url,
            "table": planned.as_table(),
            "master": self.master.id,
            "nice": planned.nice,
            "is_paused": is_paused,
        }
        return self._launcher.start(planned.name, request)

    def _guarded(self, doing: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - the next pass comes in half a second
            self._tell(events.MASTER_ERROR, logging.ERROR, doing=doing, error=describe(error))

    def _tell(self, name: str, level: int = logging.INFO, **facts: Any) -> None:
        self._events.emit(name, level, host=self.master.host, master=self.master.id, **facts)


def _ended_worker(child: WorkerProcess, planned: Planned, never_ready: bool) -> EndedWorker:
    age = timedelta(seconds=monotonic() - child.started_at)
    return EndedWorker(
        child.pid, child.pid_started, planned.name, planned.queues, age, child.end, never_ready, child.state.path
    )

"""The supervisor's other thread: all that needs the database, so that a silent one never delays a process."""

import logging
import os
import select
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
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import psycopg

from snapapp.jobs import crumbs, events
from snapapp.jobs.database import Connect, Line, Row
from snapapp.jobs.events import Events
from snapapp.jobs.fleet import commands, history
from snapapp.jobs.fleet.commands import Order, Source
from snapapp.jobs.fleet.history import Fallen, Master
from snapapp.jobs.fleet.plan import Balance, Plan
from snapapp.jobs.fleet.pool import Standing, State
from snapapp.jobs.fleet.scaling import Box, Crew, Decision, Memory, decide
from snapapp.jobs.retry import pause_after

_Db = psycopg.Connection[Row]

_BEAT_EVERY = history.LIVES_FOR.total_seconds() / 3
_LOOK_FOR_ORPHANS_EVERY = 15.0
_PRUNE_EVERY = 3600.0
_KEEP = timedelta(days=7)


class Answer(NamedTuple):
    order: int
    output: str
    failed: bool


class Clerk:
    """`stands`, `bury`, `answer` are called by the supervisor's main thread and never wait."""

    def __init__(
        self,
        master: Master,
        plan: Plan,
        *,
        connect: Connect,
        events: Events,
        patience: float,  # seconds before an orphan that does not leave is killed
        on_order: Callable[[Order], None],
        on_dethroned: Callable[[], None],
    ) -> None:
        self._master = master
        self._plan = plan
        self._events = events
        self._patience = patience
        self._on_order = on_order
        self._on_dethroned = on_dethroned
        self._line = Line(lambda: connect("supervisor"))
        self._listening: _Db | None = None
        self._has_heard = True  # a command may wait; written by this thread only
        self._fallen: deque[Fallen] = deque()
        self._answers: deque[Answer] = deque()
        self._standings: Sequence[Standing] = ()  # replaced as a whole by the main thread
        self._written: dict[str, Standing] = {}
        self.status = "ACTIVE"  # written by the main thread
        self._told_status = ""
        self._beat_at = self._orphans_at = self._decide_at = 0.0
        self._prune_at = monotonic() + _PRUNE_EVERY
        self._autoscaler = Autoscaler(master, plan)
        self._orphans: dict[tuple[int, int], float] = {}  # (pid, started) -> when it was first seen
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clerk", daemon=True)

    # --- told by the main thread ------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self, within: float) -> None:
        """What is left to write is written first, if the database lets it."""
        self._stopping.set()
        self._ring()
        self._thread.join(within)

    def stands(self, standings: Sequence[Standing]) -> None:
        if standings != self._standings:
            self._standings = standings
            self._ring()

    def bury(self, fallen: Fallen) -> None:
        self._fallen.append(fallen)
        self._ring()

    def answer(self, order: int, output: str, *, failed: bool = False) -> None:
        self._answers.append(Answer(order, output, failed))
        self._ring()

    def _ring(self) -> None:
        with suppress(BlockingIOError):
            self._bell.send(b"!")

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while True:
            is_last = self._stopping.is_set()
            try:
                with self._line.connection() as db:
                    self._listen(db)
                    self.work(db)
                    if is_last:
                        history.leave(db, self._master)
                        break
                    self._wait(db)
                failures = 0
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                failures += 1
                self._complain("keep the books", error)
                if is_last:
                    break
                self._stopping.wait(pause_after(failures))
        self._line.close()

    def _listen(self, db: _Db) -> None:
        if self._listening is not db:
            db.add_notify_handler(self._hear)
            db.execute(f"LISTEN {commands.CHANNEL}")
            self._listening = db
            self._has_heard = True  # whatever was said before we listened

    def _hear(self, notice: psycopg.Notify) -> None:
        self._has_heard = self._has_heard or notice.payload == self._master.host

    def _wait(self, db: _Db) -> None:
        if self._has_heard:
            return
        due = min(self._beat_at, self._orphans_at, self._decide_at) - monotonic()
        readable, _, _ = select.select([db.fileno(), self._ear.fileno()], [], [], max(0.0, min(due, _BEAT_EVERY)))
        if self._ear.fileno() in readable:
            self._ear.recv(4096)
        if db.fileno() in readable:
            db.pgconn.consume_input()
            while notice := db.pgconn.notifies():
                self._has_heard = self._has_heard or notice.extra.decode() == self._master.host

    # --- one pass ---------------------------------------------------------------------------------------------

    def work(self, db: _Db) -> None:
        """The dead first: their jobs wait. What fails though the database is there keeps nothing else waiting."""
        steps = (
            self._bury_fallen,
            self._send_answers,
            self._beat_if_due,
            self._take_orders,
            self._write_standings,
            self._decide_if_due,
            self._look_for_orphans,
            self._prune_if_due,
        )
        for step in steps:
            try:
                step(db)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                raise
            except Exception as error:  # noqa: BLE001 - one step of many
                self._complain(step.__name__.strip("_").replace("_", " "), error)

    def _bury_fallen(self, db: _Db) -> None:
        while self._fallen:
            taken = history.bury(db, self._master, self._fallen[0])
            fallen = self._fallen.popleft()
            if taken:
                self._tell(events.WORKER_RECOVERED, recovered=len(taken), job_ids=taken[:20], why=fallen.end)

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
        waits = history.beat(db, self._master, status=self._told_status)
        if waits is None and not history.hold(db, self._master):  # the row may just be gone
            self._on_dethroned()
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
            self._has_heard = self._autoscaler.look(db, self._standings) or self._has_heard

    def _prune_if_due(self, db: _Db) -> None:
        now = monotonic()
        if now >= self._prune_at:
            self._prune_at = now + _PRUNE_EVERY
            history.prune(db, _KEEP)

    def _write_standings(self, db: _Db) -> None:
        standings = self._standings
        for standing in standings:
            if self._written.get(standing.planned.name) != standing:
                history.stand(db, self._master.host, standing)
                self._written[standing.planned.name] = standing

    # --- orphans ----------------------------------------------------------------------------------------------

    def _look_for_orphans(self, db: _Db) -> None:
        """Workers of a supervisor that is no more. They have noticed and are finishing; who does not, is ended."""
        if monotonic() < self._orphans_at:
            return
        self._orphans_at = monotonic() + _LOOK_FOR_ORPHANS_EVERY
        seen = history.of_other_masters(db, self._master)
        for orphan in seen:
            pid, started = orphan
            if crumbs.is_gone(pid, started):
                history.bury(db, self._master, _gone(pid, started))
            elif monotonic() - self._orphans.setdefault(orphan, monotonic()) > self._patience:
                _end(pid, started, signal.SIGKILL)
                self._tell(events.PROCESS_ENDED, pid=pid, why="its supervisor died and it did not leave: killed")
        self._orphans = {orphan: since for orphan, since in self._orphans.items() if orphan in seen}

    def _complain(self, doing: str, error: BaseException) -> None:
        self._tell(events.MASTER_ERROR, doing=doing, error=f"{type(error).__name__}: {error}")

    def _tell(self, name: str, **facts: Any) -> None:
        self._events.emit(name, logging.WARNING, host=self._master.host, master=self._master.id, **facts)


def _gone(pid: int, started: int) -> Fallen:
    return Fallen(pid, started, "", (), timedelta(0), "lost: its process is gone", came_to_nothing=False)


def _end(pid: int, started: int, how: signal.Signals) -> None:
    """A process that is not our child: between a look and a signal its number could go to somebody else."""
    if sys.platform != "linux":
        return
    with suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(pid)
        try:
            if crumbs.started(pid) == started:
                signal.pidfd_send_signal(handle, how)
        finally:
            os.close(handle)


# --- the autoscaler ---------------------------------------------------------------------------------------------


class Autoscaler:
    """Measures, has `scaling` decide, and commands what was decided as a person would: by a row."""

    def __init__(self, master: Master, plan: Plan) -> None:
        self._master = master
        self._plan = plan
        self._balanced = {pool.name for pool in plan.pools if pool.balance is not Balance.OFF}
        cooldowns = [pool.cooldown.total_seconds() for pool in plan.pools if pool.name in self._balanced]
        self.look_every = min(cooldowns, default=_BEAT_EVERY)
        self._seen: dict[str, Memory] = {}

    def look(self, db: _Db, standings: Sequence[Standing]) -> bool:
        """True: something was commanded."""
        ours = [each for each in standings if self._may_scale(each)]
        if not ours:
            return False
        crews = [self._crew(db, each) for each in ours]
        others = sum(each.wanted for each in standings if each not in ours)
        lid = self._plan.max_processes
        box = Box(
            max_processes=None if lid is None else max(0, lid - others),
            free_mb=free_memory_mb(),
            reserve_mb=self._plan.reserve_mb,
        )
        decisions = decide(crews, box)
        changed = [(crew, its) for crew, its in zip(crews, decisions, strict=True) if its.wanted != crew.present]
        for crew, decision in changed:
            self._command(db, crew, decision, box)
        return bool(changed)

    def _may_scale(self, pool: Standing) -> bool:
        is_free = pool.fixed_at is None and pool.state is State.ACTIVE
        return pool.planned.name in self._balanced and is_free and pool.present >= pool.wanted

    def _crew(self, db: _Db, standing: Standing) -> Crew:
        name, seen = standing.planned.name, self._seen.setdefault(standing.planned.name, Memory())
        seen.kinds = history.kinds(db, self._master.host, name) or seen.kinds
        with db.transaction():
            load = history.load(db, standing.planned.queues, seen.kinds)
        crew = Crew(pool=standing.planned, load=load, present=standing.wanted, rss_mb=_p95(standing.memory_mb))
        return seen.note(crew, monotonic())

    def _command(self, db: _Db, crew: Crew, decision: Decision, box: Box) -> None:
        pool, host = crew.pool, self._master.host
        with db.transaction():
            inputs = crew.as_json() | {"box": asdict(box)}
            history.decided(
                db, host, pool.name, str(pool.balance), crew.present, decision.wanted, decision.reason, inputs
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


def free_memory_mb(meminfo: Path = Path("/proc/meminfo")) -> float | None:
    """What could be used without swapping; None where that cannot be seen. A limit of our own cgroup counts too."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
        available = int(lines["MemAvailable"].split()[0]) / 1024
    except (OSError, KeyError, ValueError):
        return None
    left = _left_of_cgroup()
    return available if left is None else min(available, left)


def _left_of_cgroup() -> float | None:
    """Of ours and of those around it, the one with the least left."""
    try:
        path = Path("/proc/self/cgroup").read_text(encoding="ascii").split("::", 1)[1].strip()
    except (OSError, IndexError):
        return None
    ours = Path("/sys/fs/cgroup") / path.lstrip("/")
    left = [each for folder in (ours, *ours.parents) if (each := _left_of(folder)) is not None]
    return min(left, default=None)


def _left_of(folder: Path) -> float | None:
    try:
        most, used = (int((folder / name).read_text(encoding="ascii")) for name in ("memory.high", "memory.current"))
    except (OSError, ValueError):  # it has no limit, which is written "max"
        return None
    return max(0.0, (most - used) / 2**20)

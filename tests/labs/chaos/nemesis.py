"""Breaks things, by a seed: each fault is a small script that yields the seconds until it goes on."""

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from snapapp.jobs.rows.database import Database
from tests.labs.chaos.fleet import Fleet, Note
from tests.labs.chaos.server import LabServer

Fault = Iterator[float]

SHARES = {
    "terminate": 48,  # a connection of some worker
    "kill": 14,  # a worker, -9
    "pause": 14,  # a worker, for longer than its lease
    "zombie": 16,  # the same, until its job runs elsewhere
    "deploy": 4,  # a worker, politely
    "crash": 2,  # the server, -9
    "restart": 2,  # the server, fast
}

_RAN_JUST_NOW = """
SELECT job.id, job.lease_seq, member.pid FROM snap_processing_job AS job
  JOIN job_worker AS member ON member.id = job.claimed_by
 WHERE job.status = 'RUNNING' AND job.kind = 'chaos.slow' AND job.losses < 2
   AND job.locked_at > clock_timestamp() - interval '0.3 s' AND member.pid = ANY (%(pids)s)
 ORDER BY job.locked_at DESC, job.id DESC LIMIT 1
"""
_CONNECTIONS = """
SELECT pid, application_name FROM pg_stat_activity WHERE starts_with(application_name, 'snapapp') ORDER BY pid
"""
_RUNS_ELSEWHERE = """
SELECT status <> 'RUNNING' OR started_at IS NOT NULL
  FROM snap_processing_job WHERE id = %(id)s AND lease_seq > %(seq)s + 1  -- which a recovery gives
"""


class Nemesis:
    """Used by one thread: `go_on` does what is due."""

    def __init__(
        self, server: LabServer, fleet: Fleet, note: Note, rng: random.Random, *, rate: float, lease: float
    ) -> None:
        self._server = server
        self._fleet = fleet
        self._note = note
        self._rng = rng
        self._rate = rate
        self._lease = lease
        self._database = Database(lambda: server.connect("nemesis"))
        self._going_on: list[tuple[float, int, Fault]] = []
        self._numbers = itertools.count()
        self._next_at = time.monotonic() + 1.0  # the first workers are still starting
        self._is_away = False  # the server
        self.faults: Counter[str] = Counter()
        self.zombies_met = 0  # came back while another ran their job
        self.recovered_in: list[float] = []  # seconds that the server took to be back

    def go_on(self) -> None:
        now = time.monotonic()
        if now >= self._next_at:
            self._next_at = now + self._rng.expovariate(self._rate)
            self._begin()
        while self._going_on and self._going_on[0][0] <= time.monotonic():
            self._step(heapq.heappop(self._going_on)[2])

    def cease(self) -> None:
        """Heals everything: nobody stays stopped."""
        self._going_on.clear()
        for pid in list(self._fleet.stopped):
            self._fleet.resume(pid)
        if self._is_away:
            self._bring_back()
        self._database.close()

    def _begin(self) -> None:
        name = self._rng.choices(list(SHARES), list(SHARES.values()))[0]
        scripts: dict[str, Callable[[], Fault]] = {
            "terminate": self._terminate,
            "kill": self._kill,
            "pause": self._pause,
            "zombie": self._zombie,
            "deploy": self._deploy,
            "crash": self._crash,
            "restart": self._restart,
        }
        self._step(scripts[name]())

    def _step(self, fault: Fault) -> None:
        try:
            again_in = next(fault)
        except (StopIteration, psycopg.OperationalError):  # it is over, or the server is away: then it does not happen
            return
        heapq.heappush(self._going_on, (time.monotonic() + again_in, next(self._numbers), fault))

    # --- the faults -------------------------------------------------------------------------------------------

    def _terminate(self) -> Fault:
        found = self._ask(_CONNECTIONS)
        if found:
            pid, purpose = self._rng.choice(found)
            self._happens("terminate", backend=pid, purpose=purpose)
            self._ask("SELECT pg_terminate_backend(%(pid)s)", pid=pid)
        yield from ()

    def _kill(self) -> Fault:
        victim = self._victim(list(self._fleet.stopped) + self._fleet.pids())
        if victim:
            self._happens("kill")
            self._fleet.kill(victim)
        yield from ()

    def _pause(self) -> Fault:
        victim = self._victim(self._fleet.pids())
        if not victim or self._enough_stand_still():
            return
        self._happens("pause")
        self._fleet.pause(victim)
        yield self._lease * self._rng.uniform(1.2, 3.0)
        self._resume(victim)

    def _zombie(self) -> Fault:
        """Stops a worker within a job until that job runs on another one; its completion then comes too late."""
        found = None if self._enough_stand_still() else self._ask(_RAN_JUST_NOW, pids=self._fleet.pids())
        if not found:
            return
        job, seq, pid = found[0]
        self._happens("zombie", job=job, seq=seq)
        self._fleet.pause(pid)
        for _ in range(400):
            yield 0.05
            if self._runs_elsewhere(job, seq):
                self.zombies_met += 1
                break
        self._resume(pid)

    def _deploy(self) -> Fault:
        victim = self._victim(self._fleet.pids())
        if victim:
            self._happens("deploy")
            self._fleet.deploy(victim)
        yield from ()

    def _crash(self) -> Fault:
        return self._without_server("crash", self._server.kill)

    def _restart(self) -> Fault:
        return self._without_server("restart", self._server.shut_down)

    def _without_server(self, fault: str, take_away: Callable[[], None]) -> Fault:
        if self._is_away:
            return
        self._happens(fault)
        self._is_away = True
        take_away()
        yield self._rng.uniform(0.0, 0.5)
        self._bring_back()

    def _bring_back(self) -> None:
        self.recovered_in.append(self._server.bring_back())
        self._is_away = False
        self._note("server back", after=self.recovered_in[-1])

    # --- what they need ---------------------------------------------------------------------------------------

    def _happens(self, fault: str, **facts: Any) -> None:
        self.faults[fault] += 1
        self._note("fault", fault=fault, **facts)

    def _victim(self, pids: list[int]) -> int | None:
        return self._rng.choice(sorted(pids)) if pids else None

    def _enough_stand_still(self) -> bool:
        return 3 * (len(self._fleet.stopped) + 1) > len(self._fleet.stopped) + len(self._fleet.pids())

    def _resume(self, pid: int) -> None:
        if pid in self._fleet.stopped:  # else it was killed meanwhile
            self._fleet.resume(pid)

    def _runs_elsewhere(self, job: int, seq: int) -> bool:
        """Also True when it ran there and ended: waiting longer proves nothing more."""
        try:
            found = self._ask(_RUNS_ELSEWHERE, id=job, seq=seq)
        except psycopg.OperationalError:
            return False
        return bool(found) and found[0][0]

    def _ask(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self._database.connection() as db:
            return db.execute(sql, parameters).fetchall()

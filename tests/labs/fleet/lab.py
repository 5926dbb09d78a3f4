"""Three pools and eight workers under fire: workers, supervisors and the server are killed; every job lands once."""

import os
import random
import signal
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg

from snapapp.jobs import enqueue_many
from snapapp.jobs.os.processes import is_gone, machine
from snapapp.postgres.migrate import migrate
from tests.jobs.fleet.supervised import Supervisor, plan
from tests.jobs.working import until
from tests.labs.chaos.server import Guard, LabServer, guarded_folder

POOLS = {"alpha": 3, "beta": 3, "gamma": 2}
_TICK = 0.05
_SETTLES_IN = 2.0  # seconds: workers of a killed supervisor live for another moment

_LIVING = """
SELECT pool, id, pid, pid_started FROM job_worker WHERE machine = %(machine)s AND pool IS NOT NULL AND status = 'ACTIVE'
"""
_LEFT = "SELECT count(*) FROM snap_processing_job WHERE status IN ('PENDING', 'RUNNING', 'RETRY_WAIT')"


@dataclass
class Report:
    jobs: int
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    effects: int = 0
    distinct: int = 0
    attempts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    replaced_in: list[float] = field(default_factory=list)  # seconds, while supervisor and server were there
    replaced_late: list[float] = field(default_factory=list)  # while one of them was not
    broken: list[str] = field(default_factory=list)  # of queue_invariants
    rows_left: int = 0  # on the rosters, in the end
    processes_left: int = 0
    exit_code: int | None = None

    def replaced_at(self, share: float) -> float:
        times = sorted(self.replaced_in)
        return times[min(len(times) - 1, int(share * len(times)))] if times else 0.0

    @property
    def problems(self) -> list[str]:
        said = {
            f"not all jobs are COMPLETED: {dict(self.statuses)}": self.statuses != Counter(COMPLETED=self.jobs),
            f"{self.effects} effects of {self.distinct} jobs": not self.effects == self.distinct == self.jobs,
            f"invariants: {self.broken[:5]}": bool(self.broken),
            f"{self.rows_left} rows are left on the rosters": self.rows_left > 0,
            f"{self.processes_left} processes are left": self.processes_left > 0,
            f"the supervisor ended with {self.exit_code}": self.exit_code != 0,
        }
        return [text for text, is_so in said.items() if is_so]

    def __str__(self) -> str:
        times = f"p50 {self.replaced_at(0.5):.2f} s, p99 {self.replaced_at(0.99):.2f} s"
        worst = f"max {max(self.replaced_in, default=0.0):.2f} s of {len(self.replaced_in)}"
        late = f"; without supervisor or server max {max(self.replaced_late, default=0.0):.1f} s"
        return (
            f"{self.jobs} jobs in {self.seconds:.0f} s, {self.attempts} attempts, {dict(self.faults)};"
            f" replaced in {times}, {worst}{late}; {len(self.problems)} problems"
        )


class Lab:
    def __init__(self, folder: Path, server: LabServer, guard: Guard, jobs: int, seconds: float, seed: int) -> None:
        self.report = Report(jobs)
        self._folder = folder
        self._server = server
        self._guard = guard
        self._seconds = seconds  # that a job takes
        self._dice = random.Random(seed)
        self._masters: list[Supervisor] = []
        self._wounds: dict[str, deque[float]] = {pool: deque() for pool in POOLS}  # when a worker of it was killed
        self._troubled_since = self._troubled_until = 0.0
        self._db = server.connect("lab")

    def run(self, within: float) -> Report:
        self._db.execute("CREATE TABLE effect (job_id bigint)")
        queues = [pool for pool, size in POOLS.items() for _ in range(size)]
        for start in range(0, self.report.jobs, 5000):
            count = min(5000, self.report.jobs - start)
            payload = {"seconds": self._seconds}
            enqueue_many(
                self._db,
                [
                    {"kind": "fleet.count", "queue": queues[n % 8], "payload": payload, "max_attempts": 50}
                    for n in range(count)
                ],
            )
        self._start_master()
        until(lambda: len(self._living()) == sum(POOLS.values()), within=60)
        began = monotonic()
        self._harass(began + within)
        self.report.seconds = monotonic() - began
        self._end()
        return self.report

    def close(self) -> None:
        for each in self._masters:
            each.kill_all()
        self._db.close()

    # --- faults -----------------------------------------------------------------------------------------------

    def _harass(self, deadline: float) -> None:
        kill_at = count_at = 0.0
        roll_at = monotonic() + 20.0
        milestones = deque([(0.8, self._kill_master), (0.5, self._restart_server), (0.3, self._kill_master)])
        left = self.report.jobs
        while left and monotonic() < deadline:
            now = monotonic()
            if self._masters[-1].process.poll() is not None:
                self._start_master()
            if now >= kill_at:
                kill_at = now + 1.0
                self._kill_worker()
            if now >= roll_at:
                roll_at = now + 20.0
                self._masters[-1].signal(signal.SIGUSR2)
                self.report.faults["USR2"] += 1
            if milestones and left <= milestones[0][0] * self.report.jobs:
                milestones.popleft()[1]()
            self._look_at_wounds()
            if now >= count_at:  # seldom: it reads all that waits
                count_at = now + 0.5
                with suppress(psycopg.OperationalError):
                    left = self._ask(_LEFT)[0][0]
            sleep(_TICK)

    def _kill_worker(self) -> None:
        living = self._living()
        if living:
            pool, pid = self._dice.choice(living)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self._wounds[pool].append(monotonic())
                self.report.faults["worker killed"] += 1

    def _kill_master(self) -> None:
        os.kill(self._masters[-1].process.pid, signal.SIGKILL)
        self._masters[-1].process.wait()
        self._is_troubled()
        self.report.faults["master killed"] += 1
        self._start_master()

    def _restart_server(self) -> None:
        self._server.shut_down()
        self._server.bring_back()
        self._is_troubled()
        self.report.faults["server restarted"] += 1

    def _is_troubled(self) -> None:
        """Until the pools are nearly whole again, what is missing says nothing about how long a replacement takes."""
        self._troubled_since, self._troubled_until = monotonic(), float("inf")

    def _start_master(self) -> None:
        file = plan(**{pool: {"max_processes": size, "children": 0, "commands": 0} for pool, size in POOLS.items()})
        self._masters.append(Supervisor(self._folder, self._server.url, file))
        self._guard.watch(self._masters[-1].process.pid)

    def _look_at_wounds(self) -> None:
        """A pool that has as many as it should has been healed."""
        try:
            living = Counter(pool for pool, _ in self._living())
        except psycopg.OperationalError:
            return
        now = monotonic()
        for pool, wounds in self._wounds.items():
            while len(wounds) > max(0, POOLS[pool] - living[pool]):
                since = wounds.popleft()
                is_late = since < self._troubled_until
                (self.report.replaced_late if is_late else self.report.replaced_in).append(now - since)
        missing = sum(max(0, size - living[pool]) for pool, size in POOLS.items())
        if self._troubled_since and missing <= 1 and now > self._troubled_since + _SETTLES_IN:
            self._troubled_until, self._troubled_since = now, 0.0

    # --- the end ----------------------------------------------------------------------------------------------

    def _end(self) -> None:
        report, master = self.report, self._masters[-1]
        until(lambda: len(self._living()) >= sum(POOLS.values()), within=60)  # it has begun, and can be asked to end
        master.signal(signal.SIGTERM)
        report.exit_code = master.end()
        with suppress(AssertionError):
            until(lambda: not any(each.family() for each in self._masters), within=20)
        report.processes_left = len(list(chain(*(each.family() for each in self._masters))))
        report.statuses = Counter(dict(self._ask("SELECT status, count(*) FROM snap_processing_job GROUP BY status")))
        [(report.effects, report.distinct)] = self._ask("SELECT count(*), count(DISTINCT job_id) FROM effect")
        [(report.attempts,)] = self._ask("SELECT sum(attempt_count)::bigint FROM snap_processing_job")
        report.broken = [str(row) for row in self._ask("SELECT invariant, job_id, what FROM queue_invariants")]
        rosters = "SELECT (SELECT count(*) FROM job_worker) + (SELECT count(*) FROM job_master)"
        [(report.rows_left,)] = self._ask(rosters)

    def _living(self) -> list[tuple[str, int]]:
        rows = self._ask(_LIVING, machine=machine())
        return [(pool.removesuffix("-supervisor"), pid) for pool, _, pid, started in rows if not is_gone(pid, started)]

    def _ask(self, statement: str, **given: object) -> list[tuple[Any, ...]]:
        if self._db.closed:
            self._db = self._server.connect("lab")
        return self._db.execute(statement, given).fetchall()


def run(jobs: int, *, seconds: float = 0.0, seed: int = 1, within: float = 1800.0) -> Report:
    with guarded_folder() as (folder, guard):
        server = LabServer(folder)
        try:
            migrate(server.url)
            lab = Lab(folder, server, guard, jobs, seconds, seed)
            try:
                return lab.run(within)
            finally:
                lab.close()
        finally:
            server.bring_back()
            server.stop()

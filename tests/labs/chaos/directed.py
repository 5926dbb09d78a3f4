"""The proofs that were asked for, one scenario each, in any size."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from snapapp.jobs import enqueue, enqueue_many
from tests.labs.chaos import recorder
from tests.labs.chaos.stage import Stage, stage
from tests.labs.chaos.worker import Profile

_ENDS_WITHIN = 300.0


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the jobs, and how often each one's hook left its row."""

    statuses: Counter[str]
    effects: int
    doubles: int
    attempts: int
    kills: int = 0
    refused: int = 0


def exactly_once(jobs: int, *, workers: int = 3) -> Tally:
    """Nobody disturbs: every hook runs once."""
    with stage(workers, Profile(batch_size=100), kinds=("chaos.count",)) as here:
        _enqueue(here, jobs, seconds=0.0)
        here.fleet.start()
        here.drain(_ENDS_WITHIN)
        return _tally(here)


def exactly_once_under_fire(jobs: int, *, seconds: float, workers: int = 3) -> Tally:
    """A worker killed every second, one stopped for longer than its lease, the server restarted once. On a slow machine
    that are so many kills that some job is killed three times, so jobs may be tried more often here."""
    with stage(workers, Profile(), kinds=("chaos.count",)) as here:
        _enqueue(here, jobs, seconds, max_attempts=50)
        here.fleet.start()
        fire = _Fire(here)
        here.drain(_ENDS_WITHIN, meanwhile=fire.go_on)
        fire.cease()
        return _tally(here, kills=fire.kills)


@dataclass(slots=True)
class _Fire:
    """Called often; does what is due."""

    here: Stage
    kills: int = 0
    _began: float = field(default_factory=time.monotonic)
    _kill_at: float = 1.5
    _paused: tuple[int, float] | None = None
    _script: Iterator[str] = field(default_factory=lambda: iter(("pause", "restart")))
    _turns: Iterator[int] = field(default_factory=lambda: cycle((1, 2, 0)))

    def go_on(self) -> None:
        now = time.monotonic() - self._began
        if self._paused and now >= self._paused[1]:
            self.cease()
        if now < self._kill_at:
            return
        self._kill_at += 1.0
        match next(self._script, "kill"):
            case "pause":
                pid = self.here.fleet.pids()[0]
                self.here.fleet.pause(pid)
                self._paused = (pid, now + 1.5 * self.here.profile.lease_for.total_seconds())
            case "restart":
                self.here.server.shut_down()
                self.here.server.bring_back()
            case _:
                pids = self.here.fleet.pids()
                self.here.fleet.kill(pids[next(self._turns) % len(pids)])
                self.kills += 1

    def cease(self) -> None:
        if self._paused:
            self.here.fleet.resume(self._paused[0])
            self._paused = None


@dataclass(frozen=True, slots=True)
class Poisoned:
    """How a job that ends its worker ended, and what it did to the jobs around it."""

    status: str
    attempts: int
    last_error: str
    runs: int
    others: Counter[str]
    errors: list[dict[str, Any]]


def a_job_that_ends_its_worker(neighbours: int, *, workers: int = 2) -> Poisoned:
    with stage(workers, Profile(), kinds=("chaos.count", "chaos.exit")) as here:
        _enqueue(here, neighbours // 2, seconds=0.02)
        with here.server.connect() as db:
            bad = enqueue(db, "chaos.exit", max_attempts=3)
        _enqueue(here, neighbours - neighbours // 2, seconds=0.02)
        here.fleet.start()
        here.drain(_ENDS_WITHIN)
        row = "SELECT status, attempt_count, last_error, errors FROM snap_processing_job WHERE id = %(id)s"
        status, attempts, last_error, errors = here.ask(row, id=bad)[0]
        others = here.ask("SELECT status, count(*) FROM snap_processing_job WHERE id <> %(id)s GROUP BY status", id=bad)
        runs = sum(line["what"] == "start" and line["job"] == bad for line in recorder.lines(here.folder))
        return Poisoned(status, attempts, last_error, runs, Counter(dict(others)), json.loads(errors))


def _enqueue(here: Stage, jobs: int, seconds: float, max_attempts: int = 3) -> None:
    one = {"kind": "chaos.count", "payload": {"seconds": seconds}, "max_attempts": max_attempts}
    with here.server.connect() as db:
        enqueue_many(db, [one] * jobs)


def _tally(here: Stage, kills: int = 0) -> Tally:
    statuses = Counter(dict(here.ask("SELECT status, count(*) FROM snap_processing_job GROUP BY status")))
    effects, different = here.ask("SELECT count(*), count(DISTINCT job_id) FROM chaos_effect")[0]
    attempts = here.ask("SELECT sum(attempt_count)::integer FROM snap_processing_job")[0][0]
    refused = sum(line["what"] == "lease lost" for line in recorder.lines(here.folder))
    return Tally(statuses, effects, effects - different, attempts, kills, refused)

"""One week of slots, one after the other; and what must be true of all of them in the end."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString
from zoneinfo import ZoneInfo

import psycopg

from snapapp.jobs.rows.database import Row, connect
from snapapp.postgres.migrate import migrate
from tests import ROOT
from tests.conftest import guarded_folder
from tests.labs.schedules.clock import Clock, server

SPRING = datetime(2026, 3, 28, 20, tzinfo=UTC)  # Berlin goes forward, and Lord Howe half an hour back
AUTUMN = datetime(2026, 10, 24, 20, tzinfo=UTC)  # Berlin goes back; New York a day after the end
WITHIN = 60.0

Db = psycopg.Connection[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    seed: int = 1
    days: float = 7.0
    workers: int = 3
    kills: float = 0.15  # for each slot: one worker
    absences: float = 0.03  # all of them, for some slots
    pauses: float = 0.03  # of one schedule, for some slots
    mutant: str | None = None


@dataclass(slots=True)
class Report:
    options: Options
    violations: list[str] = field(default_factory=list)
    slots: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


# --- what is due, counted minute by minute and without the code under test -------------------------------------------


@dataclass(frozen=True, slots=True)
class Oracle:
    """A schedule of `worker`, said once more: which times on the wall, and does it name its hours?"""

    tz: str
    matches: Callable[[datetime], bool]
    names_hours: bool

    def is_due(self, minute: datetime) -> bool:
        zone = ZoneInfo(self.tz)
        wall = minute.astimezone(zone)
        if self.matches(wall.replace(tzinfo=None)) and not (wall.fold and self.names_hours):
            return True
        before = (minute - timedelta(hours=1)).astimezone(zone).utcoffset() or timedelta(0)
        left_out = (minute + before).replace(tzinfo=None)  # what the wall would show without the change
        exists = left_out.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) == left_out
        return not exists and self.matches(left_out)


ORACLES = {
    "daily": Oracle("Europe/Berlin", lambda wall: (wall.hour, wall.minute) == (2, 30), names_hours=True),
    "elsewhere": Oracle("America/New_York", lambda wall: (wall.hour, wall.minute) == (2, 30), names_hours=True),
    "hourly": Oracle("Europe/Berlin", lambda wall: wall.minute == 15, names_hours=False),
    "weekdays": Oracle(
        "Australia/Lord_Howe",
        lambda wall: wall.weekday() < 5 and wall.hour % 4 == 0 and wall.minute == 0,
        names_hours=False,
    ),
    "aligned": Oracle("UTC", lambda wall: wall.minute % 30 == 0, names_hours=False),
}


def expected(since: datetime, until: datetime) -> dict[str, list[datetime]]:
    start = since.replace(second=0, microsecond=0) + timedelta(minutes=1)
    minutes = [start + timedelta(minutes=number) for number in range((until - start) // timedelta(minutes=1) + 1)]
    return {name: [minute for minute in minutes if oracle.is_due(minute)] for name, oracle in ORACLES.items()}


# --- the fleet ------------------------------------------------------------------------------------------------------


class Fleet:
    """Workers as systemd would keep them. The last one lives on a host whose clock is an hour off, and is stepped."""

    def __init__(self, options: Options, url: str, wrong: Clock, log: Path) -> None:
        self._told = [url, options.mutant] if options.mutant else [url]
        self._wrong = wrong
        self._log = log
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * options.workers

    def respawn(self) -> None:
        for place, process in enumerate(self._processes):
            if process is None or process.poll() is not None:
                self._processes[place] = self._spawn(is_wrong=place == len(self._processes) - 1)

    def kill(self, place: int) -> None:
        process = self._processes[place]
        if process:
            process.kill()
            process.wait()

    def kill_all(self) -> None:
        for place in range(len(self._processes)):
            self.kill(place)

    def stop(self) -> None:
        for process in self._processes:
            if process and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            if process:
                process.wait(timeout=WITHIN)

    def _spawn(self, *, is_wrong: bool) -> subprocess.Popen[bytes]:
        environment = dict(os.environ) | (self._wrong.environment() if is_wrong else {})
        argv = [sys.executable, "-m", "tests.labs.schedules.worker", *self._told]
        with self._log.open("ab") as log:
            return subprocess.Popen(argv, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


# --- the experiment -------------------------------------------------------------------------------------------------


class Week:
    """Used by one thread. What was done on purpose is written down, so that the ledger's reasons can be checked."""

    def __init__(self, options: Options, db: Db, fleet: Fleet, clock: Clock, wrong: Clock) -> None:
        self._options = options
        self._db = db
        self._fleet = fleet
        self._clock = clock
        self._wrong = wrong
        self._dice = random.Random(options.seed)
        self.report = Report(options)
        self.absences: list[tuple[datetime, datetime]] = []
        self.pauses: list[tuple[datetime, datetime]] = []
        self._paused_since: datetime | None = None

    def live(self, since: datetime) -> None:
        self._fleet.respawn()
        self._until(lambda: self._ask("SELECT count(*) FROM job_schedule") == len(ORACLES))
        end = since + timedelta(days=self._options.days)
        to_come = sorted({slot for slots in expected(self._clock.now(), end).values() for slot in slots})
        while to_come:
            if self._paused_since is None and self._dice.random() < self._options.pauses:
                self._pause()
            elif self._paused_since and self._dice.random() < 0.2:
                self._resume()
            if self._dice.random() < self._options.absences:
                to_come = self._be_absent(to_come)
            else:
                self._step_to(to_come.pop(0))
            self._wrong.set(
                datetime.now(UTC) + self._dice.choice([-1, 1]) * timedelta(minutes=self._dice.choice([10, 60]))
            )
            self._fleet.respawn()
        self._resume()
        self._until_settled()
        self._until(lambda: self._ask("SELECT count(*) FROM snap_processing_job WHERE finished_at IS NULL") == 0)

    def _step_to(self, slot: datetime) -> None:
        """Somebody may die just before it, just after it, or in the middle."""
        dies = self._dice.random() < self._options.kills
        when = self._dice.choice([None, 0.0, self._dice.uniform(0.0, 0.25)])
        if dies and when is None:
            self._kill()
        self._clock.set(slot + timedelta(seconds=self._dice.uniform(0.0, 10.0)))
        if dies and when is not None:
            time.sleep(when)
            self._kill()
        self._fleet.respawn()
        self._until_settled()

    def _kill(self) -> None:
        self._fleet.kill(self._dice.randrange(self._options.workers))
        self.report.faults["kills"] += 1

    def _be_absent(self, to_come: list[datetime]) -> list[datetime]:
        self._fleet.kill_all()
        self.report.faults["absences"] += 1
        over = to_come[: self._dice.randint(1, 8)]
        began = self._clock.now()
        self._clock.set(over[-1] + timedelta(minutes=self._dice.uniform(1.5, 5.0)))
        self._fleet.respawn()
        self._until_settled()
        self.absences.append((began, self._clock.now()))
        return [slot for slot in to_come if slot > self._clock.now()]

    def _pause(self) -> None:
        self._db.execute("SELECT pause_schedule('hourly', 'the lab')")
        self._paused_since = self._clock.now() - timedelta(seconds=30)
        self.report.faults["pauses"] += 1

    def _resume(self) -> None:
        if self._paused_since:
            self._db.execute("SELECT resume_schedule('hourly')")
            self.pauses.append((self._paused_since, self._clock.now()))
            self._paused_since = None

    def _until_settled(self) -> None:
        """Every slot that is due by now is settled."""

        def is_settled() -> bool:
            [(now,)] = self._db.execute("SELECT clock_timestamp()").fetchall()
            stands: dict[str, datetime] = dict(
                self._db.execute("SELECT name, settled_until FROM job_schedule").fetchall()
            )
            due = expected(min(stands.values()), now)
            return all(stands[name] >= max(slots, default=stands[name]) for name, slots in due.items())

        self._until(is_settled)

    def _ask(self, sql: LiteralString) -> Any:
        return self._db.execute(sql).fetchall()[0][0]

    def _until(self, fact: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN
        while not fact():
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not happen by {self._clock.now()}")
            self._fleet.respawn()
            time.sleep(0.03)


# --- the verdict ----------------------------------------------------------------------------------------------------


def judge(week: Week, db: Db) -> None:
    report = week.report
    [(now, created)] = db.execute("SELECT clock_timestamp(), max(created_at) FROM job_schedule").fetchall()
    jobs = Counter(db.execute("SELECT kind, payload->>'slot' FROM snap_processing_job").fetchall())
    unfinished = db.execute(
        "SELECT id, status, last_error FROM snap_processing_job WHERE status <> 'COMPLETED'"
    ).fetchall()
    report.violations += [f"job {job} did not complete: {facts}" for job, *facts in unfinished]
    for name, slots in expected(created, now).items():
        rows = db.execute(
            "SELECT slot, outcome, why, job_id FROM job_schedule_slot WHERE schedule = %s ORDER BY slot", [name]
        ).fetchall()
        report.slots += len(slots)
        written = Counter(slot for slot, *_ in rows)
        report.violations += [f"{name} {slot}: neither fired nor in the ledger" for slot in slots if not written[slot]]
        report.violations += [f"{name} {slot}: is no slot" for slot in written if slot not in slots]
        for slot, outcome, why, _job in rows:
            ran = jobs.pop((name, f"{slot:%Y-%m-%dT%H:%M:%SZ}"), 0)
            if ran != (outcome != "skipped"):
                report.violations.append(f"{name} {slot}: {outcome}, and {ran} jobs")
            reason = (why or "in time").partition(":")[0].partition(",")[0]
            report.outcomes[f"{outcome}, {reason}"] += 1
            report.violations += [f"{name} {slot}: {outcome}, {why}"] * (not _is_so(week, slot, reason))
    report.violations += [f"{kind} {slot}: {count} jobs of no slot" for (kind, slot), count in jobs.items()]


def _is_so(week: Week, slot: datetime, reason: str) -> bool:
    """Is the reason that the ledger gives what the lab did at that time?"""
    match reason:
        case "missed" | "no worker was there for it in time":
            return any(began <= slot <= ended for began, ended in week.absences)
        case "paused":
            return any(began <= slot <= ended for began, ended in week.pauses)
    return reason in ("in time", "overlap")


def experiment(options: Options) -> Report:
    began = time.monotonic()
    since = SPRING if options.seed % 2 else AUTUMN
    with _stage(options, since) as (url, clock, wrong, log), connect(url, name="lab") as db:
        fleet = Fleet(options, url, wrong, log)
        week = Week(options, db, fleet, clock, wrong)
        try:
            week.live(since)
            fleet.stop()
            judge(week, db)
        except TimeoutError as error:
            week.report.violations.append(f"{error}; the workers said: {log.read_text()[-2000:]}")
        finally:
            fleet.kill_all()
        week.report.seconds = time.monotonic() - began
        return week.report


@contextmanager
def _stage(options: Options, since: datetime) -> Iterator[tuple[str, Clock, Clock, Path]]:
    with guarded_folder() as folder:
        clock, wrong = Clock(folder / "clock"), Clock(folder / "wrong-clock")
        clock.set(since)
        wrong.set(datetime.now(UTC) + timedelta(hours=1))
        with server(folder, clock) as url:
            migrate(url)
            yield url, clock, wrong, folder / "log"

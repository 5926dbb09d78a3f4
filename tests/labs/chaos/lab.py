"""One experiment: a client and workers at work, a nemesis among them, then peace, the drain and the verdict."""

import json
import random
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.labs.chaos import kinds, recorder
from tests.labs.chaos.checker import Verdict, Violation, check
from tests.labs.chaos.client import Client
from tests.labs.chaos.history import History, Promises, read_events, read_jobs, read_marks
from tests.labs.chaos.nemesis import Nemesis
from tests.labs.chaos.recorder import Recorder
from tests.labs.chaos.stage import Stage, stage
from tests.labs.chaos.worker import Profile

_TICK = 0.02  # seconds between two looks at what is due
DEADLY = frozenset({"chaos.poison", "chaos.exit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    seconds: float = 60.0
    seed: int = 1
    workers: int = 6
    rate: float = 50.0  # jobs a second
    faults: float = 3.0  # a second
    cuts: float = 0.005  # the share of statements and commits after which the connection breaks
    mutant: str | None = None
    drain: float = 90.0  # seconds that everything may take to end afterwards
    late: float = 2.0  # seconds that a takeover may be late by, for a machine that has other things to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    options: Options
    verdict: Verdict
    faults: Counter[str]
    zombies_met: int
    respawned: int
    drained_in: float
    server_back_in: list[float] = field(default_factory=list)
    acknowledged: int = 0

    def summary(self) -> str:
        facts = {
            "violations": len(self.verdict.violations),
            "faults": self.faults.total(),
            "jobs": self.verdict.counts["jobs"],
            "refused stale": self.verdict.counts["refused stale"],
            "seeds": [self.options.seed],
        }
        return json.dumps(facts)

    def as_json(self) -> dict[str, Any]:
        return {
            "options": asdict(self.options),
            "violations": [str(violation) for violation in self.verdict.violations],
            "faults": dict(self.faults),
            "counts": dict(self.verdict.counts),
            "zombies met": self.zombies_met,
            "workers respawned": self.respawned,
            "acknowledged": self.acknowledged,
            "takeover seconds": {"p50": self.verdict.takeover_at(0.5), "p100": self.verdict.takeover_at(1.0)},
            "drained in": round(self.drained_in, 1),
            "server back in": [round(seconds, 2) for seconds in self.server_back_in],
        }


def experiment(options: Options) -> Report:
    profile = Profile()
    told = {"mutant": options.mutant, "cuts": options.cuts, "seed": options.seed}
    # half of the workers seem to be alone on their machine: nobody sees them die, their leases must run out
    with stage(options.workers, profile, elsewhere=options.workers // 2, **told) as here:
        lab = Recorder(here.folder, "nemesis")
        client_dice, nemesis_dice = (random.Random(f"{options.seed} {who}") for who in ("client", "nemesis"))
        client = Client(here.server, Recorder(here.folder, "client"), client_dice, options.rate)
        lease = profile.lease_for.total_seconds()
        nemesis = Nemesis(here.server, here.fleet, lab.write, nemesis_dice, rate=options.faults, lease=lease)
        here.fleet.start()
        client.start()
        try:
            _let_it_happen(here, nemesis, options.seconds)
        finally:
            nemesis.cease()
            client.stop()
        began = time.monotonic()
        here.drain(options.drain)
        drained_in = time.monotonic() - began
        here.fleet.stop()
        history = _history(here, options.late)
        verdict = check(history)
        verdict = replace(verdict, violations=(*verdict.violations, *_broken(here)))
        return Report(
            options=options,
            verdict=verdict,
            faults=nemesis.faults + Counter(line["what"] for line in history.lines if line["what"] == "cut"),
            zombies_met=nemesis.zombies_met,
            respawned=here.fleet.started - options.workers,
            drained_in=drained_in,
            server_back_in=nemesis.recovered_in,
            acknowledged=client.acknowledged,
        )


def _let_it_happen(here: Stage, nemesis: Nemesis, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        here.fleet.respawn()
        nemesis.go_on()
        time.sleep(_TICK)


def _history(here: Stage, late: float) -> History:
    with here.server.connect() as db:
        return History(
            lines=recorder.lines(here.folder),
            events=read_events(db),
            jobs=read_jobs(db),
            effects=read_marks(db, "chaos_effect"),
            burials=read_marks(db, "chaos_burial"),
            hooked=kinds.HOOKED,
            deadly=DEADLY,
            promises=Promises(
                sweep=here.profile.recover_every.total_seconds(),
                beat=here.profile.beat_every.total_seconds(),
                grace=late,
            ),
        )


def save(report: Report, path: Path) -> None:
    path.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")


def _broken(here: Stage) -> list[Violation]:
    """What the database itself says must never be."""
    with here.server.connect() as db:
        rows = db.execute("SELECT invariant, job_id, what FROM queue_invariants").fetchall()
    return [Violation(invariant, job, f"queue_invariants: {what}") for invariant, job, what in rows]

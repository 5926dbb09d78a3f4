"""`python -m tests.labs chaos --seconds 600`. Exits 1 when something happened that must not happen."""

import argparse
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

from tests.labs.chaos import directed
from tests.labs.chaos.lab import Options, Report, experiment, save
from tests.labs.chaos.mutants import MUTANTS

_SHOWN = 20  # violations


def main() -> int:
    for ending in (signal.SIGINT, signal.SIGTERM):  # SIGINT too: a shell starts what runs behind it deaf to it
        signal.signal(ending, _as_interrupt)
    arguments = _arguments()
    options = Options(
        seconds=arguments.seconds,
        seed=arguments.seed,
        workers=arguments.workers,
        rate=arguments.rate,
        faults=arguments.faults,
        mutant=os.environ.get("CHAOS_MUTANT"),
    )
    if arguments.full:
        return _prove()
    if arguments.mutants:
        return _hunt(options, arguments.limit)
    report = experiment(options)
    if arguments.report:
        save(report, arguments.report)
    _tell(report)
    return 1 if report.verdict.violations else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long things are broken")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="of client and nemesis")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--rate", type=float, default=50.0, help="jobs a second")
    parser.add_argument("--faults", type=float, default=3.0, help="faults a second")
    parser.add_argument("--report", type=Path, metavar="FILE.json")
    parser.add_argument("--mutants", action="store_true", help="break the queue itself: the lab must notice")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each mutant")
    parser.add_argument("--full", action="store_true", help="the directed proofs with 10,000 jobs")
    return parser.parse_args()


def _tell(report: Report) -> None:
    for violation in report.verdict.violations[:_SHOWN]:
        print(f"seed {report.options.seed}: {violation}")
    facts = report.as_json()
    for name in ("faults", "counts", "takeover seconds", "zombies met", "workers respawned", "drained in"):
        print(f"{name}: {facts[name]}")
    print(report.summary())


def _hunt(options: Options, limit: float) -> int:
    """Each mutant until it is caught, with a new seed each round."""
    began = time.monotonic()
    caught = [mutant for mutant in MUTANTS if _catch(mutant, options, limit)]
    print(f"{len(caught)}/{len(MUTANTS)} mutants caught in {time.monotonic() - began:.0f} s")
    return 0 if len(caught) == len(MUTANTS) else 1


def _catch(mutant: str, options: Options, limit: float) -> bool:
    began = time.monotonic()
    options = replace(options, mutant=mutant, seconds=min(options.seconds, 20.0), drain=15.0)
    while time.monotonic() - began < limit:
        violations = experiment(options).verdict.violations
        telling = [str(one).splitlines()[0] for one in violations if MUTANTS[mutant].breaks in one.says]
        if telling:
            facts = f"{time.monotonic() - began:.0f} s, seed {options.seed}, {len(telling)} times"
            print(f"{mutant}: caught after {facts}: {telling[0]}", flush=True)
            return True
        options = replace(options, seed=options.seed + 1)
    print(f"{mutant}: survived {limit:.0f} s", flush=True)
    return False


def _prove() -> int:
    """10,000 jobs, undisturbed and under fire, and the job that ends its worker."""
    quiet = directed.exactly_once(10_000)
    print(quiet)
    fired_at = directed.exactly_once_under_fire(10_000, seconds=0.05)
    print(fired_at)
    poisoned = directed.a_job_that_ends_its_worker(300)
    print(poisoned)
    once = all((one.effects, one.doubles) == (10_000, 0) for one in (quiet, fired_at))
    alone = (poisoned.status, poisoned.runs) == ("FAILED", 3) and set(poisoned.others) == {"COMPLETED"}
    return 0 if once and alone else 1


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt

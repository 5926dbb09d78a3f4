"""`python -m tests.labs schedules --seed 1`. Exits 1 when a slot is not what the ledger says of it."""

import argparse
import sys

from tests.labs.schedules.clock import LIBRARIES
from tests.labs.schedules.mutants import MUTANTS
from tests.labs.schedules.week import Options, experiment

_SHOWN = 20  # violations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="odd: the clocks go forward in Berlin; even: they go back")
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--mutants", action="store_true", help="break the schedules: the lab must notice")
    arguments = parser.parse_args()
    if not LIBRARIES:
        sys.exit("libfaketime is missing; on Debian or Ubuntu, type: apt install faketime")
    if arguments.mutants:
        return _hunt()
    report = experiment(Options(seed=arguments.seed, days=arguments.days))
    for violation in report.violations[:_SHOWN]:
        print(f"seed {arguments.seed}: {violation}")
    for what, count in sorted(report.outcomes.items()):
        print(f"{what}: {count}")
    faults = ", ".join(f"{count} {what}" for what, count in sorted(report.faults.items()))
    print(f"{report.slots} slots, {len(report.violations)} violations, {faults}, {report.seconds:.0f} s")
    return 1 if report.violations else 0


def _hunt() -> int:
    """Each mutant for two days, over the night when the clocks change."""
    survivors = 0
    for mutant, (_, seed) in MUTANTS.items():
        report = experiment(Options(seed=seed, days=2.0, absences=0.1, mutant=mutant))
        survivors += not report.violations
        print(f"{mutant}: {f'caught: {report.violations[0]}' if report.violations else 'survived'}", flush=True)
    print(f"{len(MUTANTS) - survivors}/{len(MUTANTS)} mutants caught")
    return 1 if survivors else 0

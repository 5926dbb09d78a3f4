"""`python -m tests.labs fleet --jobs 100000`. Exits 1 when a job was lost or done twice, when anything is
left behind, or when a dead worker was not replaced within two seconds (99 of 100)."""

import argparse

from tests.labs.fleet import lab, measure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=0.0, help="that each job takes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measure", action="store_true", help="what it costs and gains, instead")
    arguments = parser.parse_args()
    if arguments.measure:
        for line in measure.report():
            print(line, flush=True)
        return 0
    report = lab.run(arguments.jobs, seconds=arguments.seconds, seed=arguments.seed)
    for problem in report.problems:
        print(problem)
    print(report)
    return 1 if report.problems or report.replaced_at(0.99) >= 2.0 else 0

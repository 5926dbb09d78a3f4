"""`python -m tests.labs executors --jobs 1000`. Exits 1 when a job did not end as it should, or when a
process is left; `--measure` prints what the executors cost instead, `--served` what they cost the API beside them."""

import argparse

from tests.labs.executors import beside, lab, measure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attempts", type=int, default=2, help="of the jobs that cannot succeed")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--served", action="store_true")
    arguments = parser.parse_args()
    if arguments.measure:
        print("\n".join(measure.report()))
        return 0
    if arguments.served:
        print("\n".join(beside.report(arguments.jobs, arguments.seed)))
        return 0
    report = lab.run(arguments.jobs, arguments.seed, arguments.attempts)
    for problem in report.problems[:30]:
        print(problem)
    print(
        f"{report.jobs} jobs of {report.kinds} kinds, {report.good} good and {report.bad} bad,"
        f" {report.kills} children killed, {report.seconds:.0f} s, {len(report.problems)} problems"
    )
    return 1 if report.problems else 0

"""`python -m tests.labs media --mutants 2000` breaks videos at random and exits 1 when one ends in any way but two;
`--speed` measures against the usual three commands of FFmpeg, `--apart` what decoding in a process of its own costs."""

import argparse

from tests.labs.media import speed

SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--mutants", type=int, metavar="COUNT")
    what.add_argument("--speed", action="store_true")
    what.add_argument("--apart", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5, help="of the speed's measurement")
    arguments = parser.parse_args()
    if arguments.speed:
        print("\n".join(speed.report(arguments.runs)))
        return 0
    if arguments.apart:
        from tests.labs.media import apart

        print("\n".join(apart.report(arguments.runs)))
        return 0
    return hunt(arguments.mutants, arguments.seed)


def hunt(count: int, seed: int) -> int:
    from tests.labs.media import mutants  # PyAV is not loaded where its rivals are measured

    report = mutants.run(count, seed)
    for problem in report.problems[:SHOWN]:
        print(problem)
    reasons = ", ".join(f"{many} {kind}" for kind, many in report.reasons.most_common())
    print(
        f"{count} mutants: {report.done} done, {reasons}, {len(report.problems)} problems;"
        f" at most {report.most_memory_mb} MB"
    )
    return 1 if report.problems else 0

"""`python -m tests.labs console bulk|scale|faults`: /ops under load, at size, and with something wrong. Each prints
what it saw and exits 1 where that is not as it should be."""

import argparse

from tests.labs.console import bulk, faults, scale


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    many = commands.add_parser("bulk", help="dead letters retried from the page while a worker works")
    many.add_argument("--jobs", type=int, default=100_000)
    many.add_argument("--seconds", type=float, default=20, help="that are measured before and after")
    many.set_defaults(act=_bulk)
    size = commands.add_parser("scale", help="each view with millions of rows, and twenty viewers of the stream")
    size.add_argument("--rows", type=int, default=10_000_000, help="that are over; a tenth as many are ready")
    size.add_argument("--viewers", type=int, default=20)
    size.add_argument("--seconds", type=float, default=30, help="that the stream is watched")
    size.set_defaults(act=_scale)
    wrong = commands.add_parser("faults", help="ten faults, of each of which the cause and the cure must be told")
    wrong.add_argument("--only", metavar="TEXT", help="those whose name has this in it")
    wrong.set_defaults(act=_faults)
    arguments = parser.parse_args()
    code: int = arguments.act(arguments)
    return code


def _bulk(arguments: argparse.Namespace) -> int:
    seen = bulk.run(arguments.jobs, arguments.seconds)
    for name, its in (("before", seen.before), ("meanwhile", seen.meanwhile), ("after", seen.after)):
        print(
            f"{name}: {its.a_second:,.0f} no-ops a second over {its.seconds:.0f} s, longest gap {its.longest_gap:.2f} s"
        )
    print(f"{seen.retried:,} retried in {seen.took:.1f} s; throughput meanwhile: {seen.ratio:.2f} of that without")
    print(
        f"the page told {len(seen.progress)} numbers; stopped within {seen.stopped_within:.2f} s at {seen.stopped_at:,}"
    )
    return _said(seen.problems())


def _scale(arguments: argparse.Namespace) -> int:
    if not scale.room_for(arguments.rows):
        return _said(["there is not enough room on the disk for so many rows"])
    seen = scale.run(arguments.rows, arguments.rows // 10, arguments.viewers, arguments.seconds)
    print(f"{seen.rows:,} rows, {seen.bytes / 2**30:.1f} GB")
    for view in seen.views:
        took, said = view.slowest
        times = f"{view.first_byte * 1000:5.0f} ms ({view.usual * 1000:.0f} mostly)"
        print(f"{view.name:<10} {times:<22}  statement {took:5.0f} ms  {view.path}  {said[:90]}")
    cost = seen.watched - seen.quiet
    print(f"{arguments.viewers} viewers: {cost:.1%} of a core ({seen.quiet:.1%} without), told {seen.events:,} events")
    return _said(list(seen.problems()))


def _faults(arguments: argparse.Namespace) -> int:
    told = faults.run(arguments.only)
    for each in told:
        print(f"{each.fault}: told within {each.after:.0f} s\n  {each.said}\n  {each.do}")
    return _said([f"{each.fault} is not told {what}" for each in told for what in each.missing])


def _said(problems: list[str]) -> int:
    for problem in problems:
        print(f"WRONG: {problem}")
    return 1 if problems else 0

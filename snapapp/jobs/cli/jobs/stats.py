"""`jobs stats`: shows what queues hold and how attempts ended, and what they cost."""

from argparse import Namespace

from snapapp.jobs.amounts import digits, milliseconds
from snapapp.jobs.cli.queues import count_queues, show_queues
from snapapp.jobs.cli.shown import say, show_json
from snapapp.jobs.cli.tables import show_table
from snapapp.jobs.cli.typed import Add, Db
from snapapp.jobs.rows import costs
from snapapp.jobs.rows.costs import KindCost
from snapapp.jobs.rows.people import history, overviews
from snapapp.jobs.rows.people.history import HistoryPoint, Over


def add_command(add: Add) -> None:
    counting = add(
        "stats", show_stats, "count what waits, runs and failed, what the last hour did, and what each kind costs"
    )
    counting.add_argument(
        "--over",
        choices=list(Over),
        help="instead of the last hour and the costs: how attempts ended within that time, those of deleted jobs too",
    )


def show_stats(db: Db, arguments: Namespace) -> int:
    if arguments.over is not None:
        return _show_stats_over(db, arguments)
    queues, throughput, kinds = count_queues(db), overviews.throughput(db), costs.of_kinds(db)
    if arguments.json:
        show_json({"queues": queues, "last_hour": throughput, "costs": kinds})
        return 0
    show_queues(queues)
    say("")
    if throughput:
        headers = ["last hour", "queue", "completed", "failed", "cancelled", "took", "waited"]
        show_table(headers, [_last_hour(each) for each in throughput], numbers={2, 3, 4, 5, 6})
    else:
        say("No job ended within the last hour.")
    if kinds:
        say("\ncosts of an attempt: half of them stay below the first number, 95 % and 99 % below the others")
        headers = ["kind", "attempts", "waited", "ran", "cpu", "memory"]
        show_table(headers, [_costs(each) for each in kinds], numbers={1, 2, 3, 4, 5}, spare=(1,))
    return 0


def _show_stats_over(db: Db, arguments: Namespace) -> int:
    queues, kinds = count_queues(db), history.kinds(db, arguments.over)
    if arguments.json:
        show_json({"queues": queues, "over": arguments.over, "kinds": kinds})
        return 0
    show_queues(queues)
    say("")
    if kinds:
        headers = [f"last {arguments.over}", "completed", "failed", "cancelled", "retried", "waited", "ran"]
        show_table(headers, [_over_time(each) for each in kinds], numbers={1, 2, 3, 4, 5, 6})
    else:
        say(f"No attempt ended within the last {arguments.over}.")
    return 0


def _over_time(each: HistoryPoint) -> list[str]:
    counts = map(str, (each.completed, each.failed, each.cancelled, each.retried))
    times = (_percentiles(_UNITS_OF_TIME, its.p50, its.p95, its.p99) for its in (each.wait, each.run))
    return [each.kind, *counts, *times]


def _last_hour(each: overviews.Throughput) -> list[str]:
    counts = map(str, (each.completed, each.failed, each.cancelled))
    return [each.kind, each.queue, *counts, _mean(each.mean_ms), _mean(each.mean_wait_ms)]


def _mean(amount: float | None) -> str:
    return "" if amount is None else milliseconds(amount)


def _costs(each: KindCost) -> list[str]:
    return [
        each.kind,
        str(each.attempts),
        _percentiles(_UNITS_OF_TIME, each.wait_p50_ms, each.wait_p95_ms, each.wait_p99_ms),
        _percentiles(_UNITS_OF_TIME, each.wall_p50_ms, each.wall_p95_ms, each.wall_p99_ms),
        _percentiles(_UNITS_OF_TIME, each.cpu_p50_ms, each.cpu_p95_ms, each.cpu_p99_ms),
        _percentiles({"MB": 1}, each.peak_p50_mb, each.peak_p95_mb, each.peak_p99_mb),
    ]


_UNITS_OF_TIME = {"h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}


def _percentiles(units: dict[str, int], *amounts: float | None) -> str:
    """The amounts in one common unit, so that they can be compared: the unit of the first one, or the next larger."""
    known = [amount for amount in amounts if amount is not None]
    if len(known) < len(amounts):
        return ""
    unit = next((name for name, size in units.items() if known[0] >= size / 10), [*units][-1])
    return f"{'/'.join(digits(amount / units[unit]) for amount in known)} {unit}"

"""`simulate`: computes how long jobs would wait with other numbers of workers, other limits or other boxes."""

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import timedelta
from math import isfinite
from pathlib import Path
from typing import Any

import psycopg

from snapapp.jobs.amounts import counted, milliseconds, span
from snapapp.jobs.cli.shown import say, show_json
from snapapp.jobs.cli.tables import show_table
from snapapp.jobs.cli.typed import age, duration, whole
from snapapp.jobs.fleet import plan_file
from snapapp.jobs.fleet.plan import Balance, Pool
from snapapp.jobs.simulation.forecast import Forecast, Waits, forecast
from snapapp.jobs.simulation.load import InvalidLoad, Load, described_load, is_pattern, recorded_load
from snapapp.jobs.simulation.world import Boxes

Variant = tuple[dict[str, Any], Forecast]  # the numbers of boxes and processes, and the forecast for them
Opened = Callable[[], AbstractContextManager[psycopg.Connection[Any]]]

_LARGEST = 1_048_576  # bytes of a described load
_MOST = 10_000  # processes on all boxes
_MOST_LOOKS = 2_000_000  # of the autoscaler; more would take more than some minutes to compute
_DAY = timedelta(days=1)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("load", nargs="?", type=Path, metavar="FILE", help="what comes, in TOML (default: as recorded)")
    parser.add_argument(
        "--last", type=age, default=_DAY, metavar="AGE", help="what finished in that time (default: 1d)"
    )
    parser.add_argument("--grow", type=_number(0.01, 1000), default=1.0, metavar="X", help="so many times as much")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--processes", type=_several, default=(1, 2, 4, 8), metavar="N,…", help="on each box (default: 1,2,4,8)"
    )
    size.add_argument("--plan", type=Path, metavar="FILE", help="the pools of a fleet instead, scaled as it says")
    parser.add_argument("--env", default="prod", metavar="NAME", help="which environment of the plan (default: prod)")
    parser.add_argument("--slots", type=whole(1, 1000), default=4, metavar="N", help="of each process (default: 4)")
    parser.add_argument("--boxes", type=_several, default=(1,), metavar="N,…", help="that are alike (default: 1)")
    parser.add_argument(
        "--cores", type=_number(0.1, 1024), default=float(os.cpu_count() or 1), metavar="N", help="of each box"
    )
    parser.add_argument(
        "--limit", type=_limit, action="append", default=[], metavar="PATTERN=N", help="such as kind:report=2"
    )
    parser.add_argument("--goal", type=duration, metavar="TIME", help="99 of 100 begin in that time; 1: none does it")
    parser.add_argument("--price", type=_number(0, 1e6), metavar="P", help="of a box, an hour")
    parser.add_argument("--seed", type=whole(0, 10**9), default=1, metavar="N", help="of what is left to chance")
    parser.add_argument("--json", action="store_true", help="for programs")


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (isfinite(value) and least <= value <= most):
            raise ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}")
        return value

    return read


def _several(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(whole(1, 1000)(each.strip()) for each in text.split(",")))


def _limit(text: str) -> tuple[str, int]:
    pattern, _, most = text.rpartition("=")
    if not is_pattern(pattern):
        raise ArgumentTypeError(f"{text!r} is not PATTERN=N, such as kind:report=2 or key:camera:*=1")
    return pattern, whole(0, 1_000_000)(most)


# --- run --------------------------------------------------------------------------------------------------------


def run(opened: Opened, arguments: Namespace) -> int:
    variants = [*_variants(arguments)]
    if (most := max(boxes.count * sum(pool.max_processes for pool in boxes.pools) for _, boxes in variants)) > _MOST:
        raise InvalidLoad(f"{most:,} processes are too many to simulate, the most is {_MOST:,}")
    load = _load(opened, arguments)
    for _, boxes in variants:
        _refuse_too_many_looks(boxes, load)
    forecasts = [(name, forecast(load, boxes)) for name, boxes in variants]
    good = [one for one in forecasts if arguments.goal is None or one[1].keeps(arguments.goal)]
    if arguments.json:
        show_json(_as_json(load, forecasts, arguments))
    else:
        _show(load, forecasts, good, arguments)
    return 0 if good else 1


def _refuse_too_many_looks(boxes: Boxes, load: Load) -> None:
    scaled = [pool.cooldown.total_seconds() for pool in boxes.pools if pool.balance is not Balance.OFF]
    looks = boxes.count * sum(load.lasts / cooldown for cooldown in scaled)
    if looks > _MOST_LOOKS:
        raise InvalidLoad(
            f"the pools would be looked at {looks:,.0f} times, the most is {_MOST_LOOKS:,}: take a shorter time, or "
            "give them a longer cooldown_s"
        )


def _load(opened: Opened, arguments: Namespace) -> Load:
    if arguments.load is None:
        with opened() as db:
            load = recorded_load(db, arguments.last)
    else:
        load = described_load(_text_of(arguments.load), arguments.seed)
    load = load.grown(arguments.grow, arguments.seed)
    return load.limited(dict(arguments.limit))


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as reader:
            content = reader.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise InvalidLoad(f"{file} is larger than {_LARGEST} bytes")
        return content.decode()
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidLoad):
            raise
        raise InvalidLoad(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _variants(arguments: Namespace) -> Iterator[tuple[dict[str, Any], Boxes]]:
    for boxes in arguments.boxes:
        if arguments.plan is not None:
            plan = plan_file.load(arguments.plan, arguments.env)
            yield {"boxes": boxes, "processes": str(arguments.plan)}, _boxes(plan.pools, boxes, arguments)
            continue
        for processes in arguments.processes:
            pool = Pool(name="all", max_processes=processes)
            yield {"boxes": boxes, "processes": processes}, _boxes((pool,), boxes, arguments)


def _boxes(pools: tuple[Pool, ...], many: int, arguments: Namespace) -> Boxes:
    return Boxes(pools=pools, count=many, slots=arguments.slots, cores=arguments.cores)


# --- output -----------------------------------------------------------------------------------------------------

_OF_WAITS = ("p50", "p95", "p99", "longest")


def _show(
    load: Load,
    forecasts: list[Variant],
    good: list[tuple[dict[str, Any], Forecast]],
    arguments: Namespace,
) -> None:
    kinds = counted(len({work.kind for work in load.works}), "kind", "kinds")
    say(f"{counted(len(load.works), 'job', 'jobs')} of {kinds} in {span(timedelta(seconds=load.lasts))}: {_work(load)}")
    say("")
    rows = [_row(name, one, arguments) for name, one in forecasts]
    if load.waited:
        was = ["", "as it was", *_waits(Waits.of(load.waited))]
        rows.insert(0, was + [""] * (len(rows[0]) - len(was)))
    headers = ["boxes", "processes", *(f"wait {each}" for each in _OF_WAITS), "slots", "cores", "waiting", "done in"]
    if arguments.price is not None:
        headers.append("cost")
    if arguments.goal is not None:
        headers.append("goal")
    show_table(headers, rows, numbers=range(len(headers) - (arguments.goal is not None)), spare=(9, 8))
    name, shown = (good or forecasts)[0] if arguments.goal is not None else forecasts[-1]
    say("")
    say(f"By kind, with {_processes(name['processes'])} on {counted(name['boxes'], 'box', 'boxes')}:")
    of_kinds = [[kind, f"{waits.jobs:,}", *_waits(waits)] for kind, waits in shown.by_kind.items()]
    show_table(["kind", "jobs", *(f"wait {each}" for each in _OF_WAITS)], of_kinds, numbers=range(1, 6))
    if shown.never_began:
        jobs = counted(shown.never_began, "job never begins", "jobs never begin")
        say(f"{jobs}: a limit of 0 holds them, or no pool works their queue.")


def _work(load: Load) -> str:
    runs, cpu = (sum(each) for each in zip(*((work.runs, work.runs * work.cpu) for work in load.works), strict=True))
    return f"on average {runs / load.lasts:.2f} run at once, and keep {cpu / load.lasts:.2f} cores busy."


def _processes(processes: int | str) -> str:
    return f"the pools of {processes}" if isinstance(processes, str) else counted(processes, "process", "processes")


def _row(name: dict[str, Any], one: Forecast, arguments: Namespace) -> list[str]:
    row = [
        str(name["boxes"]),
        str(name["processes"]),
        *_waits(one.waits),
        _share(one.slots_busy),
        _share(one.cores_busy),
    ]
    row += [f"{one.most_waiting:,}", span(timedelta(seconds=one.lasted))]
    if arguments.price is not None:
        row.append(f"{one.cost(arguments.price):,.2f}")
    if arguments.goal is not None:
        row.append("kept" if one.keeps(arguments.goal) else "missed")
    return row


def _waits(waits: Waits) -> list[str]:
    return [milliseconds(1000 * getattr(waits, each)) for each in _OF_WAITS]


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _as_json(load: Load, forecasts: list[Variant], arguments: Namespace) -> dict[str, Any]:
    def variant(name: dict[str, Any], one: Forecast) -> dict[str, Any]:
        cost = {} if arguments.price is None else {"cost": one.cost(arguments.price)}
        kept = {} if arguments.goal is None else {"keeps_goal": one.keeps(arguments.goal)}
        return name | asdict(one) | cost | kept

    return {
        "jobs": len(load.works),
        "seconds": load.lasts,
        "limits": load.limits,
        "as_it_was": asdict(Waits.of(load.waited)) if load.waited else None,
        "variants": [variant(name, one) for name, one in forecasts],
    }

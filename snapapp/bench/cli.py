"""`snapapp bench`: its arguments, its progress bar, its output."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from snapapp.bench import claims, drain, enqueue, idle, neighbours, pickup, slots, start, steady, web
from snapapp.bench.plan import PEERS, QUICK, SCENARIOS, Plan, Step
from snapapp.bench.processes import BenchProcessFailed
from snapapp.bench.report import Measurement, Report
from snapapp.bench.server import BenchServer

Measure = Callable[[BenchServer, Plan, Step], list[Measurement]]


def _beside_peers(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    return [*drain.measure_peers(server, plan, step), *enqueue.measure_peers(server, plan, step)]


_MEASURES: dict[str, Measure] = {
    "enqueue": enqueue.measure,
    "drain": drain.measure,
    "slots": slots.measure,
    "pickup": pickup.measure,
    "start": start.measure,
    "idle": idle.measure,
    "claim": claims.measure,
    "neighbours": neighbours.measure,
    "versus": _beside_peers,
    "steady": steady.measure,
    "web": web.measure,
}
_FAILURES = (BenchProcessFailed, psycopg.Error, TimeoutError, RuntimeError)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="every sample as JSON instead of the table")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="how often each thing is measured (3)")
    parser.add_argument("--jobs", type=int, metavar="N", help="jobs of a drain (100000; 20000 with --quick)")
    parser.add_argument("--only", type=_names, default=(), metavar="WHAT,…", help=f"among {', '.join(SCENARIOS)}")
    parser.add_argument(
        "--versus", type=_names, default=(), metavar="PEER,…", help=f"beside other queues: {', '.join(PEERS)}"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def plan_of(arguments: argparse.Namespace) -> Plan:
    """The plan for these arguments; ValueError: they make no sense."""
    sizes = QUICK if arguments.quick else Plan()
    jobs, scenarios = arguments.jobs or sizes.jobs, arguments.only or sizes.scenarios
    return replace(sizes, runs=arguments.runs, jobs=jobs, scenarios=scenarios, versus=arguments.versus)


def command(arguments: argparse.Namespace, server_url: str) -> int:
    """Runs the bench. Exit code 0: everything was measured, whatever the numbers are. It creates databases on the
    server, and drops them at the end."""
    errors = Console(stderr=True)
    try:
        plan = plan_of(arguments)
    except ValueError as error:
        errors.print(f"bench: {error}", highlight=False)
        return 2
    missing = drain.missing_peers(plan)
    for sentence in missing:
        errors.print(f"bench: {sentence}", highlight=False, soft_wrap=True)
    if missing:
        return 2
    try:
        report = run(server_url, plan, errors)
    except KeyboardInterrupt:
        errors.print("bench: stopped; its databases are gone")
        return 130
    if arguments.json:
        sys.stdout.write(json.dumps(report.as_json(), indent=2) + "\n")
    else:
        _output().print(report.table())
    for failure in report.failures:
        errors.print(failure, markup=False)
    return 1 if report.failures else 0


def run(url: str, plan: Plan, console: Console | None = None) -> Report:
    """Measures the scenarios. A scenario that fails is reported, and the others are measured nevertheless."""
    chosen = [name for name in SCENARIOS if name in plan.scenarios and (name != "versus" or plan.versus)]
    with BenchServer(url) as server:
        report = Report(server.environment() | {"plan": _as_facts(plan)})
        with _progress(console) as progress:
            task = progress.add_task("", total=len(chosen))
            for name in chosen:
                try:
                    report.measurements += _MEASURES[name](
                        server, plan, lambda step: progress.update(task, description=step)
                    )
                except _FAILURES as error:
                    report.failures.append(f"{name} was not measured: {error}")
                progress.advance(task)
        return report


def _progress(console: Console | None) -> Progress:
    columns: list[Any] = [BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")]
    seen = console is not None and console.is_terminal
    return Progress(*columns, console=console or Console(stderr=True), transient=True, disable=not seen)


def _output() -> Console:
    """The console for the table; in a file or a pipe the table may be wide."""
    output = Console()
    return output if output.is_terminal else Console(width=150)


def _as_facts(plan: Plan) -> dict[str, Any]:
    facts = {name: getattr(plan, name) for name in plan.__dataclass_fields__}
    return facts | {name: getattr(plan, name).total_seconds() for name in ("idle_for", "web_for", "steady_for")}

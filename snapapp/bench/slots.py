"""Measures jobs that wait for a millisecond and do not compute, on slots of the event loop and on threads."""

from snapapp.bench.drain import Drainer, drain
from snapapp.bench.plan import Plan, Step
from snapapp.bench.report import Measurement, Target
from snapapp.bench.roles.worker import NAP_IN_THREAD, NAP_ON_LOOP
from snapapp.bench.server import BenchServer

_SLOTS = 32


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    loop: list[float] = []
    threads: list[float] = []
    for run in range(plan.runs):
        for kind, rates in ((NAP_ON_LOOP, loop), (NAP_IN_THREAD, threads)):
            step(f"jobs of 1 ms on {_SLOTS} slots: {kind}, run {run + 1}")
            who = Drainer(kind, "worker", {"slots": _SLOTS}, kind=kind, ends_by_itself=False)
            rates.append(drain(server, who, plan.naps, 1).rate)
    return [
        Measurement(
            name="slots.loop",
            what=f"jobs of 1 ms on {_SLOTS} slots of the event loop",
            unit="jobs/s",
            ours=loop,
            beside=threads,
            beside_is="in threads",
            target=Target("ratio", "at least", 1.0),
        )
    ]

"""Measures how soon a job begins on an idle queue. The bench and the worker compare times of the machine's monotonic
clock, which all processes share."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from snapapp.bench.plan import KIND, Plan, Step
from snapapp.bench.processes import BenchProcess
from snapapp.bench.report import Measurement, Target, percentile
from snapapp.bench.roles.worker import PICKUP
from snapapp.bench.server import BenchServer, Db, ask, connect, until
from snapapp.jobs.adding import enqueue

_LEAST_PAUSE, _MOST_PAUSE = 0.005, 0.030
_PERCENTS = (50, 95, 99)
_COMPLETED = "SELECT count(*) FROM snap_processing_job WHERE kind = %s AND status = 'COMPLETED'"

Times = tuple[float, float]  # when enqueue was called, when its commit had returned


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds until the processor ran: from before `enqueue` was called, and from when its commit returned."""

    from_call: list[float]
    from_commit: list[float]  # negative if the worker was quicker than the answer to the commit


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    ours: list[Latencies] = []
    bare: list[Latencies] = []
    for run in range(plan.runs):
        step(f"pickup of {plan.pickups}, run {run + 1}")
        for runs, latencies in zip((ours, bare), _run(server, plan.pickups), strict=True):
            runs.append(latencies)
    return [
        Measurement(
            name=f"pickup.{since}.p{percent}",
            what=f"pickup on an idle queue from {words}, p{percent}",
            unit="ms",
            ours=[percentile(getattr(one, since), percent) for one in ours],
            beside=[percentile(getattr(one, since), percent) for one in bare],
            beside_is="bare LISTEN",
            target=Target("ours", "at most", 5.0) if percent == 99 else None,
            more={"samples": [getattr(one, since) for one in ours]} if percent == 99 else {},
        )
        for since, words in (("from_call", "enqueue's call"), ("from_commit", "its commit"))
        for percent in _PERCENTS
    ]


def _run(server: BenchServer, count: int) -> tuple[Latencies, Latencies]:
    """Enqueues jobs in turn for the worker, and for a bare process that only LISTENs and claims."""
    with (
        server.database() as our_url,
        server.database() as bare_url,
        BenchProcess("worker", url=our_url) as worker,
        BenchProcess("bare", url=bare_url, batch=100, pickups=count) as bare,
        connect(our_url) as our_db,
        connect(bare_url) as bare_db,
    ):
        worker.receive()
        bare.receive()
        our_times, bare_times = _enqueue_now_and_then([(our_db, PICKUP), (bare_db, KIND)], count)
        until(lambda: ask(our_db, _COMPLETED, PICKUP) == count, "the last pickup", within=60)
        worker.send()
        return (
            _latencies(our_times, dict(worker.receive()["picked"])),
            _latencies(bare_times, dict(bare.receive(within=60)["picked"])),
        )


def _enqueue_now_and_then(queues: Sequence[tuple[Db, str]], count: int) -> list[list[Times]]:
    pauses = random.Random(1)  # noqa: S311 - the same pauses in each run
    times: list[list[Times]] = [[] for _ in queues]
    for number in range(count):
        for (db, kind), enqueued in zip(queues, times, strict=True):
            sleep(pauses.uniform(_LEAST_PAUSE, _MOST_PAUSE))
            called_at = monotonic()
            enqueue(db, kind, {"number": number})
            enqueued.append((called_at, monotonic()))
    return times


def _latencies(times: Sequence[Times], picked: Mapping[int, float]) -> Latencies:
    return Latencies(
        [(picked[number] - called_at) * 1000 for number, (called_at, _) in enumerate(times)],
        [(picked[number] - committed_at) * 1000 for number, (_, committed_at) in enumerate(times)],
    )

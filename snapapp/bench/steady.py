"""Measures a queue that stays nearly empty for a long time, while an idle transaction keeps vacuum from removing dead
rows."""

from statistics import median
from time import monotonic, sleep

from snapapp.bench.claims import pinning
from snapapp.bench.plan import KIND, Plan, Step
from snapapp.bench.processes import BenchProcess
from snapapp.bench.report import Measurement, Target, percentile
from snapapp.bench.server import IS_UNFINISHED, BenchServer, Db, ask, connect, until
from snapapp.jobs.adding import enqueue_many

_A_SECOND = 500
_TURN = 0.02  # seconds between two commits; the jobs of this time are added together
_PARTS = 10


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    step(f"{_A_SECOND} jobs a second for {plan.steady_for} beside an idle transaction")
    with server.database() as url, BenchProcess("worker", url=url) as worker:
        worker.receive()
        with connect(url) as db, pinning(url):
            _feed(db, plan.steady_for.total_seconds())
            until(lambda: not ask(db, IS_UNFINISHED, KIND), "the end of the last one", within=60)
            parts = _parts(db)
    first, last = parts[0], parts[-1]
    return [
        Measurement(
            name=f"steady.p{percent}",
            what=f"from enqueue to end at {_A_SECOND} jobs/s, last tenth of {plan.steady_for} beside an idle"
            f" transaction, p{percent}",
            unit="ms",
            ours=[percentile(last, percent)],
            beside=[percentile(first, percent)],
            beside_is="first tenth",
            target=Target("ratio", "at most", 2.0) if percent == 99 else None,
            more={"medians": [median(part) for part in parts], "p99": [percentile(part, 99) for part in parts]},
        )
        for percent in (50, 99)
    ]


def _feed(db: Db, seconds: float) -> None:
    """Adds as many jobs as are due by the clock, so that a late turn is made up for."""
    began = monotonic()
    added = 0
    while (passed := monotonic() - began) < seconds:
        due = int(passed * _A_SECOND) - added
        if due:
            enqueue_many(db, [{"kind": KIND}] * due)
            added += due
        sleep(_TURN)


def _parts(db: Db) -> list[list[float]]:
    """The milliseconds from enqueue to end of all jobs, in the order in which they came, in equal parts."""
    rows = db.execute(
        "SELECT extract(epoch FROM finished_at - created_at)::float8 * 1000, ntile(%s) OVER (ORDER BY id)"
        "  FROM snap_processing_job WHERE kind = %s",
        [_PARTS, KIND],
    ).fetchall()
    return [[took for took, part in rows if part == number] for number in range(1, _PARTS + 1)]

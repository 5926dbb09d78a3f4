"""Measures how many jobs a second are done: the worker, a bare loop (the limit) and other queues (the peers) each empty
the same queue, in processes of their own."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from snapapp.bench.plan import KIND, Plan, Step
from snapapp.bench.processes import BenchProcess
from snapapp.bench.report import Measurement, Target
from snapapp.bench.server import IS_UNFINISHED, BenchServer, ask, connect, fill, until

_DRAINED_WITHIN = 900.0
_ROOT = Path(__file__).parents[2]  # the source tree; only there are the adapters for the peers

# How many jobs have finished, and when the last one did, by the database's clock.
_OUR_END = "SELECT count(*), max(finished_at) FROM snap_processing_job WHERE kind = %(kind)s AND status = 'COMPLETED'"

_IS_DONE = "SELECT finished_at IS NOT NULL FROM snap_processing_job WHERE id = %s"

# The rates of the first fifth of the jobs, and of the next three fifths. The last fifth is left out, because the last
# batches are small.
_EARLY = """
    SELECT count(*) FILTER (WHERE place <= 0.2)
               / extract(epoch FROM max(finished_at) FILTER (WHERE place <= 0.2) - %(began)s),
           count(*) FILTER (WHERE place > 0.2 AND place <= 0.8)
               / extract(epoch FROM max(finished_at) FILTER (WHERE place <= 0.8)
                                  - max(finished_at) FILTER (WHERE place <= 0.2))
      FROM (SELECT finished_at, cume_dist() OVER (ORDER BY finished_at, id) AS place
              FROM snap_processing_job WHERE kind = %(kind)s) AS job
"""


@dataclass(frozen=True, slots=True)
class Drainer:
    """One that drains the queue. The query `end` counts the jobs that it finished, and says when the last one was."""

    title: str
    role: str
    options: dict[str, Any] = field(default_factory=dict)  # sent to its processes
    end: str = _OUR_END
    kind: str = KIND
    is_peer: bool = False
    ends_by_itself: bool = True  # False for snapapp's worker, which waits for more jobs


def worker(batch: int) -> Drainer:
    return Drainer("ours", "worker", {"batch": batch}, ends_by_itself=False)


def plain_sql(batch: int) -> Drainer:
    return Drainer("plain SQL", "bare", {"batch": batch})


PEERS = {
    "pgqueuer": Drainer(
        "PgQueuer",
        "tests.labs.peers.pgqueuer",
        {"batch": 500},
        "SELECT count(*), max(created) FROM pgqueuer_log WHERE status = 'successful' AND entrypoint = %(kind)s",
        is_peer=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Drained:
    jobs: int
    took: timedelta
    early: float | None  # jobs/s in the first fifth, as a share of the rate after it; None for a peer
    client_cpu: float  # seconds, all processes together
    server_cpu: float | None

    @property
    def rate(self) -> float:
        return self.jobs / self.took.total_seconds()

    @property
    def client_us(self) -> float:
        return self.client_cpu / self.jobs * 1e6

    @property
    def server_us(self) -> float | None:
        return None if self.server_cpu is None else self.server_cpu / self.jobs * 1e6


Pair = tuple[list[Drained], list[Drained]]  # ours and theirs, run by run


def drain(server: BenchServer, who: Drainer, jobs: int, processes: int) -> Drained:
    """One run. All processes are connected and warmed up before the clock starts."""
    with server.database(migrated=not who.is_peer) as url, ExitStack() as stack:
        _prepare(url, who, jobs)
        server.vacuum(url)
        clients = [
            stack.enter_context(BenchProcess(who.role, url=url, task="drain", **who.options)) for _ in range(processes)
        ]
        for client in clients:
            client.receive()
        server.checkpoint()  # what the warm-up wrote
        cpu_before = server.cpu()
        with connect(url) as db:
            started_at = ask(db, "SELECT clock_timestamp()")
            _release(db, who, clients)
            if not who.ends_by_itself:
                _wait_for_the_last(db, who.kind)
                for client in clients:
                    client.send()
            after = [client.receive() for client in clients]
            cpu_after = server.cpu()
            ended = db.execute(who.end.encode(), {"kind": who.kind}).fetchone()
            assert ended
            early = None if who.is_peer else _early(db, who.kind, started_at)
        if ended[0] != jobs:
            raise RuntimeError(f"{who.title} finished {ended[0]} of {jobs} jobs")
        return Drained(
            jobs,
            ended[1] - started_at,
            early,
            sum(one["cpu"] for one in after),
            None if cpu_before is None or cpu_after is None else cpu_after - cpu_before,
        )


def _prepare(url: str, who: Drainer, jobs: int) -> None:
    if who.is_peer:
        with BenchProcess(who.role, url=url, task="prepare", jobs=jobs, **who.options) as client:
            client.receive()
        return
    with connect(url) as db:
        db.execute("SELECT pause_queue('default', 'the bench is not ready')")
        fill(db, jobs, kind=who.kind)


def _release(db: Any, who: Drainer, clients: Sequence[BenchProcess]) -> None:
    if not who.is_peer:
        db.execute("SELECT resume_queue('default')")
    if who.ends_by_itself:
        for client in clients:
            client.send()


def _early(db: Any, kind: str, began: datetime) -> float | None:
    first, steady = db.execute(_EARLY, {"kind": kind, "began": began}).fetchone()
    return float(first / steady) if first and steady else None


def _wait_for_the_last(db: Any, kind: str) -> None:
    """Waits for the end. It looks at the newest row, which costs little, and at all rows only when that one is done."""
    newest = ask(db, "SELECT max(id) FROM snap_processing_job WHERE kind = %s", kind)

    def is_drained() -> bool:
        return ask(db, _IS_DONE, newest) and not ask(db, IS_UNFINISHED, kind)

    until(is_drained, "the end of the drain", within=_DRAINED_WITHIN)


# --- the scenarios ----------------------------------------------------------------------------------------------


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    """Compares the worker with the limit: bare loops that send exactly the same statements."""
    lines = []
    for processes in plan.processes:
        for batch in plan.batches:
            pair = _alternate(server, plan, step, worker(batch), plain_sql(batch), processes)
            name, what = f"drain.{processes}x{batch}", f"drain, {_workers(processes)}, batch {batch}"
            target = Target("ratio", "at least", 0.6) if processes == 1 else None
            lines += _lines(name, what, pair, "plain SQL", target)
            # a new worker has yet to learn how quick its jobs are, which should not slow it
            first = "  rate of the first fifth, beside that of what follows"
            lines.append(
                _line(f"{name}.early", first, "ratio", "early", pair, "plain SQL", Target("ours", "at least", 0.8))
            )
    return lines


def measure_peers(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    """Compares the worker with other queues in Python, on the same server, in turns."""
    lines = []
    for name in plan.versus:
        peer = PEERS[name]
        for processes in plan.processes:
            ours, theirs = _alternate(server, plan, step, worker(500), peer, processes)
            what = f"drain of {plan.jobs:,}, {_workers(processes)}, versus {peer.title}"
            target = Target("ratio", "at least", 2.0) if processes == 1 else None
            lines += _lines(f"versus.{name}.{processes}", what, (ours, theirs), peer.title, target)
    return lines


def missing_peers(plan: Plan) -> list[str]:
    """A sentence for each chosen peer that cannot be measured, with the reason."""
    sentences = []
    for name in plan.versus:
        adapter = Path(*PEERS[name].role.split(".")).with_suffix(".py")
        if not (_ROOT / adapter).is_file():
            sentences.append(f"{name} is measured from the source tree only: {adapter} is not in the installed package")
        elif find_spec(name) is None:
            sentences.append(f"{name} is not installed; type: make peers")
    return sentences


def _alternate(server: BenchServer, plan: Plan, step: Step, us: Drainer, them: Drainer, processes: int) -> Pair:
    """Measures two drainers in turns, and swaps their order at every run, so that changes of the machine's speed
    affect both."""
    results: dict[str, list[Drained]] = {us.title: [], them.title: []}
    for run in range(plan.runs):
        for who in (us, them) if run % 2 else (them, us):
            batch = who.options.get("batch", "")
            step(f"drain {plan.jobs:,}: {who.title}, {_workers(processes)}, {batch}, run {run + 1}")
            results[who.title].append(drain(server, who, plan.jobs, processes))
    return results[us.title], results[them.title]


def _lines(name: str, what: str, pair: Pair, beside_is: str, target: Target | None) -> list[Measurement]:
    lines = [
        _line(name, what, "jobs/s", "rate", pair, beside_is, target),
        _line(f"{name}.client_cpu", "  CPU of its processes", "µs/job", "client_us", pair, beside_is),
        _line(f"{name}.server_cpu", "  CPU of PostgreSQL", "µs/job", "server_us", pair, beside_is),
    ]
    return [line for line in lines if line.ours]


def _line(
    name: str, what: str, unit: str, measured: str, pair: Pair, beside_is: str, target: Target | None = None
) -> Measurement:
    """The line of one attribute of Drained; where that is None, it could not be measured."""
    ours, beside = ([value for one in runs if (value := getattr(one, measured)) is not None] for runs in pair)
    return Measurement(name=name, what=what, unit=unit, ours=ours, beside=beside, beside_is=beside_is, target=target)


def _workers(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"

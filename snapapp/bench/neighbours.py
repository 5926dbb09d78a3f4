"""Measures whether a job that misbehaves stalls others: how long many small jobs take alone, and beside such a job."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from statistics import median
from time import sleep

from snapapp.bench.plan import KIND, Plan, Step
from snapapp.bench.processes import BenchProcess
from snapapp.bench.report import Measurement, Target
from snapapp.bench.roles.neighbours import ENDS, ENDS_AFTER, ENDS_AT_ONCE, HANGS, HOOK, TALKS
from snapapp.bench.server import BenchServer, Db, ask, connect, fill, until
from snapapp.jobs.adding import enqueue, enqueue_many

_ENDED_WITHIN = 300.0
# Both ask about the newest crowd: all jobs of this kind from its first id on.
_LEFT = "SELECT EXISTS (SELECT FROM snap_processing_job WHERE kind = %s AND id >= %s AND finished_at IS NULL)"
_TOOK = """SELECT extract(epoch FROM max(finished_at) - min(created_at)) FROM snap_processing_job
            WHERE kind = %s AND id >= %s"""
_RUNS = "SELECT status = 'RUNNING' FROM snap_processing_job WHERE id = %s"
_REFUSED = 10
_AT_MOST, _AND = 2.0, 1.0  # the target: at most twice their time alone, plus a second


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job or rows that disturb others. They do so from entering `beside` to leaving it."""

    name: str
    what: str
    beside: Callable[[Db, str, Plan], AbstractContextManager[None]]


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    lines = []
    for neighbour in NEIGHBOURS:
        alone, beside = [], []
        for run in range(plan.runs):
            step(f"{plan.crowd:,} jobs beside {neighbour.what}, run {run + 1}")
            with server.database() as url, connect(url) as db, BenchProcess("worker", url=url) as worker:
                worker.receive()
                _crowd(db, plan)  # not measured: a new worker has yet to learn how long a job takes
                alone.append(_crowd(db, plan))
                with neighbour.beside(db, url, plan):
                    beside.append(_crowd(db, plan))
        lines.append(
            Measurement(
                name=f"neighbours.{neighbour.name}",
                what=f"{plan.crowd:,} jobs beside {neighbour.what}",
                unit="s",
                ours=beside,
                beside=alone,
                beside_is="alone",
                target=Target("ours", "at most", round(_AT_MOST * median(alone) + _AND, 2)),
            )
        )
    return lines


def _crowd(db: Db, plan: Plan) -> float:
    """Adds the small jobs. Returns the seconds from their commit to the end of the last one, by the database's
    clock."""
    ids = [job for job in enqueue_many(db, [{"kind": KIND}] * plan.crowd) if job]
    until(lambda: not ask(db, _LEFT, KIND, ids[0]), "the end of the crowd", within=_ENDED_WITHIN)
    return float(ask(db, _TOOK, KIND, ids[0]))


def _run(db: Db, kind: str) -> int:
    """Enqueues a job of this kind, and waits until it runs."""
    job = enqueue(db, kind)
    assert job
    until(lambda: ask(db, _RUNS, job), f"the start of {kind}", within=30)
    return job


# --- the neighbours ---------------------------------------------------------------------------------------------


def _running(kind: str) -> Callable[[Db, str, Plan], AbstractContextManager[None]]:
    @contextmanager
    def beside(db: Db, _url: str, _plan: Plan) -> Iterator[None]:
        _run(db, kind)
        yield

    return beside


@contextmanager
def _locked_row(db: Db, url: str, _plan: Plan) -> Iterator[None]:
    """A job that has ended while another transaction locks its row, so that it cannot be settled."""
    with connect(url) as other, other.transaction():
        job = _run(db, ENDS)
        other.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [job])
        sleep(2 * ENDS_AFTER)  # the job's processor ends in this time, which no row shows
        yield


@contextmanager
def _refused_end(db: Db, _url: str, _plan: Plan) -> Iterator[None]:
    """Jobs whose end PostgreSQL refuses to write. They are added just before the crowd, so they are settled
    together."""
    _refuse(db, "snap_processing_job", f"NEW.kind = '{ENDS_AT_ONCE}' AND NEW.finished_at IS NOT NULL")
    enqueue_many(db, [{"kind": ENDS_AT_ONCE}] * _REFUSED)
    yield


@contextmanager
def _refused_lines(db: Db, _url: str, _plan: Plan) -> Iterator[None]:
    _refuse(db, "job_log", "true")
    _run(db, TALKS)
    yield


def _refuse(db: Db, table: str, when: str) -> None:
    db.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not this''; END'")
    db.execute(
        f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW WHEN ({when})"
        " EXECUTE FUNCTION refuse()".encode()
    )


@contextmanager
def _limited_key(db: Db, _url: str, plan: Plan) -> Iterator[None]:
    """A deep queue of one key, of which only one job runs at a time, older than the crowd."""
    db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('key:lane-0', 1)")
    fill(db, plan.deep, kind=HANGS, lanes=1)
    db.execute("ANALYZE")
    yield


@contextmanager
def _idle_queue(db: Db, _url: str, plan: Plan) -> Iterator[None]:
    """A deep queue of a kind that no worker knows."""
    fill(db, plan.deep, kind="bench.a-kind-that-nobody-knows", priority=10)
    db.execute("ANALYZE")
    yield


NEIGHBOURS = (
    Neighbour("hang", "a thread that hangs", _running(HANGS)),
    Neighbour("hook", "a hook that takes for ever", _running(HOOK)),
    Neighbour("locked", "a finished job whose row is locked", _locked_row),
    Neighbour("refused", f"{_REFUSED} ends that PostgreSQL refuses", _refused_end),
    Neighbour("lines", "log lines that PostgreSQL refuses", _refused_lines),
    Neighbour("key", "a key with a deep queue and a limit of one", _limited_key),
    Neighbour("unknown", "a deep queue that nobody works", _idle_queue),
)

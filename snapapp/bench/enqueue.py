"""Measures how many jobs a second can be enqueued, one by one and in bulk, beside plain INSERTs of the same rows into
the same table; and one by one beside other queues."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter

import sqlalchemy

from snapapp.bench.drain import PEERS
from snapapp.bench.plan import KIND, Plan, Step
from snapapp.bench.processes import BenchProcess
from snapapp.bench.report import Measurement, Target
from snapapp.bench.server import BenchServer, Db, connect
from snapapp.jobs.adding import enqueue, enqueue_many
from snapapp.jobs.rows.database import sqlalchemy_url

Numbers = Sequence[int]
Way = Callable[[Numbers], None]

_SLICE = 50  # jobs that are enqueued one by one before the next way's turn
_BULK = 1_000

_ONE = "INSERT INTO snap_processing_job (kind, payload) VALUES (%s, %s::jsonb) RETURNING id"
# With one jsonb parameter: only COPY is quicker.
_MANY = (
    "INSERT INTO snap_processing_job (kind, payload)"
    " SELECT kind, payload FROM jsonb_to_recordset(%s::jsonb) AS job (kind text, payload jsonb) RETURNING id"
)


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    rates: dict[str, list[float]] = {}
    for run in range(plan.runs):
        step(f"enqueue {plan.singles:,} one by one and {plan.jobs:,} in bulk, run {run + 1}")
        with server.database() as url, connect(url) as db, _over_sqlalchemy(url) as engine:
            singly = {"sqlalchemy": _singly_over(engine), "psycopg": _singly_over(db), "one by hand": _by_hand(db)}
            bulk = {"many": _in_bulk(db), "many by hand": _in_bulk_by_hand(db)}
            for way, rate in [*_in_turns(singly, plan.singles, _SLICE), *_in_turns(bulk, plan.jobs, _BULK)]:
                rates.setdefault(way, []).append(rate)
    lines = [
        ("sqlalchemy", "enqueue, a commit each, SQLAlchemy", "one by hand"),
        ("psycopg", "enqueue, a commit each, psycopg", "one by hand"),
        ("many", f"enqueue_many, {_BULK:,} a commit", "many by hand"),
    ]
    return [
        Measurement(
            name=f"enqueue.{way}",
            what=what,
            unit="jobs/s",
            ours=rates[way],
            beside=rates[by_hand],
            beside_is="plain INSERT",
        )
        for way, what, by_hand in lines
    ]


def measure_peers(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    return [_measure_peer(server, plan, step, name) for name in plan.versus]


def _measure_peer(server: BenchServer, plan: Plan, step: Step, name: str) -> Measurement:
    peer, ours, theirs = PEERS[name], "ours", "theirs"
    rates: dict[str, list[float]] = {ours: [], theirs: []}
    for run in range(plan.runs):
        step(f"enqueue {plan.singles:,} one by one, and with {peer.title}, run {run + 1}")
        with (
            server.database() as url,
            server.database(migrated=False) as peer_url,
            connect(url) as db,
            BenchProcess(peer.role, url=peer_url, task="enqueue") as process,
        ):
            process.receive()
            ways = {ours: _singly_over(db), theirs: _in_process(process)}
            for way, rate in _in_turns(ways, plan.singles, _SLICE):
                rates[way].append(rate)
    return Measurement(
        name=f"versus.{name}.enqueue",
        what=f"enqueue, a commit each, versus {peer.title}",
        unit="jobs/s",
        ours=rates[ours],
        beside=rates[theirs],
        beside_is=peer.title,
        target=Target("ratio", "at least", 1.0),
    )


def _in_turns(ways: Mapping[str, Way], count: int, slice_of: int) -> Iterator[tuple[str, float]]:
    """Measures all ways into one table, a slice each in turn, so that changes of the disk's speed affect all of
    them."""
    spent = dict.fromkeys(ways, 0.0)
    for way in ways.values():
        way(range(slice_of))  # not measured: statements are prepared here
    for start in range(0, count, slice_of):
        numbers = range(start, min(start + slice_of, count))
        for name, way in ways.items():
            began = perf_counter()
            way(numbers)
            spent[name] += perf_counter() - began
    return ((name, count / seconds) for name, seconds in spent.items())


def _singly_over(db: Db | sqlalchemy.Connection) -> Way:
    def insert(numbers: Numbers) -> None:
        for number in numbers:
            enqueue(db, KIND, {"number": number})

    return insert


def _in_process(process: BenchProcess) -> Way:
    def insert(numbers: Numbers) -> None:
        process.send(jobs=len(numbers))
        process.receive()

    return insert


def _by_hand(db: Db) -> Way:
    def insert(numbers: Numbers) -> None:
        for number in numbers:
            db.execute(_ONE, [KIND, f'{{"number": {number}}}']).fetchone()

    return insert


def _in_bulk(db: Db) -> Way:
    def insert(numbers: Numbers) -> None:
        with db.transaction():
            enqueue_many(db, ({"kind": KIND, "payload": {"number": number}} for number in numbers))

    return insert


def _in_bulk_by_hand(db: Db) -> Way:
    def insert(numbers: Numbers) -> None:
        rows = [{"kind": KIND, "payload": {"number": number}} for number in numbers]
        db.execute(_MANY, [json.dumps(rows)]).fetchall()

    return insert


@contextmanager
def _over_sqlalchemy(url: str) -> Iterator[sqlalchemy.Connection]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        yield connection

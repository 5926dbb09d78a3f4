"""What holds for all the statements of rows/, on a database that nobody has ever analysed: no hot one reads a whole
table, not even one that was planned, and kept, while the table was empty."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest

from snapapp.jobs import enqueue as public
from snapapp.jobs import enqueue_many as public_many
from snapapp.jobs.model import Buried, Finished, Job, Retried, Snoozed, Succeeded
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import claim as claim_rows
from snapapp.jobs.rows import leases, lifecycle, limits, notes, retention, roster, settle
from snapapp.jobs.rows.claim import Bookmark, Head, Look
from snapapp.jobs.rows.database import Db as AnyDb
from snapapp.jobs.rows.database import connect, run
from snapapp.jobs.rows.roster import Member, Report
from tests.factory import (
    MINUTE,
    OOPS,
    SECOND,
    Db,
    ago,
    beat,
    bury,
    claimed,
    complete,
    enqueue,
    hand_back,
    make_job,
    retry,
    running_job,
    scalar,
    snooze,
)
from tests.jobs.working import quick_settings

pytestmark = pytest.mark.both_servers_at_length

HEAD = Head("default", "test", 0)
MANY = 20_000
GROWING = ("snap_processing_job", "job_parent", "job_log", "job_cost")

Theirs = psycopg.Connection[tuple[object, ...]]  # an application's, with settings of its own
Read = Counter[tuple[str, str]]  # what was done, which table was read -> rows


def rows_so_far(db: AnyDb | Theirs, column: str = "seq_tup_read") -> Counter[str]:
    """Since the server last took over the session's numbers, which it does between transactions."""
    told = f"SELECT relname, {column} FROM pg_stat_xact_user_tables WHERE relname = ANY (%(tables)s)"
    rows = (
        db.execute(told, {"tables": list(GROWING)}, prepare=False).fetchall()
        if isinstance(db, psycopg.Connection)
        else run(db, told, {"tables": list(GROWING)})
    )
    return Counter({str(table): int(str(count)) for table, count in rows})


class Life:
    """Everything that a worker, or who enqueues, does again and again, on connections that stay."""

    def __init__(self, worker: Db, theirs: Theirs, runtime: Runtime) -> None:
        self.worker, self.theirs, self.runtime = worker, theirs, runtime
        self.read: Read = Counter()

    @contextmanager
    def reading(self, what: str, db: Db | Theirs) -> Iterator[None]:
        with db.transaction(), self.counted(what, db):
            yield

    @contextmanager
    def counted(self, what: str, db: AnyDb | Theirs) -> Iterator[None]:
        before = rows_so_far(db)
        yield
        for table, rows in (rows_so_far(db) - before).items():
            self.read[what, table] += rows

    def go(self) -> None:
        self.enqueue()
        for end in (self.complete, self.settle_with_a_hook, self.retry, self.bury, self.snooze, self.hand_back):
            end(self.claim())
        self.follow(self.claim())
        self.lose()
        self.look_around()

    def enqueue(self) -> None:
        for what, db in (("worker", self.worker), ("application", self.theirs)):
            with self.reading(f"enqueue, {what}", db):
                public(db, "test", {"n": 1})
                public_many(db, [{"kind": "test", "payload": {"n": n}} for n in range(20)])
            for scope in ("waiting", "live", "ever"):
                for on_conflict in ("existing", "ignore", "replace"):
                    with self.reading(f"enqueue {scope} {on_conflict}, {what}", db):
                        public(db, "keyed", unique_key="k", unique_scope=scope, on_conflict=on_conflict)

    def claim(self) -> list[Job]:
        with self.reading("claim", self.worker):
            before = rows_so_far(self.worker, "idx_tup_fetch")
            jobs = claimed(self.worker, 3).jobs
            fetched = rows_so_far(self.worker, "idx_tup_fetch") - before
        self.read["claim, by its index", "snap_processing_job"] += fetched["snap_processing_job"]
        return jobs

    def complete(self, jobs: list[Job]) -> None:
        with self.reading("beat", self.worker):
            beat(self.worker, *[job.lease for job in jobs], ran_for=0.1)
        with self.reading("notes", self.worker):
            notes.progress(self.worker, {job.lease: "1" for job in jobs})
            notes.log(self.worker, [notes.LogLine(job.lease, 1, "INFO", "hello", 0.0) for job in jobs])
        with self.reading("payload", self.worker):
            claim_rows.payload(self.worker, jobs[0].lease)
        with self.reading("complete", self.worker):
            assert len(complete(self.worker, *jobs)) == 3

    def settle_with_a_hook(self, jobs: list[Job]) -> None:
        for job in jobs:
            with self.runtime.transaction(job) as db, self.counted("settle with a hook", db):
                settle.settle(db, Finished(job, Succeeded(None), 0.1))

    def retry(self, jobs: list[Job]) -> None:
        with self.reading("retry", self.worker):
            settle.settle_batch(
                self.worker, [Finished(job, Retried(OOPS, MINUTE), 0.1) for job in jobs], interruptions_allowed=5
            )

    def bury(self, jobs: list[Job]) -> None:
        with self.reading("bury", self.worker):
            settle.settle_batch(
                self.worker, [Finished(job, Buried(OOPS), 0.1) for job in jobs], interruptions_allowed=5
            )

    def snooze(self, jobs: list[Job]) -> None:
        with self.reading("snooze", self.worker):
            settle.settle_batch(
                self.worker, [Finished(job, Snoozed(MINUTE), 0.1) for job in jobs], interruptions_allowed=5
            )

    def hand_back(self, jobs: list[Job]) -> None:
        with self.reading("hand back", self.worker):
            hand_back(self.worker, *jobs, allowed=5)

    def follow(self, jobs: list[Job]) -> None:
        """Children of these, which complete, fail and are retried; what a commit does for them is done before it."""
        first, second, third = jobs
        for what, db in (("worker", self.worker), ("application", self.theirs)):
            with self.reading(f"enqueue a child, {what}", db):
                public(db, "test", after=[job.id for job in jobs])
        with self.reading("complete a parent", self.worker):
            complete(self.worker, first, second)
            self.worker.execute("SET CONSTRAINTS ALL IMMEDIATE")
        with self.reading("bury a parent", self.worker):
            settle.settle(self.worker, Finished(third, Buried(OOPS), 0.1))
            self.worker.execute("SET CONSTRAINTS ALL IMMEDIATE")
        with self.reading("retry a parent", self.theirs):
            lifecycle.retry_by_person(self.theirs, third.id)
            self.theirs.execute("SET CONSTRAINTS ALL IMMEDIATE")
        with self.reading("what parents came to", self.worker):
            claim_rows.parents(self.worker, third.id)

    def lose(self) -> None:
        make_job(self.worker, "RUNNING", lock_expires_at=ago(seconds=1), kind="lost")
        with self.reading("recover", self.worker):
            leases.recover(self.worker)
        lost = running_job(self.worker, claimed_by="dead", kind="lost")
        with self.reading("release", self.worker):
            leases.release(self.worker, "dead", [lost.id])
        with self.reading("a person", self.worker):
            lifecycle.cancel(self.worker, lost.id)
            lifecycle.retry_by_person(self.worker, lost.id)

    def look_around(self) -> None:
        with self.reading("roster", self.worker):
            member = Member("me", "me", "box", "here", 1, 1, [], ["test"], 1)
            roster.beat(self.worker, member, Report(), lives_for=MINUTE)
        with self.reading("prune", self.worker):
            retention.prune(self.worker, keep=MINUTE, limit=10)


@pytest.fixture
def life(url: str, db: Db) -> Iterator[Callable[[], Read]]:
    for table in GROWING:
        db.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    runtime = Runtime(quick_settings(url), registry=Registry())
    with connect(url, name="worker") as worker, psycopg.connect(url, autocommit=True) as theirs:
        life = Life(worker, theirs, runtime)

        def read() -> Read:
            life.read.clear()
            life.go()
            return +life.read

        yield read
    runtime.close()


@pytest.mark.direct
def test_no_hot_statement_reads_a_table_that_has_grown_since_it_was_planned(db: Db, life: Callable[[], Read]) -> None:
    """R9: at 500 jobs a second every settle read 20,000 rows, until the first ANALYZE reached a new connection. And
    a claim finds what is first through an index that is in its order."""
    for _ in range(8):  # prepared, and planned for good
        life()
    db.execute(
        "INSERT INTO snap_processing_job (kind, payload)"
        f" SELECT 'test', jsonb_build_object('n', n) FROM generate_series(1, {MANY}) AS n"
    )
    db.execute(f"INSERT INTO job_parent SELECT 20000000 + n, 10000000 + n, true FROM generate_series(1, {MANY}) AS n")
    db.execute(f"INSERT INTO job_log (job_id, attempt, message) SELECT n, 1, 'x' FROM generate_series(1, {MANY}) AS n")
    assert scalar(db, "SELECT reltuples FROM pg_class WHERE relname = 'snap_processing_job'") == -1
    assert {what: rows for what, rows in life().items() if rows > MANY / 10} == {}


@pytest.fixture
def deep(db: Db) -> Db:
    """100,000 ready jobs and nobody who has counted them: the planner must do well without statistics."""
    db.execute("ALTER TABLE snap_processing_job SET (autovacuum_enabled = off)")
    db.execute(
        "INSERT INTO snap_processing_job (kind, unique_key, unique_scope)"
        " SELECT 'test', n::text, (ARRAY['waiting', 'live', 'ever'])[n % 3 + 1] FROM generate_series(1, 100000) AS n"
    )
    db.execute(
        "UPDATE snap_processing_job SET status = 'COMPLETED', created_at = '2020-02-02', finished_at = '2020-02-02'"
        " WHERE id <= 1000"
    )
    db.execute("INSERT INTO job_log (job_id, attempt, message) SELECT id, 1, 'line' FROM snap_processing_job")
    return db


def test_no_statement_reads_the_whole_table(deep: Db) -> None:
    """Promise 8, FC3: with generic plans and without ANALYZE."""
    held: list[Job] = []
    steps: dict[str, Callable[[], object]] = {
        "claim": lambda: held.extend(claimed(deep, look=Look(has_rules=False)).jobs),
        "claim under rules": lambda: held.extend(claimed(deep).jobs),
        "claim from a bookmark": lambda: claimed(deep, look=Look(bookmarks={HEAD: Bookmark(ago(hours=1), 0)})),
        "claim of a suspect": lambda: claimed(deep, look=Look(takes_suspect=True)),
        "relabel": lambda: limits.relabel(deep),
        "beat": lambda: beat(deep, *(one.lease for one in held), ran_for=1.0),
        "lost": lambda: leases.lost(deep, [one.lease for one in held]),
        "progress": lambda: notes.progress(deep, {one.lease: "1" for one in held}),
        "log": lambda: notes.log(deep, [notes.LogLine(one.lease, 1, "INFO", "line", 0.0) for one in held]),
        "complete": lambda: complete(deep, *[held.pop() for _ in range(50)]),
        "retry": lambda: retry(deep, held.pop(), OOPS, SECOND, 0.1),
        "bury": lambda: bury(deep, held.pop(), Buried(OOPS), 0.1),
        "snooze": lambda: snooze(deep, held.pop(), SECOND),
        "landed_already": lambda: settle.landed_already(deep, held[0].lease),
        "hand_back": lambda: hand_back(deep, *held),
        "recover": lambda: leases.recover(deep),
        "release": lambda: leases.release(deep, "worker", [1, 2]),
        "prune": lambda: retention.prune(deep, keep=timedelta(days=1)),
        "waiting": lambda: enqueue(deep, unique_key="99999", unique_scope="waiting"),
        "live": lambda: enqueue(deep, unique_key="99997", unique_scope="live"),
        "ever": lambda: enqueue(deep, unique_key="99998", unique_scope="ever"),
    }
    read = {name: rows_read(deep, step) for name, step in steps.items()}
    assert {name: rows for name, rows in read.items() if rows > 4000} == {}
    assert len(held) == 147


def rows_read(db: Db, step: Callable[[], object]) -> int:
    """From both tables, by index or not."""
    with db.transaction():
        before = rows_read_so_far(db)
        step()
        return rows_read_so_far(db) - before


def rows_read_so_far(db: Db) -> int:
    return int(scalar(db, "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables"))

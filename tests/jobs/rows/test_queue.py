"""What holds for all the statements of rows/; each has its tests in the file of its verb."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from snapapp.jobs.model import Buried, Job
from snapapp.jobs.rows import leases, limits, notes, retention, settle
from snapapp.jobs.rows.claim import Bookmark, Head, Look
from tests.factory import OOPS, SECOND, Db, ago, beat, bury, claimed, complete, enqueue, retry, scalar, snooze

pytestmark = pytest.mark.both_servers_at_length

HEAD = Head("default", "test", 0)


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
        "claim of a suspect": lambda: claimed(deep, look=Look(suspect="idle")),
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
        "hand_back": lambda: settle.hand_back(deep, [(one.lease, True) for one in held], interruptions_allowed=9),
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

"""How a lease is kept while its job runs, and what is written meanwhile."""

from datetime import timedelta
from typing import Any

import pytest
from psycopg.rows import namedtuple_row

from snapapp.jobs.rows import leases, lifecycle, notes
from tests.factory import MINUTE, OTHER, Db, ago, beat, claim, claimed, complete, enqueue_many, hence, row, running_job

pytestmark = pytest.mark.both_servers_at_length


def test_a_beat_extends_the_lease(db: Db) -> None:
    """W27, Q21, Q44, R16, S11."""
    held = running_job(db, locked_at=ago(seconds=50), lock_expires_at=hence(seconds=10))
    assert beat(db, held.lease) == (set(), set())
    now = row(db, held.id)
    assert now.locked_at > ago(seconds=5)
    assert now.lock_expires_at - now.locked_at >= MINUTE
    assert (now.status, now.lease_seq, now.started_at) == ("RUNNING", 1, None)


def test_a_beat_saves_a_lease_that_ended_but_was_not_recovered(db: Db) -> None:
    """Promise 7: the lease is compared, not the clock."""
    held = running_job(db, lock_expires_at=ago(minutes=5))
    assert beat(db, held.lease).lost == set()
    assert leases.recover(db) == []


def test_the_first_beat_of_a_running_job_writes_its_start(db: Db) -> None:
    """Q4, Q5, M25: beside it stands when it was last confirmed."""
    held = running_job(db)
    beat(db, held.lease, ran_for=20.0)
    started = row(db, held.id).started_at
    assert ago(seconds=25) < started < ago(seconds=19)
    confirmed = row(db, held.id).locked_at
    beat(db, held.lease, ran_for=1.0)
    assert row(db, held.id).started_at == started
    assert started < confirmed < row(db, held.id).locked_at


def test_no_index_holds_what_a_beat_changes_and_one_holds_what_runs(db: Db) -> None:
    """Q6, Q7."""
    found = db.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'snap_processing_job'").fetchall()
    changed = ("claimed_by", "locked_at", "lock_expires_at")
    assert [index for (index,) in found if any(column in index for column in changed)] == []
    assert any("status = 'RUNNING'" in index for (index,) in found)


def test_a_beat_tells_what_was_lost(db: Db) -> None:
    mine, recovered, gone = (running_job(db, lock_expires_at=ago(seconds=1)) for _ in range(3))
    beat(db, mine.lease)
    assert {*leases.recover(db, spread=timedelta(0))} == {recovered.id, gone.id}
    assert claim(db, by=OTHER) == [recovered.id, gone.id]
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [gone.id])
    assert beat(db, mine.lease, recovered.lease, gone.lease).lost == {recovered.id, gone.id}


def test_a_row_that_is_being_settled_is_neither_beaten_nor_lost(db: Db, other: Db) -> None:
    """One slow hook must not let fifty leases end."""
    settling, mine = (running_job(db, lock_expires_at=ago(seconds=1)) for _ in range(2))
    with other.transaction(force_rollback=True):
        complete(other, settling)
        assert beat(db, settling.lease, mine.lease) == (set(), set())
    assert row(db, mine.id).lock_expires_at > ago()
    assert row(db, settling.id).lock_expires_at < ago()


def test_a_beat_brings_the_wish_to_cancel(db: Db) -> None:
    """R37."""
    wished, other = running_job(db), running_job(db)
    assert lifecycle.cancel(db, wished.id) == "RUNNING"
    assert beat(db, wished.lease, other.lease) == ({wished.id}, set())


def test_a_beat_of_nothing_is_nothing(db: Db) -> None:
    assert beat(db) == (set(), set())


def test_progress_and_lines_are_kept_in_order_and_with_their_attempt(db: Db) -> None:
    """W16, W17, W21."""
    first, second = running_job(db, attempt_count=2), running_job(db)
    notes.progress(db, {first.lease: '{"percent":40}', second.lease: '"half"'})
    said = [(first, "one", 60.0), (second, "two", 30.0), (first, "three", 0.0)]
    notes.log(db, [notes.LogLine(held.lease, held.attempt, "INFO", message, age) for held, message, age in said])
    assert [row(db, held.id).progress for held in (first, second)] == [{"percent": 40}, "half"]
    lines = db.execute("SELECT job_id, attempt, level, message FROM job_log ORDER BY id").fetchall()
    assert lines == [(first.id, 2, "INFO", "one"), (second.id, 1, "INFO", "two"), (first.id, 2, "INFO", "three")]
    ages = db.execute("SELECT extract(epoch FROM now() - at)::float8 FROM job_log ORDER BY id").fetchall()
    assert [age for (age,) in ages] == pytest.approx([60, 30, 0], abs=5)


def test_the_beats_of_a_long_job_are_hot(db: Db) -> None:
    """FC2: an update that touches no index is cheap. After a dense claim the first ones find their pages full, then
    all are HOT; with locked_at in one index none would be."""
    enqueue_many(db, *[{}] * 400)
    held = [one.lease for one in claimed(db, 400).jobs]
    updated = hot = 0
    for _ in range(20):
        with db.transaction():
            before = counted(db)
            assert beat(db, *held, ran_for=1.0).lost == set()
            after = counted(db)
        updated, hot = updated + after.n_tup_upd - before.n_tup_upd, hot + after.n_tup_hot_upd - before.n_tup_hot_upd
    assert updated == 20 * 400
    assert hot / updated >= 0.95


def counted(db: Db) -> Any:
    """What this session did to the table so far; only the difference within one transaction means something."""
    with db.cursor(row_factory=namedtuple_row) as cursor:
        cursor.execute("SELECT * FROM pg_stat_xact_user_tables WHERE relname = 'snap_processing_job'")
        return cursor.fetchone()

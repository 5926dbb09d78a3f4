"""What the doctor finds in tables and indexes, and what it does about it."""

from contextlib import closing

import psycopg
import pytest

from snapapp.jobs import doctor
from snapapp.jobs.doctor import Limits, Severity
from snapapp.jobs.doctor.tables import Table, judged
from tests.factory import Db, enqueue, make_job, make_jobs
from tests.jobs.doctor.examining import BY, examine, facts, ids, the, until_found


def fill(url: str, rows: int) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as db:
        lines = "INSERT INTO job_log (job_id, attempt, message) SELECT i, 1, 'x' FROM generate_series(1, %s) AS i"
        db.execute(lines, [rows])


def empty(url: str) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as db:
        db.execute("DELETE FROM job_log")


@pytest.mark.both_servers_at_length
def test_dead_tuples_are_counted_and_swept(url: str, db: Db) -> None:
    """FC1: autovacuum is off, so that it does not get there first."""
    db.execute("ALTER TABLE job_log SET (autovacuum_enabled = false)")
    fill(url, 20_000)
    empty(url)
    dead = until_found(url, "tables", "DEAD_TUPLES")
    assert dead.numbers["deadTuples"] == 20_000
    assert "no autovacuum comes" in dead.saw
    findings = examine(url, "tables")
    assert (the(findings, "AUTOVACUUM_OFF").can_fix, dead.can_fix) == (False, True)
    deeds = doctor.mend(url, findings, facts(url), BY)
    assert "Swept and analyzed job_log." in [deed.said for deed in deeds]
    after = examine(url, "tables")
    assert "DEAD_TUPLES" not in ids(after)
    assert "AUTOVACUUM_OFF" in ids(after)


@pytest.mark.both_servers_at_length
def test_a_table_that_was_filled_and_never_analyzed_is_analyzed(url: str, db: Db) -> None:
    """FC3."""
    db.execute("ALTER TABLE job_log SET (autovacuum_enabled = false)")
    fill(url, 11_000)
    found = until_found(url, "tables", "NOT_ANALYZED")
    assert "job_log was analyzed never; 11,000 rows have changed since" in found.saw
    assert [deed.said for deed in doctor.mend(url, [found], facts(url), BY)] == ["Analyzed job_log."]
    assert "NOT_ANALYZED" not in ids(examine(url, "tables"))


def test_one_row_is_one_row() -> None:
    [calm] = judged(Table("job_log", 1, 1, 1, None, None, 8192, True, 50), Limits())
    [off] = judged(Table("job_log", 1, 1, 1, None, None, 8192, False, 50), Limits())
    assert calm.saw.startswith("job_log: 1 row, 1 dead (")
    assert off.saw == "job_log has autovacuum turned off, and 1 dead tuple."


def test_the_next_autovacuum_of_the_jobs_is_told(url: str, db: Db) -> None:
    """It is the table's own settings that count: 1,000 and 2 %, where the server has 50 and 20 %."""
    db.execute("INSERT INTO snap_processing_job (kind) SELECT 'test' FROM generate_series(1, 10000)")
    db.execute("ANALYZE snap_processing_job")
    [jobs, *_] = examine(url, "tables")
    assert (jobs.numbers["table"], jobs.numbers["autovacuumAt"]) == ("snap_processing_job", 1200)


def test_an_index_that_guards_nothing_is_critical(url: str, db: Db) -> None:
    """FC19."""
    make_job(db, unique_key="a", unique_scope="ever")
    make_job(db)
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute("CREATE UNIQUE INDEX CONCURRENTLY once ON snap_processing_job (kind)")
    found = the(examine(url, "indexes"), "INDEX_INVALID")
    assert (found.severity, found.paste) == (Severity.CRITICAL, "REINDEX INDEX CONCURRENTLY once;")
    broken = the(examine(url, "invariants"), "INVARIANT_BROKEN")
    assert "the unique index once is not valid" in broken.saw


def test_an_index_much_larger_than_its_entries_is_told(url: str, db: Db) -> None:
    """FC23."""
    fill(url, 5_000)
    empty(url)
    db.execute("VACUUM job_log")
    found = [each for each in examine(url, "indexes", limits=Limits(index_bytes=50_000)) if each.id == "INDEX_BLOAT"]
    assert [each.numbers["index"] for each in found] == ["job_log_pkey"]
    assert ids(examine(url, "indexes")) == ["INDEXES"]


def test_a_sequence_behind_its_table_is_told_and_set(url: str, db: Db) -> None:
    """Logical replication copies no sequence, so that after a switch nobody can enqueue."""
    make_jobs(db, 3)
    assert ids(examine(url, "sequences")) == ["SEQUENCES"]
    db.execute("ALTER SEQUENCE snap_processing_job_id_seq RESTART")
    with pytest.raises(psycopg.errors.UniqueViolation):
        enqueue(db)
    behind = the(examine(url, "sequences"), "SEQUENCE_BEHIND")
    assert behind.severity is Severity.CRITICAL
    assert behind.paste
    db.execute(behind.paste.encode())
    assert ids(examine(url, "sequences")) == ["SEQUENCES"]
    assert enqueue(db)

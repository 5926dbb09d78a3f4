"""A worker forgets what is old as fast as it comes."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest

from snapapp.jobs.events import Events
from snapapp.jobs.rows import retention
from snapapp.jobs.rows.database import Database, connect
from snapapp.jobs.rows.roster import Counts, Member
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker.leases.recovery import Recovery
from tests.factory import Db, ago, lock_row, make_job, make_jobs, scalar, statuses

Prune = Callable[..., tuple[int, int | None]]


@pytest.fixture
def recovery(url: str) -> Iterator[Recovery]:
    member = Member("me", "me", "box", "here", 1, 1, [], [], 1)
    settings = JobsSettings(database_url=url, keep_finished=timedelta(days=1))
    recovery = Recovery(settings, member, Database(lambda: connect(url, name="recovery")), Counts(), Events())
    yield recovery
    recovery.close()


def of_size(monkeypatch: pytest.MonkeyPatch, size: int, after_each: Callable[[], object] = lambda: None) -> list[int]:
    """Pages so small that a few rows are a backlog; returns what each has deleted."""
    pages: list[int] = []

    prune: Prune = retention.prune_by_rules

    def page(db: Db, *, keep: timedelta, after: int, limit: int) -> tuple[int, int | None]:
        deleted, last = prune(db, keep=keep, after=after, limit=min(size, limit))
        pages.append(deleted)
        after_each()
        return deleted, last

    monkeypatch.setattr(retention, "prune_by_rules", page)
    return pages


def test_one_run_deletes_all_that_is_old_however_much(
    db: Db, recovery: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred pages a minute were 1,667 rows a second, and a worker ends twenty times as many."""
    make_jobs(db, 250, status="COMPLETED", created_at=ago(days=3), finished_at=ago(days=2))
    pages = of_size(monkeypatch, 2)
    assert recovery.prune() == 250
    assert max(pages) == 2


def test_a_job_whose_row_is_locked_is_deleted_by_a_later_run_and_keeps_no_other(
    db: Db, other: Db, recovery: Recovery
) -> None:
    locked, *_ = make_jobs(db, 3, status="COMPLETED", created_at=ago(days=3), finished_at=ago(days=2))
    with other.transaction():
        lock_row(other, locked)
        assert recovery.prune() == 2
        assert retention.prune(db, keep=timedelta(days=1))[0] == 0
    assert recovery.prune() == 1


def test_a_run_does_not_look_through_all_that_is_kept(
    db: Db, recovery: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one goes on where it stopped."""
    make_jobs(db, 150, status="PENDING", created_at=ago(days=3))
    make_jobs(db, 1, status="COMPLETED", created_at=ago(days=3), finished_at=ago(days=2))
    pages = of_size(monkeypatch, 1)
    assert recovery.prune() == 0
    assert len(pages) == 100
    assert recovery.prune() == 1


def test_a_worker_that_closes_prunes_no_further(db: Db, recovery: Recovery, monkeypatch: pytest.MonkeyPatch) -> None:
    make_jobs(db, 10, status="COMPLETED", created_at=ago(days=3), finished_at=ago(days=2))
    pages = of_size(monkeypatch, 1, after_each=recovery.close)
    recovery.prune()
    assert pages == [1]
    assert scalar(db, "SELECT count(*) FROM snap_processing_job") == 9


def over(db: Db, kind: str, status: str, days: float, **more: object) -> int:
    return make_job(db, status, kind=kind, created_at=ago(days=days), finished_at=ago(days=days), **more)


def test_a_kind_and_an_end_may_have_a_rule_of_their_own(db: Db, recovery: Recovery) -> None:
    """W45, W47, M61, Q51: the rule of a kind goes before that of every kind, and that before the setting (a day)."""
    db.execute(
        "INSERT INTO job_retention (kind, status, keep) VALUES"
        " ('', 'FAILED', '14 days'), ('mail', 'FAILED', '1 hour'),"
        " ('mail', 'COMPLETED', '0'), ('report', 'COMPLETED', NULL)"
    )
    kept = [
        over(db, "other", "FAILED", 13),
        over(db, "mail", "FAILED", 0.02),
        over(db, "report", "COMPLETED", 400),
        over(db, "other", "CANCELLED", 0.9),
        over(db, "mail", "COMPLETED", 9, unique_key="k", unique_scope="ever"),
        make_job(db, kind="mail", created_at=ago(days=9)),
    ]
    for kind, status, days in (
        ("other", "FAILED", 15),
        ("mail", "FAILED", 0.1),
        ("mail", "COMPLETED", 0.001),
        ("report", "FAILED", 15),
        ("other", "COMPLETED", 1.1),
        ("mail", "CANCELLED", 1.1),
    ):
        over(db, kind, status, days)
    assert recovery.prune() == 6
    assert sorted(statuses(db)) == sorted(kept)


def test_no_rule_reaches_back_to_where_postgresql_has_no_time(db: Db, recovery: Recovery) -> None:
    """There it would refuse each page with such a job in it, and keep all others of the page too."""
    rule = "INSERT INTO job_retention (status, keep) VALUES ('FAILED', %s)"
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(rule, ["9999999 days"])
    db.execute(rule, ["365000 days"])
    over(db, "a", "FAILED", 2)
    over(db, "a", "COMPLETED", 2)
    assert recovery.prune() == 1


def test_of_a_kind_so_many_stay_and_the_newest(db: Db, recovery: Recovery, monkeypatch: pytest.MonkeyPatch) -> None:
    """W47: a number as well as an age; more than a page of them."""
    db.execute(
        "INSERT INTO job_retention (kind, status, keep, newest) VALUES"
        " ('', 'COMPLETED', NULL, 3), ('mail', 'COMPLETED', NULL, 1), ('log', 'COMPLETED', NULL, NULL)"
    )
    page = retention.prune_page_of_surplus
    monkeypatch.setattr(retention, "prune_page_of_surplus", lambda db, seen, **more: page(db, seen, limit=4, **more))
    made = {kind: [over(db, kind, "COMPLETED", 0.1) for _ in range(7)] for kind in ("a", "mail", "b", "log")}
    failed = [over(db, "mail", "FAILED", 0.1) for _ in range(3)]
    for job_id in made["a"]:
        db.execute("INSERT INTO job_log (job_id, attempt, level, message) VALUES (%s, 1, 'INFO', '')", [job_id])
    assert recovery.prune() == 4 + 6 + 4
    assert sorted(statuses(db)) == sorted([*made["a"][4:], made["mail"][6], *made["b"][4:], *made["log"], *failed])
    assert scalar(db, "SELECT count(*) FROM job_log") == 3


def test_a_job_that_a_table_of_yours_points_at_does_not_keep_the_others(db: Db, recovery: Recovery) -> None:
    db.execute("INSERT INTO job_retention (kind, status, keep, newest) VALUES ('', 'COMPLETED', NULL, 1)")
    made = [over(db, "a", "COMPLETED", 0.1) for _ in range(5)]
    db.execute("CREATE TABLE invoice (job_id bigint REFERENCES snap_processing_job)")
    db.execute("INSERT INTO invoice VALUES (%s)", [made[2]])
    assert recovery.prune() == 3
    assert sorted(statuses(db)) == [made[2], made[4]]


def test_pruning_by_rules_reads_pages_not_the_table(db: Db, recovery: Recovery) -> None:
    db.execute("INSERT INTO job_retention VALUES ('a', 'COMPLETED', '0', 1), ('', 'FAILED', NULL, 5)")
    db.execute(
        "INSERT INTO snap_processing_job (kind, status, created_at, finished_at)"
        " SELECT 'a', 'COMPLETED', now() - interval '9 days', now() - interval '9 days' FROM generate_series(1, 5000)"
    )
    with db.transaction():
        db.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        assert retention.prune_by_rules(db, keep=timedelta(days=99))[0] == 1000
        retention.prune_page_of_surplus(db, Counter(), before=2**62, refused=lambda _id, _error: None)
        scans = "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'snap_processing_job'"
        assert scalar(db, scans) == 0

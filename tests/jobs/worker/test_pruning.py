"""A worker forgets what is old as fast as it comes."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from snapapp.jobs.events import Events
from snapapp.jobs.rows import retention
from snapapp.jobs.rows.database import Line, connect
from snapapp.jobs.rows.roster import Counts, Member
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker.recovery import Recovery
from tests.factory import Db, ago, make_jobs, scalar

Prune = Callable[..., tuple[int, int | None]]


@pytest.fixture
def recovery(url: str) -> Iterator[Recovery]:
    member = Member("me", "me", "box", "here", 1, 1, [], [], 1)
    settings = JobsSettings(database_url=url, keep_finished=timedelta(days=1))
    recovery = Recovery(settings, member, Line(lambda: connect(url, name="recovery")), Counts(), Events())
    yield recovery
    recovery.close()


def of_size(monkeypatch: pytest.MonkeyPatch, size: int, after_each: Callable[[], object] = lambda: None) -> list[int]:
    """Pages so small that a few rows are a backlog; returns what each has deleted."""
    pages: list[int] = []

    prune: Prune = retention.prune

    def page(db: Db, *, keep: timedelta, after: int, limit: int) -> tuple[int, int | None]:
        deleted, last = prune(db, keep=keep, after=after, limit=min(size, limit))
        pages.append(deleted)
        after_each()
        return deleted, last

    monkeypatch.setattr(retention, "prune", page)
    return pages


def test_one_run_deletes_all_that_is_old_however_much(
    db: Db, recovery: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred pages a minute were 1,667 rows a second, and a worker ends twenty times as many."""
    make_jobs(db, 250, status="COMPLETED", created_at=ago(days=3), finished_at=ago(days=2))
    pages = of_size(monkeypatch, 2)
    assert recovery.prune() == 250
    assert max(pages) == 2


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

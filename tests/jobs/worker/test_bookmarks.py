"""Where a claim begins to look: after the jobs that ran, whose index entries an old snapshot keeps. What comes to wait
before that place all the same is found soon."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from snapapp.jobs import events
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import claim
from snapapp.jobs.rows.claim import Head, Look
from snapapp.jobs.worker.claiming import bookmarks
from snapapp.jobs.worker.worker import Worker
from tests.factory import Db, ago, make_job, make_jobs, row
from tests.jobs.working import until, until_status, working

QUICK = Head("default", "quick", 0)


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    for kind in ("quick", "other"):
        registry.processor(kind)(lambda job: None)
    return registry


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Look]:
    """Those of all claims that follow."""
    seen: list[Look] = []
    as_ever = claim.claim

    def claim_and_tell(db: Any, by: Any, wanted: Any, look: Look) -> claim.Claimed:
        seen.append(look)
        return as_ever(db, by, wanted, look)

    monkeypatch.setattr(claim, "claim", claim_and_tell)
    return seen


@contextmanager
def at_work(url: str, db: Db, registry: Registry, **changes: Any) -> Iterator[Worker]:
    """A worker that has done some jobs of a kind, and marked the place."""
    with working(url, registry, **changes) as (worker, _):
        make_jobs(db, 20, kind="quick")
        until(lambda: worker.counts.completed == 20)
        make_job(db, kind="quick")
        until(lambda: worker.counts.completed == 21)
        yield worker


def test_where_that_is_cheap_a_claim_looks_everywhere_each_second(
    url: str, db: Db, registry: Registry, looks: list[Look], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookmarks, "_TAKES_LONG", 1000.0)
    with at_work(url, db, registry):
        until(lambda: any(look.bookmarks for look in looks))
        looks.clear()
        until(lambda: any(not look.bookmarks for look in looks))


@pytest.mark.parametrize("due", ["an hour ago", "-infinity"])
def test_where_it_is_dear_no_claim_looks_back_and_what_waits_there_is_found(
    url: str, db: Db, registry: Registry, looks: list[Look], monkeypatch: pytest.MonkeyPatch, due: str
) -> None:
    monkeypatch.setattr(bookmarks, "_TAKES_LONG", 0.0)
    looked_back = threading.Event()
    as_ever = claim.first_before

    def first_before(*its: Any) -> Any:
        looked_back.set()
        return as_ever(*its)

    monkeypatch.setattr(claim, "first_before", first_before)
    with at_work(url, db, registry) as worker:
        until(looked_back.is_set)  # before, claims may still find out what it costs them
        looks.clear()
        until(lambda: len(looks) > 10)
        make_job(db, kind="quick", next_retry_at=ago(hours=1) if due == "an hour ago" else due)
        until(lambda: worker.counts.completed == 22)
        until(lambda: QUICK in looks[-1].bookmarks and looks[-1].bookmarks[QUICK].due > ago(minutes=1))
        everywhere = [look for look in looks if QUICK not in look.bookmarks]
        assert len(everywhere) == (due == "-infinity")  # which no bookmark can stand before


def test_a_kind_that_does_nothing_any_more_keeps_its_bookmark_where_that_saves_something(
    url: str, db: Db, registry: Registry, looks: list[Look], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every claim for another kind would walk over all of its dead entries."""
    monkeypatch.setattr(bookmarks, "_TAKES_LONG", 1000.0)
    with at_work(url, db, registry) as worker:
        make_jobs(db, 20, kind="other")
        until(lambda: worker.counts.completed == 41)
        until(lambda: QUICK not in looks[-1].bookmarks)
        monkeypatch.setattr(bookmarks, "_TAKES_LONG", 0.0)
        until(lambda: QUICK in looks[-1].bookmarks)
        monkeypatch.setattr(bookmarks, "_TAKES_LONG", 1000.0)
        until(lambda: not looks[-1].bookmarks)


def test_of_many_heads_those_with_jobs_lately_are_kept(
    url: str, db: Db, registry: Registry, looks: list[Look], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookmarks, "_KEPT", 3)
    monkeypatch.setattr(bookmarks, "_TAKES_LONG", 0.0)
    with working(url, registry) as (worker, _):
        for done, priority in enumerate((1, 2, 1, 3, 1, 4), 1):
            make_job(db, kind="quick", priority=priority)
            until(lambda: worker.counts.completed == done)  # noqa: B023
        until(lambda: {head.priority for head in looks[-1].bookmarks} == {1, 3, 4})


def test_after_a_recovery_somebody_looks_back_at_once(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a dead worker had claimed and not begun keeps its place in the queue."""
    monkeypatch.setattr(bookmarks, "_TAKES_LONG", 0.0)
    monkeypatch.setattr(bookmarks, "_LOOK_BACK_EVERY", 600.0)
    with at_work(url, db, registry, poll_delay=timedelta(hours=1)) as worker:
        before = make_job(db, kind="quick", next_retry_at=ago(hours=1))
        after = make_job(db, kind="quick")
        until_status(db, after, "COMPLETED")
        assert row(db, before).status == "PENDING"
        monkeypatch.setattr(worker._recovery, "recover", lambda _silence: 1)
        worker.recover()
        until_status(db, before, "COMPLETED")


def test_an_idle_worker_asks_nothing_more(
    url: str, registry: Registry, looks: list[Look], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookmarks, "_TAKES_LONG", 0.0)
    monkeypatch.setattr(claim, "first_before", None)  # whoever calls it complains
    with working(url, registry) as (_, heard):
        until(lambda: len(looks) > 8)
        assert heard.all(events.WORKER_ERROR) == []


def test_without_the_database_the_next_look_back_comes_in_time(url: str, db: Db) -> None:
    marks = bookmarks.Bookmarks()
    marks._takes_long = True
    db.close()
    with pytest.raises(Exception, match="closed"):
        marks.look_back(db)
    assert marks._due_at < float("inf")
    assert marks._takes_long, "an error says nothing of what it costs"

"""Use cases: each is one transaction, on both sides of the wall."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import event

from snapapp.domain import marking, sharing, snaps, tenants, videos, webhooks
from snapapp.domain.transactions import Begin, TenantTransaction
from snapapp.errors import SnapHasNoJob
from snapapp.jobs.errors import IllegalTransition
from snapapp.postgres import database
from snapapp.processing.queue import QUEUE
from tests.domain.making import BODY, OWN, acting, an_upload, begun, make_snap, new_snap, process, subject
from tests.domain.test_races import until_somebody_waits
from tests.factory import Db, scalar

KINDS = "SELECT coalesce(array_agg(kind ORDER BY id), '{}') FROM snap_processing_job"


@pytest.fixture
def begin(engine: sqlalchemy.Engine) -> Begin:
    """As a request of the seeded tenant begins."""

    @contextmanager
    def begin() -> Iterator[TenantTransaction]:
        with begun(engine) as db:
            yield TenantTransaction(db, tenants.by_code(db, OWN))

    return begin


@pytest.fixture
def snap_id(begin: Begin) -> UUID:
    return marking.mark(begin, QUEUE, new_snap(), None, BODY)[0].id


USE_CASES: dict[str, Callable[[Begin, UUID], Any]] = {
    "mark": lambda begin, _: marking.mark(begin, QUEUE, new_snap(), "key", BODY),
    "read": marking.read,
    "correct": lambda begin, snap_id: marking.correct(begin, QUEUE, snap_id, "boi-7", None, by="Ana"),
    "share": lambda begin, snap_id: marking.share(begin, QUEUE, snap_id, None, "r-1"),
    "revoke": marking.revoke,
    "cancel": lambda begin, snap_id: marking.cancel(begin, QUEUE, snap_id, "Ana"),
    "remove": lambda begin, snap_id: marking.remove(begin, QUEUE, snap_id, "r-1"),
    "upload": lambda begin, _: videos.keep(begin, QUEUE, an_upload(), "r-1"),
}


@pytest.mark.parametrize("name", USE_CASES)
def test_a_use_case_is_one_transaction(engine: sqlalchemy.Engine, begin: Begin, snap_id: UUID, name: str) -> None:
    happened: list[str] = []
    event.listen(engine, "begin", lambda *_: happened.append("begin"))
    event.listen(engine, "commit", lambda *_: happened.append("commit"))
    event.listen(engine, "rollback", lambda *_: happened.append("rollback"))
    USE_CASES[name](begin, snap_id)
    assert happened == ["begin", "commit"]


class Refused(Exception):
    pass


def refuse(*_given: object, **_more: object) -> Any:
    raise Refused


@pytest.mark.parametrize(
    ("name", "ask"),
    {
        "enqueue": lambda begin, queue, _: marking.mark(begin, queue, new_snap(), "key", BODY),
        "give_up": lambda begin, queue, snap_id: marking.remove(begin, queue, snap_id, "r-1"),
        "cancel": lambda begin, queue, snap_id: marking.cancel(begin, queue, snap_id, "Ana"),
    }.items(),
)
def test_what_the_queue_refuses_never_was(
    engine: sqlalchemy.Engine, db: Db, begin: Begin, snap_id: UUID, name: str, ask: Callable[..., object]
) -> None:
    everything = "SELECT array_agg(snap::text ORDER BY id) FROM snap"
    before = scalar(db, everything)
    with pytest.raises(Refused):
        ask(begin, replace(QUEUE, **{name: refuse}), snap_id)
    assert scalar(db, everything) == before
    assert scalar(db, "SELECT count(*) FROM idempotency") == 0


def test_a_moment_is_marked_with_its_job(db: Db, begin: Begin) -> None:
    snap, was_there = marking.mark(begin, QUEUE, new_snap(request_id="r-1"), "key", BODY)
    assert (snap.job and snap.job.status, was_there) == ("PENDING", False)
    again, was_there = marking.mark(begin, QUEUE, new_snap(), "key", BODY)
    assert (again.id, was_there) == (snap.id, True)
    rows = db.execute("SELECT kind, tenant, snap_id, unique_key, concurrency_key, request_id FROM snap_processing_job")
    assert rows.fetchall() == [("snap.process", OWN, snap.id, str(snap.id), "host:example.org", "r-1")]


def test_what_is_left_out_of_a_correction_stays(begin: Begin) -> None:
    new = new_snap(subject=subject("boi-7", brinco="A1"), is_draft=True)
    snap, _ = marking.mark(begin, QUEUE, new, None, BODY)
    renamed = marking.correct(begin, QUEUE, snap.id, "boi-8", None, by="Ana")
    assert (renamed.subject, renamed.is_draft) == (subject("boi-8", brinco="A1"), False)
    described = marking.correct(begin, QUEUE, snap.id, None, subject(raca="Nelore").attributes, by="Ana")
    assert described.subject == subject("boi-8", raca="Nelore")


def test_a_snap_that_was_removed_is_worked_for_no_more(db: Db, begin: Begin, snap_id: UUID) -> None:
    assert marking.remove(begin, QUEUE, snap_id, "r-1") is snaps.Removal.DELETED
    assert scalar(db, "SELECT array_agg(status ORDER BY id) FROM snap_processing_job") == ["CANCELLED", "PENDING"]
    assert scalar(db, KINDS) == ["snap.process", "media.forget"]


def test_a_snap_that_is_only_hidden_is_worked_for_to_its_end(db: Db, begin: Begin, snap_id: UUID) -> None:
    marking.share(begin, QUEUE, snap_id, None, "r-1")
    assert marking.remove(begin, QUEUE, snap_id, "r-1") is snaps.Removal.HIDDEN
    assert scalar(db, "SELECT array_agg(status) FROM snap_processing_job") == ["PENDING"]


def test_what_is_cancelled_can_be_retried_and_what_has_ended_well_cannot_be_cancelled(
    db: Db, begin: Begin, snap_id: UUID
) -> None:
    assert marking.cancel(begin, QUEUE, snap_id, None).error == "Cancelled by Default"
    assert marking.retry(begin, QUEUE, snap_id).error is None
    db.execute("UPDATE snap_processing_job SET status = 'COMPLETED', finished_at = now()")
    with pytest.raises(IllegalTransition):
        marking.cancel(begin, QUEUE, snap_id, None)


def test_a_snap_whose_job_is_gone_says_so(db: Db, begin: Begin, snap_id: UUID) -> None:
    db.execute("DELETE FROM snap_processing_job")
    with pytest.raises(SnapHasNoJob, match=f"^Snap has no job any more: {snap_id}$"):
        marking.cancel(begin, QUEUE, snap_id, None)
    with pytest.raises(SnapHasNoJob):
        marking.retry(begin, QUEUE, snap_id)


def test_nobody_touches_the_job_of_anothers_snap(engine: sqlalchemy.Engine, db: Db, begin: Begin) -> None:
    with begun(engine) as session:
        tenants.add(session, "other", "Other")
    with acting(engine, "other") as session:
        theirs = make_snap(session, "other").id
    with begun(engine) as session:
        process(session, "other", theirs)
        assert QUEUE.lock(session, OWN, theirs) is None
        assert QUEUE.lock(session, "other", theirs)


@pytest.mark.parametrize("name", ["cancel", "remove", "correct"])
def test_the_job_is_locked_before_its_snap(db: Db, url: str, begin: Begin, snap_id: UUID, name: str) -> None:
    """As a worker that settles does: in the other order the two would wait for each other."""
    with psycopg.connect(url) as settling, ThreadPoolExecutor(1) as thread:
        settling.execute("SELECT FROM snap_processing_job FOR UPDATE")
        waiting = thread.submit(USE_CASES[name], begin, snap_id)
        until_somebody_waits(db)
        settling.execute("SELECT FROM snap FOR UPDATE NOWAIT")
        settling.commit()
        waiting.result(timeout=30)


def test_of_two_who_share_at_once_one_tells_of_it(
    engine: sqlalchemy.Engine, db: Db, begin: Begin, snap_id: UUID
) -> None:
    with acting(engine, OWN) as session:
        webhooks.add(session, OWN, "https://example.org/", ["snap.shared"])
    with database.session(engine) as first, ThreadPoolExecutor(1) as thread:
        with database.scope(first, OWN):
            token = sharing.share(first, OWN, snap_id).token
        second = thread.submit(marking.share, begin, QUEUE, snap_id, None, "r-1")
        until_somebody_waits(db)
        first.commit()
        assert second.result(timeout=30).token == token
    assert scalar(db, KINDS) == ["snap.process"]


def test_a_link_that_is_new_is_told_once(engine: sqlalchemy.Engine, db: Db, begin: Begin, snap_id: UUID) -> None:
    with acting(engine, OWN) as session:
        webhooks.add(session, OWN, "https://example.org/", ["snap.shared"])
    for _ in range(2):
        marking.share(begin, QUEUE, snap_id, None, "r-1")
    assert scalar(db, KINDS) == ["snap.process", "snap.webhook"]

"""What a processor declares holds for whoever enqueues, knowing it or not: each worker tells the database."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from snapapp.jobs import Job, enqueue, enqueue_many, registry
from snapapp.jobs.adding import Defaults
from snapapp.jobs.registry import Processor, Registry
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.roster import Declared
from tests.factory import Db, row, scalar
from tests.factory import enqueue as by_sql
from tests.jobs.working import until, working


def send(_job: Job) -> None: ...


@pytest.fixture
def told(url: str, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker was here, in another process, that knows two kinds."""
    monkeypatch.setattr(registry, "default", Registry())  # this process knows neither, whatever other tests imported
    monkeypatch.setattr(Defaults, "max_attempts", 3)  # for its end
    known = Registry()
    known.add(Processor("mail.send", send, queue="mail", max_attempts=7))
    known.add(Processor("plain", send))
    with working(url, known, max_attempts=5):
        until(lambda: scalar(db, "SELECT count(*) FROM job_kind") == 2)
    monkeypatch.setattr(Defaults, "max_attempts", 3)


def queue_and_attempts(db: Db, job_id: int | None) -> tuple[str, int]:
    its = row(db, job_id or 0)
    return its.queue, its.max_attempts


WAYS: dict[str, Callable[[Db, str], int | None]] = {
    "SQL": by_sql,
    "SQL, a key": lambda db, kind: by_sql(db, kind, unique_key="k"),
    "SQL, many": lambda db, kind: scalar(db, "SELECT enqueue_jobs(%s::jsonb)", json.dumps([{"kind": kind}])),
    "enqueue": lambda db, kind: enqueue(db, kind),
    "enqueue_many": lambda db, kind: enqueue_many(db, [{"kind": kind}])[0],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("told")
def test_a_kinds_queue_and_attempts_hold_for_whoever_enqueues(db: Db, way: str) -> None:
    """`mail.send` from a shell without its module went to the queue `default`, where no worker was."""
    assert queue_and_attempts(db, WAYS[way](db, "mail.send")) == ("mail", 7)
    assert queue_and_attempts(db, WAYS[way](db, "plain")) == ("default", 5)
    assert queue_and_attempts(db, WAYS[way](db, "nobody knows it")) == ("default", 3)


@pytest.mark.parametrize("way", ["SQL", "enqueue", "enqueue_many"])
@pytest.mark.usefixtures("told")
def test_the_attempts_of_the_workers_settings_hold_for_a_process_that_knows_the_kind_too(db: Db, way: str) -> None:
    """A web process that imported the kind and runs no worker gave its jobs three attempts, whatever workers had."""
    registry.default.add(Processor("plain", send))
    assert queue_and_attempts(db, WAYS[way](db, "plain")) == ("default", 5)
    registry.default.add(Processor("mail.send", send, max_attempts=2))
    assert queue_and_attempts(db, enqueue(db, "mail.send")) == ("default", 2)


@pytest.mark.usefixtures("told")
def test_what_is_said_of_the_job_itself_holds(db: Db) -> None:
    said: dict[str, Any] = {"queue": "other", "max_attempts": 2}
    assert queue_and_attempts(db, by_sql(db, "mail.send", **said)) == ("other", 2)
    assert queue_and_attempts(db, enqueue(db, "mail.send", **said)) == ("other", 2)


@pytest.mark.usefixtures("told")
def test_many_of_known_and_unknown_kinds_keep_their_order(db: Db) -> None:
    kinds = ["plain", "x", "mail.send", "plain"] * 50
    ids = enqueue_many(db, [{"kind": kind} for kind in kinds])
    assert [row(db, job_id or 0).kind for job_id in ids] == kinds
    assert ids == sorted(ids, key=lambda job_id: job_id or 0)


def test_who_starts_last_wins_and_who_says_nothing_new_writes_nothing(db: Db) -> None:
    first = [Declared("b", "q", 3), Declared("a", "q", 3)]
    roster.declare(db, first)
    before = db.execute("SELECT ctid, name FROM job_kind ORDER BY name").fetchall()
    roster.declare(db, first)
    assert db.execute("SELECT ctid, name FROM job_kind ORDER BY name").fetchall() == before
    roster.declare(db, [Declared("b", "other", 4)])
    found = db.execute("SELECT name, queue, max_attempts FROM job_kind ORDER BY name").fetchall()
    assert found == [("a", "q", 3), ("b", "other", 4)]


def test_kinds_that_a_failover_lost_are_declared_again_and_newer_ones_stay(url: str, db: Db) -> None:
    known = Registry()
    known.add(Processor("mail.send", send, queue="mail", max_attempts=7))
    known.add(Processor("plain", send))
    with working(url, known):
        until(lambda: scalar(db, "SELECT count(*) FROM job_worker JOIN job_kind ON true") == 2)
        roster.declare(db, [Declared("plain", "newer", 4)])
        with db.transaction():
            db.execute("DELETE FROM job_kind WHERE name = 'mail.send'")
            db.execute("DELETE FROM job_worker")
        until(lambda: scalar(db, "SELECT count(*) FROM job_kind") == 2)
    found = db.execute("SELECT name, queue, max_attempts FROM job_kind ORDER BY name").fetchall()
    assert found == [("mail.send", "mail", 7), ("plain", "newer", 4)]

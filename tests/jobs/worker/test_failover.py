"""The server stands still and does not hang up, while another one has taken its place."""

import threading
from datetime import timedelta

import pytest

from snapapp.jobs import enqueue
from snapapp.jobs.registry import Registry
from snapapp.jobs.worker import failover
from tests.factory import Db, scalar
from tests.jobs.working import Heard, until, until_status, working
from tests.postgres.frozen import may_freeze

pytestmark = pytest.mark.direct


def test_a_worker_leaves_a_server_that_stands_still_for_the_one_that_new_connections_lead_to(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(failover, "_LONGEST", 1.0)
    monkeypatch.setattr("snapapp.jobs.worker.worker._LOOK_FOR_FAILOVER_EVERY", timedelta(seconds=0.2))
    registry.processor("quick")(lambda _: "done")
    with may_freeze(url, tmp_path_factory.mktemp("f")) as frozen, working(frozen.url, registry) as (_, heard):
        until_status(db, enqueue(db, "quick") or 0, "COMPLETED")
        frozen.way.freeze()
        until_status(db, enqueue(db, "quick") or 0, "COMPLETED", within=30)
        assert said_of(heard)


def test_a_server_that_is_only_slow_is_not_left(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "_LONGEST", 0.2)
    monkeypatch.setattr("snapapp.jobs.worker.worker._LOOK_FOR_FAILOVER_EVERY", timedelta(seconds=0.1))
    registry.processor("quick")(lambda _: "done")
    with working(url, registry) as (_, heard):
        until(lambda: scalar(db, "SELECT count(*) FROM job_worker") == 1)
        with db.transaction():
            db.execute("LOCK TABLE job_worker")
            until(lambda: scalar(db, "SELECT count(*) FROM pg_locks WHERE NOT granted") > 0)
            threading.Event().wait(1)
        until_status(db, enqueue(db, "quick") or 0, "COMPLETED")
    assert not said_of(heard)


def said_of(heard: Heard) -> list[str]:
    return [str(event.facts) for event in heard.all("worker.error") if "leave a server" in str(event.facts)]

"""/internal/queues: counted, timed, paused and resumed."""

from datetime import UTC, datetime, timedelta

import pytest
from starlette.testclient import TestClient

from tests.factory import Db, ago, make_job

QUEUES = "/internal/queues"


def test_queues_are_counted(client: TestClient, db: Db) -> None:
    """R47."""
    oldest = make_job(db, queue="mail", next_retry_at=ago(minutes=3))
    make_job(db, "RETRY_WAIT", queue="mail")
    make_job(db, "RUNNING", queue="mail")
    make_job(db, "FAILED", queue="mail")
    [mail] = client.get(QUEUES).json()["items"]
    assert 180 <= mail.pop("oldestDueSeconds") < 200
    assert mail == {
        "queue": "mail",
        "pending": 1,
        "retryWait": 1,
        "due": 2,
        "running": 1,
        "failed": 1,
        "oldestId": oldest,
        "pausedAt": None,
        "pausedReason": None,
    }


@pytest.mark.parametrize("name", ["mail", "a b", "a/b", "ação", "x/pause"])
def test_a_queue_is_paused_with_a_reason_and_resumed(client: TestClient, name: str) -> None:
    """R45, W48."""
    path = f"{QUEUES}/{name}"
    paused = client.post(f"{path}/pause", json={"reason": "lunch"}).json()
    assert (paused["queue"], paused["pausedReason"]) == (name, "lunch")
    assert datetime.fromisoformat(paused["pausedAt"]).tzinfo
    [shown] = client.get(QUEUES).json()["items"]
    assert (shown["queue"], shown["pausedReason"], shown["oldestDueSeconds"]) == (name, "lunch", None)
    assert client.post(f"{path}/pause", json={"reason": "dinner"}).json()["pausedReason"] == "dinner"
    again = client.post(f"{path}/pause").json()
    assert (again["pausedAt"], again["pausedReason"]) == (paused["pausedAt"], None)
    assert client.post(f"{path}/resume").json() == {"queue": name, "pausedAt": None, "pausedReason": None}
    assert client.get(QUEUES).json() == {"items": []}


@pytest.mark.parametrize(
    ("name", "sent"),
    [("%00", None), ("q" * 201, None), ("mail", {"reason": "\0"}), ("mail", {"reason": 5}), ("mail", [])],
)
def test_a_pause_that_cannot_be_kept_is_refused(client: TestClient, name: str, sent: object) -> None:
    answer = client.post(f"{QUEUES}/{name}/pause", json=sent)
    assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed")
    assert client.get(QUEUES).json() == {"items": []}


def test_the_last_hour_is_told_by_kind(client: TestClient, db: Db) -> None:
    """R47, Q37."""
    ended = datetime.now(UTC)
    started = ended - timedelta(milliseconds=200)
    make_job(db, "COMPLETED", created_at=started, started_at=started, finished_at=ended)
    assert client.get(f"{QUEUES}/throughput").json()["items"] == [
        {
            "queue": "default",
            "kind": "test",
            "completed": 1,
            "failed": 0,
            "cancelled": 0,
            "meanMs": 200.0,
            "meanWaitMs": 0.0,
        }
    ]


def test_what_attempts_took_is_told_over_time_and_by_kind(client: TestClient, db: Db) -> None:
    for kind in ("", "mail"):
        db.execute(
            "INSERT INTO job_history VALUES (date_trunc('hour', now()), 60, %s, 4, 1, 0, 2, '{}', '{0,0,0,0,10}')",
            [kind],
        )
    answer = client.get("/internal/history", params={"over": "7d"}).json()
    [point] = answer["items"]
    assert answer["stepSeconds"] == 3600
    assert datetime.fromisoformat(point.pop("at")).minute == 0
    counts = {"completed": 4, "failed": 1, "cancelled": 0, "retried": 2}
    nothing = {"p50": None, "p95": None, "p99": None}
    took = counts | {"wait": nothing, "run": {"p50": 3.414, "p95": 3.941, "p99": 3.988}}
    assert point == took
    assert client.get("/internal/history/kinds", params={"over": "24h"}).json() == {"items": [{"kind": "mail"} | took]}
    assert client.get("/internal/history", params={"over": "7d", "kind": "other"}).json()["items"] == []
    assert client.get("/internal/history", params={"over": "1y"}).status_code == 400

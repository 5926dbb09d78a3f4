"""/internal/schedules: listed, shown with their ledger, previewed, paused, resumed, run."""

from datetime import datetime
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.factory import Db, row

SCHEDULES = "/internal/schedules"


def test_schedules_are_listed_with_their_next_slot(client: TestClient, nightly: str) -> None:
    """R41."""
    [shown] = client.get(SCHEDULES).json()["items"]
    assert (shown["name"], shown["spec"], shown["tz"], shown["workers"]) == (nightly, "30 2 * * *", "Europe/Berlin", 1)
    assert datetime.fromisoformat(shown["nextSlot"]) > datetime.fromisoformat(shown["now"])
    assert (shown["lastSlot"], shown["lastJob"], shown["pausedAt"]) == (None, None, None)


def test_a_schedule_is_run_by_hand_and_the_ledger_says_so(client: TestClient, db: Db, nightly: str) -> None:
    """R41: run now."""
    answer = client.post(f"{SCHEDULES}/{nightly}/run")
    job_id = answer.json()["jobId"]
    assert (answer.status_code, answer.headers["Location"]) == (201, f"/internal/jobs/{job_id}")
    assert row(db, job_id).kind == nightly
    shown = client.get(f"{SCHEDULES}/{nightly}").json()
    assert (shown["lastJob"], shown["lastJobStatus"]) == (job_id, "PENDING")
    [slot] = shown["slots"]
    assert (slot["outcome"], slot["jobId"], slot["worker"]) == ("fired", job_id, None)
    client.post(f"{SCHEDULES}/{nightly}/run")
    newest = client.get(f"{SCHEDULES}/{nightly}/slots", params={"limit": 1}).json()
    oldest = client.get(f"{SCHEDULES}/{nightly}/slots", params={"limit": 2, "before": newest["next"]}).json()
    assert [entry["jobId"] for entry in oldest["items"]] == [job_id]
    assert oldest["next"] is None


def test_a_preview_crosses_a_change_of_the_clocks(client: TestClient, nightly: str) -> None:
    """FB3: 02:30 does not exist on that night."""
    query = {"from": "2030-03-29T12:00:00Z", "count": 3}
    slots = client.get(f"{SCHEDULES}/{nightly}/preview", params=query).json()["items"]
    assert [slot["local"][:10] for slot in slots] == ["2030-03-30", "2030-03-31", "2030-04-01"]
    assert [slot["local"][-6:] for slot in slots] == ["+01:00", "+02:00", "+02:00"]
    assert slots[1]["note"]
    assert len(client.get(f"{SCHEDULES}/{nightly}/preview").json()["items"]) == 20


def test_a_schedule_is_paused_with_a_reason_and_resumed(client: TestClient, nightly: str) -> None:
    paused = client.post(f"{SCHEDULES}/{nightly}/pause", json={"reason": "stocktaking"}).json()
    assert paused["pausedAt"]
    assert paused["pausedReason"] == "stocktaking"
    resumed = client.post(f"{SCHEDULES}/{nightly}/resume").json()
    assert (resumed["pausedAt"], resumed["pausedReason"]) == (None, None)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("GET", "/slots"), ("GET", "/preview"), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/run")],
)
def test_a_schedule_that_nobody_declared_is_not_found(client: TestClient, method: str, path: str) -> None:
    answer = client.request(method, f"{SCHEDULES}/nothing{path}")
    assert answer.status_code == 404
    assert answer.json()["message"].startswith("there is no schedule nothing")


@pytest.mark.parametrize(
    "query",
    [
        {"count": 0},
        {"count": 1001},
        {"count": "x"},
        {"from": "tomorrow"},
        {"from": "2030-01-01"},
        {"from": "9999-12-31T23:59:59Z"},
        {"from": "0001-01-01T00:00:00+14:00"},
    ],
)
def test_a_preview_that_makes_no_sense_is_refused(client: TestClient, nightly: str, query: dict[str, Any]) -> None:
    answer = client.get(f"{SCHEDULES}/{nightly}/preview", params=query)
    assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed")

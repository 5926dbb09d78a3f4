"""/internal/retention: how long finished jobs are kept, seen and changed."""

from datetime import timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from snapapp.jobs.model import Status
from snapapp.jobs.rows import retention
from snapapp.jobs.rows.retention import Rule
from tests.factory import Db

RETENTION = "/internal/retention"
DAY = 86_400_000


def test_a_rule_is_set_listed_changed_and_removed(client: TestClient, db: Db) -> None:
    """W47, Q51, M61."""
    week = 7 * DAY
    assert client.get(RETENTION).json() == {"items": [], "otherwiseMs": week}
    every = client.put(f"{RETENTION}/FAILED", json={"keepMs": 30 * DAY}).json()
    assert every == {"kind": "", "status": "FAILED", "keepMs": 30 * DAY, "newest": None}
    client.put(f"{RETENTION}/COMPLETED", params={"kind": "a/b"}, json={"keepMs": DAY})
    changed = client.put(f"{RETENTION}/COMPLETED", params={"kind": "a/b"}, json={"keepMs": None, "newest": 1000}).json()
    assert client.get(RETENTION).json()["items"] == [every, changed]
    assert retention.rules(db) == [
        Rule("", Status.FAILED, timedelta(days=30), None),
        Rule("a/b", Status.COMPLETED, None, 1000),
    ]
    assert client.delete(f"{RETENTION}/FAILED").status_code == 204
    assert client.get(RETENTION).json()["items"] == [changed]
    gone = client.delete(f"{RETENTION}/FAILED")
    assert (gone.status_code, gone.json()["message"]) == (404, "There is no rule for FAILED jobs of every kind")


def test_who_changed_a_rule_stands_in_the_audit(client: TestClient) -> None:
    said = {"X-Operator": "ana"}
    client.put(f"{RETENTION}/FAILED", params={"kind": "report"}, json={"keepMs": DAY}, headers=said)
    client.delete(f"{RETENTION}/FAILED", params={"kind": "report"}, headers=said)
    client.delete(f"{RETENTION}/FAILED", params={"kind": "report"}, headers=said)  # which did nothing
    told = client.get("/internal/audit").json()["items"]
    assert [(each["who"], each["action"], each["subject"]) for each in told] == [
        ("ana", "retention.remove", "retention FAILED report"),
        ("ana", "retention.set", "retention FAILED report"),
    ]
    assert told[1]["detail"] == {"keepMs": DAY}


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("PENDING", {"keepMs": DAY}),
        ("failed", {"keepMs": DAY}),
        ("FAILED", {}),
        ("FAILED", {"newest": 3}),
        ("FAILED", {"keepMs": -1}),
        ("FAILED", {"keepMs": 365_001 * DAY}),
        ("FAILED", {"keepMs": "1"}),
        ("FAILED", {"keepMs": DAY, "newest": 2**31}),
        ("FAILED", {"keepMs": DAY, "newest": -1}),
        ("FAILED?kind=%00", {"keepMs": DAY}),
        (f"FAILED?kind={'k' * 201}", {"keepMs": DAY}),
        (f"FAILED?kind={'ç' * 101}", {"keepMs": DAY}),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused(client: TestClient, db: Db, path: str, body: dict[str, Any]) -> None:
    answer = client.put(f"{RETENTION}/{path}", json=body)
    assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed")
    assert retention.rules(db) == []


def test_the_longest_rule_can_be_kept(client: TestClient) -> None:
    body = {"keepMs": 365_000 * DAY, "newest": 2**31 - 1}
    assert client.put(f"{RETENTION}/FAILED", json=body).json() == {"kind": "", "status": "FAILED", **body}

"""/internal/fleet: pools, commands and decisions."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from snapapp.jobs.fleet import commands, store
from snapapp.jobs.fleet.pool import State
from snapapp.jobs.fleet.store import Master
from tests.factory import Db, scalar
from tests.jobs.fleet import standing
from tests.jobs.fleet.standing import POOL

FLEET = "/internal/fleet"


@pytest.fixture
def master(db: Db) -> Master:
    return standing.master(db, state=State.PAUSED, state_reason="lunch", wanted=2, present=1, note="one is starting")


def test_pools_are_shown_as_their_supervisor_last_said(client: TestClient, db: Db, master: Master) -> None:
    """M33, M63, R47."""
    [shown] = client.get(FLEET).json()["items"]
    assert (shown["host"], shown["master"], shown["pool"], shown["state"], shown["stateReason"]) == (
        "box",
        "ACTIVE",
        POOL,
        "PAUSED",
        "lunch",
    )
    assert (shown["wanted"], shown["present"], shown["maxProcesses"], shown["note"]) == (2, 1, 4, "one is starting")
    db.execute("UPDATE job_master SET expires_at = now() - interval '1 s'")
    assert client.get(FLEET).json()["items"][0]["master"] == "LOST"


def test_a_command_is_accepted_and_what_came_of_it_is_told(client: TestClient, db: Db, master: Master) -> None:
    """M26-M32: by API."""
    answer = client.post(f"{FLEET}/commands", json={"action": "scale", "pool": POOL, "amount": 3, "reason": "spike"})
    assert answer.status_code == 202, answer.json()
    sent = answer.json()
    assert (sent["host"], sent["source"], sent["status"], sent["amount"]) == ("box", "api", "PENDING", 3)
    assert scalar(db, "SELECT subject FROM job_audit") == "host box"
    [order] = commands.take(db, "box", master.id)
    commands.answer(db, order.id, master.id, f"{POOL}: 2 -> 3")
    shown = client.get(f"{FLEET}/commands/{sent['id']}").json()
    assert (shown["status"], shown["output"]) == ("EXECUTED", f"{POOL}: 2 -> 3")
    assert client.get(f"{FLEET}/commands").json()["items"] == [shown]


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        ({"action": "dance"}, 400, "Validation failed"),
        ({}, 400, "Validation failed"),
        ({"action": "scale", "pool": POOL, "amount": "3"}, 400, "Validation failed"),
        ({"action": "scale", "pool": POOL, "amount": -1}, 400, "Validation failed"),
        ({"action": "scale", "pool": POOL, "amount": True}, 400, "Validation failed"),
        ({"action": "pause", "pool": "x\0y"}, 400, "Validation failed"),
        ({"action": "scale"}, 409, "say which pool to scale"),
        ({"action": "stop", "pool": POOL}, 409, "stop ends the whole supervisor"),
        ({"action": "pause", "pool": "nobody's"}, 404, "there is no pool nobody's"),
        ({"action": "pause", "host": "elsewhere"}, 404, "no supervisor has been seen on the host elsewhere"),
    ],
)
def test_a_command_that_nobody_can_do_is_refused(
    client: TestClient, master: Master, sent: dict[str, Any], status: int, said: str
) -> None:
    """M29."""
    answer = client.post(f"{FLEET}/commands", json=sent)
    assert (answer.status_code, said in answer.json()["message"]) == (status, True), answer.json()
    assert client.get(f"{FLEET}/commands").json() == {"items": [], "next": None}


def test_a_command_that_does_not_exist_is_not_found(client: TestClient) -> None:
    assert client.get(f"{FLEET}/commands/7").status_code == 404
    assert client.get(f"{FLEET}/commands/0").status_code == 400


def test_commands_and_decisions_come_page_by_page(client: TestClient, db: Db, master: Master) -> None:
    for count in range(3):
        client.post(f"{FLEET}/commands", json={"action": "pause"})
        store.record_decision(db, "box", POOL, "auto", count, count + 1, f"reason {count}", {"due": count})
    first = client.get(f"{FLEET}/decisions", params={"limit": 2}).json()
    assert [each["reason"] for each in first["items"]] == ["reason 2", "reason 1"]
    assert first["items"][0]["inputs"] == {"due": 2}
    rest = client.get(f"{FLEET}/decisions", params={"limit": 2, "before": first["next"]}).json()
    assert ([each["reason"] for each in rest["items"]], rest["next"]) == (["reason 0"], None)
    page = client.get(f"{FLEET}/commands", params={"limit": 2}).json()
    assert [each["id"] for each in page["items"]] == [3, 2]
    assert page["next"] == 2

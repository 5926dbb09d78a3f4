"""/v2/webhooks: whom a tenant wants told of what."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api.examples import mark
from tests.factory import Db, scalar

HOOKS = "/v2/webhooks"
HOOK: dict[str, Any] = {"url": "https://app.example/hooks", "events": ["snap.completed", "snap.failed"]}


def test_a_secret_is_shown_once(client: TestClient) -> None:
    answer = client.post(HOOKS, json=HOOK)
    made = answer.json()
    assert (answer.status_code, answer.headers["Location"]) == (201, f"{HOOKS}/{made['id']}")
    assert answer.headers["Cache-Control"] == "no-store"
    secret = made.pop("secret")
    assert len(secret) >= 32
    assert client.get(f"{HOOKS}/{made['id']}").json() == made
    assert client.get(HOOKS).json() == {"items": [made]}
    changed = client.patch(f"{HOOKS}/{made['id']}", json={"isActive": False})
    assert secret not in changed.text + client.get(HOOKS).text
    assert (made["pausedBecause"], changed.json()["pausedBecause"]) == (None, "It was paused by hand.")


def test_the_first_share_is_told_and_the_next_is_the_same_link(client: TestClient, db: Db) -> None:
    client.post(HOOKS, json=HOOK | {"events": ["snap.shared"]})
    snap = mark(client)
    for _ in range(2):
        client.post(f"/v2/snaps/{snap['snapId']}/share")
    [(payload,)] = db.execute("SELECT payload::text FROM snap_processing_job WHERE kind = 'snap.webhook'").fetchall()
    told = json.loads(payload)
    assert (told["event"], told["snap_id"]) == ("snap.shared", snap["snapId"])


def test_a_change_names_what_it_changes(client: TestClient, db: Db) -> None:
    made = client.post(HOOKS, json=HOOK).json()
    secret = made.pop("secret")
    at = f"{HOOKS}/{made['id']}"
    assert client.patch(at, json={"events": ["snap.shared"]}).json() == made | {"events": ["snap.shared"]}
    assert client.patch(at, json={"url": "https://b.example/", "events": None}).json()["url"] == "https://b.example/"
    assert client.patch(at, json={}).status_code == 200
    assert scalar(db, "SELECT secret FROM webhook") == secret
    assert client.delete(at).status_code == 204
    assert [client.delete(at).status_code, client.get(at).status_code] == [404, 404]


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": ...},
        {"url": "ftp://a"},
        {"url": "https://user:pw@a/"},
        {"url": "javascript:alert(1)"},
        {"url": "http://2130706433/"},
        {"events": ...},
        {"events": []},
        {"events": ["snap.exploded"]},
        {"events": "snap.failed"},
        {"events": None},
    ],
)
def test_a_webhook_that_makes_no_sense_is_refused(client: TestClient, wrong: dict[str, Any]) -> None:
    given = {name: value for name, value in (HOOK | wrong).items() if value is not ...}
    answer = client.post(HOOKS, json=given)
    assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("app.example/hooks", "The URL must begin with http:// or https:// and a host."),
        ("https://app.example/my hooks", "The URL holds a blank; write it as %20."),
        ("http://127.1/", "The URL's host '127.1' is neither a name nor an address."),
    ],
)
def test_a_url_that_could_never_be_called_is_refused_in_words(client: TestClient, wrong: str, why: str) -> None:
    made = client.post(HOOKS, json=HOOK).json()
    for answer in (
        client.post(HOOKS, json=HOOK | {"url": wrong}),
        client.patch(f"{HOOKS}/{made['id']}", json={"url": wrong}),
    ):
        assert (answer.status_code, answer.json()["details"]) == (400, [f"url: {why}"])


def test_there_are_only_so_many(client: TestClient) -> None:
    answers = [client.post(HOOKS, json=HOOK).status_code for _ in range(21)]
    assert answers == [201] * 20 + [409]


@pytest.mark.parametrize("wrong", ["0", "-1", "x", "9" * 30, "1_0"])
def test_an_id_is_a_number(client: TestClient, wrong: str) -> None:
    assert client.get(f"{HOOKS}/{wrong}").status_code == 400

"""/v2/events as a client hears it: a real server, a real socket, and nothing of anybody else's."""

import http.client
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.product import events
from tests.api.examples import OTHER, add_tenant, fail, job_of, mark
from tests.api.internal.test_live import WITHIN, Client, Serving, serving
from tests.factory import Db, as_it_runs, move


class Listener(Client):
    def __init__(self, port: int, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("localhost", port, timeout=WITHIN)
        self._connection.request("GET", "/v2/events", headers=headers)
        self.answer = self._connection.getresponse()


@pytest.fixture
def served(url: str, tmp_path: Path) -> Iterator[Serving]:
    with serving(url, data_dir=tmp_path, disk_free_min_mb=0) as served:
        yield served


@pytest.fixture
def listen(served: Serving) -> Iterator[Callable[..., Listener]]:
    with ExitStack() as stack:

        def begin(**headers: str) -> Listener:
            return stack.enter_context(closing(Listener(served.port, **headers)))

        yield begin


@pytest.fixture
def here(served: Serving) -> TestClient:
    """Beside the server, in the same application; not entered, so it starts and stops nothing."""
    return TestClient(served.app, base_url="http://localhost", client=("127.0.0.1", 50000))


def test_a_tenant_hears_what_becomes_of_its_snaps(here: TestClient, listen: Callable[..., Listener], db: Db) -> None:
    """S21: SSE when done. A retry, a progress, an end."""
    before = mark(here)
    client = listen()
    assert client.answer.status == 200
    assert client.answer.headers["Content-Type"].startswith("text/event-stream")
    [known] = client.until("snapshot")["items"]
    assert (known["snapId"], known["status"], known["jobStatus"]) == (before["snapId"], "PENDING", "PENDING")
    snap = mark(here)
    assert client.until("snap.created")["snapId"] == snap["snapId"]
    move(db, job_of(snap), **as_it_runs())
    assert client.until("snap.started")["status"] == "PENDING"
    move(db, job_of(snap), progress={"percent": 40, "note": "frames"})
    assert client.until("snap.progress")["progress"] == {"percent": 40, "note": "frames"}
    fail(db, before)
    failed = client.until("snap.failed")
    assert (failed["snapId"], failed["status"], failed["error"]) == (
        before["snapId"],
        "FAILED",
        "The video ends at 3.2 s.",
    )


def test_a_tenant_hears_of_a_snap_that_is_removed(here: TestClient, listen: Callable[..., Listener]) -> None:
    deleted, _ = mark(here), mark(here)
    client = listen()
    client.until("snapshot")
    assert here.delete(f"/v2/snaps/{deleted['snapId']}").is_success
    assert client.until("snap.deleted") == {"snapId": deleted["snapId"]}
    again = listen()
    assert len(again.until("snapshot")["items"]) == 2, "no other jobs than those of snaps"


def test_nobody_hears_of_another_s(
    here: TestClient, listen: Callable[..., Listener], engine: sqlalchemy.Engine, db: Db
) -> None:
    """S24."""
    add_tenant(engine)
    theirs = mark(here, headers=OTHER)
    client = listen()
    assert client.until("snapshot") == {"items": []}
    fail(db, theirs)
    mark(here, headers=OTHER)
    ours = mark(here)
    event = client.next()
    assert event
    assert (event.name, event.data["snapId"]) == ("snap.created", ours["snapId"])


def test_who_may_not_ask_hears_nothing(listen: Callable[..., Listener]) -> None:
    assert listen(**{"X-Assinatura-Codigo": "nobody"}).answer.status == 404


def test_a_tenant_cannot_take_all_streams(
    listen: Callable[..., Listener], engine: sqlalchemy.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_tenant(engine)
    monkeypatch.setattr(events, "OF_ONE_MAX", 2)
    first, second = listen(), listen()
    for client in (first, second):
        client.until("snapshot")
    refused = listen().answer
    assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
    assert listen(**OTHER).answer.status == 200


def test_a_stream_does_not_outlive_the_token_it_was_opened_with(
    url: str, tmp_path: Path, engine: sqlalchemy.Engine, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "ASK_EVERY", 0.05)
    token = add_tenant(engine)
    with (
        serving(url, data_dir=tmp_path, disk_free_min_mb=0, require_api_token=True) as served,
        closing(Listener(served.port, **{"X-Assinatura-Token": token})) as listener,
    ):
        listener.until("snapshot")
        db.execute("UPDATE tenant SET token_hash = sha256('another'), token_changed_at = now() WHERE code = 'other'")
        listener.answer.read()  # to its end, or the test's time is over

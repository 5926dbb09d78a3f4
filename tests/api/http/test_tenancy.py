"""Whose rows they are: to a tenant, another's do not exist, whatever is asked and however."""

import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.http.header_text import as_sent
from tests.api.conftest import served
from tests.api.examples import NOBODY, OTHER, SNAPS, add_tenant, as_tenant, body, complete, count, mark
from tests.factory import Db, scalar

CODE, TOKEN = "X-Assinatura-Codigo", "X-Assinatura-Token"
DEVELOPMENT = "dev-default-token"


# --- who asks ---------------------------------------------------------------------------------------------------


def test_without_a_word_it_is_the_default(client: TestClient, engine: sqlalchemy.Engine) -> None:
    """S24."""
    add_tenant(engine)
    snap = mark(client)
    for headers in ({}, {CODE: "default"}, {CODE: ""}, {CODE: " default "}, {TOKEN: "whatever"}):
        assert client.get(f"{SNAPS}/{snap['snapId']}", headers=headers).status_code == 200, headers


@pytest.mark.parametrize("code", ["nobody", "DEFAULT", "x" * 101, "' OR 1=1 --", "\u00e7", "default\u00a0x"])
def test_an_unknown_code_is_not_found(client: TestClient, code: str) -> None:
    """S24."""
    answer = client.get(SNAPS, headers={CODE: code.encode("latin-1")})
    assert answer.status_code == 404
    assert answer.json()["message"].startswith("Assinatura not found: ")
    assert client.post(SNAPS, json=body(), headers={CODE: code.encode("latin-1")}).status_code == 404


def test_a_code_with_accents_is_read_as_clients_send_it(client: TestClient, engine: sqlalchemy.Engine) -> None:
    """curl sends what was typed, which is UTF-8; a browser sends Latin-1, which the test's client cannot."""
    code = "fazenda-são-joão"
    add_tenant(engine, code)
    answer = client.get("/v2/session", headers={CODE: code.encode()})
    assert (answer.status_code, answer.json().get("code")) == (200, code)
    assert as_sent(code.encode("latin-1").decode("latin-1")) == code


def test_where_tokens_are_required_they_are(url: str, tmp_path: Path, engine: sqlalchemy.Engine) -> None:
    """S24: missing and wrong are 401; a token alone says whose it is."""
    theirs = add_tenant(engine)
    cases: list[tuple[dict[str, str], int, str]] = [
        ({}, 401, "Assinatura API token required"),
        ({CODE: "default"}, 401, "Assinatura API token required"),
        ({CODE: "default", TOKEN: ""}, 401, "Assinatura API token required"),
        ({CODE: "default", TOKEN: "wrong"}, 401, "Invalid assinatura API token"),
        ({CODE: "default", TOKEN: theirs}, 401, "Invalid assinatura API token"),
        ({CODE: "other", TOKEN: DEVELOPMENT}, 401, "Invalid assinatura API token"),
        ({TOKEN: "wrong"}, 401, "Invalid assinatura API token"),
        ({CODE: "default", TOKEN: DEVELOPMENT}, 200, ""),
        ({TOKEN: DEVELOPMENT}, 200, ""),
        ({TOKEN: theirs}, 200, ""),
        ({CODE: "other", TOKEN: theirs}, 200, ""),
    ]
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        for headers, status, message in cases:
            answer = client.get("/v2/session", headers=headers)
            assert (answer.status_code, answer.json().get("message", "")) == (status, message), headers
        assert client.get("/v2/session", headers={TOKEN: theirs}).json()["code"] == "other"
        refused = client.post(SNAPS, json=body())
        assert refused.status_code == 401


FOREIGN = ["evil.example", "evil.example:8000", "127.0.0.1.nip.io", "localhost.evil.example", "[::1", "snaps.example."]
OURS = ["localhost:8000", "127.0.0.1", "[::1]:8000", "192.168.7.4:8000", "fazenda", "Farm.example:443", "other.example"]


def test_a_page_that_made_its_own_name_lead_here_is_no_tenant(url: str, tmp_path: Path) -> None:
    """DNS rebinding: to the browser it is the same site, so it may send whatever header it likes."""
    hook = {"url": "https://hooks.example/", "events": ["snap.completed"]}
    named = {"public_base_url": "https://farm.example/snaps", "trusted_hosts": ("other.example",)}
    with served(url, tmp_path, worker_enabled=False, **named) as client:
        for host in FOREIGN:
            for path, sent in (
                ("/v2/webhooks", hook),
                ("/v1/video-frames/process", [{}]),
                ("/v2/session", {"token": "x"}),
            ):
                for headers in ({"Host": host}, {"Host": host, CODE: "default"}):
                    answer = client.post(path, json=sent, headers=headers)
                    assert (answer.status_code, answer.json()["error"]) == (421, "Misdirected Request"), (path, host)
            assert client.get(SNAPS, headers={"Host": host}).status_code == 421
        for host in OURS:
            assert client.get(SNAPS, headers={"Host": host}).status_code == 200, host
    with served(url, tmp_path, worker_enabled=False, trusted_hosts=("*",)) as client:
        assert client.get(SNAPS, headers={"Host": "evil.example"}).status_code == 200


def test_where_a_token_proves_who_asks_any_name_leads_here(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        answer = client.get(SNAPS, headers={"Host": "snaps.example", TOKEN: DEVELOPMENT})
        assert answer.status_code == 200


# --- the matrix -------------------------------------------------------------------------------------------------


def product_routes(client: TestClient) -> list[tuple[str, str]]:
    """Every method and path of the product, as the application describes itself: a new route cannot be forgotten."""
    paths = client.get("/openapi.json").json()["paths"]
    return [
        (method.upper(), path)
        for path, methods in paths.items()
        for method in methods
        if path.startswith(("/v2", "/public"))
    ]


def test_whoever_shows_nothing_is_told_of_no_other_mistake(url: str, tmp_path: Path) -> None:
    """S24: nobody's body is judged before it is asked whose it is. A code alone shows nothing."""
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        closed = [route for route in product_routes(client) if not route[1].startswith(("/public", "/v2/session"))]
        told = [
            (method, path, client.request(method, re.sub("{.*}", NOBODY, path), json={}).status_code)
            for method, path in closed
        ]
        assert [each for each in told if each[2] != 401] == []
        assert client.post(SNAPS, json={}, headers={CODE: "default"}).status_code == 401
    assert len(closed) > 35


BODIES: dict[str, Any] = {
    "/v2/operators/{operator_id}": {"role": "admin"},
    "/v2/snaps/{snap_id}/subject": {"nickname": "eve", "id": "stolen"},
    "/v2/webhooks/{webhook_id}": {"isActive": False},
}
OF_TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}


def test_every_route_answers_for_a_foreign_id_as_for_one_that_never_was(
    client: TestClient, engine: sqlalchemy.Engine, db: Db
) -> None:
    """S24, D12: the tenant matrix. Nothing is told, and nothing changes."""
    token = add_tenant(engine)
    theirs = mark(client, headers=OTHER)
    complete(client, engine, db, theirs, "other")
    hook = {"url": "https://hooks.example/", "events": ["snap.completed"]}
    webhook = client.post("/v2/webhooks", json=hook, headers=OTHER).json()["id"]
    person = {"nickname": "ana", "email": "ana@fazenda.example", "role": "admin"}
    operator = client.post("/v2/operators", json=person, headers={TOKEN: token}).json()["id"]
    template = client.get("/v2/templates", headers=OTHER).json()["items"][0]["id"]
    announced = client.post("/v2/uploads", headers=OTHER | OF_TUS | {"Upload-Length": "7"})
    foreign = {
        "upload_id": announced.json()["uploadId"],
        "snap_id": theirs["snapId"],
        "video_id": theirs["videoId"],
        "webhook_id": webhook,
        "operator_id": operator,
        "template_id": template,
    }
    never = {
        "upload_id": NOBODY,
        "snap_id": NOBODY,
        "video_id": NOBODY,
        "webhook_id": 10**9,
        "operator_id": 10**9,
        "template_id": 10**9,
    }
    before = snapshot(db)
    asked = 0
    for method, path in product_routes(client):
        names = re.findall(r"{(\w+)}", path)
        if not names or path.startswith("/public"):
            continue
        assert set(names) <= set(foreign), f"{path} has an id that is new: say above whose it is"
        told = []
        for values in (foreign, never):
            headers = {TOKEN: DEVELOPMENT} | (OF_TUS if "upload_id" in names else {})
            body = BODIES.get(path)
            answer = client.request(method, path.format(**values), json=body, params={"at": 1}, headers=headers)
            text = answer.text
            for name in names:
                text = text.replace(str(values[name]), f"<{name}>")
            told.append((answer.status_code, re.sub(r'"timestamp":"[^"]*"', "", text)))
        assert told[0] == told[1], (method, path)
        assert told[0][0] in (404, 200), (method, path, told)
        assert told[0][0] == 404 or path == "/v2/videos/{video_id}/snaps", "S24: only a list is empty instead"
        asked += 1
    assert asked >= 17
    assert snapshot(db) == before
    assert client.head(announced.headers["location"], headers=OTHER | OF_TUS).status_code == 200


def snapshot(db: Db) -> list[Any]:
    tables = ("snap", "video", "webhook", "template", "share", "correction", "snap_processing_job")
    return [scalar(db, f"SELECT jsonb_agg(to_jsonb(t) ORDER BY t::text) FROM {table} AS t") for table in tables]


def test_no_list_shows_what_is_another_s(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    """S24: every list and every way to search, with everything that the other has."""
    add_tenant(engine)
    theirs = mark(client, headers=OTHER)
    complete(client, engine, db, theirs, "other")
    client.post(f"{SNAPS}/{theirs['snapId']}/share", headers=OTHER)
    lists = [
        SNAPS,
        f"{SNAPS}/search?subjectId=BR-1042",
        f"{SNAPS}/search?attrKey=raca&attrValue=Nelore",
        f"{SNAPS}/search?attrKey=peso_referencia&attrMin=0",
        f"{SNAPS}/search?q=nelore",
        f"{SNAPS}/mine?nickname=ana",
        "/v2/videos/mine?nickname=ana",
        "/v2/videos",
        f"/v2/videos/{theirs['videoId']}/snaps",
        "/v2/webhooks",
        f"{SNAPS}/export?format=json",
    ]
    for path in lists:
        ours, others = client.get(path), client.get(path, headers=OTHER)
        assert (ours.status_code, ours.json()["items"]) == (200, []), path
        assert others.json()["items"] or path == "/v2/webhooks", path


def test_a_template_or_a_video_of_another_cannot_be_used(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    add_tenant(engine)
    theirs = mark(client, headers=OTHER)
    template = client.get("/v2/templates", headers=OTHER).json()["items"][0]["id"]
    for changes in ({"videoUrl": ..., "videoId": theirs["videoId"]}, {"subjectTemplateId": template}):
        assert client.post(SNAPS, json=body(**changes)).status_code == 404
    assert count(db, "snap") == 1
    ours = mark(client)
    assert ours["videoId"] != theirs["videoId"], "S31: a video is a tenant's own, the same URL or not"


def test_keys_of_two_tenants_do_not_meet(client: TestClient, engine: sqlalchemy.Engine) -> None:
    add_tenant(engine)
    key = {"Idempotency-Key": "same"}
    ours = client.post(SNAPS, json=body(), headers=key).json()
    theirs = client.post(SNAPS, json=body(startSeconds=1), headers=key | OTHER)
    assert (theirs.status_code, theirs.json()["snapId"] == ours["snapId"]) == (202, False)


def test_a_tenant_that_is_off_does_not_exist(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    add_tenant(engine)
    db.execute("UPDATE tenant SET status = 'INACTIVE' WHERE code = 'other'")
    assert client.get(SNAPS, headers=OTHER).status_code == 404


def test_a_request_leaves_its_connection_as_it_found_it(client: TestClient, engine: sqlalchemy.Engine) -> None:
    """A pooled connection is the next one's: neither role nor tenant stays on it."""
    add_tenant(engine)
    mark(client, headers=OTHER)
    web = client.app.state.monolith.web  # type: ignore[attr-defined]  # it is a FastAPI
    for _ in range(8):
        client.get(f"{SNAPS}/{NOBODY}", headers=OTHER)
        with web.connect() as connection:
            left = connection.exec_driver_sql(
                "SELECT current_user = session_user, coalesce(current_setting('snapapp.tenant', true), '')"
            ).one()
        assert tuple(left) == (True, "")
    with as_tenant(engine) as own:
        assert own.connection().exec_driver_sql("SELECT count(*) FROM snap").scalar() == 0

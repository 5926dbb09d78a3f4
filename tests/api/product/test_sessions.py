"""Browsers: they sign in with the tenant's token, carry a cookie that no script reads, and do nothing by accident."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.http import cookies
from snapapp.domain import tenants
from snapapp.signing import sealer
from tests.api.conftest import served
from tests.api.examples import SNAPS, add_tenant, body, count, mark, monolith
from tests.domain.making import begun
from tests.factory import Db


def signed_in(client: TestClient, token: str = "dev-default-token") -> TestClient:
    answer = client.post("/v2/session", json={"token": token})
    assert answer.status_code == 200, answer.text
    return client


def test_a_browser_signs_in_and_out(url: str, tmp_path: Path, engine: sqlalchemy.Engine) -> None:
    token = add_tenant(engine)
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        assert client.get("/v2/session").status_code == 401
        answer = client.post("/v2/session", json={"token": token})
        assert answer.json() == {"code": "other", "name": "Other", "operator": None}
        cookie = answer.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=lax", "Path=/"} <= {*cookie.split("; ")}
        assert token not in cookie
        assert client.get("/v2/session").json()["code"] == "other"
        assert mark(client)["snapId"], "the cookie alone is enough"
        assert client.delete("/v2/session").status_code == 204
        assert client.get("/v2/session").status_code == 401


def test_behind_https_the_cookie_stays_there(client: TestClient) -> None:
    safe = TestClient(client.app, base_url="https://localhost", client=("127.0.0.1", 1))
    assert "Secure" in safe.post("/v2/session", json={"token": "dev-default-token"}).headers["Set-Cookie"]


@pytest.mark.parametrize(
    ("base_url", "asked_at", "is_secure"),
    [
        ("https://snaps.example", "http://snaps.example", True),
        ("https://snaps.example", "http://127.0.0.1:8000", True),
        ("https://snaps.example", "http://192.168.1.5:8000", False),  # a browser of the farm, beside the proxy
        ("http://snaps.example", "http://snaps.example", False),
    ],
)
def test_the_cookie_stays_behind_a_proxy_that_does_not_say_https(
    url: str, tmp_path: Path, base_url: str, asked_at: str, is_secure: bool
) -> None:
    with served(url, tmp_path, worker_enabled=False, public_base_url=base_url) as client:
        answer = client.post(f"{asked_at}/v2/session", json={"token": "dev-default-token"})
        assert ("Secure" in answer.headers["Set-Cookie"]) is is_secure


@pytest.mark.parametrize("token", ["wrong", " ", "dev-default-token ", "\u00e7", "x" * 500])
def test_a_wrong_token_opens_nothing(client: TestClient, token: str) -> None:
    answer = client.post("/v2/session", json={"token": token})
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (401, False)
    assert answer.json()["message"] == "Invalid assinatura API token"


def test_a_new_token_ends_every_sign_in(url: str, tmp_path: Path, engine: sqlalchemy.Engine) -> None:
    token = add_tenant(engine)
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        signed_in(client, token)
        with begun(engine) as session:
            tenants.rotate_token(session, "other")
        assert client.get("/v2/session").status_code == 401


def test_a_header_goes_before_the_cookie(client: TestClient, engine: sqlalchemy.Engine) -> None:
    signed_in(client, add_tenant(engine))
    assert client.get("/v2/session").json()["code"] == "other"
    assert client.get("/v2/session", headers={"X-Assinatura-Codigo": "default"}).json()["code"] == "default"


def test_a_cookie_that_is_not_ours_is_none(url: str, tmp_path: Path, engine: sqlalchemy.Engine) -> None:
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        ours = monolith(client).links.secret_texts
        with begun(engine) as session:
            since = tenants.by_code(session, "default").token_changed_at
        now = datetime.now(UTC)
        good = cookies.made(ours, "default", since, now)
        forged = [
            "",
            "x",
            "\x7f",
            good[:-1],
            good[:-2] + ("AA" if good[-2:] != "AA" else "BB"),
            "A" + good,
            "A" * 2000,
            cookies.made(ours, "default", since, now - cookies.LASTS),
            cookies.made(ours, "default", since - timedelta(seconds=1), now),
            cookies.made(ours, "nobody", since, now),
            cookies.made(["another secret, as long as it takes"], "default", since, now),
            sealer(ours, "sessions").dumps(["default", since.isoformat(), (now + cookies.LASTS).isoformat()]),
        ]
        for cookie in forged:
            asked = client.get("/v2/session", headers={"Cookie": f"{cookies.NAME}={cookie}"})
            assert asked.status_code == 401, cookie
        assert client.get("/v2/session", headers={"Cookie": f"{cookies.NAME}={good}"}).status_code == 200


# --- pages of other sites ---------------------------------------------------------------------------------------

ELSEWHERE = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "https://evil.example"},
    {"Origin": "http://[:::]"},
    {"Origin": "null"},
    {"Origin": "http://localhost:9999"},
    {"Origin": "http://localhost.evil.example"},
]


@pytest.mark.parametrize("headers", ELSEWHERE)
def test_a_page_of_another_site_does_nothing_with_our_cookie(
    client: TestClient, db: Db, headers: dict[str, str]
) -> None:
    snap = mark(signed_in(client))
    attempts = [
        client.post(SNAPS, json=body(), headers=headers),
        client.post(f"{SNAPS}/{snap['snapId']}/share", headers=headers),
        client.delete(f"{SNAPS}/{snap['snapId']}", headers=headers),
        client.post("/v2/videos", content=b"\0\0\0\x18ftypmp42", headers=headers),
        client.post("/v2/session", json={"token": "dev-default-token"}, headers=headers),
        client.delete("/v2/session", headers=headers),
    ]
    assert [answer.status_code for answer in attempts] == [403] * len(attempts)
    assert (count(db, "snap"), count(db, "share"), count(db, "video")) == (1, 0, 1)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"},
        {"Origin": "http://localhost"},
        {"Sec-Fetch-Site": "none"},
        {},
        {"Origin": "https://app.example", "X-Assinatura-Codigo": "default"},  # no page sends that unasked
    ],
)
def test_our_own_pages_and_other_clients_may(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post(SNAPS, json=body(), headers=headers).status_code == 202


def test_behind_a_proxy_our_pages_have_the_public_name(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False, public_base_url="https://snaps.example") as client:
        assert client.post(SNAPS, json=body(), headers={"Origin": "https://snaps.example"}).status_code == 202
        assert client.post(SNAPS, json=body(), headers={"Origin": "https://snaps.example.evil"}).status_code == 403

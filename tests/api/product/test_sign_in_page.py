"""The page at /sign-in: for browsers without scripts, with what guards every change."""

from pathlib import Path
from time import process_time

import pytest
import sqlalchemy
from starlette.testclient import TestClient

from tests.api.conftest import served
from tests.api.examples import add_tenant
from tests.api.product.test_sessions import ELSEWHERE


def asked(client: TestClient, headers: dict[str, str] | None = None, **form: str) -> tuple[int, str, bool]:
    """The status, where it leads, and whether a cookie was given."""
    answer = client.post("/sign-in", data=form, headers=headers, follow_redirects=False)
    return answer.status_code, answer.headers.get("Location", ""), "Set-Cookie" in answer.headers


def test_a_form_signs_in_and_leads_back(url: str, tmp_path: Path, engine: sqlalchemy.Engine) -> None:
    token = add_tenant(engine)
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        page = client.get("/snaps?q=manca&status=FAILED")
        assert 'name="next" value="/snaps?q=manca&amp;status=FAILED"' in page.text
        assert page.headers["Cache-Control"] == "private, no-store"
        assert asked(client, token=f" {token} ", next="/snaps?q=manca") == (303, "/snaps?q=manca", True)
        assert client.get("/v2/session").json()["code"] == "other"


@pytest.mark.parametrize("token", ["", " ", "wrong", "\u00e7\x00", "x" * 100_000])
def test_a_wrong_token_is_said_to_be_wrong_beside_the_form(client: TestClient, token: str) -> None:
    answer = client.post("/sign-in", data={"token": token, "next": "/snaps/x"}, headers={"Accept-Language": "pt"})
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (401, False)
    assert 'role="alert">Token inválido.</p>' in answer.text
    assert 'value="/snaps/x"' in answer.text


@pytest.mark.parametrize(
    "place",
    [
        "",
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/snapsx",
        "/snaps\r\nX: y",
        '/snaps"><b>',
        "/ops",
    ],
)
def test_it_leads_to_no_other_place(client: TestClient, place: str) -> None:
    status, location, _ = asked(client, token="dev-default-token", next=place)
    assert (status, location) in ((303, "/snaps"), (303, "/snaps%22%3E%3Cb%3E"))
    assert "<b>" not in client.get("/sign-in", params={"next": place}).text


@pytest.mark.parametrize("headers", ELSEWHERE)
def test_a_page_of_another_site_signs_nobody_in(client: TestClient, headers: dict[str, str]) -> None:
    assert asked(client, headers, token="dev-default-token") == (403, "", False)


def test_who_guesses_waits(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False) as client:
        stranger = TestClient(client.app, base_url="http://localhost", client=("203.0.113.7", 1))
        answers = [stranger.post("/sign-in", data={"token": "x"}).status_code for _ in range(31)]
        assert (answers[0], answers[-1]) == (401, 429)


@pytest.mark.parametrize("page", ["/snaps", "/operators"])
def test_who_guesses_in_the_header_of_a_page_waits(url: str, tmp_path: Path, page: str) -> None:
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        stranger = TestClient(client.app, base_url="http://localhost", client=("203.0.113.7", 1))
        guesses = [{"X-Assinatura-Token": f"guess-{number}"} for number in range(31)]
        answers = [stranger.get(page, headers=each, follow_redirects=False).status_code for each in guesses]
        assert (answers[0], answers[-1]) == (401, 429)


@pytest.mark.parametrize(
    "body", [b"token", b"token=a&token=b", b"%ff=%00", b"\xff" * 100, b"token=" + b"a" * 3_000_000]
)
def test_what_is_no_form_is_no_token(client: TestClient, body: bytes) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/sign-in", content=body, headers=headers).status_code in (400, 401, 413)
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert client.post("/sign-in", content=body, headers=headers).status_code in (400, 401, 413)


@pytest.mark.parametrize("path", ["/sign-in", "/operators", "/operators/1/role"])
def test_a_form_of_separators_alone_keeps_nobody_waiting(client: TestClient, path: str) -> None:
    """The framework's reader took 4.5 s of the event loop for it, before it asked who sends it."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    began = process_time()
    assert client.post(path, content=b"&" * 2_000_000, headers=headers).status_code == 400
    assert process_time() - began < 1

"""Pages of other origins: only those that the settings name, and never with their cookies."""

from pathlib import Path

import pytest

from tests.api.conftest import served

APP = "https://app.example.com"
ASKING = {
    "Origin": APP,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "x-assinatura-codigo, x-assinatura-token, idempotency-key",
}


def test_nobody_elses_page_may_call_unless_it_is_named(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False) as client:
        given = client.get("/actuator/health", headers={"Origin": APP})
        assert not [name for name in given.headers if name.startswith("access-control")]


@pytest.mark.parametrize("origins", [(APP,), ("*",)])
def test_a_named_origin_may_call_and_read_answers_and_refusals(
    url: str, tmp_path: Path, origins: tuple[str, ...]
) -> None:
    with served(url, tmp_path, worker_enabled=False, cors_allowed_origins=origins) as client:
        asked = client.options("/internal/jobs", headers=ASKING)
        assert asked.status_code == 200
        assert "x-assinatura-token" in asked.headers["access-control-allow-headers"]
        for path, status in (("/actuator/health", 200), ("/media/x/y", 404), ("/internal/jobs", 403)):
            given = client.get(path, headers={"Origin": APP})
            assert given.status_code == status
            assert given.headers["access-control-allow-origin"] in (APP, "*")
            assert "access-control-allow-credentials" not in given.headers
            assert "Content-Range" in given.headers["access-control-expose-headers"]


def test_an_origin_that_is_not_named_is_not_let_in_beside_one_that_is(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False, cors_allowed_origins=(APP,)) as client:
        for other in ("https://app.example.com.evil.net", "http://app.example.com", "null"):
            given = client.get("/actuator/health", headers={"Origin": other})
            assert "access-control-allow-origin" not in given.headers
            assert client.options("/internal/jobs", headers=ASKING | {"Origin": other}).status_code == 400


def test_a_named_origin_acts_for_itself_and_not_for_who_is_signed_in(url: str, tmp_path: Path) -> None:
    """A page of a sister domain brings the cookie along."""
    across = {"Origin": APP, "Sec-Fetch-Site": "same-site"}
    hook = {"url": "https://hooks.example/", "events": ["snap.completed"]}
    with served(url, tmp_path, worker_enabled=False, cors_allowed_origins=(APP,)) as client:
        assert client.post("/v2/webhooks", json=hook, headers=across).status_code == 201
        assert client.post("/v2/webhooks", json=hook, headers=across | {"Origin": f"{APP}.evil.net"}).status_code == 403
    with served(url, tmp_path, worker_enabled=False, cors_allowed_origins=(APP,), require_api_token=True) as client:
        assert client.post("/v2/session", json={"token": "dev-default-token"}).status_code == 200
        assert client.post("/v2/webhooks", json=hook).status_code == 201
        assert client.post("/v2/webhooks", json=hook, headers=across).status_code == 401

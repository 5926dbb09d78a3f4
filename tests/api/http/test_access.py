"""From where /internal answers, and how many wrong tokens an address may try."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.http.requests.access import WRONG_A_MINUTE, Access, is_of_this_machine
from tests.api.conftest import served
from tests.api.examples import add_tenant
from tests.factory import Db, make_job

JOBS = "/internal/jobs"
TOKEN = "t" * 20


@pytest.fixture
def guarded(url: str, tmp_path: Path) -> Iterator[TestClient]:
    allow = ("10.0.0.0/8", "2001:db8::/32")
    with served(url, tmp_path, worker_enabled=False, internal_token=TOKEN, internal_allow=allow) as client:
        yield client


def asked_from(client: TestClient, address: str, path: str = JOBS, token: str = TOKEN) -> Any:
    elsewhere = TestClient(client.app, base_url="http://snaps.example", client=(address, 50000))
    return elsewhere.get(path, headers={"X-Internal-Token": token})


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7", "127.0.0.1", "::1"])
def test_internal_answers_where_the_address_is_named_and_on_this_machine(guarded: TestClient, address: str) -> None:
    """R50: a CIDR list."""
    assert asked_from(guarded, address).status_code == 200


@pytest.mark.parametrize("address", ["11.1.2.3", "192.168.0.1", "2001:db9::7", "testclient"])
def test_another_address_is_refused_token_or_not(guarded: TestClient, address: str) -> None:
    """R50."""
    answer = asked_from(guarded, address)
    assert (answer.status_code, answer.json()["message"]) == (403, "SNAPAPP_INTERNAL_ALLOW does not name your address")
    assert asked_from(guarded, address, "/actuator/liveness").status_code == 200


def test_an_address_that_guesses_waits_and_its_neighbours_do_not(guarded: TestClient) -> None:
    """R50: 30 bad logins a minute."""
    guesses = [asked_from(guarded, "10.0.0.1", token=f"guess-{n}").status_code for n in range(2 * WRONG_A_MINUTE + 2)]
    assert guesses[:WRONG_A_MINUTE] == [401] * WRONG_A_MINUTE
    assert guesses[-1] == 429  # though a minute may have passed among them
    answer = asked_from(guarded, "10.0.0.1")
    assert (answer.status_code, answer.json()["message"][:27]) == (429, "Too many wrong tokens: wait")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert asked_from(guarded, "10.0.0.2").status_code == 200


def test_a_health_check_helps_nobody_to_guess(guarded: TestClient) -> None:
    """Anybody may ask, and whoever shows the token is told more."""
    asked = [asked_from(guarded, "10.0.0.1", "/actuator/readiness", f"{n}") for n in range(2 * WRONG_A_MINUTE + 2)]
    assert (asked[0].status_code, asked[-1].status_code) == (200, 429)
    assert "database" in asked_from(guarded, "10.0.0.2", "/actuator/readiness").json()["components"]


def test_a_device_whose_token_was_replaced_keeps_nobody_from_working(
    url: str, tmp_path: Path, engine: sqlalchemy.Engine
) -> None:
    """It asks every two seconds, and so do others behind the same router. A code beside one token, and a token in a
    header that is there twice, are guesses."""
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        token = add_tenant(engine, "farm")
        site = TestClient(client.app, base_url="http://snaps.example", client=("10.0.0.1", 50000))

        def asked(*headers: tuple[str, str]) -> int:
            return int(site.get("/v2/snaps", headers=[*headers]).status_code)

        for _ in range(2 * WRONG_A_MINUTE + 2):
            assert asked(("X-Assinatura-Token", "replaced")) == 401
        assert asked(("X-Assinatura-Token", token)) == 200
        guessed = [
            asked(("X-Assinatura-Token", f"{n}"), ("X-Assinatura-Token", "same")) for n in range(2 * WRONG_A_MINUTE + 2)
        ]
        assert (guessed[0], guessed[-1]) == (401, 429)


def test_sign_ins_are_counted_and_requests_without_a_token_are_not(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        stranger = TestClient(client.app, base_url="http://snaps.example", client=("10.0.0.1", 50000))
        for _ in range(WRONG_A_MINUTE + 5):
            assert stranger.get("/v2/videos/mine").status_code == 401
        guess = {"token": "guess"}
        signed = [stranger.post("/v2/session", json=guess).status_code for _ in range(2 * WRONG_A_MINUTE + 2)]
        assert signed[:WRONG_A_MINUTE] == [401] * WRONG_A_MINUTE
        assert signed[-1] == 429  # though a minute may have passed among them


def test_a_minute_later_all_is_forgotten() -> None:
    now = [0.0]
    access = Access([], clock=lambda: now[0])
    scope: dict[str, Any] = {"client": ("2001:db8::1", 1)}
    for host in range(WRONG_A_MINUTE):
        access.was_wrong({"client": (f"2001:db8::{host + 1:x}", 1)}, f"guess-{host}".encode())
    now[0] = 20.0
    assert access.wait_for(scope) == 40
    now[0] = 60.0
    assert access.wait_for(scope) == 0


def test_this_machine_never_waits_and_the_memory_has_an_end() -> None:
    access = Access([], clock=lambda: 0.0)
    for number in range(20_000):
        access.was_wrong({"client": ("127.0.0.1", 1)}, None)
        access.was_wrong({"client": (f"10.{number // 65536}.{number // 256 % 256}.{number % 256}", 1)}, None)
    assert access.wait_for({"client": ("127.0.0.1", 1)}) == 0
    for _ in range(10 * WRONG_A_MINUTE):
        access.was_wrong({"client": ("10.0.0.1", 1)}, None)
    assert len(access._wrong) <= 10_000
    assert max(map(len, access._wrong.values())) <= WRONG_A_MINUTE


def test_a_reader_sees_everything_and_changes_nothing(url: str, tmp_path: Path, db: Db) -> None:
    reader = "r" * 20
    job_id = make_job(db, "FAILED")
    with served(url, tmp_path, worker_enabled=False, internal_token=TOKEN, internal_read_token=reader) as client:
        shown = {"X-Internal-Token": reader}
        for path in (JOBS, f"{JOBS}/{job_id}", "/internal/queues", "/internal/audit"):
            assert client.get(path, headers=shown).status_code == 200, path
        changes = [route for route in routes(client) if route[1] not in ("get", "head")]
        assert len(changes) > 10
        for path, method in changes:
            answer = client.request(method, path, headers=shown)
            assert (answer.status_code, answer.json()["message"][:35]) == (403, "This token reads and changes nothin")
        roles = [client.get("/internal/role", headers={"X-Internal-Token": each}).json() for each in (reader, TOKEN)]
        assert roles == [{"role": "reader"}, {"role": "operator"}]
        assert client.post(f"{JOBS}/{job_id}/retry", headers={"X-Internal-Token": TOKEN}).status_code == 200
        assert client.get(JOBS, headers={"X-Internal-Token": reader + "x"}).status_code == 401


def routes(client: TestClient) -> list[tuple[str, str]]:
    """Of /internal, with something in the place of each parameter."""
    paths = client.get("/openapi.json").json()["paths"]
    named = [(re.sub(r"\{[^}]*\}", "1", path), method) for path, methods in paths.items() for method in methods]
    return [each for each in named if each[0].startswith("/internal")]


def test_a_proxy_that_asks_for_others_through_a_unix_socket_is_not_this_machine() -> None:
    access = Access(["10.0.0.0/8"])
    ours: dict[str, Any] = {"client": None, "headers": [(b"host", b"localhost")]}
    others = {"client": None, "headers": [*ours["headers"], (b"x-forwarded-for", b"203.0.113.9")]}
    assert (access.may_ask(ours), is_of_this_machine(ours)) == (True, True)
    assert (access.may_ask(others), is_of_this_machine(others)) == (False, False)

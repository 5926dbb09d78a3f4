"""Operators and their personal links, as a clumsy and a hostile person use them."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.http import cookies
from snapapp.api.http.requests.access import WRONG_A_MINUTE
from snapapp.domain import operators, tenants
from snapapp.settings.table import Environment
from tests.api.conftest import served
from tests.api.examples import SNAPS, add_tenant, as_tenant, body, mark
from tests.api.product.people import OPERATORS, TOKEN, People, a_farm
from tests.api.product.test_sessions import ELSEWHERE
from tests.domain.making import begun

SESSION = "/v2/session"


@pytest.fixture
def farm(url: str, tmp_path: Path) -> Iterator[People]:
    with a_farm(url, tmp_path) as people:
        yield people


def is_in(browser: TestClient) -> bool:
    return bool(browser.get(SESSION).status_code == 200)


def test_a_link_says_whose_it_is_and_signs_in_when_it_is_answered(farm: People) -> None:
    """S33: a chat that previews it, however often, signs nobody in and uses nothing up."""
    made = farm.added("ana")
    browser = farm.browser()
    for method in ("GET", "HEAD", "GET"):
        page = browser.request(method, made["link"])
        assert (page.status_code, "Set-Cookie" in page.headers) == (200, False)
    assert "<bdi>ana</bdi>" in page.text
    assert not is_in(browser)
    answer = browser.post(made["link"])
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= {*cookie.split("; ")}
    assert made["link"].rpartition("/")[2] not in cookie
    assert browser.get(SESSION).json() == {
        "code": "default",
        "name": "Default",
        "operator": {
            "id": made["id"],
            "nickname": "ana",
            "email": "ana@fazenda.example",
            "role": "operator",
            "mayChangeAll": False,
            "mayChangeSettings": False,
        },
    }
    assert browser.post("/sign-out").headers["Location"] == "/sign-in"
    assert not is_in(browser)


def test_a_link_opened_twice_makes_two_sessions_and_a_new_link_ends_both(farm: People) -> None:
    """S33."""
    farm.added("ana")
    browsers = [farm.signed_in("ana"), farm.signed_in("ana")]
    assert all(is_in(each) for each in browsers)
    answer = farm.tenant.post(f"{OPERATORS}/{farm.ids['ana']}/link")
    assert answer.headers["Cache-Control"] == "no-store"
    assert not any(is_in(each) for each in browsers)
    old, farm.links["ana"] = farm.links["ana"], answer.json()["link"]
    assert farm.browser().post(old).status_code == 401
    again = farm.signed_in("ana")
    assert is_in(again)
    assert farm.tenant.delete(f"{OPERATORS}/{farm.ids['ana']}").status_code == 204
    assert not is_in(again)
    assert again.post(SNAPS, json=body()).status_code == 401
    assert farm.browser().get(farm.links["ana"]).status_code == 401
    assert farm.tenant.delete(f"{OPERATORS}/{farm.ids['ana']}").status_code == 404


def test_a_new_token_of_the_tenant_leaves_its_operators_signed_in(farm: People, engine: sqlalchemy.Engine) -> None:
    ana = farm["ana"]
    with begun(engine) as session:
        tenants.rotate_token(session, "default")
    assert is_in(ana)
    assert farm.tenant.get(SESSION).status_code == 401


def test_another_role_holds_from_the_next_request_on(farm: People) -> None:
    """S33: and the link and its sessions go on."""
    ana, bias = farm["ana"], f"{SNAPS}/{mark(farm['bia'], nickname='bia', email='bia@fazenda.example')['snapId']}"
    before = farm.tenant.get(OPERATORS).json()["items"]
    for role, may_change_all in (("reviewer", True), ("operator", False)):
        answer = farm.tenant.patch(f"{OPERATORS}/{farm.ids['ana']}", json={"role": role})
        assert answer.json() == next(each for each in before if each["nickname"] == "ana") | {"role": role}
        corrected = ana.patch(f"{bias}/subject", json={"id": f"by a {role}", "nickname": "ana"})
        assert (corrected.status_code == 200) is may_change_all
        assert ana.get(SESSION).json()["operator"]["mayChangeAll"] is may_change_all
    assert is_in(farm.signed_in("ana"))


@pytest.mark.parametrize("body", [{}, {"role": None}, {"role": "owner"}, {"role": ["admin"]}, {"role": ""}])
def test_a_role_that_is_none_is_refused(farm: People, body: dict[str, Any]) -> None:
    ana = farm["ana"]
    answer = farm.tenant.patch(f"{OPERATORS}/{farm.ids['ana']}", json=body)
    assert (answer.status_code, answer.json()["details"][0].partition(":")[0]) == (400, "role")
    assert ana.get(SESSION).json()["operator"]["role"] == "operator"


def test_the_list_shows_who_may_sign_in_and_no_secret(farm: People) -> None:
    made = farm.added("ana")
    farm.added("eva")
    answer = farm.tenant.get(OPERATORS)
    assert [(each["nickname"], each["role"]) for each in answer.json()["items"]] == [
        ("ana", "operator"),
        ("eva", "admin"),
    ]
    assert made["link"].rpartition("/")[2] not in answer.text
    assert "hash" not in answer.text.lower()


def test_with_a_public_address_the_link_is_whole(url: str, tmp_path: Path) -> None:
    with a_farm(url, tmp_path, public_base_url="https://snaps.example") as farm:
        assert farm.added("ana")["link"].startswith("https://snaps.example/sign-in/default/")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"role": "owner"}, "role"),
        ({"role": None}, "role"),
        ({"role": "ADMIN "}, "role"),
        ({"nickname": " "}, "nickname"),
        ({"nickname": "a" * 121}, "nickname"),
        ({"nickname": "a\0"}, "nickname"),
        ({"email": "ana"}, "email"),
        ({"email": "a@" + "b" * 320}, "email"),
        ({"email": None}, "email"),
    ],
)
def test_an_operator_that_cannot_be_is_refused_with_the_field(
    farm: People, changes: dict[str, Any], field: str
) -> None:
    asked = {"nickname": "ana", "email": "ana@fazenda.example", "role": "operator"} | changes
    answer = farm.tenant.post(OPERATORS, json=asked)
    assert (answer.status_code, answer.json()["details"][0].partition(":")[0]) == (400, field)


def test_nobody_is_added_twice(farm: People) -> None:
    farm.added("ana")
    again = {"nickname": "Ana", "email": "ANA@fazenda.example", "role": "admin"}
    assert farm.tenant.post(OPERATORS, json=again).status_code == 409
    assert [each["role"] for each in farm.tenant.get(OPERATORS).json()["items"]] == ["operator"]


# --- hostile ------------------------------------------------------------------------------------------------------


def test_a_cookie_names_another_operator_only_if_it_was_signed_here(farm: People, engine: sqlalchemy.Engine) -> None:
    """S33: the role is read from the row each time, and never from what the browser sends."""
    farm.added("ana")
    farm.added("eva")
    ours = farm.tenant.app.state.monolith.links.secret_texts  # type: ignore[attr-defined]
    with as_tenant(engine) as own:
        since = {each.nickname: each.link_changed_at for each in operators.every(own, "default")}
    assert since["ana"]
    assert since["eva"]
    now = datetime.now(UTC)
    good = cookies.made(ours, "default", since["ana"], now, farm.ids["ana"])
    forged = [
        cookies.made(ours, "default", since["ana"], now, farm.ids["eva"]),
        cookies.made(ours, "default", since["ana"], now, 999_999),
        cookies.made(ours, "default", since["ana"], now, None),
        cookies.made(ours, "default", since["ana"], now - cookies.LASTS, farm.ids["ana"]),
        cookies.made(ours, "nobody", since["ana"], now, farm.ids["ana"]),
        cookies.made(["another secret, as long as it takes"], "default", since["eva"], now, farm.ids["eva"]),
        good.replace(good[:8], cookies.made(ours, "default", since["eva"], now, farm.ids["eva"])[:8], 1) + "A",
    ]
    for cookie in forged:
        asked = farm.browser({"Cookie": f"{cookies.NAME}={cookie}"}).get(SESSION)
        assert asked.status_code == 401, cookie
    assert is_in(farm.browser({"Cookie": f"{cookies.NAME}={good}"}))


def test_no_body_raises_a_role(farm: People) -> None:
    for claim in ({"role": "admin"}, {"operatorId": 1}, {"operator": {"role": "admin"}}):
        assert farm["ana"].post(SNAPS, json=body(**claim)).json()["operatorId"] == farm.ids["ana"]
    farm["ana"].post(SESSION, json={"token": "x", "role": "admin"})
    assert farm["ana"].get(SESSION).json()["operator"]["role"] == "operator"
    place = f"{OPERATORS}/{farm.ids['ana']}"
    for method, status in (("PATCH", 403), ("PUT", 405), ("POST", 405)):
        assert farm["ana"].request(method, place, json={"role": "admin"}).status_code == status
    assert farm["ana"].get(SESSION).json()["operator"]["role"] == "operator"


def test_another_tenants_operators_are_not_there(farm: People, engine: sqlalchemy.Engine) -> None:
    """S24, S33."""
    stranger = farm.browser({"X-Assinatura-Token": add_tenant(engine)})
    ana = farm["ana"]
    assert stranger.get(OPERATORS).json() == {"items": []}
    for operator_id in (farm.ids["ana"], 999_999):
        for answer in (
            stranger.delete(f"{OPERATORS}/{operator_id}"),
            stranger.post(f"{OPERATORS}/{operator_id}/link"),
            stranger.patch(f"{OPERATORS}/{operator_id}", json={"role": "admin"}),
        ):
            assert (answer.status_code, answer.json()["message"]) == (404, f"Operator not found: {operator_id}")
    for no_id in ("0", "-1", "x", str(2**63), "9" * 40):
        assert stranger.delete(f"{OPERATORS}/{no_id}").status_code == 400
    assert is_in(ana)
    secret = farm.links["ana"].rpartition("/")[2]
    assert farm.browser().post(f"/sign-in/other/{secret}").status_code == 401
    theirs = mark(stranger)["snapId"]
    assert ana.get(f"{SNAPS}/{theirs}").status_code == 404
    assert ana.delete(f"{SNAPS}/{theirs}").status_code == 404
    both = ana.get(SESSION, headers={"X-Assinatura-Codigo": "other"})
    assert both.status_code == 401, "a header of another tenant beside the cookie"


@pytest.mark.parametrize("headers", ELSEWHERE)
def test_a_page_of_another_site_signs_nobody_in_or_out(farm: People, headers: dict[str, str]) -> None:
    farm.added("eva")
    browser = farm.browser()
    assert browser.post(farm.links["eva"], headers=headers).status_code == 403
    assert not is_in(browser)
    eva = farm["eva"]
    new = {"nickname": "Zoe", "email": "zoe@evil.example", "role": "admin"}
    attempts = [
        eva.post("/sign-out", headers=headers),
        eva.post(OPERATORS, json=new, headers=headers),
        eva.post(f"{OPERATORS}/{farm.ids['eva']}/link", headers=headers),
        eva.patch(f"{OPERATORS}/{farm.ids['eva']}", json={"role": "operator"}, headers=headers),
        eva.delete(f"{OPERATORS}/{farm.ids['eva']}", headers=headers),
    ]
    assert [answer.status_code for answer in attempts] == [403] * 5
    assert is_in(eva)
    assert len(farm.tenant.get(OPERATORS).json()["items"]) == 1


def test_a_site_that_may_use_the_api_signs_nobody_in_or_out(url: str, tmp_path: Path) -> None:
    """The origins of CORS_ALLOWED_ORIGINS send a token. A form of theirs would sign its reader in as somebody else, in
    whose name they then mark."""
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": "https://tools.example"}
    with a_farm(url, tmp_path, cors_allowed_origins=("*",)) as farm:
        eva = farm["eva"]
        for place, form in [(farm.links["eva"], {}), ("/sign-in", {"token": "dev-default-token"}), ("/sign-out", {})]:
            answer = eva.post(place, data=form, headers=headers)
            assert (answer.status_code, "Set-Cookie" in answer.headers) == (403, False), place
        assert is_in(eva)
        assert farm.tenant.post(SNAPS, json=body(), headers=headers).status_code == 202, "with the token it may"


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202egnp.exe", "{{7*7}}"]
)
def test_a_name_is_text_wherever_it_is_shown(farm: People, name: str) -> None:
    farm.added("ana", nickname=name)
    page = farm.browser().get(farm.links["ana"])
    assert "<script>alert" not in page.text
    assert "<img src=x" not in page.text
    assert "49" not in page.text.partition("<h1")[2]
    assert farm["ana"].get(SESSION).json()["operator"]["nickname"] == name
    ana = farm["ana"]
    assert mark(ana, nickname=name)["nickname"] == name
    assert "<script>alert" not in ana.get("/snaps").text
    assert ana.post(SNAPS, json=body(nickname="x")).headers["Content-Type"] == "application/json"


def test_the_page_of_a_link_gives_its_address_to_nobody(farm: People) -> None:
    farm.added("ana")
    headers = farm.browser().get(farm.links["ana"]).headers
    assert headers["Referrer-Policy"] == "strict-origin"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "form-action 'self'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "private, no-store"


def test_a_failed_request_is_logged_without_the_secret_of_its_link(
    farm: People, engine: sqlalchemy.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    farm.added("ana")
    secret = farm.links["ana"].rpartition("/")[2]
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE operator DROP COLUMN link_changed_at CASCADE")
        connection.exec_driver_sql("ALTER TABLE operator ADD COLUMN link_changed_at text DEFAULT 'never'")
    with caplog.at_level(logging.DEBUG, "snapapp"):
        assert farm.browser().post(farm.links["ana"]).status_code >= 500
    assert "/sign-in/***" in caplog.text
    assert secret not in caplog.text


def test_who_guesses_links_waits(farm: People) -> None:
    stranger = farm.browser(client="203.0.113.7")
    methods = enumerate(("GET", "POST", "HEAD") * 11)
    asked = [stranger.request(method, f"/sign-in/default/{number}").status_code for number, method in methods]
    assert (asked[0], asked[1], asked[-1]) == (401, 401, 429)
    assert farm.browser(TOKEN, client="203.0.113.8").get(SESSION).status_code == 200


@pytest.mark.parametrize("embedded_as", ["image", "iframe", "script", "empty"])
def test_a_page_of_another_site_makes_its_reader_wait_for_nothing(farm: People, embedded_as: str) -> None:
    """It embeds addresses that are no links; behind the reader's address are all clients of a farm."""
    reader = farm.browser(client="203.0.113.7")
    of_a_page = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": embedded_as}
    for _ in range(WRONG_A_MINUTE + 1):
        assert reader.get("/sign-in/default/x", headers=of_a_page).status_code == 403
    assert farm.browser(TOKEN, client="203.0.113.7").get(SESSION).status_code == 200
    from_a_mail = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    farm.added("ana")
    assert reader.get(farm.links["ana"], headers=from_a_mail).status_code == 200


@pytest.mark.parametrize("place", ["default/", "default/%00", "%00/x", "nobody/x", "default/" + "a" * 5000, "%ff/%ff"])
def test_what_is_no_link_says_so_kindly(farm: People, place: str) -> None:
    answer = farm.browser({"Accept-Language": "pt"}).get(f"/sign-in/{place}")
    assert answer.status_code in (401, 404)
    if answer.status_code == 401:
        assert "Este link não funciona mais" in answer.text


def test_without_scripts_one_signs_out_on_every_page(farm: People) -> None:
    ana = farm["ana"]
    page = ana.get("/snaps")
    assert '<form method="post" action="/sign-out">' in page.text
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    assert ana.post("/sign-out").status_code == 303
    assert ana.get("/snaps").headers["Location"].startswith("/sign-in?")
    assert "/sign-out" not in farm.browser().get("/sign-in").text


def test_where_no_token_is_required_an_operator_may_sign_in_all_the_same(client: TestClient) -> None:
    """And without signing in all is as it was."""
    snap = mark(client)
    farm = People(client)
    assert farm["bia"].delete(f"{SNAPS}/{snap['snapId']}").status_code == 403
    assert farm.browser().delete(f"{SNAPS}/{snap['snapId']}").status_code == 200


@pytest.mark.parametrize(("env", "known_token_opens"), [(Environment.DEV, True), (Environment.PROD, False)])
def test_where_no_token_is_required_a_stranger_gets_no_link(
    url: str, tmp_path: Path, engine: sqlalchemy.Engine, env: Environment, known_token_opens: bool
) -> None:
    """It would open everything when tokens are required one day. The token of the documentation proves nothing in
    prod."""
    token = add_tenant(engine)
    settings: dict[str, Any] = {"env": env, "internal_token": "i" * 32, "signing_secret": "s" * 32}
    new = {"nickname": "Zoe", "email": "zoe@evil.example", "role": "admin"}
    with served(url, tmp_path, worker_enabled=False, **settings) as client:
        farm = People(client)
        stranger, owner = farm.browser(), farm.browser({"X-Assinatura-Token": token})
        zoe = owner.post(OPERATORS, json=new).json()
        for headers in ({}, {"X-Assinatura-Codigo": "other"}, {"X-Assinatura-Token": "wrong"}):
            for method, place in [
                ("GET", OPERATORS),
                ("POST", OPERATORS),
                ("POST", f"{OPERATORS}/{zoe['id']}/link"),
                ("DELETE", f"{OPERATORS}/{zoe['id']}"),
            ]:
                assert stranger.request(method, place, json=new, headers=headers).status_code == 401, (method, headers)
        assert stranger.get(SNAPS).status_code == 200, "the rest is as open as it was"
        assert [each["id"] for each in owner.get(OPERATORS).json()["items"]] == [zoe["id"]]
        farm.links["zoe"] = zoe["link"]
        assert farm.signed_in("zoe").get(OPERATORS).status_code == 200
        assert (farm.tenant.post(OPERATORS, json=new).status_code == 201) is known_token_opens
        stranger.post(SESSION, json={"token": TOKEN["X-Assinatura-Token"]})
        assert (stranger.get(OPERATORS).status_code == 200) is known_token_opens

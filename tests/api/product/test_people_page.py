"""The page at /operators, with its forms as a browser without scripts sends them, and as a hostile person does."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.domain import operators
from snapapp.settings.table import Environment
from tests.api.conftest import served
from tests.api.examples import add_tenant
from tests.api.product.people import OPERATORS, TOKEN, People, a_farm
from tests.api.product.test_sessions import ELSEWHERE

PEOPLE = "/operators"
NEW = {"nickname": "Zoe", "email": "zoe@fazenda.example", "role": "reviewer"}
FORMS = {"": NEW, "/{id}/link": {}, "/{id}/role": {"role": "admin"}, "/{id}/revoke": {}}
LINK = re.compile(r'id="link" href="([^"]+)"')


@pytest.fixture
def farm(url: str, tmp_path: Path) -> Iterator[People]:
    with a_farm(url, tmp_path) as people:
        yield people


def send(browser: TestClient, form: str, who: object = 0, headers: dict[str, str] | None = None) -> httpx.Response:
    answer: httpx.Response = browser.post(PEOPLE + form.format(id=who), data=FORMS[form], headers=headers)
    return answer


def roles(farm: People) -> dict[str, str]:
    return {each["nickname"]: each["role"] for each in farm.tenant.get(OPERATORS).json()["items"]}


def by_token(farm: People, token: str = TOKEN["X-Assinatura-Token"]) -> TestClient:
    browser = farm.browser()
    assert browser.post("/v2/session", json={"token": token}).status_code == 200
    return browser


@pytest.mark.parametrize("who", ["eva", "the token"])
def test_people_are_managed_by_forms(farm: People, who: str) -> None:
    """S33: a link is shown once; another role holds at once; a new link ends the old one, and revoking ends all."""
    browser = by_token(farm) if who == "the token" else farm[who]
    made = send(browser, "")
    assert (made.status_code, made.headers["Cache-Control"]) == (200, "private, no-store")
    link = LINK.findall(made.text)[0]
    assert link.rpartition("/")[2] not in browser.get(PEOPLE).text
    assert "Zoe" in browser.get(PEOPLE).text
    farm.links["Zoe"], zoe = link, farm.tenant.get(OPERATORS).json()["items"][-1]["id"]
    first = farm.signed_in("Zoe")
    assert send(browser, "/{id}/role", zoe).status_code == 200
    assert first.get("/v2/session").json()["operator"]["role"] == "admin"
    farm.links["Zoe"] = LINK.findall(send(browser, "/{id}/link", zoe).text)[0]
    assert first.get("/v2/session").status_code == 401
    second = farm.signed_in("Zoe")
    assert send(browser, "/{id}/revoke", zoe).status_code == 200
    assert second.get("/v2/session").status_code == 401
    assert "Zoe" not in roles(farm)


@pytest.mark.parametrize("who", ["ana", "rui"])
def test_who_is_no_admin_is_refused_in_words(farm: People, who: str) -> None:
    """S33."""
    farm.added("eva")
    before = roles(farm) | {who: farm[who].get("/v2/session").json()["operator"]["role"]}
    answers = [farm[who].get(PEOPLE)]
    answers += [send(farm[who], form, farm.ids[whose]) for form in FORMS for whose in ("eva", who)]
    assert {(answer.status_code, "Only an admin may see and change this" in answer.text) for answer in answers} == {
        (403, True)
    }
    assert 'aria-current="true">Moments' not in answers[0].text
    assert "Só um administrador pode ver e alterar isto" in farm[who].get(f"{PEOPLE}?lang=pt").text
    assert not [answer for answer in answers if "eva@" in answer.text]
    assert roles(farm) == before


def test_who_has_not_signed_in_is_led_there_and_back(farm: People) -> None:
    farm.added("ana")
    stranger = farm.browser()
    assert stranger.get(PEOPLE).headers["Location"] == "/sign-in?next=%2Foperators"
    for form in FORMS:
        answer = send(stranger, form, farm.ids["ana"])
        assert (answer.status_code, answer.headers["Location"].partition("%")[0]) == (303, "/sign-in?next=")
    assert roles(farm) == {"ana": "operator"}
    signed_in = stranger.post("/sign-in", data={"token": "dev-default-token", "next": "/operators/7/link"})
    assert signed_in.headers["Location"] == "/operators/7/link"
    assert stranger.get("/operators/7/link?lang=pt").headers["Location"] == "/operators?lang=pt"


def test_where_no_token_is_required_the_page_asks_for_one(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False) as client:
        for answer in (client.get(PEOPLE, follow_redirects=False), client.post(PEOPLE, data=NEW)):
            assert "No such token" not in answer.text
            assert "Zoe" not in answer.text
        assert 'href="/operators"' not in client.get("/snaps").text
        assert client.get(OPERATORS, headers=TOKEN).json() == {"items": []}
        client.post("/sign-in", data={"token": "dev-default-token"})
        assert 'href="/operators"' in client.get("/snaps").text
        assert client.post(PEOPLE, data=NEW).status_code == 200


def test_who_signed_in_with_the_token_of_the_documentation_is_told_in_prod(url: str, tmp_path: Path) -> None:
    """To sign in again would lead back to the form, and again."""
    with served(url, tmp_path, worker_enabled=False, env=Environment.PROD) as client:
        client.post("/sign-in", data={"token": "dev-default-token"})
        for answer in (
            client.get(PEOPLE, follow_redirects=False),
            client.post(PEOPLE, data=NEW, follow_redirects=False),
        ):
            assert (answer.status_code, "snapapp tenants rotate-token" in answer.text) == (403, True)
        assert "Todos conhecem este token" in client.get(f"{PEOPLE}?lang=pt").text


def test_the_way_to_the_page_is_shown_to_who_may_go_it(farm: People) -> None:
    browsers = {who: farm[who] for who in ("ana", "rui", "eva")} | {"the token": by_token(farm)}
    pages = ("/snaps", "/snaps/subject?id=x", "/operators")
    shown = {who: {'href="/operators"' in each.get(page).text for page in pages} for who, each in browsers.items()}
    assert shown == {"ana": {False}, "rui": {False}, "eva": {True}, "the token": {True}}
    said = {who: browsers[who].get("/v2/session").json()["operator"]["mayChangeSettings"] for who in ("rui", "eva")}
    assert said == {"rui": False, "eva": True}


# --- what is wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "status", "words", "palavras"),
    [
        ({"nickname": " "}, 400, "Name: must not be empty", "Nome: não pode ficar vazio"),
        ({"nickname": "a" * 121}, 400, "Name: must have at most 120 characters", "Nome: deve ter no máximo 120 c"),
        ({"nickname": "a\0b"}, 400, "Name: holds a character that", "Nome: contém um caractere que"),
        ({"email": "ana"}, 400, "E-mail: must be an e-mail address", "E-mail: deve ser um endereço de e-mail"),
        ({"email": "a@" + "b" * 320}, 400, "E-mail: must have at most 320", "E-mail: deve ter no máximo 320"),
        ({"role": "owner"}, 400, "Role: is not known", "Função: não é conhecido"),
        ({"role": ""}, 400, "Role: is not known", "Função: não é conhecido"),
        ({"email": "ANA7@fazenda.example "}, 409, "can sign in already: ana7@f", "já pode entrar: ana7@f"),
    ],
)
def test_what_cannot_be_is_said_beside_what_was_typed(
    farm: People, changes: dict[str, str], status: int, words: str, palavras: str
) -> None:
    farm.added("ana", email="ana7@fazenda.example")
    wanted = NEW | changes
    for language, said in (("en", words), ("pt", palavras)):
        answer = farm["eva"].post(PEOPLE, data=wanted, headers={"Accept-Language": language})
        assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert f'value="{wanted["email"]}"' in answer.text
    assert [*roles(farm)] == ["ana", "eva"]


def test_more_than_there_may_be_are_refused_in_words(farm: People, monkeypatch: pytest.MonkeyPatch) -> None:
    eva = farm["eva"]
    monkeypatch.setattr(operators, "MOST", 1)
    answer = eva.post(f"{PEOPLE}?lang=pt", data=NEW)
    assert (answer.status_code, "Já há 1 operadores: revogue um primeiro" in answer.text) == (409, True)


def test_whom_somebody_else_has_revoked_is_not_there(farm: People) -> None:
    eva, ana = farm["eva"], farm.known("ana")
    farm.tenant.delete(f"{OPERATORS}/{ana}")
    for form in ("/{id}/link", "/{id}/role", "/{id}/revoke"):
        for nobody in (ana, 999_999):
            answer = send(eva, form, nobody)
            assert (answer.status_code, f"Operator not found: {nobody}" in answer.text) == (404, True)
        for no_id in ("0", "-1", "x", "9" * 40):
            assert send(eva, form, no_id).status_code == 400
    assert send(eva, "/{id}/role", farm.known("bia")).status_code == 200
    assert eva.post(f"{PEOPLE}/{farm.ids['bia']}/role", data={"role": "owner"}).status_code == 400
    assert roles(farm) == {"eva": "admin", "bia": "admin"}


def test_who_changes_themselves_is_led_to_what_they_may_still_see(farm: People) -> None:
    """The last admin, too: the tenant's token can add another one."""
    eva = farm["eva"]
    assert "another admin, or the tenant&#39;s token, can add you again" in eva.get(PEOPLE).text
    eva.post(f"{PEOPLE}/{farm.ids['eva']}/role", data={"role": "operator"})
    assert "Only an admin" in eva.get(PEOPLE).text
    farm.tenant.patch(f"{OPERATORS}/{farm.ids['eva']}", json={"role": "admin"})
    new = LINK.findall(send(eva, "/{id}/link", farm.ids["eva"]).text)
    assert len(new) == 1, "it is shown, though nobody is signed in by the old one any more"
    farm.links["eva"] = new[0]
    again = farm.signed_in("eva")
    answer = send(again, "/{id}/revoke", farm.ids["eva"])
    assert (answer.status_code, answer.headers["Location"]) == (303, PEOPLE)
    assert again.get(PEOPLE).headers["Location"].startswith("/sign-in")
    assert send(by_token(farm), "").status_code == 200


# --- hostile ------------------------------------------------------------------------------------------------------


def test_the_open_page_of_a_revoked_admin_does_nothing_more(farm: People) -> None:
    """S33."""
    eva, ana = farm["eva"], farm.known("ana")
    assert eva.get(PEOPLE).status_code == 200
    farm.tenant.delete(f"{OPERATORS}/{farm.ids['eva']}")
    for form in FORMS:
        answer = send(eva, form, ana)
        assert (answer.status_code, answer.headers["Location"].partition("?")[0]) == (303, "/sign-in")
    assert roles(farm) == {"ana": "operator"}


@pytest.mark.parametrize("headers", ELSEWHERE)
def test_a_page_of_another_site_changes_nobody(farm: People, headers: dict[str, str]) -> None:
    """S33."""
    eva, ana = farm["eva"], farm.known("ana")
    assert {send(eva, form, ana, headers).status_code for form in FORMS} == {403}
    assert roles(farm) == {"ana": "operator", "eva": "admin"}


def test_a_site_that_may_use_the_api_fills_in_no_form(url: str, tmp_path: Path) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": "https://tools.example"}
    with a_farm(url, tmp_path, cors_allowed_origins=("*",)) as farm:
        eva, ana = farm["eva"], farm.known("ana")
        assert {send(eva, form, ana, headers).status_code for form in FORMS} == {403}
        assert roles(farm) == {"ana": "operator", "eva": "admin"}


def test_another_tenants_people_are_not_there(farm: People, engine: sqlalchemy.Engine) -> None:
    """S24, S33."""
    stranger = by_token(farm, add_tenant(engine))
    ana = farm["ana"]
    assert "ana@fazenda.example" not in stranger.get(PEOPLE).text
    for form in ("/{id}/link", "/{id}/role", "/{id}/revoke"):
        assert send(stranger, form, farm.ids["ana"]).status_code == 404
    assert send(stranger, "").status_code == 200
    assert ana.get("/v2/session").status_code == 200
    assert roles(farm) == {"ana": "operator"}


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202egnp.exe", "{{7919*7907}}"]
)
def test_a_name_is_text_on_the_page(farm: People, name: str) -> None:
    made = farm["eva"].post(PEOPLE, data=NEW | {"nickname": name})
    refused = farm["eva"].post(PEOPLE, data=NEW | {"nickname": name, "email": f"<b>{name}"})
    assert (made.status_code, refused.status_code) == (200, 400)
    for page in (made, refused, farm["eva"].get(PEOPLE)):
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text
        assert "62615533" not in page.text
        assert "<b>" not in page.text.replace("<b>That is you", "")
        isolated = re.findall('(?:<bdi[^>]*>|value="(?:&lt;b&gt;)?)\u202e', page.text)
        assert page.text.count("\u202e") == len(isolated)
    assert "script-src 'self'" in made.headers["Content-Security-Policy"]
    assert not re.findall(r"<script(?! src)|\son\w+=|\sstyle=", made.text.replace("onerror=alert", ""))


@pytest.mark.parametrize("body", [b"nickname", b"nickname=a&nickname=b", b"%ff=%00", b"\xff" * 100])
def test_what_is_no_form_adds_nobody(farm: People, body: bytes) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    parts = {"Content-Type": "multipart/form-data; charset=utf-7; boundary=x"}
    surrogate = b'--x\r\nContent-Disposition: form-data; name="nickname"\r\n\r\n+2AA-\r\n--x--\r\n'
    for content, headers in ((body, form), (body, parts), (surrogate, parts)):
        assert farm["eva"].post(PEOPLE, content=content, headers=headers).status_code == 400
    assert [*roles(farm)] == ["eva"]

"""The operator's pages that the server makes: without scripts, for whom they are, and with text that stays text."""

import re
from html import escape
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.product.pages import operator
from tests.api.conftest import served
from tests.api.examples import NOBODY, OTHER, add_tenant, complete, mark, number, text
from tests.factory import Db

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(2)>{{ 7919 * 7907 }}"""
PAGES = ("/snaps/compare?a={a}&b={b}", "/snaps/subject?id=BR-1042", "/snaps?subjectId=BR-1042", "/snaps")


def compare(client: TestClient, a: str, b: str, **asked: str) -> httpx.Response:
    answer: httpx.Response = client.get("/snaps/compare", params={"a": a, "b": b}, headers=asked)
    return answer


def test_two_moments_stand_side_by_side_with_what_is_apart(
    client: TestClient, engine: sqlalchemy.Engine, db: Db
) -> None:
    one = mark(client)
    complete(client, engine, db, one)
    later = {"attributes": [text("raca", "Nelore"), number("peso_referencia", 451.0001)]}
    other = mark(client, dataFilmagem="2026-06-14T17:40:00-03:00", subject={"id": "BR-1042"} | later)
    page = compare(client, one["snapId"], other["snapId"])
    assert (page.status_code, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    clips = re.findall(r'<video controls [^>]*src="([^"]+)"', page.text)
    assert len(clips) == 1  # the other has none yet, and says so
    assert "There are no pictures of this moment." in page.text
    assert client.get(clips[0]).content == b"the bytes of snapshot.mp4"
    assert ("451.0001" in page.text, "+38.5001" in page.text) == (True, True)
    assert "105 days" in page.text
    portuguese = compare(client, one["snapId"], other["snapId"], **{"Accept-Language": "pt-BR"}).text
    assert ("+38,5001" in portuguese, "105 dias" in portuguese, "Dois momentos" in portuguese) == (True, True, True)
    assert '<html lang="pt-BR"' in compare(client, NOBODY, NOBODY, Cookie="language=pt").text


@pytest.mark.parametrize("value", [1046.0625, 76012345678912, 0.0005])
def test_a_number_of_the_subject_is_shown_with_all_its_digits(client: TestClient, value: float) -> None:
    snap = mark(client, subject={"id": "BR-1042", "attributes": [number("peso_referencia", value)]})
    link = client.post(f"/v2/snaps/{snap['snapId']}/share").json()["publicUrl"]
    for page in (PAGES[0].format(a=snap["snapId"], b=snap["snapId"]), PAGES[1], link):
        assert f"{value}" in client.get(page, headers={"Accept": "text/html"}).text, page


def test_all_moments_of_a_subject_are_there_page_by_page(client: TestClient) -> None:
    """The one filmed last first, whenever it was marked; each leads to the one before it, over the page's edge too."""
    days = [f"2026-01-{1 + (7 * n) % 27:02}T08:00:00Z" for n in range(operator.AT_ONCE + 2)]
    ids = {day: mark(client, dataFilmagem=day)["snapId"] for day in days}
    mark(client, subject={"id": "BR-2"})
    wanted = [ids[day] for day in sorted(days, reverse=True)]
    seen: list[str] = []
    pairs: list[tuple[str, str]] = []
    address: str | None = "/snaps/subject?id=BR-1042"
    while address:
        page = client.get(address).text
        seen += re.findall(r'<h2><a href="/snaps/([\w-]+)">', page)
        pairs += re.findall(r'compare\?a=([\w-]+)&amp;b=([\w-]+)"', page)
        older = re.search(r'href="([^"]+)" rel="next"', page)
        address = f"/snaps/subject{older[1].replace('&amp;', '&')}" if older else None
    assert seen == wanted
    assert pairs == [(before, after) for after, before in pairwise(wanted)]
    assert 'rel="prev"' in page


def test_what_somebody_typed_stays_text(client: TestClient) -> None:
    hostile = {"id": HOSTILE, "attributes": [text(HOSTILE, HOSTILE)]}
    snap = mark(client, nickname=HOSTILE[:100], subject=hostile)
    pages = [
        compare(client, snap["snapId"], snap["snapId"]),
        client.get("/snaps/subject", params={"id": HOSTILE, "lang": '"><script>', "x": HOSTILE}),
        client.get("/snaps/subject", params={"id": HOSTILE + "!", HOSTILE: "1"}),
        client.get("/snaps", params={"subjectId": HOSTILE, "nickname": HOSTILE[:100], "lang": '"><script>'}),
    ]
    for page in pages:
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text
        assert 'lang="">' not in page.text
        assert str(7919 * 7907) not in page.text
        assert "script-src 'self'" in page.headers["Content-Security-Policy"]
        assert "trusted-types 'none'" in page.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    assert escape(HOSTILE, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in pages[0].text


@pytest.mark.parametrize("path", PAGES)
def test_anothers_are_not_there(client: TestClient, engine: sqlalchemy.Engine, path: str) -> None:
    add_tenant(engine)
    snap = mark(client, headers=OTHER)
    foreign = client.get(path.format(a=snap["snapId"], b=snap["snapId"]))
    own = client.get(path.format(a=snap["snapId"], b=snap["snapId"]), headers=OTHER)
    link = f'href="/snaps/{snap["snapId"]}"'
    assert (link in foreign.text, link in own.text) == (False, True)
    never = client.get(path.format(a=NOBODY, b=NOBODY)).text
    assert foreign.text.replace(snap["snapId"], NOBODY) == never, "as one that never existed"


def test_a_browser_at_an_address_that_is_none_reads_a_page(client: TestClient) -> None:
    as_browsers = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for path in ("/snap", "/snaps/not-a-uuid"):
        page = client.get(path, headers=as_browsers | {"Accept-Language": "pt-BR"})
        assert (page.status_code, "Esta página não existe." in page.text) == (404, True), path
    assert client.head("/snap", headers=as_browsers).headers["Content-Type"] == page.headers["Content-Type"]
    assert client.get("/snap").json()["message"] == "Not Found"
    assert client.get(f"/v2/snaps/{NOBODY}", headers=as_browsers).json()["message"] == f"Snap not found: {NOBODY}"


@pytest.mark.parametrize(
    "path",
    [
        f"/snaps/compare?a={NOBODY}&b={NOBODY}", "/snaps/compare", "/snaps/compare?a=x&b=%00", "/snaps/subject",
        "/snaps/subject?id=%00", "/snaps/subject?id=BR-1&offset=9999999",
    ],
)  # fmt: skip
def test_what_is_not_there_is_said_in_words(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, "There is no such moment." in answer.text) == (404, True)
    assert client.get("/snaps/subject?id=nobody&offset=" + "9" * 5000).status_code == 200
    assert client.head(path).status_code == 404


@pytest.mark.parametrize("path", PAGES)
def test_whoever_is_nobody_signs_in_first(url: str, tmp_path: Path, path: str) -> None:
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        answer = client.get(path.format(a=NOBODY, b=NOBODY), follow_redirects=False)
        place = path.format(a=NOBODY, b=NOBODY)
        assert (answer.status_code, answer.headers["Location"]) == (303, f"/sign-in?{urlencode({'next': place})}")
        assert client.post("/v2/session", json={"token": "dev-default-token"}).status_code == 200
        assert client.get(path.format(a=NOBODY, b=NOBODY)).status_code in (200, 404)

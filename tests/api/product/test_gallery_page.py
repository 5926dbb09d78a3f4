"""The page at /snaps, as a browser without scripts has it: a form, links, and what is wrong said in words."""

import re
from html import unescape
from urllib.parse import quote

import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.product.pages import gallery
from tests.api.examples import complete, mark, number, text
from tests.factory import Db

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def found(client: TestClient, address: str = "/snaps", **asked: str) -> list[str]:
    """The ids, in order."""
    answer = client.get(address, params=asked or None)
    assert answer.status_code == 200, answer.text
    return re.findall(r'<a class="card" href="/snaps/([\w-]+)">', answer.text)


def link(page: str, rel: str) -> str | None:
    its = re.search(rf'href="([^"]+)" rel="{rel}"', page)
    return unescape(its[1]) if its else None


def refusal(client: TestClient, **asked: str) -> str:
    answer = client.get("/snaps", params=asked)
    assert answer.status_code == 400, answer.text
    [said] = re.findall(r'role="alert"><bdi>([^<]*)</bdi>', answer.text)
    return unescape(said)


def test_all_are_there_page_by_page_the_newest_first(client: TestClient) -> None:
    ids = [mark(client)["snapId"] for _ in range(gallery.AT_ONCE + 2)]
    first = client.get("/snaps").text
    assert found(client) == ids[:1:-1]
    older = link(first, "next")
    assert older
    assert (found(client, older), link(first, "prev")) == (ids[1::-1], None)
    assert link(client.get(older).text, "prev") == "/snaps"
    assert f"{gallery.AT_ONCE + 1}–{gallery.AT_ONCE + 2} · no more" in client.get(older).text


def test_every_filter_of_the_form_narrows(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    light = {"id": "BR-1", "attributes": [number("peso_referencia", 300.5), text("raca", "Nelore")]}
    heavy = {"id": "BR-2", "attributes": [number("peso_referencia", 512), text("raca", "Angus")]}
    one = mark(client, subject=light, nickname="Ana")
    two = mark(client, subject=heavy, nickname="Rui")
    complete(client, engine, db, one)
    db.execute("UPDATE snap SET created_at = '2026-03-02T02:30:00Z' WHERE id = %s", [one["snapId"]])
    a, b = one["snapId"], two["snapId"]
    for asked, wanted in (
        ({"q": "nel"}, [a]),
        ({"subjectId": "BR-2"}, [b]),
        ({"nickname": "ANA"}, [a]),
        ({"status": "COMPLETED"}, [a]),
        ({"status": "PENDING", "nickname": "ana"}, []),
        ({"attrKey": "raca", "attrValue": "Angus"}, [b]),
        ({"attrKey": "peso_referencia", "attrMin": "300,5", "attrMax": "400"}, [a]),
        ({"attrKey": "peso_referencia", "attrValue": "300,5"}, [a]),  # as the page in Portuguese shows it
        ({"to": "2026-03-02"}, [a]),  # until the end of that day
        ({"to": "2026-03-01"}, []),
        ({"to": "2026-03-01", "zone": "America/Sao_Paulo"}, [a]),  # where it was still the evening before
        ({"from": "2026-03-02", "to": "2026-03-02", "zone": "America/Sao_Paulo"}, []),
        ({"from": "2026-03-03"}, [b]),
        ({"q": " ", "subjectId": "", "status": "", "from": "", "attrMin": ""}, [b, a]),  # as a form sends what is empty
    ):
        assert found(client, **asked) == wanted, asked
        if wanted:  # and so does the file that the page leads to
            page = client.get("/snaps", params={**asked, "lang": "pt", "offset": "0"}).text
            [export] = re.findall('href="(/snaps/export[^"]*format=json)"', page)
            items = client.get(unescape(export)).json()["items"]
            assert [item["snapId"] for item in items] == sorted(wanted, key=[a, b].index), asked
    assert client.get("/snaps/export").text.count("BR-") == 2
    assert client.get("/snaps/export?from=yesterday").status_code == 400


def test_where_no_day_is_asked_for_no_time_zone_is_looked_up(client: TestClient) -> None:
    assert client.get("/snaps?zone=Mars").status_code == 200


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"from": "1800-01-01"}, "deve estar entre 1900 e 9900"),
        ({"q": "x" * 5000}, "deve ter no máximo"),
        ({"q": "\0"}, "contém um caractere que não pode ser guardado"),
        ({"zone": "Mars", "from": "2026-01-01"}, "Fuso horário: não é um fuso horário"),
    ],
)
def test_what_is_wrong_is_said_in_portuguese(client: TestClient, asked: dict[str, str], said: str) -> None:
    flaw = refusal(client, **asked, lang="pt")
    assert said in flaw
    assert re.search(r"must|holds", flaw) is None


@pytest.mark.at_length  # a page keeps what was asked for, in every run
def test_a_language_that_the_address_says_stays_in_the_form_and_the_links(client: TestClient) -> None:
    for _ in range(gallery.AT_ONCE + 1):
        mark(client)
    page = client.get("/snaps?lang=pt&nickname=ana").text
    assert '<input name="lang" type="hidden" value="pt">' in page
    assert '<a href="/snaps?lang=pt">Todos</a>' in page
    assert "lang=pt" in (link(client.get("/snaps?lang=pt").text, "next") or "")


def test_the_fold_says_how_many_filters_are_in_force_and_leads_on_without_each(client: TestClient) -> None:
    mark(client)
    asked = {"q": "br", "status": "PENDING", "attrKey": "peso", "attrMin": "1", "nickname": "ana"}
    page = client.get("/snaps", params=asked | {"offset": "48"}).text
    assert '<span class="count">3</span>' in page
    without = {unescape(each) for each in re.findall(r'<a href="([^"]+)" aria-label="Without', page)}
    assert without == {
        "/snaps?q=br&nickname=ana&attrKey=peso&attrMin=1",
        "/snaps?q=br&status=PENDING&attrKey=peso&attrMin=1",
        "/snaps?q=br&status=PENDING&nickname=ana",
    }
    assert "State: <bdi>not finished</bdi>" in page
    assert "Field: <bdi>peso at least 1</bdi>" in page
    assert ("<details open>" in page, 'class="count"' in client.get("/snaps?q=br").text) == (False, False)


def test_a_page_keeps_what_was_asked_for(client: TestClient) -> None:
    for _ in range(gallery.AT_ONCE + 1):
        mark(client, nickname="Ana & Rui")
    mark(client, nickname="Eva")
    page = client.get("/snaps", params={"nickname": "ana & rui"}).text
    assert 'name="nickname" type="search" dir="auto" maxlength="120" value="ana &amp; rui"' in page
    assert ">Marked by, whole name</label>" in page  # a part of a name finds nothing
    older = link(page, "next")
    assert older == f"/snaps?nickname=ana+%26+rui&offset={gallery.AT_ONCE}"
    assert len(found(client, older)) == 1


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"from": "yesterday"}, "Marked from: is no day"),
        ({"from": "0001-01-01", "zone": "Asia/Tokyo"}, "Marked from: is no day"),
        ({"to": "9999-12-31"}, "Marked until: is no day"),
        ({"from": "2026-02-30"}, "Marked from: is no day"),
        ({"zone": "../etc/passwd", "from": "2026-01-01"}, "Time zone: is no time zone"),
        ({"zone": "Mars", "from": "2026-01-01"}, "Time zone: is no time zone"),
        ({"status": "DONE"}, "State: is not known"),
        ({"attrMin": "5"}, "Field: is missing"),
        ({"attrKey": "peso"}, "Field: what is it, or at least, or at most?"),
        ({"attrKey": "peso", "attrMin": "nan"}, "at least: is no number"),
        ({"attrKey": "peso", "attrMax": "9" * 301}, "at most: is no number"),
        ({"q": "!?"}, "Words in the description: must hold a letter or a digit"),
        ({"offset": "-1"}, "offset: is no number"),
    ],
)
def test_what_cannot_be_meant_is_said_beside_the_form(client: TestClient, asked: dict[str, str], said: str) -> None:
    assert refusal(client, **asked) == said
    page = client.get("/snaps", params=asked).text
    assert "<details open>" in page, "where it can be mended"


@pytest.mark.leaves_nothing
@pytest.mark.parametrize("name", [*gallery._LABELS, "offset", "lang"])
@pytest.mark.parametrize("value", ["\0", "\ud800".encode("utf-8", "surrogatepass"), "x" * 5000, HOSTILE, "9" * 400])
def test_nothing_that_is_sent_breaks_the_page_or_gets_into_it(
    client: TestClient, name: str, value: str | bytes
) -> None:
    answer = client.get(f"/snaps?attrKey=a&attrMin=1&{name}={quote(value)}")
    assert answer.status_code in (200, 400)
    assert "<script>alert" not in answer.text
    assert "<img src=x" not in answer.text


def test_nobody_has_marked_anything_is_said_otherwise_than_nothing_found(client: TestClient) -> None:
    assert "No moment has been marked yet." in client.get("/snaps").text
    assert "Nothing is like this." in client.get("/snaps?q=br").text
    assert "Nenhum momento encontrado." in client.get("/snaps?q=br&lang=pt").text


def test_its_form_may_lead_to_us_alone(client: TestClient) -> None:
    assert "form-action 'self'" in client.get("/snaps").headers["Content-Security-Policy"]
    assert client.head("/snaps").status_code == 200

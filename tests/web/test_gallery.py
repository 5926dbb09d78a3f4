"""The page at /snaps in a browser: without scripts, on a phone, and with what a script adds to it."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from snapapp.api.product.pages import gallery
from tests.conftest import EMBEDDED
from tests.databases import Postgres
from tests.web.conftest import CONTRASTS, Server, opened
from tests.web.test_axe import violations

at_length = pytest.mark.at_length  # api/product/test_gallery_page has the page without a browser

MARKED = {
    "videoUrl": "https://videos.example/brete.mp4",
    "email": "ana@fazenda.example",
    "dataFilmagem": "2026-03-01T08:15:00-03:00",
    "startSeconds": 1,
    "durationSeconds": 1,
}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


@pytest.fixture(scope="module")
def full(servers: Callable[[str], Postgres], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two pages of moments, which nobody works on."""
    with servers(EMBEDDED).database("migrated") as url:
        site = Server(url, tmp_path_factory.mktemp("full"), SNAPAPP_WORKER_ENABLED="false", SNAPAPP_DEMO="false")
        site.start()
        with httpx.Client(base_url=site.home) as client:
            for number in range(gallery.AT_ONCE + 1):
                marked = MARKED | {"nickname": "Ana" if number else "Rui", "subject": {"id": f"BR-{number}"}}
                assert client.post("v2/snaps", json=marked).status_code == 202
        yield site
        site.stop()


def cards(page: Page) -> Any:
    return page.locator("#found .card")


@pytest.mark.at_length  # api/product/test_gallery_page has it in every run
def test_without_scripts_moments_are_searched_and_turned_over(browser: Browser, full: Server) -> None:
    with opened(browser, f"{full.home}snaps", java_script_enabled=False) as (page, complaints):
        expect(cards(page)).to_have_count(gallery.AT_ONCE)
        page.get_by_role("link", name="Older").click()
        expect(cards(page)).to_have_count(1)
        page.get_by_role("link", name="Newer").click()
        expect(cards(page).first).to_contain_text(f"BR-{gallery.AT_ONCE}")
        page.get_by_label("Words in the description").fill("br-1")
        page.get_by_text("Filters", exact=True).click()
        page.get_by_role("searchbox", name="Marked by").fill("rui")
        page.get_by_role("button", name="Search").first.click()
        expect(page.locator("#found-said")).to_contain_text("Nothing is like this.")
        page.get_by_role("link", name="Without Marked by, whole name: rui").click()
        expect(cards(page)).to_have_count(11)  # BR-1, and BR-10 to BR-19
        expect(page.locator(".compares").first).to_be_hidden()  # only a script can
        page.get_by_text("Filters", exact=True).click()
        page.get_by_role("textbox", name="at least").fill("much")
        page.get_by_role("button", name="Search").first.click()
        expect(page.get_by_role("alert")).to_have_text("Field: is missing")
        expect(page.get_by_role("textbox", name="at least")).to_have_value("much")
        page.get_by_role("link", name="All of them").click()
        cards(page).first.click()
        page.wait_for_url(re.compile(r"/snaps/[0-9a-f-]{36}$"))
    assert [said for said in complaints if "400" not in said] == []


@at_length
def test_on_a_phone_the_first_screen_shows_moments_and_not_the_filters(browser: Browser, full: Server) -> None:
    address = f"{full.home}snaps?nickname=ana&from=2026-01-01"
    with opened(browser, address, **PHONE, locale="pt-BR", color_scheme="dark") as (page, complaints):
        expect(page.locator(".count")).to_have_text("2")
        box = cards(page).first.bounding_box()
        assert box
        assert box["y"] + box["height"] / 2 < 844
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate(CONTRASTS) == []
        page.locator("summary").tap()
        expect(page.get_by_role("searchbox", name="Marcado por")).to_have_value("ana")
        left = "(each) => each.getBoundingClientRect().left"
        first, search = page.locator(".in-force li").first, page.get_by_label("Palavras na descrição")
        assert first.evaluate(left) == search.evaluate(left)
        assert violations(page) == []
        page.goto(f"{full.home}snaps/00000000-0000-4000-8000-000000000000")
        expect(page.locator("#lost")).not_to_be_empty()
        expect(page).to_have_title("Momento · snapapp")
    assert [said for said in complaints if "404" not in said] == []


@at_length
def test_a_script_says_where_a_day_begins_and_keeps_what_was_chosen(browser: Browser, full: Server) -> None:
    with opened(browser, f"{full.home}snaps", timezone_id="America/Sao_Paulo") as (page, complaints):
        page.get_by_text("Filters", exact=True).click()
        page.get_by_label("Marked from").fill("2026-01-01")
        page.get_by_role("button", name="Search").first.click()
        page.wait_for_url("**/snaps?from=2026-01-01&zone=America%2FSao_Paulo")
        page.get_by_label(f"Compare BR-{gallery.AT_ONCE}, 0:01.00").check()
        page.get_by_role("link", name="Older").click()
        expect(page.locator("#chosen-said")).to_contain_text(f"BR-{gallery.AT_ONCE} is chosen")
        page.get_by_label("Compare BR-0, 0:01.00").check()
        page.get_by_role("link", name="Side by side").click()
        page.wait_for_url("**/snaps/compare?a=*&b=*")
        expect(page.locator(".pair h2")).to_have_text([f"BR-{gallery.AT_ONCE}", "BR-0"])
        page.go_back()
        expect(page.get_by_label("Compare BR-0, 0:01.00")).to_be_checked()
        page.get_by_label("Compare BR-0, 0:01.00").uncheck()
        kept = page.evaluate("sessionStorage.getItem('chosen')")
        page.get_by_role("button", name="None of them").click()
        # as on the way back, when the browser has kept the page as it was, and on another one was chosen
        page.evaluate("sessionStorage.setItem('chosen', arguments[0])".replace("arguments[0]", json.dumps(kept)))
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
        expect(page.locator("#chosen-said")).to_contain_text(f"BR-{gallery.AT_ONCE} is chosen")
        page.get_by_label("Compare BR-0, 0:01.00").check()
        expect(page.get_by_role("link", name="Side by side")).to_be_visible()
        page.get_by_role("button", name="None of them").click()
        expect(page.locator("#chosen")).to_be_hidden()
    assert complaints == []

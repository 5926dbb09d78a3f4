"""What a browser remembers: for whom, and where it may remember nothing."""

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import sqlalchemy
from playwright.sync_api import Browser, Page, expect

from snapapp.domain import tenants
from snapapp.postgres import database
from tests.factory import Db, scalar
from tests.web.conftest import CONTRASTS, Server, heed_routes, opened
from tests.web.operating import brete, go, moments, send
from tests.web.test_first_minute import introduce
from tests.web.test_gallery import MARKED
from tests.web.test_share import english_in

__all__ = ["brete"]  # a fixture

# As Chromium does where all cookies are blocked in its settings, which its headless shell has not.
FORBID = """for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, {
    get() { throw new DOMException("Access is denied for this document.", "SecurityError") } });
for (const name of ["indexedDB", "caches"]) Object.defineProperty(window, name, { value: undefined });
Object.defineProperty(document, "cookie", { get: () => "", set: () => {} });"""


@pytest.mark.at_length  # test_waiting has a browser that remembers in every run
def test_where_the_browser_may_remember_nothing_all_is_done_without(
    browser: Browser, site: Server, brete: Path, db: Db
) -> None:
    with opened(browser, "about:blank") as (page, complaints):
        page.add_init_script(FORBID)
        page.goto(site.home)
        send(page, brete)
        expect(page.locator("#mark")).to_be_enabled()
        page.locator("#filmed").fill("2026-03-01T08:15:00")
        page.locator("#filmed").blur()
        expect(page.locator("#filmed-source")).to_have_text("as you said")
        page.keyboard.press("s")
        introduce(page)
        expect(moments(page)).to_have_count(1)
        page.evaluate("document.activeElement.blur()")
        go(page, 0.4)
        heed_routes(page)
        page.route("**/v2/snaps", lambda route: route.abort(), times=1)
        page.keyboard.press("s")  # nobody is asked again who it is
        expect(page.locator("#waiting-list li")).to_have_count(1)
        page.evaluate("dispatchEvent(new Event('online'))")
        expect(page.locator("#waiting")).to_be_hidden()
        assert scalar(db, "SELECT array_agg(nickname) FROM snap") == ["Ana", "Ana"]
        page.get_by_role("button", name="PT").click()
        expect(page.get_by_role("heading", name="Momentos neste vídeo")).to_be_visible()
        expect(moments(page)).to_have_count(2)
        assert english_in(page) == set()
        for path, shown in (("snaps", "#found .card"), ("ops", "#link[data-state=live]"), ("docs", ".operation")):
            page.goto(site.home + path)
            expect(page.locator(shown).first).to_be_visible()
        page.goto(f"{site.home}snaps")
        page.get_by_role("checkbox").first.check()
        expect(page.locator("#chosen-said")).to_contain_text("Choose another one")
        page.locator("#found .card").first.click()
        expect(page.locator("#title")).not_to_be_empty()
    assert [said for said in complaints if "net::ERR_FAILED" not in said] == []


# --- one after the other at the same browser ----------------------------------------------------------------------

OURS = "dev-default-token"


@pytest.fixture
def farm(serve: Callable[..., Server], db: Db) -> Server:
    """Where tokens are required, and two animals were marked for the first tenant."""
    site = serve(SNAPAPP_REQUIRE_API_TOKEN="true", SNAPAPP_WORKER_ENABLED="false", SNAPAPP_DEMO="false")
    for name in ("BR-1", "BR-2"):
        marked = MARKED | {"videoUrl": "https://videos.example/curral.mp4", "nickname": "Ana", "subject": {"id": name}}
        assert httpx.post(f"{site.home}v2/snaps", json=marked, headers={"X-Assinatura-Token": OURS}).status_code == 202
    return site


@pytest.fixture
def theirs(engine: sqlalchemy.Engine) -> str:
    """The token of another tenant."""
    with database.session(engine) as session, session.begin():
        _, token = tenants.add(session, "vizinho", "Vizinho")
    return token


def sign_in(page: Page, token: str) -> None:
    page.locator("input[type=password]:visible").fill(token)
    page.keyboard.press("Enter")


@pytest.mark.at_length  # api/product has both forms in every run
def test_without_scripts_one_signs_in_and_searches(browser: Browser, farm: Server) -> None:
    phone = {"java_script_enabled": False, "viewport": {"width": 390, "height": 844}, "locale": "pt-BR"}
    with opened(browser, f"{farm.home}snaps?q=br-2", **phone) as (page, complaints):
        sign_in(page, "wrong")
        expect(page.get_by_role("alert")).to_have_text("Token inválido.")
        page.wait_for_load_state()  # with its colours
        assert page.evaluate(CONTRASTS) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert english_in(page) == set()
        sign_in(page, OURS)
        expect(page.locator("#found .card")).to_have_count(1)
        expect(page.locator("#found")).to_contain_text("BR-2")
    assert [said for said in complaints if "401" not in said] == []


@pytest.mark.at_length  # test_waiting sends nothing of another tenant's in every run
def test_two_tenants_at_one_browser_see_nothing_of_each_other(
    browser: Browser, farm: Server, theirs: str, db: Db
) -> None:
    with opened(browser, "about:blank") as (page, _):
        page.context.route("**/content*", lambda route: route.fulfill(body="no video"))  # there is no such host
        page.goto(farm.home)
        sign_in(page, OURS)
        expect(page.locator("#video-title")).to_have_text("curral.mp4")
        page.locator("#filmed").fill("2026-03-01T08:15:00")
        page.locator("#filmed").blur()
        expect(page.locator("#mark")).to_be_enabled()
        heed_routes(page)
        page.route("**/v2/snaps", lambda route: route.abort())
        page.keyboard.press("s")
        introduce(page)
        expect(page.locator("#waiting-list li")).to_have_count(1)
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("#lost")).to_contain_text("Moments wait for the line")
        page.goto(f"{farm.home}snaps")
        for box in page.get_by_role("checkbox").all():
            box.check()
        expect(page.locator("#chosen-said")).to_contain_text("BR-1")
        one = page.locator("#found .card").first.get_attribute("href")

        other = page.context.new_page()  # the next one does not wait for a sign-out
        other.goto(f"{farm.home}sign-in?next=/snaps")
        sign_in(other, theirs)
        expect(other.locator("#found-said")).to_be_visible()
        expect(other.locator("#found .card")).to_have_count(0)
        page.reload()
        expect(page.locator("#found .card")).to_have_count(0)
        expect(page.locator("#chosen")).to_be_hidden()
        for tab in (page, other):
            tab.goto(farm.home)
            expect(tab.locator("#no-videos")).to_be_visible()
            expect(tab.locator("#waiting")).to_be_hidden()
            expect(tab.locator("#video-title")).not_to_have_text("curral.mp4")
            expect(moments(tab)).to_have_count(0)
            expect(tab.locator("#operator")).to_have_text("Who are you?")  # nobody marks in the first one's name,
            assert tab.evaluate("Object.keys(localStorage).filter((key) => key.startsWith('filmed:'))") == []  # or time
        other.goto(f"{farm.home}{str(one).lstrip('/')}")
        expect(other.locator("#lost")).to_have_text("There is no such moment.")
        page.unroute("**/v2/snaps")
        page.evaluate("dispatchEvent(new Event('online'))")
        texts = page.evaluate(
            """async () => { const kept = await caches.open("shell"), texts = [];
            for (const name of await kept.keys()) texts.push(await (await kept.match(name)).text());
            return texts.join() }"""
        )
        assert not re.search("BR-1|curral|vizinho", texts)
        assert scalar(db, "SELECT count(*) FROM snap WHERE start_seconds = 0") == 0

        other.goto(f"{farm.home}sign-in")  # the first one again: what waited is sent, for whom it was marked
        sign_in(other, OURS)
        expect(other.locator("#found .card")).to_have_count(2)
        other.goto(farm.home)
        expect(other.locator("#video-title")).to_have_text("curral.mp4")
        expect(other.locator("#waiting")).to_be_hidden()
        expect(moments(other)).to_have_count(3)
        assert scalar(db, "SELECT array_agg(DISTINCT tenant) FROM snap") == ["default"]

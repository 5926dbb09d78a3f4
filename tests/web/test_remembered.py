"""What a browser remembers: for whom, and where it may remember nothing."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.factory import Db, scalar
from tests.web.conftest import Server, opened
from tests.web.test_first_minute import introduce
from tests.web.test_operator import brete, go, moments, send, url
from tests.web.test_share import english_in

__all__ = ["brete", "url"]  # fixtures

# As Chromium does where all cookies are blocked in its settings, which its headless shell has not.
FORBID = """for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, {
    get() { throw new DOMException("Access is denied for this document.", "SecurityError") } });
for (const name of ["indexedDB", "caches"]) Object.defineProperty(window, name, { value: undefined });
Object.defineProperty(document, "cookie", { get: () => "", set: () => {} });"""


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

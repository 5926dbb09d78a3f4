"""Two windows of one operator: what one of them deletes is not offered in the other."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.web.conftest import Server, opened
from tests.web.operating import brete, mark_at, moments, ready
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES
from tests.web.test_waiting import HIDE

__all__ = ["brete"]  # a fixture


@pytest.mark.at_length  # five moments are made
def test_a_moment_that_another_window_deletes_goes_here_and_what_is_typed_for_it_stays(
    browser: Browser, site: Server, brete: Path
) -> None:
    """Its card stayed, and whatever was pressed on it said only that there is no such snap."""
    with opened(browser, site.home) as (page, _):
        page.route("**/v2/events", lambda route: route.abort())  # this window hears nothing
        page.reload()
        ready(page, brete)
        for seconds in (0.4, 0.8, 1.2, 1.6, 2):
            mark_at(page, seconds)
            page.keyboard.press("Escape")
        expect(page.locator("#moments .state", has_text=SOME_FRAMES)).to_have_count(5, timeout=PATIENCE)
        moments(page).nth(4).get_by_role("button", name="Describe", exact=True).click()
        expect(page.get_by_label("Subject")).to_be_focused()  # until then the form is that of the newest moment
        page.get_by_label("Subject").fill("BR-1")
        page.keyboard.press("Escape")
        other = page.context.new_page()
        other.goto(page.url)
        expect(moments(other)).to_have_count(5)
        ids = [
            str(link.get_attribute("href")).rsplit("/", 1)[-1]
            for link in other.locator("#moments").get_by_role("link", name="Open").all()
        ]
        for snap in [*ids[:2], ids[4]]:
            assert other.request.delete(f"{site.home}v2/snaps/{snap}").ok
        moments(page).first.get_by_role("button", name="Describe", exact=True).click()
        expect(page.locator("#mark-said")).to_have_text("Somebody else has deleted this moment.")
        expect(moments(page)).to_have_count(4)
        moments(page).first.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(moments(page)).to_have_count(3)
        assert other.request.delete(f"{site.home}v2/snaps/{ids[2]}").ok
        page.unroute("**/v2/events")
        for hidden in (True, False):  # a window that wakes asks for what it has not heard
            page.evaluate(HIDE, hidden)
        expect(moments(page)).to_have_count(2)
        expect(moments(page).nth(1).locator(".said-of")).to_contain_text("Somebody else has deleted this moment.")
        expect(moments(page).nth(1).locator(".said-of")).to_contain_text("typed and not saved: BR-1")

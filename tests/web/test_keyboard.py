"""With the keyboard alone: the focus is never lost where a list changes."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.factory import Db
from tests.web.conftest import DRAWN, Server, heed_routes, opened
from tests.web.operating import brete, mark_at, moments, page, ready, send
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES

__all__ = ["brete", "page"]


def press(page: Page, button: str, *, within: str) -> None:
    page.locator(within).get_by_role("button", name=button, exact=True).first.focus()
    page.keyboard.press("Enter")


def test_the_keyboard_keeps_its_place_when_a_moment_is_finished_and_when_it_is_deleted(
    page: Page, brete: Path, db: Db
) -> None:
    ready(page, brete)
    mark_at(page, 0.4)
    page.keyboard.press("Escape")
    first = moments(page).first
    first.get_by_role("button", name="Describe", exact=True).focus()
    expect(first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    page.evaluate(DRAWN)
    expect(first.get_by_role("button", name="Describe", exact=True)).to_be_focused()
    page.route("**/v2/snaps/*", lambda route: None if route.request.method == "GET" else route.continue_())
    page.keyboard.press("Enter")  # its form is open since the mark: nobody waits for an answer
    expect(page.get_by_label("Subject")).to_be_focused()
    page.unroute("**/v2/snaps/*")
    for name in ("BR-1", "BR-2"):  # whose name is asked about is the one that it has
        page.get_by_label("Subject").fill(name)
        page.keyboard.press("Enter")
        expect(page.locator("#mark-said")).to_contain_text(f"Saved: {name}")
        press(page, "Correct", within="#moments")
        expect(page.get_by_label("Subject")).to_have_value(name)
    page.keyboard.press("Escape")
    mark_at(page, 1.2)
    page.keyboard.press("Escape")
    expect(first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    moments(page).nth(1).get_by_role("button", name="Delete").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#delete-title")).to_contain_text("BR-2")
    for left in (1, 0):
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(moments(page)).to_have_count(left)
        expect(first.locator(".snap") if left else page.locator("#mark")).to_be_focused()
        if left:
            press(page, "Delete", within="#moments")


@pytest.mark.at_length  # the lists of moments and of what waits are arranged alike
def test_the_keyboard_keeps_its_place_in_an_upload_that_is_halted_and_given_up(
    browser: Browser, site: Server, brete: Path
) -> None:
    with opened(browser, site.home) as (page, _):  # it complains of the request that is given up
        heed_routes(page)
        page.route("**/v2/uploads", lambda route: None)
        send(page, brete)
        for button, after in (("Pause", "Go on"), ("Go on", "Pause"), ("Cancel", "Forget it")):
            press(page, button, within="#uploads")
            expect(page.locator("#uploads").get_by_role("button", name=after)).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#upload-file")).to_be_focused()

"""Two moments side by side, and all moments of a subject, in a browser."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.jobs.working import until
from tests.web.conftest import CONTRASTS, Server, opened
from tests.web.operating import brete, go, moments, ready
from tests.web.test_axe import violations
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES
from tests.web.test_share import english_in

__all__ = ["brete"]  # a fixture

TIMES = "[...document.querySelectorAll('.pair video')].map((film) => film.currentTime)"
PAUSED = "[...document.querySelectorAll('.pair video')].map((film) => film.paused)"


def mark_twice(page: Page, brete: Path) -> None:
    """One animal at two moments."""
    ready(page, brete)
    for seconds in (0.4, 1.2):
        go(page, seconds)
        page.keyboard.press("s")
        page.get_by_label("Subject").fill("BR-1")
        page.keyboard.press("Enter")
        expect(page.locator("#mark-said")).to_contain_text("Saved: BR-1")
        page.evaluate("document.activeElement.blur()")
    for each in (0, 1):
        expect(moments(page).nth(each).locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)


def at(page: Page, seconds: float) -> None:
    until(lambda: all(abs(each - seconds) < 0.001 for each in page.evaluate(TIMES)))


@pytest.mark.at_length  # api/product/test_operator_pages shows both in every run
def test_two_are_chosen_in_the_gallery_by_keys_and_play_as_one(browser: Browser, site: Server, brete: Path) -> None:
    with opened(browser, site.home) as (page, complaints):
        mark_twice(page, brete)
        page.goto(f"{site.home}snaps")
        boxes = page.get_by_role("checkbox")
        expect(boxes).to_have_count(2)
        boxes.nth(0).focus()
        page.keyboard.press("Space")
        expect(page.locator("#chosen-said")).to_contain_text("BR-1 is chosen")
        expect(page.get_by_role("link", name="Side by side")).to_be_hidden()
        boxes.nth(1).focus()
        page.keyboard.press("Space")
        assert page.evaluate(CONTRASTS) == []
        assert violations(page) == []
        page.get_by_role("link", name="Side by side").focus()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/snaps/compare\?a=[\w-]+&b=[\w-]+$"))
        expect(page.locator("#together")).to_be_visible()
        at(page, 0)
        page.evaluate("document.activeElement.blur()")

        page.keyboard.press(".")  # to the middle of the second frame, in both
        at(page, 0.06)
        page.keyboard.press(".")
        at(page, 0.1)
        page.keyboard.press(",")
        at(page, 0.06)
        page.locator("#seek").fill("0.5")
        at(page, 0.5)
        expect(page.locator("#now")).to_contain_text("0:00.50 / 0:0")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Home")
        at(page, 0)
        page.get_by_label("Speed").select_option("0.25")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press(" ")
        until(lambda: page.evaluate(PAUSED) == [False, False])
        until(lambda: min(page.evaluate(TIMES)) > 0.1)
        page.keyboard.press(" ")
        until(lambda: page.evaluate(PAUSED) == [True, True])
        until(lambda: len(set(page.evaluate(TIMES))) == 1)  # where one stands, the other stands
        assert violations(page) == []
        page.get_by_role("link", name="PT").click()
        expect(page.locator("#together")).to_be_visible()
        expect(page.get_by_role("button", name="Reproduzir")).to_be_visible()
        assert english_in(page) == set()
        page.get_by_role("link", name="Momentos").click()  # the other pages are in that language, too
        expect(page.get_by_role("heading", name="Momentos")).to_be_visible()
    assert complaints == []


@pytest.mark.at_length  # api/product/test_operator_pages shows both in every run
def test_without_scripts_both_are_shown_and_time_goes_through_a_subject(
    browser: Browser, site: Server, brete: Path
) -> None:
    with opened(browser, site.home) as (page, complaints):
        mark_twice(page, brete)
        page.goto(f"{site.home}snaps")
        page.get_by_role("link", name="Everything of BR-1").first.click()
        expect(page.get_by_role("heading", name="BR-1", exact=True)).to_be_visible()
        assert violations(page) == []
        subject = page.url
        assert complaints == []
    phone = {"java_script_enabled": False, "viewport": {"width": 380, "height": 800}, "color_scheme": "dark"}
    with opened(browser, subject, **phone) as (page, complaints):
        expect(page.locator(".entries li")).to_have_count(2)
        assert page.evaluate("document.documentElement.scrollWidth") <= 380
        assert page.evaluate(CONTRASTS) == []
        page.get_by_role("link", name="Compare with the one before").click()
        expect(page.locator(".pair video[controls]")).to_have_count(2)
        until(lambda: page.evaluate("[...document.querySelectorAll('video')].every((film) => film.readyState)"))
        expect(page.locator("#together")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= 380
        assert page.evaluate(CONTRASTS) == []
        page.get_by_role("link", name="BR-1", exact=True).first.click()
        page.wait_for_url(re.compile(r"/snaps/[0-9a-f-]{36}$"))
    assert complaints == []

"""The first minute of a new installation: a video that it paints itself, a key, and what becomes of a moment."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from snapapp.demo import first_minute
from tests.web.conftest import Server, opened

PATIENCE = 90_000  # ms: a child paints, others decode
SOME_FRAMES = "5 frames + clip"


@pytest.fixture
def new_house(empty_url: str, tmp_path: Path) -> Iterator[Server]:
    """With a database that it makes itself, as the first `make run` does."""
    server = Server(empty_url, tmp_path)
    server.start()
    yield server
    server.stop()


def introduce(page: Page, name: str = "Ana") -> None:
    expect(page.get_by_role("dialog")).to_contain_text("Who marks?")
    page.get_by_label("Name").fill(name)
    page.get_by_label("E-mail").fill("ana@fazenda.example")
    page.keyboard.press("Enter")


def test_the_first_minute(browser: Browser, new_house: Server) -> None:
    """A new monolith makes a video and three snaps of it by itself; S marks a fourth, and its frames appear."""
    with opened(browser, new_house.home) as (page, complaints):
        expect(page.locator("#film")).to_be_visible(timeout=PATIENCE)
        expect(page.locator("#now")).to_contain_text(f"0:{first_minute.WAITING.passes:.2f}")
        expect(page.locator("#frame")).to_have_text("frame 270")
        expect(page.locator("#filmed-source")).to_contain_text("as the file says")
        finished = page.locator("#moments .state", has_text=SOME_FRAMES)
        expect(finished).to_have_count(3, timeout=PATIENCE)
        assert page.evaluate("document.getElementById('film').paused")
        expect(page.locator("#mark")).to_be_enabled()
        page.keyboard.press("s")
        introduce(page)
        expect(finished).to_have_count(4, timeout=PATIENCE)
        expect(page.locator("#spoken")).to_contain_text(SOME_FRAMES)
        expect(page.locator("#happened-psql")).to_contain_text("FROM snap_processing_job WHERE id = ")
        page.get_by_role("link", name="The job, live").click()
        expect(page.get_by_role("heading", name="snap.process")).to_be_visible()
    assert complaints == []


def test_the_page_and_the_job_mean_the_same_video(site: Server, browser: Browser) -> None:
    with opened(browser, site.home) as (page, _):
        expect(page.locator("#film")).to_have_attribute("data-demo", str(first_minute.VIDEO))
        expect(page.locator("#film")).to_have_attribute("data-pause", f"{first_minute.WAITING.passes:g}")

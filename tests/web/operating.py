"""What an operator does at the page at /, and the videos for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.factory import Db
from tests.jobs.working import until
from tests.media import material
from tests.web.conftest import IS_TAKEN_OVER, Server, opened, until_true


@pytest.fixture
def brete(tmp_path: Path) -> Path:
    return material.make(material.GOOD["faststart"], tmp_path / "brete.mp4")


@pytest.fixture
def page(browser: Browser, site: Server) -> Iterator[Page]:
    """The page at /. Whatever the browser complains of fails the test."""
    with opened(browser, site.home) as (page, complaints):
        yield page
    assert complaints == [], complaints  # pytest rewrites nothing here


def another(video: Path, place: Path, *, times: int = 1) -> Path:
    """The same pictures in another file."""
    place.write_bytes(video.read_bytes() + times * ((8).to_bytes(4, "big") + b"free"))
    return place


def send(page: Page, *videos: Path) -> None:
    page.locator("#upload-file").set_input_files(list(videos))


NEWEST = "async () => (await (await fetch('/v2/videos?limit=1')).json()).items?.[0]?.videoId"


def ready(page: Page, video: Path, *, filmed: str = "2026-03-01T08:15:00") -> None:
    """Sends it, waits until it is the one that is shown, and says what the file does not say. The page may have opened
    another test's video first, and a key that is pressed while the player changes over marks nothing. A request that
    begins while the service worker takes the page over reaches the server, whatever page.route says."""
    before = page.evaluate(NEWEST)
    send(page, video)
    until(lambda: page.evaluate(NEWEST) not in (before, None) and page.evaluate(NEWEST) in page.url)
    expect(page.locator("#mark")).to_be_enabled()
    until_true(page, IS_TAKEN_OVER)
    if filmed:
        page.get_by_label("Filmed, at the beginning").fill(filmed)
        page.get_by_label("Filmed, at the beginning").blur()
    page.evaluate("localStorage.setItem('operator', JSON.stringify({nickname: 'Ana', email: 'ana@fazenda.example'}))")


def moments(page: Page) -> Locator:
    return page.locator("#moments > li")


def at(page: Page, clock: str) -> None:
    expect(page.locator("#now")).to_contain_text(f"{clock} /")


def go(page: Page, seconds: float) -> None:
    """As a finger on the timeline does."""
    page.locator("#seek").fill(str(seconds))
    at(page, f"0:0{seconds:.2f}")


def mark_at(page: Page, seconds: float) -> None:
    go(page, seconds)
    page.locator("#seek").blur()  # or the keys would move it
    page.keyboard.press("s")


def named(db: Db) -> dict[float, str]:
    """Which name was filed at which second."""
    found = db.execute("SELECT start_seconds, subject_id FROM snap WHERE NOT is_draft").fetchall()
    return {float(seconds): name for seconds, name in found}
